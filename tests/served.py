"""The dashboard of browser tests: it searches a capacity or a cause only when it is requested.

Else each visit begins a search, which goes on when the visitor has left, and each run an
explanation: they take more of the processor than everything else that browser tests do.
tests/lab/test_live.py and tests/ui/test_explained.py test them.
`python -m tests.served run app.py` takes the words of streamlit; without words it is the process of
live runs. Where ENGINE_VARIABLE names an engine, it makes the runs, and drafts have no live ones.
"""

import os
import sys

from twin.lab.runs import live, warm
from twin.lab.runs.executor import Runner

ENGINE_VARIABLE = "TWIN_TEST_ENGINE"


def main() -> None:
    if not sys.argv[1:]:
        live.stays_steady = lambda _question: False
        live.main()
        return
    from streamlit.web import cli

    from twin.ui.pages.run import explained

    explained.AT_ONCE_S = -1.0
    start = live.start_process
    live.start_process = lambda _module: start("tests.served")
    if engine := os.environ.get(ENGINE_VARIABLE):
        Runner.__init__.__kwdefaults__["engine"] = engine
        warm.is_compiled = lambda: False
    cli.main(prog_name="streamlit")


if __name__ == "__main__":
    main()
