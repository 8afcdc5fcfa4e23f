import numpy as np
import pytest

from twin.model.coefficients import DecodeCosts, PrefillCosts
from twin.model.record import (
    at_speed,
    dtype_of,
    map_numbers,
    numbers,
    row_of,
    scale_indices,
    slowed_kernels,
    walk,
)


def test_a_slow_die_takes_longer_for_all_that_its_cores_do_and_for_nothing_else(ask):
    usual = ask().costs.decode
    for (declared, before), (_, after) in zip(walk(usual), walk(at_speed(usual, 0.5)), strict=True):
        assert after == before * (2.0 if declared.scale == "computed" else 1.0), declared.name


def test_in_a_network_kernels_and_exchanges_take_longer_and_hosts_do_not(ask):
    alone = ask().costs.decode
    for (declared, before), (_, after) in zip(
        walk(alone), walk(slowed_kernels(alone, 1.25)), strict=True
    ):
        of_kernels = declared.scale in ("computed", "carried", "started")
        assert after == before * (1.25 if of_kernels else 1.0), declared.name
    assert slowed_kernels(alone, 1.25).sequence.dispatch.fixed > alone.sequence.dispatch.fixed > 0.0
    assert slowed_kernels(alone, 1.25).host == alone.host


def test_launches_of_the_exchange_and_the_host_wait_for_no_die():
    fixed = {c.name: c.scale for c, _ in walk(DecodeCosts()) if c.name.startswith(("seq", "host"))}
    assert fixed["sequence.dispatch.fixed"] == fixed["sequence.combine.fixed"] == "started"
    assert fixed["host.launch"] == fixed["host.gap"] == fixed["host.answer"] == ""
    assert fixed["sequence.dispatch.message"] == fixed["sequence.experts.ahead"] == "computed"


@pytest.mark.parametrize("kind", [DecodeCosts, PrefillCosts])
def test_every_number_has_a_meaning_and_one_place_in_compiled_memory(kind):
    declared = [c for c, _ in walk(kind())]
    assert all(c.meaning.endswith(".") for c in declared)
    assert len({c.name for c in declared}) == len(declared)
    assert dtype_of(kind).itemsize == 8 * len(declared)
    both = np.concatenate([scale_indices(kind, "computed"), scale_indices(kind, "carried")])
    assert np.unique(both).size == both.size > 10


def test_plain_python_and_compiled_code_read_the_same_numbers_by_the_same_names():
    count = iter(range(10_000))
    whole = map_numbers(DecodeCosts(), lambda *_: float(next(count)))
    row = row_of(whole)
    assert row.splits[3].after[0].flop == whole.splits[3].after[0].flop > 100.0
    assert row.layout.slots == whole.layout.slots > row.head.vector == whole.head.vector
    np.testing.assert_array_equal(numbers(whole), np.arange(next(count)))
    assert row.layout.classes[3].load == whole.layout.classes[3].load  # a record of one number
