"""What a plan stores of a simulation."""

import numpy as np
import pytest

from tests.draws import some
from tests.lab.plan.small import facts, small
from twin.engine.simulate import simulate
from twin.lab.plan.trial import (
    BLOCKS,
    digest_without_slo,
    error_of_share,
    rejudge,
    slo_only_judges,
    trial_of,
)
from twin.scenario import with_overrides


def test_misses_that_come_together_leave_a_larger_error_than_those_that_do_not():
    requests = 100 * BLOCKS
    spread, together = np.ones(requests, bool), np.ones(requests, bool)
    spread[:: requests // 40] = False
    together[500:540] = False
    assert spread.sum() == together.sum()
    assert error_of_share(together) > 3.0 * error_of_share(spread)


def test_the_error_of_independent_requests_is_the_binomial_one():
    draws = np.random.default_rng(5).random((400, 40 * BLOCKS)) < 0.9
    errors = [error_of_share(met) ** 2 for met in draws]
    assert np.mean(errors) == pytest.approx(0.9 * 0.1 / draws.shape[1], rel=0.1)


def test_without_requests_or_misses_there_is_no_error():
    assert error_of_share(np.ones(0, bool)) == error_of_share(np.ones(500, bool)) == 0.0


SLOS = [{"slo.ttft_s": 0.3}, {"slo.tpot_ms": 4.0}, {"slo.share": 0.8, "slo.tpot_ms": 4.5}]


@pytest.mark.parametrize("mode", some(["disaggregated"], "decode_only", "prefill_only"))
def test_a_run_judged_by_another_slo_is_the_run_of_a_scenario_with_it(mode):
    s = small(deployment__mode=mode, horizon_s=8.0, workload__lengths="sharegpt")
    trial = trial_of(simulate(s, facts()))
    latencies = trial.pop("latencies")
    for slo in SLOS:
        other = with_overrides(s, slo)
        again = trial_of(simulate(other, facts()))
        assert digest_without_slo(other) == digest_without_slo(s)
        again.pop("latencies")
        assert rejudge(trial, latencies, other) == again != trial


def test_an_slo_that_decides_what_happens_judges_no_other_run():
    acting = {"admission.shed_at": 1.0}, {"elastic.controller": "slo"}
    assert slo_only_judges(small())
    assert not any(slo_only_judges(with_overrides(small(), each)) for each in acting)
