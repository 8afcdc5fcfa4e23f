"""Figures that were fitted or chosen are declared and counted; first errors are of a commit."""

import math
import re
import subprocess

import pytest

from twin.extras.evidence import made
from twin.extras.evidence.made import load_made
from twin.lab.evidence.judge import answer_row
from twin.lab.evidence.rows import EvidenceError, Row, error_limits, load_published
from twin.lab.library import load_facts

IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@b")
UNSTATED = re.compile(r"not stated|assumed|recalled|acceptance not")


@pytest.fixture(scope="module")
def facts():
    return load_facts()


@pytest.fixture(scope="module")
def rows():
    return {row.id: row for row in load_published()}


def test_what_was_seen_is_a_published_row(facts, rows):
    for figure in made.unsourced_figures(facts):
        assert set(figure.saw) <= set(rows), figure.name
        assert set(figure.rows) <= set(rows), figure.name
        assert figure.kind not in ("fitted", "chosen") or figure.saw, figure.name


def test_every_constant_and_every_fitted_figure_of_a_stack_is_among_them(facts):
    names = {figure.name for figure in made.unsourced_figures(facts)}
    assert {f"calibration.{name}" for name in facts.names("calibration")} <= names
    assert {n for n, f in facts.items() if n.startswith("stacks.") and f.mark == "f"} <= names


def test_a_seen_row_that_admits_a_choice_names_it_among_the_choices(facts, rows):
    chosen = {
        row for figure in made.unsourced_figures(facts) for row in (*figure.rows, *figure.saw)
    }
    admits = {r.id for r in rows.values() if r.kind == "seen" and UNSTATED.search(r.note)}
    assert admits - chosen - {"jiusi-mtp-gain"} == set()


def test_a_choice_stands_in_its_rows_as_it_says(facts, rows):
    for figure in made.unsourced_figures(facts):
        for name in figure.rows:
            row = rows[name]
            if figure.fact:
                assert figure.fact in row.facts, figure.name
            elif figure.field != "deployment.decode.mtp_acceptance":
                assert figure.field in row.scenario, (figure.name, name)


def test_figures_that_move_a_row_are_counted_and_no_more_than_the_bar(facts, rows):
    kept = {each.name: each for each in load_made().figures}
    figures = {figure.name: figure for figure in made.unsourced_figures(facts)}
    assert set(figures) == set(kept)  # one more in data/ is one more to work out
    known: dict[str, float] = {}
    counted = 0
    for name, each in kept.items():
        if not each.moves_rows:
            continue
        row = rows[each.row]
        known.setdefault(row.id, answer_row(row, facts))
        counted += made.largest_move(figures[name], facts, [row], known).moves_rows
    assert counted <= error_limits().figures
    assert counted >= 0.9 * load_made().moving_figure_count


def test_a_change_of_a_figure_moves_the_row_that_it_saw(facts, rows):
    figure = next(f for f in made.unsourced_figures(facts) if f.name == "calibration.quantise")
    row = rows["cm384-dispatch-ep8"]
    most = made.largest_move(figure, facts, [row], {row.id: answer_row(row, facts)})
    assert most.row == row.id
    assert most.moves_rows
    assert not math.isinf(most.share)


def test_a_first_error_is_never_asked_for_twice_and_belongs_to_a_commit(tmp_path, monkeypatch):
    row = next(r for r in load_published() if r.id == "cm384-kv-bytes")
    unseen = Row(**{**vars(row), "kind": "unseen"})
    monkeypatch.setattr(made, "load_published", lambda: [unseen])
    monkeypatch.setattr(made, "clean_commit", lambda root: "c" * 40)
    path = tmp_path / "first.toml"
    assert [new["id"] for new in made.add_first_errors(load_facts(), path)] == [row.id]
    before = path.read_text("utf-8")
    assert made.add_first_errors(load_facts(), path) == []
    assert path.read_text("utf-8") == before


def test_a_first_error_needs_a_clone_without_changes(tmp_path):
    with pytest.raises(EvidenceError, match="git clone"):
        made.clean_commit(tmp_path)
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "empty"]):
        subprocess.run(["git", "-C", str(tmp_path), *IDENTITY, *words], check=True)
    assert len(made.clean_commit(tmp_path)) == 40
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.toml").write_text("", "utf-8")
    with pytest.raises(EvidenceError, match="commit the changes"):
        made.clean_commit(tmp_path)
