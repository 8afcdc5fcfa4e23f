"""A digital twin of an AI supernode that serves large language models.

>>> import twin
>>> quick = twin.load("quickstart", {"workload.rate_req_per_s": 120})
>>> twin.predict(quick)["summary"]["limit"]
'prefill'

`load`, `predict`, `simulate`, `sweep` and `plan` are the functions of `twin.lab.functions`; what
they need is imported when one of them is first used.

Reading order: `scenario` (what can be asked), `facts` (what is known), `engine.simulate` (how time
passes), then one phase, for example `engine.phases.decode`, with the kernel it calls in
`model.decode` and the policy it asks in `policies.router`. `lab` is the shell around it: disk,
database, links, many runs. `ui` is the screen.

The public names are `load`, `predict`, `simulate`, `sweep` and `plan` of `twin.lab.functions`,
`simulate` and `Run` of `twin.engine.simulate`, `Scenario` of `twin.scenario`, `load_facts` of
`twin.lab.library`."""

from importlib import import_module
from typing import Any

FUNCTIONS = ("load", "predict", "simulate", "sweep", "plan")


def __getattr__(name: str) -> Any:
    """Returns the function of `FUNCTIONS` with this name, imported at its first use."""
    if name not in FUNCTIONS:
        raise AttributeError(f"module 'twin' has no attribute {name!r}")
    return getattr(import_module("twin.lab.functions"), name)


def __dir__() -> list[str]:
    """Returns the names of this module and of `FUNCTIONS`, sorted."""
    return sorted({*globals(), *FUNCTIONS})
