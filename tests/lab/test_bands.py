"""Bands hold what they say of systems that they have not seen, and are pooled as the rows ask."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import stdtrit

from twin.lab.evidence.bands import (
    DECODE,
    HALF,
    LEVELS,
    MOST,
    PRIOR,
    Bands,
    Error,
    bands_without,
    batch_range,
    by_system,
    coverage,
    coverages,
    error_record,
    errors_of,
    log_speed,
    quantity_of,
    ratio_error_and_pairs,
    student_t,
    tree_leaf,
)
from twin.lab.evidence.rows import UNJUDGED, load_first_answers, load_published, scenario_of


def an_error(system, first, today=None, number=0, quantity=DECODE, batch=3, model="a model"):
    return Error(
        f"{system}-{quantity}-{batch}-{number}", system, f"paper of {system}", model,
        (quantity, f"chip of {system}", f"stack of {system}", "apart", batch), 4**batch, first,
        first if today is None else today,
    )  # fmt: skip


def drawn(seed, systems=12, rows=4, between=0.4, within=0.15):
    """Errors of systems that differ more than rows of one do."""
    rng = np.random.default_rng(seed)
    return [
        an_error(f"s{k}", centre + rng.normal(0.0, within), number=n)
        for k, centre in enumerate(rng.normal(0.0, between, systems))
        for n in range(rows)
    ]


UNKNOWN = (DECODE, "another chip", "another stack", "apart", 3)


@pytest.mark.parametrize("what", ["system", "source"])
def test_bands_hold_what_they_say_of_rows_left_out(what):
    held = {each.rows_of: each for each in coverages()[f"first errors, their {what} left out"]}
    assert held["all"].rows == sum(e.first is not None for e in error_record()[0]) > 100
    assert 0.7 <= held["all"].most <= 0.9
    assert 0.4 <= held["all"].half <= 0.65
    assert held[DECODE].rows > 50 and 0.7 <= held[DECODE].most <= 0.9


def test_bands_hold_what_they_say_of_systems_that_are_drawn():
    records = [drawn(seed) for seed in range(12)]
    held = [coverage(errors, bands_without(errors, by_system))[0] for errors in records]
    assert np.mean([each.most for each in held]) == pytest.approx(MOST, abs=0.06)
    assert np.mean([each.half for each in held]) == pytest.approx(HALF, abs=0.08)


def test_a_regime_without_rows_has_the_band_of_other_systems():
    errors, bands = error_record()
    band = bands.band(UNKNOWN)
    assert band.own == 0 and band.freedom == PRIOR
    other = bands.band((DECODE, "a third chip", "a third stack", "colocated", 0))
    assert (other.centre, other.spread) == (band.centre, band.spread)
    assert all(bands.band(e.levels).spread <= band.spread for e in errors if e.levels[0] == DECODE
               and bands.band(e.levels).own < PRIOR)  # fmt: skip


def test_a_quantity_without_rows_is_no_better_known_than_any_other():
    _, bands = error_record()
    band = bands.band(("a new quantity", *UNKNOWN[1:]))
    quantities = {e.levels[0] for e in error_record()[0]}
    assert all(band.spread >= bands.band((q, *UNKNOWN[1:])).spread for q in quantities)


def test_more_rows_of_one_stack_narrow_its_band_toward_its_own_spread():
    rest, own = drawn(3), []
    spreads = [Bands(rest).band(UNKNOWN).spread]
    for number in range(40):
        off = 0.3 + 0.02 * (-1) ** number
        own.append(replace(an_error("x", off, number=number), levels=UNKNOWN))
        if number in (0, 3, 7, 15, 39):
            spreads.append(Bands([*rest, *own]).band(UNKNOWN).spread)
    assert spreads == sorted(spreads, reverse=True)
    last = Bands([*rest, *own]).band(UNKNOWN)
    assert last.centre == pytest.approx(0.3, abs=0.02)
    assert 0.02 < last.spread < 0.2 * spreads[0]


def test_a_stack_that_is_farther_off_than_others_gets_a_wider_band():
    rest = drawn(4)
    swings = [0.6 * (-1) ** number for number in range(2 * PRIOR)]
    wide = [replace(an_error("x", x, number=n), levels=UNKNOWN) for n, x in enumerate(swings)]
    calm = [replace(e, first=e.first / 20, today=e.today / 20) for e in wide]
    assert (
        Bands([*rest, *wide]).band(UNKNOWN).spread
        > 2.0 * Bands([*rest, *calm]).band(UNKNOWN).spread
    )


def test_what_was_mended_moves_the_centre_and_keeps_the_spread_of_first_errors():
    rest = drawn(5)
    first = [replace(an_error("x", -0.5, number=n), levels=UNKNOWN) for n in range(9)]
    mended = [replace(e, today=0.0) for e in first]
    before, after = Bands([*rest, *first]).band(UNKNOWN), Bands([*rest, *mended]).band(UNKNOWN)
    assert abs(after.centre) < 0.1 and abs(before.centre) > 0.4
    assert after.spread > 1.5 * before.spread
    assert after.holds(-0.5, 0.9)


@pytest.mark.parametrize("errors", [[0.0], [0.0] * 9, [0.3], [0.3, 0.3]])
def test_a_band_is_never_of_no_width(errors):
    rows = [an_error("x", error, number=n) for n, error in enumerate(errors)]
    for leaf in (rows[0].levels, UNKNOWN):
        band = Bands(rows).band(leaf)
        assert band.half_width(HALF) > 0.003 and math.isfinite(band.spread)


def test_rows_in_sight_say_where_the_twin_stands_and_not_how_far_off_it_may_be():
    rest = drawn(6)
    seen = [replace(an_error("x", None, 0.25, n), levels=UNKNOWN) for n in range(20)]
    none, some = Bands(rest).band(UNKNOWN), Bands([*rest, *seen]).band(UNKNOWN)
    assert some.own == none.own == 0 and some.freedom == none.freedom
    assert abs(some.centre - 0.25) < abs(none.centre - 0.25)
    only = Bands([*rest, *[replace(e, levels=(*UNKNOWN[:1], "chip", *UNKNOWN[2:])) for e in seen]])
    assert only.band(UNKNOWN).spread == pytest.approx(none.spread, rel=0.05)
    with pytest.raises(ValueError, match="first error"):
        Bands(seen)


def test_the_band_of_a_row_left_out_knows_nothing_of_its_system():
    errors = drawn(7)
    far = [replace(e, first=e.first + 9.0, today=e.today + 9.0) if e.system == "s0" else e
           for e in errors]  # fmt: skip
    assert (
        bands_without(errors, by_system)["s0-decode-3-0"]
        == bands_without(far, by_system)["s0-decode-3-0"]
    )


def test_errors_are_of_speed_so_that_a_time_and_a_rate_of_one_run_agree():
    rows = {row.id: row for row in load_published()}
    time, rate = rows["cm384-decode-96-4k-tpot"], rows["cm384-decode-96-4k-tput"]
    time_speed, rate_speed = log_speed(time, 1 / 1.25 - 1), log_speed(rate, 0.25)
    assert time_speed == pytest.approx(rate_speed) == pytest.approx(0.2231, abs=1e-3)


def test_every_judged_row_with_a_first_error_counts_and_bounds_do_not():
    rows, first = load_published(), load_first_answers()
    errors = {e.row: e for e in errors_of(rows, first, {})}
    wanted = {row.id for row in rows if row.id in first and row.kind not in UNJUDGED
              and not row.at_most}  # fmt: skip
    assert set(errors) == wanted
    assert all(len(e.levels) == len(LEVELS) for e in errors.values())
    assert {quantity_of(row) for row in rows} == {
        "decode", "prefill", "operator", "ratio", "ttft", "memory"
    }  # fmt: skip


@pytest.mark.parametrize("share", [0.5, 0.75, 0.9, 0.95])
def test_quantiles_are_students(share):
    for freedom in (PRIOR, PRIOR + 1, 3 * PRIOR, 1000):
        assert student_t(share, freedom) == pytest.approx(stdtrit(freedom, share), abs=1e-3)


def test_batches_of_one_range_share_a_leaf():
    s = [scenario_of({"deployment.decode.batch_per_npu": batch}) for batch in (64, 96, 255, 256)]
    one, same, last, other = (tree_leaf(DECODE, each, "x") for each in s)
    assert one == same == last != other
    assert [batch_range(4**k) for k in range(12)] == list(range(12))


def test_a_ratio_is_better_known_than_a_figure_where_errors_of_pairs_cancel():
    errors = [e for k in range(4) for e in (an_error(f"s{k}", 0.5, number=0),
              an_error(f"s{k}", 0.52, number=1))]  # fmt: skip
    within, own = ratio_error_and_pairs(errors, errors[0].levels, "a model")
    assert within == pytest.approx(0.02) and own == 1
    assert ratio_error_and_pairs(errors, UNKNOWN, "a model") == (pytest.approx(0.02), 0)
    assert ratio_error_and_pairs(errors, errors[0].levels, "another model")[1] == 0
    assert ratio_error_and_pairs([], UNKNOWN, "a model")[0] == math.inf
