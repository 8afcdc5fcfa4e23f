"""A finite benchmark: N requests come, all are served, and the machine is empty in the end."""

import pytest

from tests.engine.small import run

WAYS = {
    "at a rate": {"workload.rate_req_per_s": 60.0},
    "in a burst": {"workload.arrivals": "uniform", "workload.rate_req_per_s": 100_000.0},
    "from clients": {"workload.arrivals": "closed_loop", "workload.concurrency": 12},
    "from clients one after the other": {
        "workload.arrivals": "closed_loop", "workload.concurrency": 12, "workload.ramp_s": 0.3,
    },
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_every_prompt_is_served_once_and_the_machine_drains(way):
    answer = run(WAYS[way] | {"workload.prompts": 80, "warmup_s": 0.0})
    assert answer.valid, [c for c in answer.checks if not c["ok"]]
    assert answer.summary["requests"] == answer.summary["finished"] == 80
    assert answer.summary["running"] == 0
    assert not any("ran out" in note for note in answer.notes)
    inside = answer.tables["windows"].select("decode_running", "prefill_running", "prefill_queue")
    assert inside.row(-1) == (0.0, 0.0, 0.0)
    if "clients" in way:
        at_once = answer.tables["requests"]
        for t in at_once["arrival_s"][1:]:
            begun = (at_once["arrival_s"] <= t) & (at_once["finish_s"] > t)
            assert begun.sum() <= 12
