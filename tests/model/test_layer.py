"""A matrix product computes whole tiles, also for rows that are not there."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from twin.hardware.chip import load_chip
from twin.hardware.fabric import build_fabric
from twin.lab.library import load_facts
from twin.model.alone import ALONE, grouped_product_s
from twin.model.coefficients import Product
from twin.model.costs import build_costs
from twin.model.layer import grouped_tile_rows, product_s, whole_tile_rows
from twin.model.roofline import load_machine
from twin.scenario import Scenario, with_overrides

TILED = Product(flop=1.0, tile_small=64.0, tile_large=128.0)


@pytest.mark.parametrize(
    ("rows", "computed"), [(1, 64), (64, 64), (65, 128), (128, 128), (129, 256)]
)
def test_a_product_computes_its_last_tile_whole(rows, computed):
    assert whole_tile_rows(TILED, rows) == computed
    assert product_s(TILED, rows) == pytest.approx(computed)


def test_without_tiles_it_computes_its_rows():
    assert whole_tile_rows(Product(), 3.5) == 3.5
    assert grouped_tile_rows(Product(), 8.0, 3.5) == 3.5


def test_of_few_rows_every_expert_that_has_one_computes_one_tile_and_of_many_half_a_tile_more():
    assert grouped_tile_rows(TILED, 8.0, 8.0) == pytest.approx(8 * 64, rel=1e-6)
    assert grouped_tile_rows(TILED, 8.0, 80_000.0) == pytest.approx(80_000 + 8 * 64, rel=1e-3)


@draws(50)
@given(st.floats(0.1, 1e5), st.floats(1.0, 2.0), st.floats(1.0, 64.0))
def test_more_rows_never_compute_fewer_and_at_most_a_tile_more_for_each_expert(rows, more, experts):
    computed = grouped_tile_rows(TILED, experts, rows)
    assert rows <= computed <= rows + experts * 128.0
    assert grouped_tile_rows(TILED, experts, rows * more) >= computed * (1.0 - 1e-12)


def test_half_a_batch_computes_more_than_half():
    whole, half = (grouped_tile_rows(TILED, 4.0, rows) for rows in (2048.0, 1024.0))
    assert 2.0 * half > 1.08 * whole


@pytest.mark.parametrize(("chip", "small", "large"), [("h100", 64, 128), ("ascend-910c", 16, 16)])
def test_tiles_are_those_of_the_makers(chip, small, large):
    facts = load_facts()
    machine = load_machine(facts, load_chip(facts, chip))
    assert (machine.tile_small, machine.tile_large) == (small, large)


def product_on_h20(rows: float, experts: float = 16.0) -> float:
    """Seconds of up and down products of a die's experts on an H20, evenly loaded."""
    facts = load_facts().replaced(ALONE)
    fields = {"deployment.mode": "decode_only", "supernode.chip": "h20",
              "deployment.precision.weights": "fp8"}  # fmt: skip
    s = with_overrides(Scenario(), fields)
    return grouped_product_s(build_costs(s, facts, build_fabric(s.supernode, facts)), experts, rows)


@pytest.mark.parametrize("rows", [8.0, 32.0, 33.0, 64.0, 96.0, 160.0])
def test_tokens_on_the_narrow_side_of_h20_products_fill_tiles_of_32_rows(rows):
    weights, computed = 3 * 7_168 * 2_048, 32 * math.ceil(rows / 32)
    computing = 2 * 16 * computed * weights / (0.89 * 296e12)
    written = 2 * (2 * 2_048 + 7_168)
    moving = 16 * (weights + rows * (7_168 + 2_048 + written)) / (0.896 * 4e12)
    between = 16 * rows * (2 * 2 * 2_048 + 2_048) / (0.8 * 4e12)
    form = 12e-6 + math.hypot(computing, moving) + between
    assert product_on_h20(16 * rows) == pytest.approx(form, rel=0.01)


def test_h20_products_of_few_rows_are_near_those_that_were_measured_with_operands_swapped():
    # DeepGEMM pull request 192: 154 and 84 us for 32 rows of 16 experts, no fact is made from them.
    assert product_on_h20(16 * 32.0) == pytest.approx(238e-6, rel=0.2)
    # A tile of 64 took 257 and 127 us.
    assert product_on_h20(16 * 32.0) < 0.8 * 384e-6


@draws(50)
@given(st.floats(1.0, 5e3), st.floats(1.0, 64.0), st.sampled_from([8.0, 16.0, 32.0, 64.0]))
def test_a_finer_tile_never_computes_more(rows, experts, tile):
    fine, coarse = (replace(TILED, tile_small=t, tile_large=t) for t in (tile, 2.0 * tile))
    computed = grouped_tile_rows(coarse, experts, rows)
    assert grouped_tile_rows(fine, experts, rows) <= computed * (1.0 + 1e-12)
