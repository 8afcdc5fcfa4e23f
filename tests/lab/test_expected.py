import math

import polars as pl
import pytest

from tests.laws.advice import LITE
from twin.lab.explain.causes import Change, expected_figures, score_of
from twin.lab.explain.view import View, waiting_s
from twin.lab.library import load_facts
from twin.scenario import parse_scenario, with_overrides

RATE = 400.0  # about twice what prefill of the small machine takes
PARTS = {"front_end": 0.01, "router": 0.0, "prefill_queue": 8.0, "prefill": 0.3,
         "kv_transfer": 0.1}  # fmt: skip


@pytest.fixture(scope="module")
def overloaded() -> View:
    wishes = {"workload.rate_req_per_s": RATE, "horizon_s": 20.0, "warmup_s": 4.0}
    s = with_overrides(parse_scenario(LITE), wishes)
    summary = {f"ttft_{name}_s_mean": seconds for name, seconds in PARTS.items()} | {
        "requests": RATE * 20.0, "ttft_s_p99": 16.0, "tpot_s_p99": 0.008, "slo_attainment": 0.02,
        "throughput_req_per_s": 0.5 * RATE}  # fmt: skip
    return View(s, load_facts(), summary, None, {})


def test_the_formula_promises_most_of_what_takes_the_bottleneck_away(overloaded):
    base = expected_figures(overloaded, overloaded.scenario)
    promises = {
        path: score_of(overloaded, Change({path: value}), base)
        for path, value in (
            ("deployment.prefill.instances", 4),
            ("deployment.decode.batch_per_npu", 64),
            ("front_end.api_servers", 32),
        )
    }
    most, *rest = sorted(promises.values(), reverse=True)
    assert most == promises["deployment.prefill.instances"] > 0.5
    assert all(abs(promise) < 0.05 for promise in rest)


def test_what_no_formula_knows_promises_what_the_record_leaves_to_gain(overloaded):
    base = expected_figures(overloaded, overloaded.scenario)
    settings = {"router.policy": "power_of_two"}
    assert score_of(overloaded, Change(settings, promise=0.4), base) == 0.4
    assert score_of(overloaded, Change(settings, promise=0.4), None) == 0.4


def test_a_part_of_the_first_token_is_worth_no_more_than_the_time_that_it_takes(overloaded):
    all_parts = overloaded.gain_of(1.0, *PARTS)
    used = (overloaded.ttft_ratio + overloaded.tpot_ratio) / overloaded.tpot_ratio
    assert all_parts == pytest.approx(math.log(used), rel=0.01)
    assert 0 < overloaded.gain_of(0.5, "kv_transfer") < overloaded.gain_of(0.5, "prefill_queue")


def test_where_nobody_got_a_first_token_the_part_in_which_all_wait_counts(overloaded):
    stamps = {"arrival_s": [0.0, 1.0], "frontend_s": [0.1, None], "routed_s": [0.1, None],
              "prefill_start_s": [0.2, None], "prefill_end_s": [1.0, None],
              "first_token_s": [None, None]}  # fmt: skip
    waiting = waiting_s(pl.DataFrame(stamps), 10.0)
    assert waiting["kv_transfer"] == 9.0 and waiting["front_end"] == 9.0
    assert waiting["prefill"] == waiting["prefill_queue"] == 0.0
    view = View(overloaded.scenario, overloaded.facts, {}, None, {}, waiting=waiting)
    assert view.ttft_shares["kv_transfer"] == 0.5
