"""The stationary population of a decode instance against simulations of hours and closed forms."""

import numpy as np
import pytest

from tests.draws import seeds, some
from twin.engine.simulate import simulate
from twin.lab.library import load_facts, preset
from twin.outlook import outlook, run_and_warmup_s
from twin.scenario import with_overrides
from twin.stationary import mean_iterations
from twin.steady import Priced
from twin.workload.lengths import elapsed_tokens

QUICK = preset("quickstart")
HOURS = {"start": "empty", "horizon_s": 5400.0, "warmup_s": 1800.0}


def quick(rate, **settings):
    return with_overrides(QUICK, {"workload.rate_req_per_s": float(rate)} | settings)


@pytest.mark.parametrize("rate", some([140], 100))
def test_formula_and_steady_minutes_agree_with_an_hour_from_an_empty_machine(rate):
    long = simulate(quick(rate, **HOURS), load_facts()).summary
    formula = outlook(Priced(quick(rate), load_facts())).tpot_s
    assert formula == pytest.approx(long["tpot_s_mean"], rel=0.03)
    asked = {"horizon_s": 180.0, "warmup_s": 20.0}
    runs = [simulate(quick(rate, seed=seed, **asked), load_facts()).summary for seed in (1, 2, 3)]
    for name, near in (("tpot_s_p50", 0.03), ("ttft_s_p50", 0.06)):
        short = sum(run[name] for run in runs) / len(runs)
        assert short == pytest.approx(long[name], rel=near), name


@pytest.mark.parametrize("draw", seeds(2))
def test_requests_under_way_obey_littles_law(draw):
    """Requests that decode = rate x time of an answer, at any load that slots take."""
    rng = np.random.default_rng(draw)
    answer = int(rng.integers(64, 1600))
    times_s = {"horizon_s": 120.0, "warmup_s": 1.0, "seed": draw + 1}
    s = quick(rng.uniform(5.0, 120.0), **{"workload.output_tokens": answer}, **times_s)
    run = simulate(s, load_facts())
    mean = float(run.tables["windows"]["decode_running"].mean())
    assert run.valid
    law = s.workload.rate_req_per_s * answer * run.summary["tpot_s_mean"]
    assert mean == pytest.approx(law, rel=0.1)


def test_lengths_of_those_under_way_are_biased_to_long_ones():
    """E[a^2] / (2 E[a]): half an answer where all are alike, more where they differ."""
    assert elapsed_tokens(np.full(9, 100, np.int32)) == pytest.approx(50.0)
    mixed = np.array([10, 190], np.int32)
    assert elapsed_tokens(mixed) == pytest.approx((10**2 + 190**2) / 2 / 200)
    assert mean_iterations(np.full(9, 171, np.int32), 1, 0.7) == pytest.approx(100.0)


def test_times_follow_the_life_of_a_request():
    facts = load_facts()
    calm, busy = (run_and_warmup_s(Priced(quick(rate), facts)) for rate in (50, 145))
    assert calm < busy
    long_answers = run_and_warmup_s(Priced(quick(50, **{"workload.output_tokens": 3072}), facts))
    assert long_answers[1] >= 2 * calm[1] - 5.0
