"""A matrix product computes whole tiles, also for rows that are not there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from twin.hardware.chip import load_chip
from twin.lab.library import load_facts
from twin.model.coefficients import Product
from twin.model.layer import grouped_tiles, product_s, whole_tiles
from twin.model.roofline import load_machine

TILED = Product(flop=1.0, tile_small=64.0, tile_large=128.0)


@pytest.mark.parametrize(
    ("rows", "computed"), [(1, 64), (64, 64), (65, 128), (128, 128), (129, 256)]
)
def test_a_product_computes_its_last_tile_whole(rows, computed):
    assert whole_tiles(TILED, rows) == computed
    assert product_s(TILED, rows) == pytest.approx(computed)


def test_without_tiles_it_computes_its_rows():
    assert whole_tiles(Product(), 3.5) == 3.5
    assert grouped_tiles(Product(), 8.0, 3.5) == 3.5


def test_of_few_rows_every_expert_that_has_one_computes_one_tile_and_of_many_half_a_tile_more():
    assert grouped_tiles(TILED, 8.0, 8.0) == pytest.approx(8 * 64, rel=1e-6)
    assert grouped_tiles(TILED, 8.0, 80_000.0) == pytest.approx(80_000 + 8 * 64, rel=1e-3)


@draws(50)
@given(st.floats(0.1, 1e5), st.floats(1.0, 2.0), st.floats(1.0, 64.0))
def test_more_rows_never_compute_fewer_and_at_most_a_tile_more_for_each_expert(rows, more, experts):
    computed = grouped_tiles(TILED, experts, rows)
    assert rows <= computed <= rows + experts * 128.0
    assert grouped_tiles(TILED, experts, rows * more) >= computed * (1.0 - 1e-12)


def test_half_a_batch_computes_more_than_half():
    whole, half = (grouped_tiles(TILED, 4.0, rows) for rows in (2048.0, 1024.0))
    assert 2.0 * half > 1.08 * whole


@pytest.mark.parametrize(("chip", "small", "large"), [("h100", 64, 128), ("ascend-910c", 16, 16)])
def test_tiles_are_those_of_the_makers(chip, small, large):
    facts = load_facts()
    machine = load_machine(facts, load_chip(facts, chip))
    assert (machine.tile_small, machine.tile_large) == (small, large)
