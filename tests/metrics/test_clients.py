"""What clients and tenants saw, from small tables worked out by hand."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from twin.metrics.clients import fair_shares, fairness, jain_index, tenant_rows
from twin.metrics.measures import NOTHING
from twin.metrics.observed import Observed
from twin.metrics.registry import as_text
from twin.scenario import Scenario, with_overrides

PAIR = [{"name": "a", "weight": 3.0}, {"name": "b", "ttft_s": 0.5}]


def observed(rows, **asked):
    """Requests as (tenant, arrival, first token, finish, tokens, attempt, asked, session, left)."""
    s = with_overrides(
        Scenario(),
        {
            "horizon_s": 10.0,
            "warmup_s": 1.0,
            "slo.ttft_s": 2.0,
            "slo.tpot_ms": 500.0,
            "tenants": PAIR,
        }
        | asked,
    )
    names = ("tenant", "arrival_s", "first_token_s", "finish_s", "input_tokens", "attempt",
             "asked_s", "session", "turns_left")  # fmt: skip
    frame = pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None).with_columns(
        pl.col("tenant").cast(pl.Enum(["a", "b"])),
        pl.lit(10).alias("output_tokens"),
        pl.lit(0).alias("hit_tokens"),
        pl.when(pl.col("finish_s").is_null()).then(pl.lit("rejected")).otherwise(
            pl.lit("finished")).alias("status"),
    )  # fmt: skip
    return Observed(s, frame, {})


ROWS = [
    ("a", 2.0, 3.0, 4.0, 90, 0, 2.0, 0, 1),
    ("a", 5.0, 6.0, 7.0, 90, 0, 5.0, 0, 0),
    ("b", 2.0, 2.4, 3.0, 90, 0, 2.0, 1, 0),
    ("b", 4.0, 4.6, 5.0, 90, 0, 4.0, 2, 0),  # 0.6 s: above its own SLO
    ("b", 6.0, None, None, 90, 0, 6.0, 3, 0),
    ("b", 7.0, 7.2, 8.0, 90, 1, 6.0, 3, 0),  # 1.2 s since it was asked first
]


def test_a_tenant_s_figures_are_its_own_and_a_retry_counts_from_the_first_attempt():
    o = observed(ROWS)
    a, b = tenant_rows(o)
    assert (a["tenant"], b["tenant"]) == ("a", "b")
    assert a["goodput_req_per_s"] == pytest.approx(2 / 9) and a["slo_attainment"] == 1.0
    assert a["fair_share_ratio"] == b["fair_share_ratio"] == 1.0  # each had what it asked for
    assert b["goodput_req_per_s"] == pytest.approx(1 / 9)
    assert b["slo_attainment"] == pytest.approx(1 / 3)
    assert b["refused"] == 1 and a["refused"] == 0 and o.met_count == 3.0
    assert a["ttft_s_p50"] == 1.0 and a["asked_req_per_s"] == pytest.approx(2 / 9)
    assert b["asked_req_per_s"] == pytest.approx(3 / 9)  # the retry is no new question


def test_requests_in_progress_at_the_start_meet_the_slo_as_often_as_others_of_their_tenant():
    residents = [(tenant, 0.0, 0.0, 2.0, 90, 0, 0.0, 4, 0) for tenant in ("a", "b")]
    o = replace(observed([*residents, *ROWS[:2], ROWS[3]]), totals={"at_start": 2.0})
    a, b = tenant_rows(o)
    # Of b, the only one that began within the run had its first token too late.
    assert (a["slo_attainment"], b["slo_attainment"]) == (1.0, 0.0)
    assert a["goodput_req_per_s"] == pytest.approx(3 / 9)
    no_warmup = replace(o, scenario=with_overrides(o.scenario, {"warmup_s": 0.0}))
    offered = [tenant["asked_req_per_s"] for tenant in tenant_rows(no_warmup)]
    assert offered == pytest.approx([2 / 10, 1 / 10])  # they arrived before the run


def test_a_tenant_of_which_no_request_began_within_the_run_has_no_slo_share():
    resident = ("b", 0.0, 0.0, 2.0, 90, 0, 0.0, 4, 0)
    o = replace(observed([resident, *ROWS[:2]]), totals={"at_start": 1.0})
    a, b = tenant_rows(o)
    assert (a["slo_attainment"], b["slo_attainment"]) == (1.0, None)
    assert as_text("slo_attainment", b["slo_attainment"]) == NOTHING


def test_where_no_request_began_and_ended_both_limits_are_judged_alone():
    rows = [("a", 0.0, 0.0, 4.0, 90, 0, 0.0, 0, 0), ("a", 0.0, 0.0, 8.0, 90, 0, 0.0, 1, 0),
            ("a", 2.0, 3.0, None, 90, 0, 2.0, 2, 0),
            ("a", 3.0, 6.0, None, 90, 0, 3.0, 3, 0)]  # fmt: skip
    o = replace(observed(rows), totals={"at_start": 2.0})
    # Of two first tokens one is within 2 s; of two answers one has its nine tokens within 4.5 s.
    assert o.met_count == pytest.approx(0.5 * 1.0)


def test_a_session_lasts_from_its_first_question_to_its_last_answer():
    assert observed(ROWS).session_times.size == 0  # turns do not wait
    waiting = observed(ROWS, **{"workload.turns": "wait", "workload.prefix": "sessions"})
    assert sorted(waiting.session_times) == [1.0, 1.0, 2.0, 5.0]


def test_fairness_is_1_where_each_has_what_it_asked_for_or_its_weight():
    assert fairness(observed(ROWS)) == pytest.approx(1.0, abs=0.02)
    starved = [*ROWS[:2], *(("b", 2.0, None, None, 990, 0, 2.0, k, 0) for k in range(9, 20))]
    assert fairness(observed(starved)) < 0.6
    assert fairness(observed(ROWS, tenants=[])) is None


SHARES = st.lists(st.tuples(st.floats(0, 100), st.floats(0.1, 10)), min_size=1, max_size=6)


@draws(100)
@given(SHARES, st.floats(0, 300))
def test_a_total_is_shared_out_max_min_fairly(asked, total):
    wanted, weight = (np.array(column) for column in zip(*asked, strict=True))
    given_out = fair_shares(total, wanted, weight)
    assert given_out.sum() == pytest.approx(min(total, wanted.sum()), rel=1e-6, abs=1e-6)
    assert (given_out <= wanted + 1e-9).all()
    hungry = given_out < wanted - 1e-6
    if hungry.any():  # who got less than asked got no less by weight than anybody else
        level = (given_out[hungry] / weight[hungry]).min()
        assert (given_out / weight <= level * (1 + 1e-6) + 1e-6).all()


@draws(60)
@given(st.lists(st.floats(0, 10), min_size=1, max_size=8))
def test_jain_lies_between_one_of_n_and_1(values):
    index = jain_index(np.array(values))
    if index is not None:
        assert 1 / len(values) - 1e-9 <= index <= 1 + 1e-9
