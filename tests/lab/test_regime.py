"""The error of the regime that a figure stands in, and the slides' table made from data/."""

import pytest

from twin.lab.evidence.judge import (
    HONEST,
    QUANTITIES,
    evidence,
    near,
    near_each,
    stored_errors,
    write_errors,
)
from twin.lab.evidence.rows import load_published, scenario_of
from twin.lab.library import load_facts, published_table


@pytest.fixture(scope="module")
def facts():
    return load_facts()


def test_the_error_near_a_figure_is_that_of_unseen_and_seen_rows_on_its_chip(facts):
    told = {each.quantity: each for each in near(scenario_of({}), facts)}
    rows = [
        row for row in load_published()
        if row.kind in HONEST and row.measure in QUANTITIES["TPOT"]
        and row.against is None
        and row.scenario.get("supernode.chip", "ascend-910c") == "ascend-910c"
    ]  # fmt: skip
    kept = stored_errors()["error"]
    errors = [abs(kept[row.id]) for row in rows]
    assert told["TPOT"].rows == len(rows) > 5
    assert told["TPOT"].mean == pytest.approx(sum(errors) / len(errors))
    assert told["TPOT"].worst == pytest.approx(max(errors))


def test_errors_are_kept_of_every_row_that_no_fit_helped_and_earlier_facts_are_said(
    facts, tmp_path
):
    rows = [row for row in load_published() if row.id.startswith(("cm384-decode-8", "slides"))]
    answers = evidence(facts, rows)
    path = tmp_path / "errors.toml"
    write_errors(facts, answers, path)
    kept = published_table(path)
    assert kept["error"] == {
        a["id"]: pytest.approx(a["error"], abs=1e-4) for a in answers if a["kind"] == "seen"
    }
    assert set(stored_errors()["error"]) == {
        row.id
        for row in load_published()
        if row.kind in HONEST and not row.at_most  # a bound that is kept says nothing
    }
    other = facts.replaced({"calibration.jitter": 0.02})
    assert "with earlier facts" in near(scenario_of({}), other)[0].sentence


def test_where_nothing_was_published_near_it_is_said(facts):
    told = {each.quantity: each.sentence for each in near(scenario_of({}), facts)}
    assert told["TTFT"] == "TTFT: no row was published near it."


def test_a_pool_that_is_not_deployed_has_no_error(facts):
    alone = scenario_of({"deployment.mode": "prefill_only"})
    assert [each.quantity for each in near(alone, facts)] == ["prefill throughput"]


def test_a_chip_without_rows_takes_those_of_its_family(facts):
    other = scenario_of({"deployment.mode": "decode_only", "supernode.chip": "ascend-950dt"})
    assert all("other Ascend chips" in each.sentence for each in near(other, facts) if each.rows)


def test_an_error_that_runs_share_is_told_once(facts):
    one = scenario_of({"deployment.mode": "decode_only"})
    other = scenario_of({"deployment.mode": "prefill_only"})
    assert len(near_each({"A": one, "B": one}, facts)) == 1
    assert near_each({"A": one, "B": other}, facts)[1].startswith("B: Prefill throughput")
