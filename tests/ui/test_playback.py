"""Playback without a browser: the message that is sent once, and what the page says instead."""

import base64
import json

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.ui.playback_run import FAULT_S, WINDOWS, broken, done_broken, playback_tables
from tests.ui.stored_runs import done, queued, scenario
from tests.ui.test_run import Runner, primary, words
from twin.hardware.fabric import build_fabric
from twin.hardware.placement import place
from twin.lab.library import load_facts
from twin.ui import session
from twin.ui.pages import PAGES
from twin.ui.pages.playback.player import KINDS, event_rows, player_message


@pytest.fixture(autouse=True)
def runner(store, monkeypatch):
    monkeypatch.setattr(session, "runner", lambda: Runner(store))


@pytest.fixture(scope="module")
def made():
    s = broken()
    tables = playback_tables(s)
    return (
        s,
        tables,
        player_message(s, tables, *placed(s)),
    )


def placed(s):
    """Instances of a scenario, and the fabric that they sit on."""
    fabric = build_fabric(s.supernode, load_facts())
    return place(s, fabric).instances, fabric


def numbers(packed):
    return np.frombuffer(base64.b64decode(packed), "<f4")


def opened(app, run="", **query):
    app.switch_page(PAGES["playback"].script)
    for name, value in ({"run": run} if run else {}).items() | query.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    return app


def test_the_message_gives_back_every_node_s_utilisation(made):
    s, tables, film = made
    shares = {name: numbers(v) for name, v in film["shares"].items()}
    moved = numbers(film["bytes"]).reshape(len(film["series"]), WINDOWS)
    room = numbers(film["capacity"]).reshape(s.supernode.nodes, s.supernode.sub_planes + 2)
    window, node, plane = 100, 14, 3
    at = (shares["node"] == node) & (shares["column"] == plane) & (shares["direction"] == 0)
    sent = sum(
        share * moved[int(k), window]
        for k, share in zip(shares["series"][at], shares["share"][at], strict=True)
    )
    mine = tables["traffic"].filter((tables["traffic"]["t_s"] - window * 0.5).abs() < 1e-9)
    expected = 0.0
    for row in (
        tables["shares"].filter(tables["shares"]["direction"] == "out").iter_rows(named=True)
    ):
        if row["node"] == node and row["sub_plane"] == plane:
            rows = mine.filter(
                (mine["plane"] == row["plane"]) & (mine["traffic"] == row["traffic"])
                & (mine["role"] == row["role"]) & (mine["instance"] == row["instance"])
            )  # fmt: skip
            expected += row["share"] * rows["bytes"].sum()
    assert expected > 0
    assert sent == pytest.approx(expected, rel=1e-5)
    assert room[node, plane] == pytest.approx(16 * 28e9, rel=1e-6)


def test_instances_are_windows_by_instances(made):
    s, tables, film = made
    count = len(film["instances"])
    up = numbers(film["measured"]["up"]).reshape(WINDOWS, count)
    k = [name for _, name, *_ in film["instances"]].index("decode 0")
    down = np.flatnonzero(up[:, k] == 0)
    assert down[0] * film["window_s"] == FAULT_S
    assert up[:, :k].min() == 1


def test_an_instance_stands_where_its_dies_are_and_then_where_its_spares_are(made):
    s, tables, film = made
    k = [name for _, name in film["instances"]].index("decode 0")
    own = placed(s)[0][k]
    home, end = own.die_of_rank[0], own.die_of_rank[-1] + 1
    change = int(FAULT_S / film["window_s"])
    assert [place[1:] for place in film["seats"] if place[0] == k] == [
        [home, end, 0, change], [home + 16, end, change, WINDOWS],
        [47 * 16, 48 * 16, change, WINDOWS],
    ]  # fmt: skip
    of_old = player_message(s, {n: t for n, t in tables.items() if n != "seats"}, *placed(s))

    assert [p[1:] for p in of_old["seats"] if p[0] == k] == [[home, end, 0, WINDOWS]]


def test_the_message_is_small_and_plain(made):
    assert len(json.dumps(made[2], allow_nan=False)) < 400_000


def test_curves_are_in_the_unit_they_name(made):
    _, tables, film = made
    [tpot] = [c for c in film["strip"] if c["title"].startswith("TPOT")]
    assert tpot["unit"] == "ms"
    expected = 1e3 * tables["windows"]["tpot_s_mean"].to_numpy()
    assert numbers(tpot["values"]) == pytest.approx(expected, rel=1e-5)


def test_what_happened_is_in_order_and_points_at_the_picture(made):
    _, tables, _ = made
    rows = event_rows(tables["events"], 120.0)
    assert [r["t"] for r in rows] == sorted(r["t"] for r in rows)
    assert next(r for r in rows if r["kind"] == "fault")["element"] == "node 6"
    assert next(r for r in rows if r["kind"] == "detected")["end"] is None


def test_every_kind_of_event_has_a_sign_on_the_strip():
    signs = (ROOT / "twin/ui/pages/playback/playback_strip.js").read_text("utf-8")
    assert [kind for kind in KINDS if f" {kind}: [" not in signs] == []


def test_the_page_shows_the_player_and_what_happened(app, store):
    at = opened(app, done_broken(store))
    assert at.title[0].value == "A node fails"
    assert "What happened" in [h.value for h in at.subheader]
    said = at.dataframe[0].value
    assert list(said["What"])[:1] == ["Something breaks"]
    assert "51" in said["Moved"].iloc[-1]


def test_a_time_in_the_address_that_is_no_number_is_the_beginning(app, store):
    opened(app, done_broken(store), at="soon", see="node 6")


def test_a_run_of_an_earlier_engine_can_be_run_again(app, store):
    at = opened(app, done(store, scenario("Old")))
    assert "earlier engine" in words(at)
    assert primary(at) == ["Run it again"]


def test_a_run_that_waits_leads_to_its_own_page(app, store):
    at = opened(app, queued(store, scenario("Waits")))
    assert "when it has ended" in words(at)


def test_without_a_run_the_latest_are_offered_for_playback(app, store):
    done_broken(store)
    at = opened(app)
    assert "A node fails" in [link.label for link in at.get("page_link")]


@pytest.mark.parametrize("page", ["run", "playback", "experts"])
def test_a_link_to_an_unknown_run_stays_on_its_own_page(app, page):
    app.switch_page(PAGES[page].script)
    app.query_params["run"] = "a" * 24
    app.run()
    assert [title.value for title in app.title] == [PAGES[page].title]
