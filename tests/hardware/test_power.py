"""Watts: figures of data/ add up to what was published, and energy to what windows say."""

import pytest

from tests.engine.small import run, small
from twin.hardware.chip import HardwareError
from twin.hardware.power import Use, clock_share, power
from twin.lab.library import load_facts
from twin.model.predict import full_load
from twin.scenario import Scenario, with_overrides
from twin.steady import predict_steady

FACTS = load_facts()


def test_a_cloudmatrix384_at_rated_power_draws_what_was_published():
    p = power(Scenario(), FACTS)
    rated_w = p.idle_w / FACTS.si("power.idle")
    assert (rated_w + p.surroundings_w) * 384 == pytest.approx(559_378, rel=1e-3)
    assert p.switches_w + p.optics_w == 159
    assert p.drawn_w(1.0, 1.0, 0.0) - p.surroundings_w <= rated_w  # prefill at its peak
    assert (
        p.drawn_w(0.0, 0.0, 1.0) - p.surroundings_w <= 0.45 * rated_w
    )  # decode that reads all it can


@pytest.mark.parametrize("chip", FACTS.names("chips"))
def test_a_chip_without_a_rated_power_gives_no_watts_unless_asked_with_some(chip):
    scenario = with_overrides(Scenario(), {"supernode.chip": chip})
    assert (power(scenario, FACTS) is None) == (f"chips.{chip}.tdp" not in FACTS)
    asked = with_overrides(scenario, {"cost.npu_w": 1000.0})
    assert power(asked, FACTS).idle_w == 1000.0 * FACTS.si("power.idle")


@pytest.mark.parametrize("mode", ["disaggregated", "colocated", "prefill_only", "decode_only"])
def test_energy_is_power_over_time_however_it_is_counted(mode):
    settings = {"deployment.mode": mode, "warmup_s": 0.0, "cost.price_per_npu_hour": 3.0}
    if mode == "colocated":  # whole prompts on a rank come in waves, and windows differ by more
        settings["deployment.colocated.prompt_dies"] = 8
    summary, windows = run(settings).summary, run(settings).tables["windows"]
    joules = float((windows["power_w"] * windows["window_s"]).sum())
    scenario = small(settings)
    if mode != "colocated":  # there the share of iterations with prompts differs by window
        assert summary["power_kw"] * 1e3 * scenario.horizon_s == pytest.approx(joules, rel=1e-6)
    assert summary["energy_kwh"] * 3.6e6 == pytest.approx(joules, rel=0.05)
    tokens = summary["energy_kwh"] * 3.6e6 / summary["joules_per_token"]
    spent = 3.0 * summary["npus"] * scenario.horizon_s / 3600
    assert summary["cost_per_million_tokens"] == pytest.approx(1e6 * spent / tokens)
    assert summary["tokens_per_currency"] == pytest.approx(tokens / spent)
    assert summary["npu_hours"] == pytest.approx(summary["npus"] * scenario.horizon_s / 3600)


def test_more_load_draws_more_and_costs_less_a_token():
    few, many = (run({"workload.rate_req_per_s": rate}).summary for rate in (20, 200))
    assert few["power_kw"] < many["power_kw"]
    assert few["joules_per_token"] > 2 * many["joules_per_token"]
    assert few["cost_per_million_tokens"] is None  # nobody set a price


CAPPED = {"cost.cap_w": 330.0}
FULL = Use(prefilling=1.0, cube=0.5, hbm=0.1)


def drawn_at(share: float, use: Use) -> float:
    """Watts of a package at a share of the clock, from the mechanism alone."""
    p = power(Scenario(), FACTS)
    assert p is not None
    cores_w = p.prefill_w * use.prefilling + p.cube_w * use.cube
    return p.idle_w + p.hbm_w * use.hbm + cores_w * share ** FACTS.si("power.clock_exponent")


