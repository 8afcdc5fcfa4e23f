"""Where nothing fits: what a limit has to be relaxed to, and that it then is enough."""

import pytest

from tests.draws import some
from tests.lab.plan.small import facts, plan, small
from tests.lab.plan.test_search import driven
from twin.lab.plan.candidates import space_of
from twin.lab.plan.finish import Finish, breaks_first
from twin.lab.plan.search import Search
from twin.scenario import with_overrides

TIGHT = [
    {"workload__rate_req_per_s": 60.0, "slo__tpot_ms": 2.5, "supernode__nodes": 2},
    {"workload__rate_req_per_s": 40.0, "workload__input_tokens": 2048, "slo__ttft_s": 0.03,
     "slo__tpot_ms": 20.0, "supernode__nodes": 2},
    {"workload__rate_req_per_s": 25.0, "workload__lengths": "sharegpt", "slo__tpot_ms": 2.8,
     "supernode__nodes": 2},
]  # fmt: skip


def finished(scenario) -> Finish:
    """A plan of the scenario, carried out."""
    search = Search(space_of(plan(scenario, simulations=40), facts()), facts())
    driven(search.steps())
    finish = Finish(search, facts())
    driven(finish.steps())
    return finish


def test_what_breaks_first_is_farthest_beyond_its_limit():
    slo = small().slo
    figures = {"ttft_s_p99": 1.2 * slo.ttft_s, "tpot_s_p99": 1.1e-3 * slo.tpot_ms,
               "ttft_s_mean": 0.5 * slo.ttft_s, "tpot_s_mean": None}  # fmt: skip
    assert breaks_first(figures, plan()) == "TTFT"
    assert breaks_first(figures | {"tpot_s_p99": 1.3e-3 * slo.tpot_ms}, plan()) == "TPOT"
    assert breaks_first(figures, plan(by="mean")) == "TTFT"


@pytest.mark.parametrize("tight", some([], *range(len(TIGHT))))
def test_relaxed_by_what_a_plan_says_something_fits(tight):
    scenario = small(**TIGHT[tight])
    finish = finished(scenario)
    assert not finish.finalists and finish.relaxations
    for row in finish.relaxations:
        if row["limit"].startswith("slo."):
            assert finished(with_overrides(scenario, {row["limit"]: row["to"]})).finalists
