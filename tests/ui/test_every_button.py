"""Every button of every page can be pressed, whatever choice the page's address remembers."""

import pytest

from tests.ui.playback_run import done_broken
from tests.ui.stored_runs import done, queued, scenario
from tests.ui.test_run import Runner
from twin.hooks import Page, hooks_of
from twin.lab.plan.drive import Plans
from twin.ui import session
from twin.ui.pages import PAGES

# Page, the runs its address names, the widget whose choice the address remembers, the choice.
VISITS = [
    ("start", "", "shelf", "What if"),
    ("supernode", "", "", ""),
    ("workload", "", "", ""),
    ("deployment", "", "", ""),
    ("plan", "", "", ""),
    ("run", "broken", "section", "Faults"),
    ("run", "done", "section", "Why"),
    ("run", "queued", "", ""),
    ("run", "", "", ""),
    ("playback", "", "", ""),
    ("compare", "done,broken", "figures", "Times"),
    ("compare", "", "", ""),
    ("library", "", "show", "Scenarios"),
]
VISITS += [(name, "", "regime", "decode") for name in hooks_of(Page)]  # of extras


@pytest.fixture
def runs(store, monkeypatch):
    """Ids of runs of every kind; whoever asks for a run gets the one that is done."""
    kept = {
        "done": done(store, scenario("Done")),
        "broken": done_broken(store),
        "queued": queued(store, scenario("Waits", workload__rate_req_per_s=7.0)),
    }
    monkeypatch.setattr(session, "runner", lambda: Runner(store))
    monkeypatch.setattr(session, "start_run", lambda s: kept["done"])
    monkeypatch.setattr(Plans, "start", lambda _, plan: "begun")  # no process of its own
    return kept


def visit(app, runs, page, named, choice, chosen):
    app.switch_page(PAGES[page].script)
    ids = ",".join(runs[name] for name in named.split(",") if name)
    query = ({"runs" if page == "compare" else "run": ids} if ids else {}) | (
        {choice: chosen} if choice else {}
    )
    for name, value in query.items():
        app.query_params[name] = value
    if choice:
        app.session_state[choice] = chosen
    app.run()
    assert not app.exception, page
    return app


def pressable(app):
    return [b.key for b in app.button if b.key and not b.disabled]


@pytest.mark.parametrize("where", VISITS, ids=lambda v: "-".join(part for part in v if part))
def test_every_button_can_be_pressed(app, runs, where):
    pressed = set()
    _, _, choice, chosen = where
    for key in pressable(visit(app, runs, *where)):
        kind = key.partition(":")[0].partition("-")[0]
        if kind in pressed and where[0] == "start":
            continue  # a card's buttons stand for those of the others
        stays = not choice or app.query_params.get(choice) == [chosen]
        if not (stays and key in pressable(app)) and key not in pressable(visit(app, runs, *where)):
            continue  # gone with what was pressed before
        app.button(key=key).click().run()
        assert not app.exception, key
        pressed.add(kind)
    assert pressed
