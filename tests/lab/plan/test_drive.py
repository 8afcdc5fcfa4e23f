"""A whole plan: what it answers, that it answers the same again, and that it can be stopped."""

import json
from functools import cache

import pytest

from tests.draws import FACTOR
from tests.lab.plan.small import MEMORY, as_bytes, brief, brief_answer, facts, plan, small
from tests.lab.searched import ends_soon
from twin.engine.simulate import simulate
from twin.lab.explain.view import slo_met
from twin.lab.plan import drive
from twin.lab.plan.answer import (
    _headroom_sentence,
    answer_sentences,
    brief_text,
    equality_note,
)
from twin.scenario import with_overrides


@cache
def answer():
    """The answer of the small plan, found once. In the suite the largest rate of one deployment is
    searched, in `make long` of two."""
    with ends_soon():
        return drive.carry_out(plan(finalists=min(FACTOR, 2)), facts(), helpers=0)


@cache
def two_ranked():
    """The same of runs that begin empty, for which no largest rate is searched."""
    return drive.carry_out(plan(small(start="empty")), facts(), helpers=0)


def test_the_first_of_the_ranking_keeps_its_slo_when_it_is_run_by_its_settings():
    first = answer()["ranked"][0]
    scenario = with_overrides(plan().scenario, first["settings"])
    run = simulate(scenario, facts())
    assert slo_met(run.summary, scenario)
    assert run.summary["tokens_per_s_per_npu"] == pytest.approx(
        first["summary"]["tokens_per_s_per_npu"], rel=1e-5
    )


def test_ranked_deployments_keep_their_slo_and_have_a_largest_rate():
    rows = answer()["ranked"]
    assert len(rows) == min(FACTOR, 2)
    assert all(r["margins"]["slo_share"] >= -0.01 and r["margins"]["seeds"] == 5 for r in rows)
    assert all(r["margins"]["headroom"] >= 0.0 for r in rows)
    assert all(r["margins"]["breaks_first"] in ("TTFT", "TPOT") for r in rows)


def test_ranked_deployments_differ_and_scores_fall():
    rows = two_ranked()["ranked"]
    assert len(rows) == 2 and rows[0]["key"] != rows[1]["key"]
    scores = [r["score"] for r in rows]
    assert scores == sorted(scores, reverse=True)
    known = [r["ratio_known_within"] for r in rows]
    assert all(f"±{100 * within:.0f} %" in equality_note(rows) for within in known)
    for row, within in zip(rows, known, strict=True):  # of one mode, so the ratio is centred
        near = scores[0] / row["score"] <= 1.0 + within
        assert row["equal_to_first"] == (row is not rows[0] and near)


def test_the_ledger_has_every_deployment_with_its_status():
    whole = answer()
    rows = whole["ledger"]
    kinds = {row["status"] for row in rows}
    assert kinds <= {"feasible", "infeasible", "untested", "failed", "unsupported"}
    assert sum(whole["counts"].values()) - whole["counts"]["simulations"] == len(rows)
    for row in rows:
        assert (row["status"] == "feasible") == bool(row["rank"])
        assert row["rank"] or row["reason"]
        assert all(each["digest"] and each["seed"] for each in row["simulated"])
    json.dumps(whole, allow_nan=False)


def test_the_same_plan_gives_the_same_bytes_and_remembers_its_simulations(monkeypatch):
    """With processes that help and on a cluster too: test_work.py, ../test_cluster.py."""
    once = brief_answer()
    monkeypatch.setattr(drive, "simulate_one", lambda *_: pytest.fail("simulated again"))
    again = drive.carry_out(brief(), facts(), helpers=0, memory=MEMORY)
    assert as_bytes(again) == once


def test_a_plan_stops_when_it_is_told_to():
    with pytest.raises(drive.Stopped):
        drive.carry_out(plan(), facts(), note=lambda _share, _so_far: False, helpers=0)


def test_a_plan_in_progress_says_that_nothing_fits_while_it_looks_for_what_would():
    stages = []

    def note(_share, so_far):
        stages.append(so_far["stage"])
        return not stages[-1].startswith("Nothing fits")

    with pytest.raises(drive.Stopped):
        drive.carry_out(plan(small(slo__ttft_s=0.01)), facts(), note=note, helpers=0)
    assert "Searching" in stages
    assert stages[-1] == "Nothing fits, looking for the smallest change of TPOT SLO (ms)"


def test_it_is_told_in_sentences():
    text = answer_sentences(answer())
    assert "NPUs" in text[0] and any("none needs fewer than" in t for t in text)
    assert "prefill" in brief_text(answer()["ranked"][0]["settings"])


def test_the_sentences_name_headroom_and_the_next_step_for_more_load():
    margins = {"largest_req_per_s": 165.0, "headroom": 0.1, "breaks_first": "TPOT",
               "largest_low": 160.04, "largest_high": None}  # fmt: skip
    row = answer()["ranked"][0] | {"margins": margins, "next_step": "Prefill instances 2: more."}
    text = " ".join(answer_sentences(answer() | {"ranked": [row]}))
    assert "It carries 165 requests/s (at least 160), 10.0 % above the load; with" in text
    assert "Next step for more load: Prefill instances 2: more." in text
    margins["largest_high"] = 170.04
    own_load = " ".join(answer_sentences(answer() | {"ranked": [row], "goal": "rate"}))
    assert "It carries 165 requests/s (surely 160, at most 170); with more, TPOT misses" in own_load


@pytest.mark.parametrize(
    ("headroom", "low", "says"),
    [
        (0.0002, 4.82, "which is the load (at its limit: a long run may miss the SLO); with"),
        (-0.0043, 4.83, "0.4 % below the load (at its limit: a long run may miss the SLO); with"),
        (0.0002, 5.0, "which is the load; with"),
    ],
)
def test_a_load_that_lies_within_what_is_not_sure_is_called_at_its_limit(headroom, low, says):
    margins = {"largest_req_per_s": 5.0 * (1.0 + headroom), "headroom": headroom,
               "breaks_first": "TTFT", "largest_low": low, "largest_high": 5.04}  # fmt: skip
    assert says in " ".join(_headroom_sentence("npus", margins))


def test_a_scenario_is_simulated_once_in_a_plan(monkeypatch):
    simulated = []
    monkeypatch.setattr(drive, "simulate_one", lambda s, _: simulated.append(s) or "refused")
    simulators = drive.Simulators(facts())
    for _ in range(2):
        assert simulators.simulate([plan().scenario], lambda: None) == ["refused"]
    assert len(simulated) == 1
