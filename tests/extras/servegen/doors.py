"""A sound file, for the tests of all readers of traces."""

import json

from tests.made_trace import archive


def servegen(rates=(0.0, 0.5, 2.0)):
    windows = "".join(f"{600 * i},{r},1.5,Gamma,0.44,1\r\n" for i, r in enumerate(rates))
    table = {"input_tokens": "{100: 0.25, 300: 0.75}", "output_tokens": "{10: 1.0}"}
    return {
        "data/chunk-0-trace.csv": windows.encode(),
        "data/chunk-0-dataset.json": json.dumps({"0": {**table, "reason_ratio": "{}"}}).encode(),
    }


TRACES = {"servegen": archive(servegen())}
