"""Dips against runs whose course is written down: steps, noise, ends that come too soon."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from twin.metrics.registry import as_text
from twin.metrics.resilience import Incidents, dips_of_faults, incidents

EVENTS = {
    "t_s": pl.Float64, "end_s": pl.Float64, "kind": pl.String, "element": pl.String,
    "role": pl.String, "instance": pl.Int32, "detail": pl.String, "bytes": pl.Float64,
    "requests": pl.Int32,
}  # fmt: skip


def events(*rows):
    made = [
        {"end_s": None, "element": "", "role": "", "instance": None, "detail": "", "bytes": 0.0,
         "requests": 0, **row}
        for row in rows
    ]  # fmt: skip
    return pl.DataFrame(made, schema=EVENTS)


def windows(rate, width=1.0):
    rate = np.asarray(rate, float)
    return pl.DataFrame(
        {
            "t_s": np.arange(rate.size) * width,
            "window_s": np.full(rate.size, width),
            "output_tokens_per_s": rate,
        }
    )


def requests(rows):
    """(arrival, finish or None, retries, status) per request; every one in time when it ends."""
    return pl.DataFrame(
        {
            "arrival_s": [float(r[0]) for r in rows],
            "first_token_s": [None if r[1] is None else r[0] + 0.1 for r in rows],
            "finish_s": [None if r[1] is None else float(r[1]) for r in rows],
            "output_tokens": [101] * len(rows),
            "retries": [r[2] for r in rows],
            "status": [r[3] for r in rows],
        },
        schema_overrides={
            "arrival_s": pl.Float64,
            "first_token_s": pl.Float64,
            "finish_s": pl.Float64,
            "output_tokens": pl.Int32,
            "retries": pl.Int16,
            "status": pl.String,
        },
    )


def dips(table, *rows, of=None):
    tables = {"windows": table, "events": events(*rows)}
    if of is not None:
        tables["requests"] = requests(of)
    return dips_of_faults(tables, 1.0, 0.05)


FAULT = {"t_s": 40.0, "kind": "fault", "element": "NPU 1.0", "detail": "failed"}


def test_a_step_down_and_up_is_measured_exactly():
    rate = np.full(100, 1000.0)
    rate[40:52] = 400.0
    (dip,) = dips(windows(rate), FAULT)
    assert (dip.before_tokens_per_s, dip.lowest_tokens_per_s) == (1000.0, 400.0)
    assert dip.recovery_s == pytest.approx(12.0) and dip.until_s == pytest.approx(52.0)
    assert dip.sentences.startswith("NPU 1.0 (failed) at 40.0 s: output fell")
    assert "fell from 1,000 tokens/s to 400 (60.0 % less)" in dip.sentences
    assert "back within 5 % after 12.0 s" in dip.sentences


def test_a_bounce_that_does_not_last_is_no_recovery():
    rate = np.full(100, 1000.0)
    rate[40:60] = 400.0
    rate[45] = 1000.0
    (dip,) = dips(windows(rate), FAULT)
    assert dip.recovery_s == pytest.approx(20.0)


def test_a_run_that_ends_before_recovery_says_so():
    rate = np.full(60, 1000.0)
    rate[40:] = 700.0
    (dip,) = dips(windows(rate), FAULT)
    assert dip.recovery_s is None and not dip.cut_short
    assert dip.end_tokens_per_s == pytest.approx(700.0) and dip.until_s == 60.0
    assert "not back, at 700 tokens/s when the run ended 20.0 s later" in dip.sentences


def test_back_in_the_very_last_windows_is_too_soon_to_tell():
    rate = np.full(60, 1000.0)
    rate[40:57] = 700.0
    assert dips(windows(rate), FAULT)[0].recovery_s is None


def test_noise_is_no_dip():
    rng = np.random.default_rng(1)
    (dip,) = dips(windows(1000 * (1 + 0.04 * rng.uniform(-1, 1, 100))), FAULT)
    assert dip.recovery_s == 0.0 and "stayed at its" in dip.sentences


def test_a_fault_before_anything_is_usual_has_no_rate_before():
    (dip,) = dips(windows(np.full(50, 5.0)), {**FAULT, "t_s": 0.0})
    assert dip.before_tokens_per_s is None and dip.recovery_s is None
    assert "too early" in dip.sentences


def test_the_next_fault_cuts_a_dip_short_and_the_usual_is_what_was_between():
    rate = np.full(100, 1000.0)
    rate[40:60] = 600.0
    rate[60:70] = 300.0
    rate[70:] = 600.0
    first, second = dips(windows(rate), FAULT, {**FAULT, "t_s": 60.0, "element": "node 2"})
    assert first.cut_short and first.until_s == 60.0
    assert "when the next fault came 20.0 s later" in first.sentences
    assert second.before_tokens_per_s == pytest.approx(600.0)
    assert second.recovery_s == pytest.approx(10.0)


def test_a_fault_during_an_outage_is_measured_against_what_was_before_it():
    rate = np.full(100, 1000.0)
    rate[40:58] = 0.0
    down = {"t_s": 40.0, "end_s": 58.0, "kind": "instance_down", "role": "decode", "instance": 0}
    first, second = dips(windows(rate), FAULT, down, {**FAULT, "t_s": 50.0, "element": "node 2"})
    assert first.cut_short
    assert second.before_tokens_per_s == pytest.approx(1000.0)
    assert second.recovery_s == pytest.approx(8.0)


def test_faults_of_one_moment_are_one_dip():
    (dip,) = dips(windows(np.full(90, 9.0)), FAULT, {**FAULT, "element": "node 3", "end_s": 50.0})
    assert dip.element == "NPU 1.0 and node 3"


def test_what_broke_is_said_once():
    (dip,) = dips(windows(np.full(90, 9.0)), {**FAULT, "detail": "NPU 1.0 fails"})
    assert dip.sentences.startswith("NPU 1.0 fails at 40.0 s: output stayed at its")


def test_who_paid_is_told_by_instance_and_request():
    rate = np.full(100, 1000.0)
    rate[40:52] = 400.0
    rows = [(t, t + 5.0, 0, "finished") for t in range(90)]
    rows += [(38, 60, 1, "finished"), (41.5, 60, 2, "finished"), (39, None, 3, "lost")]
    down = {"t_s": 41.0, "end_s": 52.2, "kind": "instance_down", "role": "decode", "instance": 0}
    seen = {"t_s": 42.0, "kind": "detected", "element": "NPU 1.0"}
    (dip,) = dips(windows(rate), FAULT, seen, down, of=rows)
    assert (dip.retried, dip.lost) == (3, 1)
    assert dip.down == (("decode 0", pytest.approx(11.2)),)
    assert "Decode 0 was down for 11.2 s. 3 requests were tried again, 1 given up." in dip.sentences
    # One request a second was good all along; the fault's own span is 12 s.
    assert dip.goodput_during_req_per_s == pytest.approx(1.0, rel=0.1)
    assert dip.goodput_before_req_per_s == pytest.approx(1.0, rel=0.1)


def test_prompts_count_where_nothing_is_decoded():
    rate = np.full(100, 1000.0)
    rate[40:45] = 0.0
    table = windows(np.zeros(100)).with_columns(input_tokens_per_s=pl.Series(rate))
    (dip,) = dips(table, FAULT)
    assert dip.phase == "input" and dip.recovery_s == pytest.approx(5.0)


def test_runs_without_faults_have_no_dips():
    assert dips_of_faults({"windows": windows([1.0])}, 1.0, 0.05) == []
    assert dips(windows([1.0, 1.0]), {"t_s": 1.0, "kind": "rebalance", "bytes": 5.0}) == []


@draws(40)
@given(
    st.lists(st.floats(0, 1e6), min_size=8, max_size=60),
    st.lists(st.floats(0, 70), max_size=6),
    st.lists(
        st.tuples(st.floats(0, 60), st.integers(0, 2), st.sampled_from(["lost", "running"])),
        max_size=20,
    ),
)
def test_any_course_gives_dips_that_add_up(rate, moments, who):
    rows = [{**FAULT, "t_s": t} for t in moments]
    found = dips(windows(rate), *rows, of=[(a, None, r, s) for a, r, s in who])
    assert [d.at_s for d in found] == sorted(set(moments))
    if found:
        assert sum(d.retried for d in found) == sum(r > 0 for _, r, _ in who)
        assert sum(d.lost for d in found) == sum(s == "lost" for _, _, s in who)
    for dip in found:
        assert dip.sentences.endswith(".") and "nan" not in dip.sentences
        assert dip.recovery_s is None or dip.recovery_s >= 0
        if dip.recovery_s:
            assert dip.lowest_tokens_per_s < dip.before_tokens_per_s


def test_incidents_count_what_happened_and_are_zero_where_nothing_could():
    assert incidents(None, None, 60.0) == Incidents()
    table = events(
        {"t_s": 10.0, "end_s": 12.0, "kind": "rebalance", "bytes": 4e9},
        {"t_s": 20.0, "end_s": 23.0, "kind": "rebalance", "bytes": 6e9},
        {"t_s": 30.0, "end_s": 41.0, "kind": "instance_down", "role": "decode", "instance": 0},
        {"t_s": 50.0, "kind": "instance_down", "role": "prefill", "instance": 1},
        {"t_s": 55.0, "end_s": 99.0, "kind": "instance_down", "role": "prefill", "instance": 2},
    )
    counted = incidents(requests([(1, None, 3, "lost"), (2, 9, 1, "finished")]), table, 60.0)
    assert counted == Incidents(
        lost=1, retried=2, rebalances=2, moved_bytes=1e10, down_s=11 + 10 + 5
    )
    assert as_text("moved_bytes", counted.moved_bytes) == "10.0 GB"


def test_an_old_list_of_states_without_lost_is_no_fault():
    table = pl.DataFrame({"status": pl.Series(["queued"], dtype=pl.Enum(["queued", "finished"]))})
    assert incidents(table, None, 1.0).lost == 0
