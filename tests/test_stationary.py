"""The steady state of an instance whose iterations differ much: with and without prompts."""

import numpy as np
import pytest

from tests.draws import some
from tests.engine.small import small
from twin import stationary
from twin.engine.simulate import simulate
from twin.lab.library import load_facts
from twin.outlook import outlook, run_and_warmup_s, state_at
from twin.scenario import Scenario, with_overrides
from twin.stationary import ITERATIONS, LINE, controlled_mean_and_error
from twin.steady import Priced

MIXED = with_overrides(
    Scenario(),
    {
        "deployment.mode": "colocated",
        "deployment.colocated.npus_per_instance": 32,
        "deployment.colocated.prompt_dies": 1,
        "deployment.decode.batch_per_npu": 32,
        "workload.input_tokens": 537,
        "workload.output_tokens": 698,
        "workload.arrivals": "poisson",
    },
)


@pytest.mark.parametrize(
    "pool", some([(7, "least_loaded")], (1, "least_loaded"), (7, "round_robin")), ids=str
)
def test_a_light_load_of_prompts_among_answers_is_as_fast_as_simulated(pool):
    """An iteration with a prompt takes four times as long as one without, and more requests come
    in it; a router that sees queues lets prompts share one."""
    instances, router = pool
    rate = 7.14 * instances
    s = with_overrides(
        MIXED,
        {
            "workload.rate_req_per_s": rate,
            "deployment.colocated.instances": instances,
            "router.policy": router,
        },
    )
    horizon_s, warmup_s = run_and_warmup_s(Priced(s, load_facts()))
    long = with_overrides(s, {"horizon_s": 2.0 * horizon_s, "warmup_s": warmup_s})
    simulated_s = simulate(long, load_facts()).summary["decode_iteration_s_mean"]
    standing = state_at(Priced(s, load_facts()), rate)
    assert standing is not None
    assert standing.iteration_s == pytest.approx(simulated_s, rel=0.06)


def test_bursts_of_arrivals_make_iterations_swing_more():
    swings = []
    for cv in (0.5, 1.0, 2.0):
        s = with_overrides(Scenario(), {"workload.arrivals": "gamma", "workload.cv": cv})
        standing = state_at(Priced(s, load_facts()), s.workload.rate_req_per_s)
        assert standing is not None
        swings.append(standing.swings.lasting)
    assert swings == sorted(swings)


def test_answers_of_any_length_are_followed_over_a_bounded_number_of_iterations():
    """Ranks with a request or two differ by chance in every pass, and a pass lasts several
    lives: of answers of 100,000 tokens the search took four times as many iterations."""
    s = small({"deployment.mode": "colocated", "workload.output_tokens": 100_000})
    standing = state_at(Priced(s, load_facts()), 2 * 0.0292)
    assert standing is not None
    assert standing.population.at[0] < 1.01 * ITERATIONS


@pytest.mark.parametrize("rate", [0.2, 2.0, 400.0])  # few, some, more than have room
def test_iterations_in_which_nothing_happens_are_run_at_once_with_equal_figures(rate, monkeypatch):
    s = small({"deployment.mode": "decode_only", "workload.output_tokens": 4000})
    one_by_one = state_at(Priced(s, load_facts()), rate)
    monkeypatch.setattr(stationary, "LONG_LIFE", 0)
    at_once = state_at(Priced(s, load_facts()), rate)
    assert at_once.population.skips > one_by_one.population.skips == 0
    for name in ("iteration_s", "token_s", "rate_req_per_s", "late"):
        assert getattr(at_once, name) == pytest.approx(getattr(one_by_one, name), rel=1e-3), name
    assert at_once.swings.lasting == pytest.approx(one_by_one.swings.lasting, rel=0.01)


@pytest.mark.parametrize("rate", [0.03, 0.5, 2.0, 11.0])
def test_iterations_between_prompts_and_their_last_pieces_are_run_at_once(rate, monkeypatch):
    """With prompts, arrivals follow seconds, so that one may come an iteration earlier or later:
    figures agree within the errors of both."""
    s = small({"deployment.mode": "colocated", "workload.output_tokens": 4000})
    one_by_one = state_at(Priced(s, load_facts()), rate)
    monkeypatch.setattr(stationary, "LONG_LIFE", 0)
    at_once = state_at(Priced(s, load_facts()), rate)
    assert at_once.population.skips > one_by_one.population.skips == 0
    near = 2.0 * (at_once.error + one_by_one.error) + 1e-3
    for name in ("iteration_s", "token_s", "rate_req_per_s"):
        assert getattr(at_once, name) == pytest.approx(getattr(one_by_one, name), rel=near), name


@pytest.mark.parametrize("share", [1e-4, 1e-2])
def test_light_loads_of_mixed_serving_are_judged_by_many_answers(share):
    """A few answers of a light load said that all were in time, or a tenth of them not."""
    fields = {"deployment.mode": "colocated", "workload.lengths": "deepseek-service"}
    priced = Priced(small(fields), load_facts())
    state = state_at(priced, share * priced.prediction.requests_per_s)
    assert stationary.answer_times_s(state)[0].size >= 500


@pytest.mark.parametrize("rate", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("domains", [1, 2])
def test_few_requests_that_lengthen_each_other_are_seen_as_in_a_run(rate, domains):
    """Dies with experts alone read more weights for each request. Requests come by the second, so
    that a long iteration brings more of them: by the iteration, answers saw up to 24 % less."""
    s = small(
        {
            "deployment.mode": "decode_only",
            "deployment.decode.instances": 1,
            "deployment.decode.expert_npus": 1,
            "deployment.decode.domains": domains,
            "workload.output_tokens": 400,
            "workload.rate_req_per_s": rate,
            "horizon_s": 600.0,
            "warmup_s": 30.0,
            "step_s": 0.01,
        }
    )
    found = simulate(s, load_facts()).summary["tpot_s_mean"]
    assert outlook(Priced(s, load_facts())).tpot_s == pytest.approx(found, rel=0.07)


def test_a_chance_surplus_of_prompts_is_taken_out_of_the_mean_of_passes():
    """Factors that follow what came, and scatter besides: hundreds of means of a dozen passes."""
    draw = np.random.default_rng(5)
    errors, plain_errors, stated = [], [], []
    for _ in range(400):
        came = draw.normal(1.0, 0.1, 12)
        factors = 0.8 + 0.3 * (came - 1.0) + draw.normal(0.0, 0.01, 12)
        mean, error = controlled_mean_and_error(factors.tolist(), came.tolist())
        errors.append(mean / 0.8 - 1.0)
        plain_errors.append(factors.mean() / 0.8 - 1.0)
        stated.append(error)
    assert abs(np.mean(errors)) < 1e-3
    assert np.std(errors) < 0.5 * np.std(plain_errors)
    assert np.mean(stated) == pytest.approx(np.std(errors), rel=0.15)
    few = LINE - 1  # too few for a line
    mean, _ = controlled_mean_and_error(factors[:few].tolist(), came[:few].tolist())
    assert mean == pytest.approx(factors[:few].mean())
