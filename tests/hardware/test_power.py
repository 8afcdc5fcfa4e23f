"""Watts: figures of data/ add up to what was published, and energy to what windows say."""

import pytest

from tests.engine.small import run, small
from twin.hardware.chip import chip_names
from twin.hardware.power import power
from twin.lab.library import load_facts
from twin.scenario import Scenario, with_overrides

FACTS = load_facts()


def test_a_cloudmatrix384_at_rated_power_draws_what_was_published():
    p = power(Scenario(), FACTS)
    rated_w = p.idle_w / FACTS.si("power.idle")
    assert (rated_w + p.around_w) * 384 == pytest.approx(559_378, rel=1e-3)
    assert p.switches_w + p.optics_w == 159
    assert p.drawn_w(1.0, 1.0, 0.0) - p.around_w <= rated_w  # prefill at its peak
    assert p.drawn_w(0.0, 0.0, 1.0) - p.around_w <= 0.45 * rated_w  # decode that reads all it can


@pytest.mark.parametrize("chip", chip_names(FACTS))
def test_a_chip_without_a_rated_power_gives_no_watts_unless_asked_with_some(chip):
    scenario = with_overrides(Scenario(), {"supernode.chip": chip})
    assert (power(scenario, FACTS) is None) == (f"chips.{chip}.tdp" not in FACTS)
    asked = with_overrides(scenario, {"cost.npu_w": 1000.0})
    assert power(asked, FACTS).idle_w == 1000.0 * FACTS.si("power.idle")


@pytest.mark.parametrize("mode", ["disaggregated", "colocated", "prefill_only", "decode_only"])
def test_energy_is_power_over_time_however_it_is_counted(mode):
    settings = {"deployment.mode": mode, "warmup_s": 0.0, "cost.price_per_npu_hour": 3.0}
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
