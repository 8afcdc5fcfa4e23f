"""Plans in the background: killed, stopped, taken up again, watched by two."""

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.draws import some
from tests.lab.plan.small import as_bytes, brief, brief_answer, facts, plan, small
from twin.engine.simulate import ENGINE_VERSION
from twin.lab.plan.drive import Plans, carry_out_folder, version_of

PATIENCE_S = 300.0


def until(true, pause_s: float = 0.02):
    """Wait until something is true."""
    end_s = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end_s
        time.sleep(pause_s)


def lines(path) -> list[str]:
    """The scenarios that were simulated, by digest."""
    return [json.loads(line)["scenario"] for line in path.read_text().splitlines()]


def process_of(folder) -> int:
    """The process at work in a folder."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if str(folder).encode() in path.read_bytes():
                return int(path.parent.name)
    return 0


@pytest.mark.parametrize("after", some([3], 1, 2, 5, 8, 13, 21, 30))
def test_a_plan_that_is_killed_goes_on_and_simulates_nothing_twice(tmp_path, after):
    plans = Plans(tmp_path, f"{ENGINE_VERSION} {facts().digest}")
    wanted = brief()
    key = plans.start(wanted)
    simulated = tmp_path / key / "simulated.jsonl"
    until(lambda: simulated.exists() and len(simulated.read_text().splitlines()) >= after)
    os.kill(process_of(tmp_path / key), signal.SIGKILL)
    until(lambda: not Plans(tmp_path, plans.version).state_of(key).working)
    before = lines(simulated)
    assert "interrupted" in plans.state_of(key).problem and plans.stored_plan(key) == wanted
    assert plans.start(wanted) == key
    until(lambda: plans.state_of(key).answer or plans.state_of(key).problem)
    after_all = lines(simulated)
    assert after_all[: len(before)] == before and len(set(after_all)) == len(after_all)
    assert as_bytes(plans.state_of(key).answer) == brief_answer()


def test_a_plan_is_stopped_from_elsewhere_and_keeps_what_it_has(tmp_path):
    plans = Plans(tmp_path, "one version")
    # Instances of one size: else all sizes are priced first. A run takes a second, a plan minutes.
    long = small(start="empty", horizon_s=120.0)
    key = plans.start(plan(long, vary=("instances", "decode_batch"), simulations=200))
    until(lambda: plans.state_of(key).so_far.get("simulations", 0) >= 1)
    Plans(tmp_path, "one version").stop(key)
    until(lambda: not plans.state_of(key).working)
    assert "stopped" in plans.state_of(key).problem and plans.state_of(key).so_far


def test_a_plan_that_is_not_known_has_not_begun(tmp_path):
    plans = Plans(tmp_path, "one version")
    assert plans.stored_plan("../etc") is None and not plans.state_of("../etc").working


def test_a_plan_that_no_machine_of_its_size_can_hold_is_refused(tmp_path):
    pools = {f"deployment__{role}__npus_per_instance": 4 for role in ("prefill", "decode")}
    large = {"deployment__model": "deepseek-r1", "workload__prefix": "shared"}
    wanted = plan(small(supernode__nodes=1, **pools, **large))
    plans = Plans(tmp_path, version_of(facts()))
    key = plans.key(wanted)
    (tmp_path / key).mkdir()
    plans.write_question(key, wanted)
    carry_out_folder(tmp_path / key)
    state = plans.state_of(key)
    assert state.refused and "does not fit" in state.problem
