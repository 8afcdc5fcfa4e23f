"""The loop's entry points are compiled by name, each for itself, before anybody waits."""

from twin.engine import loop
from twin.kernels.compiled import STAGES


def test_every_entry_of_the_loop_is_a_stage_that_compiles_it_for_the_call_that_is_made():
    for name, entry in (
        ("engine", loop.run_disaggregated), ("colocated engine", loop.run_colocated),
    ):  # fmt: skip
        STAGES[name]()
        assert [str(kind) for kind in entry.signatures[0]] == ["World", "int64", "int64"]
        assert len(entry.signatures) == 1
