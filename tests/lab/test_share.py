"""Links: made, opened, and refused with a sentence."""

import base64
import zlib
from random import Random
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.draws import draws
from tests.lab import fake_engine
from twin.lab.library import presets
from twin.lab.share import links
from twin.lab.share.links import NotHere, ShareError
from twin.lab.store import Owner, StoreError
from twin.scenario import Edit, Scenario, Supernode, with_overrides

ME = Owner.current("me")


def query_of(url):
    return dict(parse_qsl(urlsplit(url).query))


def packed(body: bytes) -> str:
    return base64.urlsafe_b64encode(zlib.compress(body, 9)).decode().rstrip("=")


@pytest.mark.parametrize("preset", presets(), ids=lambda p: p.key)
def test_a_preset_travels_inside_a_link(store, preset):
    url = links.scenario_link(preset.scenario)
    assert url.startswith("/?s=")
    assert len(url) < 2000
    assert links.open_scenario(query_of(url), store, id) == preset.scenario


def opened(text):
    """The scenario of a link with this inside."""
    return links.open_scenario({links.PORTABLE: text}, None, id)


@draws(40)
@given(
    name=st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=120),
    seed=st.integers(0, 2**31 - 1),
)
def test_any_scenario_travels_inside_a_link(name, seed):
    scenario = Scenario(name=name, seed=seed)
    assert opened(links.pack_scenario(scenario)) == scenario


@draws(200)
@given(text=st.one_of(st.text(max_size=50), st.binary(max_size=50).map(packed)))
def test_no_text_in_a_link_does_more_than_be_refused(text):
    with pytest.raises(ShareError):
        opened(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("!", "damaged"),
        (links.pack_scenario(Scenario())[:-20], "cut off"),
        ("A" * 9000, "longer than the 8,000"),
        (packed(b" " * 400_000), "more than 256 KiB"),
        (packed(b"\xff"), "no text"),
        (packed(b'{"schema":1,"scenario":{"colour":1}}'), "colour is not a field"),
        (packed(b'{"schema":1,"scenario":{"horizon_s":-1}}'), "horizon_s = -1"),
        (packed(b'{"schema":99,"scenario":{}}'), "update the twin"),
    ],
)
def test_a_broken_link_is_refused_in_one_sentence(text, said):
    with pytest.raises(ShareError, match=said):
        opened(text)


@pytest.mark.parametrize("behind", [".", ",", ")", ").", "]", ">", '"', "’,", "?", "…", "。"])
def test_punctuation_behind_a_link_is_not_part_of_it(store, add_run, behind):
    scenario = Scenario(name="from a sentence")
    assert opened(links.pack_scenario(scenario) + behind) == scenario
    query = query_of(links.share_scenario(store, scenario))
    assert links.open_scenario({"scenario": query["scenario"] + behind}, store, id) == scenario
    first, second = add_run(), add_run()
    assert links.open_run({"run": first + behind}, store).id == first
    compared = links.open_runs({"runs": f"{first},{second}{behind}"}, store)
    assert [row.id for row in compared] == [first, second]


def test_a_draft_too_long_for_an_address_is_named_but_not_stored(store):
    short = Scenario(name="short")
    assert links.contains_scenario(links.draft_url(short))
    random = Random(1)
    edits = tuple(
        Edit(element=f"die {n}.{i}.{d}", capacity_factor=random.random())
        for n in range(48) for i in range(8) for d in range(2)
    )  # fmt: skip
    long = Scenario(name="long", supernode=Supernode(edits=edits))
    url = links.draft_url(long)
    assert not links.contains_scenario(url)
    with pytest.raises(ShareError, match="no scenario here"):
        links.open_scenario(query_of(url), store, id)
    links.share_scenario(store, long)
    assert links.open_scenario(query_of(url), store, id) == long


