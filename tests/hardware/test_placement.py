"""Instances sit on consecutive dies, prefill first, and never share one."""

from twin.hardware.placement import place_instances
from twin.scenario import Scenario, with_overrides


def test_instances_take_consecutive_dies_prefill_first():
    placed = place_instances(Scenario(), dies_per_npu=2)
    assert [i.role for i in placed] == ["prefill"] * 6 + ["decode"]
    taken = [d for i in placed for d in range(i.first_die, i.first_die + i.dies)]
    assert taken == list(range(256 * 2))
    assert (placed[-1].name, placed[-1].dies) == ("decode 0", 320)


def test_colocated_instances_start_at_the_first_die():
    s = with_overrides(Scenario(), {"deployment.mode": "colocated"})
    assert [(i.role, i.first_die, i.dies) for i in place_instances(s, 2)] == [("colocated", 0, 320)]