def test_a_cap_above_what_is_drawn_leaves_the_clock_alone():
    asked = with_overrides(Scenario(), {"cost.cap_w": drawn_at(1.0, FULL) + 1.0})
    assert clock_share(asked, FACTS, "prefill", FULL) == 1.0


@pytest.mark.parametrize("cap_w", [200.0, 330.0, 450.0])
def test_at_the_clock_of_a_cap_exactly_the_cap_is_drawn(cap_w):
    asked = with_overrides(Scenario(), {"cost.cap_w": cap_w})
    assert drawn_at(clock_share(asked, FACTS, "prefill", FULL), FULL) == pytest.approx(cap_w)


def test_a_cap_that_no_clock_keeps_is_refused_with_the_least_that_one_does():
    asked = with_overrides(Scenario(), {"cost.cap_w": 100.0})
    with pytest.raises(HardwareError, match=r"prefill draws 1\d\d W .* raise the cap"):
        clock_share(asked, FACTS, "prefill", FULL)


def test_a_cap_without_a_rated_power_is_refused():
    unknown = next(c for c in FACTS.names("chips") if f"chips.{c}.tdp" not in FACTS)
    asked = with_overrides(Scenario(), CAPPED | {"supernode.chip": unknown})
    with pytest.raises(HardwareError, match=r"cost\.npu_w"):
        clock_share(asked, FACTS, "prefill", FULL)


def test_a_flop_of_a_slower_pool_takes_less_energy():
    both = power(Scenario(), FACTS, {"prefill": 0.5, "decode": 1.0})
    assert both.prefill_w == power(Scenario(), FACTS).prefill_w / 8  # clock to the third power
    decode_w, prefill_w = both.drawn_w(0.0, 0.4, 0.0), both.drawn_w(0.0, 0.4, 0.0, of_prefill=0.4)
    assert prefill_w - both.idle_w - both.surroundings_w == pytest.approx(
        0.25 * (decode_w - both.idle_w - both.surroundings_w)
    )


def test_a_capped_pool_keeps_its_cap_and_memory_bound_decode_does_not_feel_it():
    free = small({"deployment.mode": "prefill_only"})
    capped = with_overrides(free, CAPPED)
    slow, fast = (predict_steady(s, FACTS) for s in (capped, free))
    share = slow.costs.deployed.clocks["prefill"]
    assert share < 1.0
    gone = slow.prefill.tokens_per_s_per_npu / fast.prefill.tokens_per_s_per_npu
    assert share <= gone < 1.0  # at most what the clock lost, for HBM and links kept their rates
    (use,) = full_load(slow).values()
    p = power(capped, FACTS, slow.costs.deployed.clocks)
    drawn_w = p.drawn_w(use.prefilling, use.cube, use.hbm, use.cube) - p.surroundings_w
    # The clock is found for units as busy as at the full clock: links that kept their rates leave
    # them a little busier.
    assert drawn_w == pytest.approx(CAPPED["cost.cap_w"], rel=0.01)
    decode = small({"deployment.mode": "decode_only"})
    assert (
        predict_steady(with_overrides(decode, CAPPED), FACTS).decode
        == predict_steady(decode, FACTS).decode
    )


def test_a_run_says_its_clocks_and_energy_follows_them():
    settings = {"workload.rate_req_per_s": 200.0, "warmup_s": 0.0}
    free, capped = run(settings), run(settings | CAPPED)
    assert free.summary["prefill_clock"] is None
    assert capped.summary["prefill_clock"] < 1.0 == capped.summary["decode_clock"]
    assert any("cap of 330 W" in note for note in capped.notes)
    assert capped.summary["power_kw"] < free.summary["power_kw"]
    joules = float(
        (capped.tables["windows"]["power_w"] * capped.tables["windows"]["window_s"]).sum()
    )
    assert capped.summary["power_kw"] * 1e3 * capped.scenario.horizon_s == pytest.approx(joules)
