"""What a published row can say: kinds are never mixed, the headline flatters nobody."""

import tomllib
from dataclasses import replace

import pytest

from twin.lab.evidence import judge, rows
from twin.lab.evidence.judge import MEASURES, MeasureInput, evidence, headline_score
from twin.lab.evidence.rows import EvidenceError, Row, load_published
from twin.lab.library import PUBLISHED, RECORD, load_facts, published_table
from twin.scenario import Scenario, with_overrides


def judged(kind, error, group="CloudMatrix384", **more):
    counts = None if kind in ("circular", "unstated") else error
    return {
        "id": f"{kind}-{error}", "group": group, "system": group, "quantity": "TPOT", "kind": kind,
        "error": error, "judged_error": counts, "outside": False, **more,
    }  # fmt: skip


def test_the_headline_is_the_worse_of_unseen_and_seen_rows_and_of_no_other():
    given = [judged("seen", 0.05), judged("calibrating", 0.9), judged("derived", -0.8)]
    assert headline_score(given, "CloudMatrix384").mean == pytest.approx(0.05)
    given += [judged("unseen", -0.2), judged("unseen", 0.1)]
    best = headline_score(given, "CloudMatrix384")
    assert (best.kind, best.rows) == ("unseen", 2)
    assert best.mean == pytest.approx(0.15)
    assert best.worst == pytest.approx(0.2)
    assert headline_score(given, "other systems") is None


@pytest.mark.parametrize("kind", ["circular", "unstated"])
def test_some_rows_are_judged_by_nothing(kind):
    assert judge.score([judged(kind, 0.5)], "CloudMatrix384", kind) is None


def test_a_published_bound_says_nothing_while_it_is_kept():
    row = next(row for row in load_published() if row.at_most)
    answers = judge.evidence(
        load_facts(), [replace(row, value=v, id=row.id + "?") for v in (10.0, 0.01)]
    )
    assert [each["judged_error"] is None for each in answers] == [True, False]


def test_an_unseen_row_is_judged_by_its_first_error_whatever_the_twin_says_now(monkeypatch):
    row = next(r for r in load_published() if r.id == "cm384-kv-bytes")
    unseen = Row(**{**vars(row), "kind": "unseen"})
    begun = {row.id: rows.First(1.0, -0.4, "abc", unseen.digest)}
    monkeypatch.setattr(judge, "load_first_answers", lambda: begun)
    (answer,) = evidence(load_facts(), [unseen])
    assert answer["judged_error"] == -0.4
    assert answer["error"] == pytest.approx(0.0, abs=1e-6)
    assert answer["outside"]


def test_every_unseen_row_has_a_first_error_of_the_row_as_it_stands():
    kept = rows.load_first_answers()
    of = {row.id: row for row in load_published()}
    assert {row.id for row in of.values() if row.kind in rows.UNSEEN} <= set(kept)
    corrected = tomllib.loads((rows.RECORD / "corrected.toml").read_text("utf-8"))
    assert corrected.keys() <= kept.keys()
    assert all("corrected" in of[name].note for name in corrected)
    for name, begun in kept.items():
        assert (begun.asked != of[name].digest) == (name in corrected)
        assert of[name].digest == corrected.get(name, begun.asked)
        assert begun.error == pytest.approx(begun.twin / of[name].value - 1.0, abs=1e-4)
        assert len(begun.commit) == 40


def test_rows_beyond_the_twin_say_what_is_missing_and_are_no_rows_of_the_twin():
    beyond = rows.load_missing()
    assert len({b["id"] for b in beyond}) == len(beyond)
    assert not {b["id"] for b in beyond} & {row.id for row in load_published()}
    assert all(b["missing"] and b["figure"] and b["source"] for b in beyond)


def test_answers_of_others_stand_beside_rows_that_are_there():
    known = {row.id for row in load_published()}
    others = published_table(RECORD / "others.toml")["answer"]
    assert {other["row"] for other in others} <= known


def test_derived_and_circular_rows_say_why_and_no_other_does():
    for row in load_published():
        assert bool(row.because) == (row.kind in ("derived", "circular", "unstated")), row.id


def test_a_row_of_an_unknown_kind_is_refused(tmp_path):
    table = tomllib.loads(PUBLISHED.read_text("utf-8"))["row"][0]
    lines = [f"{key} = {table[key]!r}" for key in table if isinstance(table[key], str | int)]
    path = tmp_path / "published.toml"
    text = "\n".join(lines).replace("'calibrating'", "'splendid'")
    path.write_text(f"[[row]]\n{text}\n", "utf-8")
    with pytest.raises(EvidenceError, match="kind must be one of unseen"):
        load_published(path)


def test_the_throughput_of_a_benchmark_is_that_of_its_answers_until_the_last_has_ended():
    """One client: each answer after the other, so a prompt and 31 further tokens each."""
    asked = {"deployment.mode": "colocated", "deployment.colocated.instances": 1,
             "deployment.colocated.npus_per_instance": 2, "deployment.decode.tp_dies": 4,
             "deployment.decode.mtp_draft_tokens": 0, "deployment.model": "qwen3-32b",
             "workload.output_tokens": 32, "workload.input_tokens": 512}  # fmt: skip
    ask = MeasureInput(
        with_overrides(Scenario(), asked), load_facts(), {"clients": 1, "prompts": 3}
    )
    ttft_s, tpot_s, each = (MEASURES["benchmark"]([part], ask)
                            for part in ("ttft", "tpot", "throughput"))  # fmt: skip
    assert each == pytest.approx(32 / (ttft_s + 31 * tpot_s) / 2, rel=0.01)


def test_prompts_of_a_benchmark_at_a_rate_end_with_the_last_answer():
    """So slow a rate that requests are alone: the last comes after two gaps and takes its time."""
    asked = {"deployment.mode": "colocated", "deployment.colocated.instances": 1,
             "deployment.colocated.npus_per_instance": 2, "deployment.decode.tp_dies": 4,
             "deployment.decode.mtp_draft_tokens": 0, "deployment.model": "qwen3-32b",
             "workload.output_tokens": 32, "workload.input_tokens": 512}  # fmt: skip
    facts = load_facts()
    alone = MeasureInput(with_overrides(Scenario(), asked), facts, {"clients": 1, "prompts": 3})
    ttft_s, tpot_s = (MEASURES["benchmark"]([part], alone) for part in ("ttft", "tpot"))
    spaced = MeasureInput(with_overrides(Scenario(), asked), facts, {"rate": 0.1, "prompts": 3})
    each = MEASURES["benchmark"](["throughput"], spaced)
    last_s = 3 * 32 / each / 2 - ttft_s - 31 * tpot_s  # when the third request comes
    assert last_s == pytest.approx(20.0, abs=1.0) or last_s == pytest.approx(30.0, abs=1.0)