def test_a_stored_scenario_opens_by_its_digest_and_stays(store):
    scenario = Scenario(name="shared")
    url = links.share_scenario(store, scenario)
    assert links.open_scenario(query_of(url), store, id) == scenario
    with pytest.raises(StoreError, match="shared"):
        store.scenarios.delete(query_of(url)["scenario"])


@pytest.mark.parametrize("digest", ["0" * 64, "../../etc/passwd", "", "A" * 64])
def test_an_unknown_scenario_is_a_sentence(store, digest):
    with pytest.raises(ShareError, match="id"):
        links.open_scenario({"scenario": digest}, store, id)


def test_a_run_opens_as_stored_and_sharing_keeps_it(store, add_run):
    run = add_run(owner=ME)
    with pytest.raises(StoreError, match="when it has ended"):
        store.runs.publish(run)
    store.runs.finish(run, ME, fake_engine.answer(Scenario()), 1.0)
    store.runs.publish(run)
    url = links.run_url(run)
    assert url == f"/run?run={run}"
    assert links.open_run(query_of(url), store).id == run
    assert store.runs.get(run).published_s is not None


@pytest.mark.parametrize("name", ["a" * 24, "-" * 24, "../x", "'; DROP TABLE runs", "x" * 500])
def test_an_unknown_run_is_a_clear_answer(store, name):
    found = links.open_run({"run": name}, store)
    assert isinstance(found, NotHere)
    assert "id" in found.message
    assert links.open_run({}, store) is None


def test_a_damaged_run_is_a_clear_answer(store, add_run, monkeypatch):
    def damaged(_run):
        raise StoreError("the result is damaged")

    run = add_run()
    monkeypatch.setattr(store.runs, "get", damaged)
    assert links.open_run({"run": run}, store).message == "the result is damaged"


def test_a_comparison_keeps_its_runs_and_baseline(store, add_run):
    runs = [add_run(Scenario(seed=seed)) for seed in range(3)]
    url = links.compare_url([*runs, runs[0]], baseline=runs[2])
    opened = links.open_runs(query_of(url), store)
    assert [row.id for row in opened] == [runs[2], runs[0], runs[1]]
    with pytest.raises(ShareError, match="at most 6"):
        links.open_runs({"runs": ",".join(f"{i}" * 24 for i in range(7))}, store)


def test_the_part_of_an_address_that_names_a_scenario():
    assert links.scenario_query({"s": "x", "scenario": "y"}) == "s=x"
    assert links.scenario_query({"scenario": "y", "run": "z"}) == "scenario=y"
    assert links.scenario_query({"run": "z", "s": ""}) == ""


def test_a_link_of_runs_says_what_they_asked_and_a_long_one_only_which(store):
    asked = [Scenario(seed=1), Scenario(seed=2)]
    assert links.linked_scenarios(query_of(links.run_url("r" * 24, asked[0])), id) == asked[:1]
    url = links.compare_url(["a" * 24, "b" * 24], "", asked)
    assert links.linked_scenarios(query_of(url), id) == asked
    assert links.RUNS in query_of(url)
    noise = Random(1)
    edits = tuple(Edit(element=f"node {i}", capacity_factor=noise.random()) for i in range(40 * 48))
    long = Scenario(supernode=Supernode(edits=edits))
    assert query_of(links.run_url("r" * 24, long)) == {"run": "r" * 24}
    with pytest.raises(ShareError):
        links.linked_scenarios({"asked": "!"}, id)


def test_a_scenario_opens_to_who_holds_it_until_its_link_is_given_away(store):
    ann, ben = store.for_visitor("ann"), store.for_visitor("ben")
    own = with_overrides(presets()[0].scenario, {"name": "hers", "seed": 77})
    digest = ann.scenarios.save(own)
    link = {"scenario": digest}
    assert links.open_scenario(link, ann, id) == own
    with pytest.raises(ShareError, match="no scenario here has the id"):
        links.open_scenario(link, ben, id)
    links.share_scenario(ann, own)
    assert links.open_scenario(link, ben, id) == own
