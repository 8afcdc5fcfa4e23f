"""Names, tags and notes: found by, each visitor's own, gone and back with what they are about."""

import pytest

from tests.lab import fake_engine
from tests.lab.test_archive import exported, filled, taken  # noqa: F401 - a fixture
from tests.lab.test_store import ME
from twin.lab.store import StoreError
from twin.lab.store.archive import export_runs
from twin.lab.store.visitors import TAGS_MAX, TEXT_CHARS, TITLE_CHARS
from twin.scenario import Scenario

ANN, BEN = "https://id.example ann", "https://id.example ben"


@pytest.fixture
def done(store, add_run):
    """Ids of two finished runs."""
    ids = []
    for seed in (1, 2):
        scenario = Scenario(name="Quick start", seed=seed)
        ids.append(add_run(scenario, owner=ME))
        assert store.runs.finish(ids[-1], ME, fake_engine.answer(scenario), wall_s=1.0)
    return ids


def ids(store, *words, **options):
    return [row.id for row in store.runs.search(*words, **options).rows]


def test_a_run_is_found_by_its_name_its_note_and_its_tags(store, done):
    first, second = done
    store.notes.write(first, " Before   the upgrade", ["baseline", "q3 report"], "UB at 90 %")
    for words in ("upgrade", "before report", "90 %", "quick baseline"):
        assert ids(store, words) == [first]
    assert set(ids(store, "quick")) == {first, second}
    assert ids(store, tags=["q3 report", "baseline"]) == [first]
    assert ids(store, tags=["report"]) == []  # a tag is all of it, a search a part
    assert store.notes.notes_on([first, second])[first].title == "Before the upgrade"
    assert store.notes.tags() == ["baseline", "q3 report"]


def test_a_scenario_is_found_by_what_was_written_about_it(store):
    digest = store.scenarios.save(Scenario(name="plain"))
    store.notes.write(digest, "", ["mine"], "")
    assert [row.digest for row in store.scenarios.search("mine").rows] == [digest]
    assert [row.digest for row in store.scenarios.search(tags=["mine"]).rows] == [digest]


def test_nothing_written_is_nothing_kept(store, done):
    store.notes.write(done[0], "Once", [], "")
    store.notes.write(done[0], "", [" "], " ")
    assert store.notes.notes_on(done) == {}
    assert store.notes.tags() == []


@pytest.mark.parametrize(
    "words",
    [("x" * (TITLE_CHARS + 1), [], ""), ("", [], "x" * (TEXT_CHARS + 1)), ("", ["x" * 41], ""),
     ("", [str(i) for i in range(TAGS_MAX + 1)], "")],
)  # fmt: skip
def test_what_is_too_long_is_refused_and_changes_nothing(store, done, words):
    store.notes.write(done[0], "Kept", [], "")
    with pytest.raises(StoreError, match="at most"):
        store.notes.write(done[0], *words)
    assert store.notes.notes_on(done)[done[0]].title == "Kept"


def test_each_visitor_reads_and_finds_only_their_own(store, done):
    ann, ben = store.for_visitor(ANN), store.for_visitor(BEN)
    preset = store.scenarios.save(Scenario(name="preset"), preset="p")
    ann.notes.write(preset, "Ann's name", ["hers"], "")
    assert ben.notes.notes_on([preset]) == {} and ben.notes.tags() == []
    assert ben.scenarios.search("hers").rows == [] and ben.scenarios.search("preset").total == 1
    assert ann.scenarios.search("hers").total == 1
    with pytest.raises(StoreError, match="keeps nothing"):
        store.for_visitor("", writes=False).notes.write(preset, "x", [], "")


def test_a_deletion_takes_the_note_along_and_its_undo_brings_it_back(store, done):
    store.notes.write(done[0], "Named", ["a"], "b")
    undo = store.runs.delete(done[0])
    assert store.notes.notes_on(done) == {}
    undo()
    assert store.notes.notes_on(done)[done[0]].title == "Named"
    digest = store.scenarios.save(Scenario(name="draft", seed=77))
    store.notes.write(digest, "Named", [], "")
    undo = store.scenarios.delete(digest)
    assert store.notes.notes_on([digest]) == {}
    undo()
    assert store.notes.notes_on([digest])[digest].title == "Named"


def test_an_archive_carries_what_was_written(filled, new_store):  # noqa: F811
    run = next(row for row in filled.runs.search().rows if row.published_s)
    filled.notes.write(run.id, "Named", ["tag"], "a note")
    filled.notes.write(run.scenario, "", [], "of its scenario")
    other = new_store()
    assert taken(other, exported(filled)).left_out == []
    assert exported(other) == exported(filled)
    assert other.notes.notes_on([run.id])[run.id].text == "a note"
    assert other.notes.notes_on([run.scenario])[run.scenario].text == "of its scenario"
    other.notes.write(run.id, "Renamed here", [], "")
    taken(other, exported(filled))
    assert other.notes.notes_on([run.id])[run.id].title == "Renamed here"


def test_a_visitors_words_become_those_of_whoever_takes_the_run_in(store, done, new_store):
    run = done[0]
    store.runs.publish(run)
    ann, laptop = store.for_visitor(ANN), new_store()
    ann.notes.write(run, "Ann's name", [], "")
    data = export_runs(ann, run)
    assert ANN.encode() not in data
    assert taken(laptop, data).left_out == []
    assert laptop.notes.notes_on([run])[run].title == "Ann's name"
