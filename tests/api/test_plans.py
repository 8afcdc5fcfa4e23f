"""Plans in the JSON API: begun, followed, stopped, taken up again and read, as on the pages."""

import json
import time

import pytest
from starlette.testclient import TestClient

from tests.lab.plan.small import BASE, VARY, facts, plan
from twin.api.app import application
from twin.lab.plan import drive
from twin.lab.plan.work import plans_of
from twin.lab.store import open_store

LIMITS = {"goal": "npus", "vary": VARY, "simulations": 4, "finalists": 1}
QUESTION = {"scenario": BASE, "limits": LIMITS}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    opened = open_store(f"sqlite:///{tmp_path_factory.mktemp('api') / 'twin.db'}")
    yield opened
    opened.close()


@pytest.fixture
def client(store):
    with TestClient(application(lambda _: store, lambda: pytest.fail("no run"))) as browser:
        yield browser


def after(client, key):
    """The plan once it is no longer at work."""
    while (seen := client.get(f"/plans/{key}").json())["working"]:
        time.sleep(0.05)
    return seen


def test_a_plan_is_begun_followed_stopped_taken_up_again_and_read(client, store):
    answer = client.post("/plans", json=QUESTION)
    assert answer.status_code == 202, answer.text
    key = answer.json()["plan"]
    assert answer.json()["limits"]["simulations"] == 4 and answer.json()["name"] == "small"
    early = client.get(f"/plans/{key}/result")
    assert early.status_code == 409 and "at work" in early.json()["detail"]
    assert client.delete(f"/plans/{key}").status_code == 200
    assert "stopped" in after(client, key)["problem"]
    stopped = client.get(f"/plans/{key}/result")
    assert stopped.status_code == 409 and "stopped" in stopped.json()["detail"]

    assert client.post("/plans", json=QUESTION).json()["plan"] == key
    seen = after(client, key)
    assert seen["answered"] and seen["progress"] == 1.0 and not seen["problem"]
    found = client.get(f"/plans/{key}/result").json()
    assert {"ranked", "gap", "relaxations", "front", "ledger"} <= found.keys()
    assert found == json.loads(
        json.dumps(plans_of(store.artefacts.folder, facts()).look(key).answer)
    )
    # The same question is that plan, answered: nothing begins.
    assert client.post("/plans", json=QUESTION).json() == seen


def test_a_read_only_server_shows_plans_and_begins_and_stops_none(store):
    plans = plans_of(store.artefacts.folder, facts())
    key = plans.key(plan(simulations=5))
    (plans.folder / key).mkdir(parents=True)
    plans.write_question(key, plan(simulations=5))
    shown = application(lambda _: store.of("", writes=False), lambda: pytest.fail("no run"))
    with TestClient(shown) as visitor:
        assert visitor.get(f"/plans/{key}").json()["name"] == "small"
        for refused in (visitor.post("/plans", json=QUESTION), visitor.delete(f"/plans/{key}")):
            assert refused.status_code == 409 and "keeps nothing" in refused.json()["detail"]
    assert not (plans.folder / key / "stop").exists()


def test_a_login_is_needed_where_runs_need_one():
    def refuse(_):
        raise PermissionError("log in first")

    with TestClient(application(refuse, lambda: pytest.fail("no run"))) as visitor:
        for method, path in (("POST", "/plans"), ("GET", "/plans/x"), ("DELETE", "/plans/x")):
            assert visitor.request(method, path, json=QUESTION).status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "says"),
    [
        ("POST", "/plans", {"scenario": "quick-start"}, 422, "quickstart"),
        ("POST", "/plans", QUESTION | {"limits": {"goal": "fast"}}, 422, "goal"),
        ("POST", "/plans", QUESTION | {"limits": {"vary": ["x"]}}, 422, "does not vary"),
        ("POST", "/plans", QUESTION | {"limits": {"scenario": BASE}}, 422, "scenario"),
        ("POST", "/plans", QUESTION | {"limit": {}}, 422, "limit"),
        ("POST", "/plans", QUESTION | {"settings": {"horizon_s": 604_800.0}}, 413, "shorten"),
        ("GET", "/plans/none", None, 404, "plan"),
        ("DELETE", "/plans/..%2Fnone", None, 404, ""),
        ("GET", "/plans/none/result", None, 404, "plan"),
    ],
)
def test_a_refusal_is_one_sentence(client, method, path, body, status, says):
    answer = client.request(method, path, json=body)
    assert answer.status_code == status, answer.text
    assert says in answer.json()["detail"] and "\n" not in answer.json()["detail"]


def test_more_plans_than_may_work_are_refused(client, monkeypatch):
    monkeypatch.setattr("twin.lab.plan.work.WORKING_MOST", 0)
    answer = client.post("/plans", json=QUESTION | {"limits": {**LIMITS, "simulations": 3}})
    assert answer.status_code == 409 and "at work" in answer.json()["detail"]


def test_openapi_describes_the_limits(client):
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    limits = schemas["PlanQuestion"]["properties"]["limits"]
    assert limits["properties"]["goal"]["enum"] == ["efficiency", "rate", "npus"]
    assert "scenario" not in limits["properties"]
    assert drive.Plan.model_fields.keys() == {*limits["properties"], "scenario"}
