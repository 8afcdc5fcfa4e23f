"""What a controller is shown: instances needed are what the formula says of the same load."""

import numpy as np
import pytest

from tests.engine.small import machine_at_end, small
from twin.engine.lifecycle.looks import Forecast, PoolMeter
from twin.lab.library import load_facts
from twin.scenario import with_overrides
from twin.steady import Priced, largest_batch, predict_steady

LOADED = {"horizon_s": 20.0, "warmup_s": 1.0, "workload.rate_req_per_s": 100.0,
          "workload.output_tokens": 200}  # fmt: skip


def test_what_was_foreseen_needs_no_margin():
    forecast = Forecast(10.0)
    assert [forecast.forecast(t, 2.0, 2.0) for t in range(0, 100, 5)] == [2.0] * 20


def test_loads_that_outgrow_their_forecasts_raise_it_and_smaller_ones_do_not():
    less, more = Forecast(10.0), Forecast(10.0)
    for t in range(0, 100, 5):
        assert less.forecast(t, 1.0, 2.0) == 2.0
        margin = more.forecast(t, 3.0, 2.0) - 2.0
    assert margin == pytest.approx(np.sqrt(2.0))


def test_an_error_of_long_ago_is_forgotten():
    forecast = Forecast(10.0)
    forecast.forecast(0.0, 1.0, 1.0)
    after = [
        forecast.forecast(t, 4.0 if t == 30.0 else 1.0, 1.0) for t in np.arange(30.0, 20_000, 30.0)
    ]
    assert after[0] > 3.0 and after[-1] - 1.0 < 0.01 * (after[0] - 1.0)


def looked(settings: dict[str, object]) -> tuple[float, float]:
    """Instances needed of both pools at the end of a small run."""
    setup, machine = machine_at_end(small(LOADED | settings))
    at = {role: [i.index for i in setup.of_role(role)] for role in ("prefill", "decode")}
    found = PoolMeter(machine, 5.0).measure(
        at, dict.fromkeys(at, 0), machine.world.settings.horizon_s
    )
    return found["prefill"][-1], found["decode"][-1]


@pytest.mark.parametrize("rate", [150.0, 250.0])
def test_instances_needed_are_those_that_the_formula_needs(rate):
    changes = {"workload.rate_req_per_s": rate, "slo.tpot_ms": 14.0}
    changes |= {"deployment.decode.batch_per_npu": 512}  # so that TPOT is what limits
    asked, facts = small(LOADED | changes), load_facts()
    batch = largest_batch(Priced(asked, facts), 0.95 * 14e-3).batch_per_npu
    full = predict_steady(with_overrides(asked, {"deployment.decode.batch_per_npu": batch}), facts)
    assert full.prefill and full.decode
    prefill, decode = looked(changes)
    assert prefill == pytest.approx(2 * rate / full.prefill.requests_per_s, rel=0.15)
    assert decode == pytest.approx(2 * rate / full.decode.requests_per_s, rel=0.15)


def test_prefill_that_cannot_keep_up_asks_for_more_and_not_for_decode():
    late = {"workload.input_tokens": 8000, "workload.rate_req_per_s": 300.0}
    prefill, decode = looked(late | {"workload.output_tokens": 50})
    assert prefill > 2.5
    assert decode < 1.0  # what waits for prefill is no load of decode's
