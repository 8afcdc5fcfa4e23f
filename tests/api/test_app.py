"""The JSON API: the same questions, answers and refusals as on the pages and the command line."""

import json
import time

import pytest
from starlette.testclient import TestClient

from tests.lab.plan.small import BASE, facts, plan
from twin.api.app import MOST_BYTES, application
from twin.lab.plan import drive
from twin.lab.plan.drive import plans_of
from twin.lab.runs.executor import Runner
from twin.lab.store import open_store

SHORT = {"horizon_s": 20.0, "warmup_s": 5.0, "workload.rate_req_per_s": 20.0}
QUESTION = {"scenario": "quickstart", "settings": SHORT}
# Runs begin empty, so that they are few, and instances have one size, since every process of a plan
# prices all sizes anew; a stop has to come between the first run and the last of eight.
LIMITS = {"goal": "npus", "vary": ["instances", "decode_batch"], "simulations": 4, "finalists": 1}
NOWHERE = {"scenario": {"supernode": {"machine": "nowhere"}}}
UNKNOWN = {  # by what names nothing
    "model": {"deployment.model": "gpt-9"},
    "stack": {"deployment.stack": "none-such"},
    "lengths": {"workload.lengths": "none-such"},
    "node 999": {"faults": [{"element": "node 999", "at_s": 2.0}]},
    "no dies": {"faults": [{"element": "L1 0.0", "kind": "slow", "at_s": 2.0}]},
    "wombat 3": {"supernode.edits": [{"element": "wombat 3", "capacity_factor": 0.5}]},
}
UNSTORED = {
    "scenario": "quickstart",
    "settings": {"workload.arrivals": "trace", "workload.trace.digest": 64 * "0"},
}
PLAN = {"scenario": BASE | {"start": "empty"}, "limits": LIMITS}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    opened = open_store(f"sqlite:///{tmp_path_factory.mktemp('api') / 'twin.db'}")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def client(store):
    runner = Runner(store).start()
    with TestClient(application(lambda _: store, lambda: runner)) as browser:
        yield browser
    runner.close(kill=True)


@pytest.fixture
def planner(store):
    with TestClient(application(lambda _: store, lambda: pytest.fail("no run"))) as browser:
        yield browser


def test_a_run_is_submitted_followed_and_read(client):
    answer = client.post("/runs", json=QUESTION)
    assert answer.status_code == 202
    run = answer.json()["run"]
    while (seen := client.get(f"/runs/{run}").json())["state"] in ("queued", "running"):
        time.sleep(0.1)
    assert seen["state"] == "done" and seen["valid"]
    assert seen["summary"]["requests"] > 0
    rows = client.get(f"/runs/{run}/tables/requests").json()
    assert len(rows) >= seen["summary"]["requests"]
    unknown = client.get(f"/runs/{run}/tables/request")
    assert unknown.status_code == 404
    assert all(table in unknown.json()["detail"] for table in seen["tables"])
    again = client.post("/runs", json=QUESTION).json()
    assert again["run"] == run and again["digest"] == seen["digest"]


def test_a_formula_answers_at_once(client):
    answer = client.post("/predict", json={"scenario": "paper-decode-50ms-4k"}).json()
    assert answer["summary"]["decode_tokens_per_s_per_npu"] > 0


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "says"),
    [
        ("POST", "/runs", {"scenario": "quick-start"}, 422, "quickstart"),
        ("POST", "/runs", {"scenario": "/etc/passwd.toml"}, 422, "preset"),
        ("POST", "/runs", {"scenario": "quickstart", "settings": {"x": 1}}, 422, "x"),
        ("POST", "/runs", {"scenario": {"step_s": -1}}, 422, "step_s"),
        ("POST", "/runs", {"scenario": "quickstart", "settings": {"seed": True}}, 422, "number"),
        ("POST", "/runs", {"setting": {}}, 422, "scenario"),
        ("POST", "/runs", {"scenario": {"name": "a" * MOST_BYTES}}, 413, "bytes"),
        ("GET", "/runs/none", None, 404, "none"),
        ("DELETE", "/runs/none", None, 404, "none"),
        ("POST", "/plans", {"scenario": "quick-start"}, 422, "quickstart"),
        ("POST", "/plans", PLAN | {"limits": {"goal": "fast"}}, 422, "goal"),
        ("POST", "/plans", PLAN | {"limits": {"simulations": True}}, 422, "number"),
        ("POST", "/plans", PLAN | {"limits": {"vary": ["x"]}}, 422, "does not vary"),
        ("POST", "/plans", PLAN | {"limits": {"scenario": BASE}}, 422, "scenario"),
        ("POST", "/plans", PLAN | {"limit": {}}, 422, "a request has no 'limit'"),
        ("POST", "/plans", PLAN | {"limits": {"survives": "node"}}, 422, "should be a list"),
        ("POST", "/plans", PLAN | {"limits": 5}, 422, "limits should be a JSON object"),
        ("POST", "/predict", NOWHERE, 422, "neither a recipe nor an imported machine"),
        ("POST", "/predict", UNSTORED, 409, "trace"),
        ("POST", "/plans", PLAN | {"settings": {"horizon_s": 604_800.0}}, 413, "shorten"),
        ("GET", "/plans/none", None, 404, "plan"),
        ("DELETE", "/plans/..%2Fnone", None, 404, ""),
        ("GET", "/plans/none/result", None, 404, "plan"),
    ],
)
def test_a_refusal_is_one_sentence(client, method, path, body, status, says):
    answer = client.request(method, path, json=body)
    assert answer.status_code == status, answer.text
    assert says in answer.json()["detail"] and "\n" not in answer.json()["detail"]


@pytest.mark.parametrize("path", ["/runs", "/predict", "/plans"])
@pytest.mark.parametrize("says", UNKNOWN)
def test_what_names_nothing_is_refused_before_it_is_queued(client, path, says):
    answer = client.post(path, json={"scenario": "quickstart", "settings": UNKNOWN[says]})
    assert answer.status_code == 422, answer.text
    assert says in answer.json()["detail"]


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ('{"scenario": ', "application/json", "no JSON: Expecting value at character 13"),
        ('{"scenario": "quickstart"}', "text/plain", "sent as content-type: application/json"),
        ("[5]", "application/json", "should be a JSON object"),
        ('{"scenario": 5}', "application/json", "a preset's key or a table of fields"),
        ('{"settings": []}', "application/json", "scenario: Field required"),
    ],
)
def test_a_body_that_is_no_question_is_told_what_it_should_be(client, text, kind, says):
    answer = client.post("/predict", content=text, headers={"content-type": kind})
    assert answer.status_code == 422 and says in answer.json()["detail"], answer.text


def test_a_foreign_name_that_leads_here_gets_nothing():
    app = application(
        lambda _: pytest.fail("asked"), lambda: pytest.fail("asked"), ["twin.example"]
    )
    with TestClient(app, base_url="http://rebound.example") as foreign:
        assert foreign.get("/presets").status_code == 400


def test_openapi_names_every_path(client):
    assert set(client.get("/openapi.json").json()["paths"]) == {
        "/presets", "/predict", "/runs", "/runs/{run}", "/runs/{run}/tables/{table}",
        "/plans", "/plans/{plan}", "/plans/{plan}/result",
    }  # fmt: skip


def after(planner, key):
    """The plan once it is no longer at work."""
    while (seen := planner.get(f"/plans/{key}").json())["working"]:
        time.sleep(0.3)  # each look takes milliseconds
    return seen


def stopped_at_work(planner, folder):
    """(question, key) of a plan that was stopped after its first run, with runs still to do. On a
    machine too busy for that it ended before the stop came: then one with longer runs."""
    for horizon_s in (60.0, 240.0, 960.0):
        question = PLAN | {"scenario": PLAN["scenario"] | {"horizon_s": horizon_s}}
        answer = planner.post("/plans", json=question)
        assert answer.status_code == 202, answer.text
        key = answer.json()["plan"]
        assert answer.json()["limits"]["simulations"] == 4 and answer.json()["name"] == "small"
        early = planner.get(f"/plans/{key}/result")
        assert early.status_code == 409 and "at work" in early.json()["detail"]
        simulated = folder / key / "simulated.jsonl"
        while not simulated.exists() and planner.get(f"/plans/{key}").json()["working"]:
            time.sleep(0.1)
        planner.delete(f"/plans/{key}")
        if "stopped" in after(planner, key)["problem"]:
            return question, key
    return pytest.fail("no plan was stopped while it was at work")


def test_a_plan_is_begun_followed_stopped_taken_up_again_and_read(planner, store):
    folder = plans_of(store.artefacts.folder, facts()).folder
    question, key = stopped_at_work(planner, folder)
    simulated = folder / key / "simulated.jsonl"
    stopped = planner.get(f"/plans/{key}/result")
    assert stopped.status_code == 409 and "stopped" in stopped.json()["detail"]
    with simulated.open("a") as file:
        file.write("no simulation\n")  # is lost where the plan begins anew
    before = simulated.read_text().splitlines()

    assert planner.post("/plans", json=question).json()["plan"] == key
    seen = after(planner, key)
    assert seen["answered"] and seen["progress"] == 1.0 and not seen["problem"]
    lines = simulated.read_text().splitlines()
    assert 1 < len(before) < len(lines) and lines[: len(before)] == before
    digests = [json.loads(line)["scenario"] for line in lines if line != "no simulation"]
    assert len(set(digests)) == len(digests)  # nothing is simulated twice
    found = planner.get(f"/plans/{key}/result").json()
    assert {"ranked", "gap", "relaxations", "front", "ledger"} <= found.keys()
    assert found == json.loads(
        json.dumps(plans_of(store.artefacts.folder, facts()).state_of(key).answer)
    )
    # The same question is that plan, answered: nothing begins.
    assert planner.post("/plans", json=question).json() == seen


def test_a_read_only_server_shows_plans_and_begins_and_stops_none(store):
    plans = plans_of(store.artefacts.folder, facts())
    key = plans.key(plan(simulations=5))
    (plans.folder / key).mkdir(parents=True)
    plans.write_question(key, plan(simulations=5))
    shown = application(
        lambda _: store.for_visitor("", writes=False), lambda: pytest.fail("no run")
    )
    with TestClient(shown) as visitor:
        assert visitor.get(f"/plans/{key}").json()["name"] == "small"
        for refused in (visitor.post("/plans", json=PLAN), visitor.delete(f"/plans/{key}")):
            assert refused.status_code == 409 and "keeps nothing" in refused.json()["detail"]
    assert not (plans.folder / key / "stop").exists()


def test_a_login_is_needed_where_runs_need_one():
    def refuse(_):
        raise PermissionError("log in first")

    with TestClient(application(refuse, lambda: pytest.fail("no run"))) as visitor:
        for method, path in (("POST", "/plans"), ("GET", "/plans/x"), ("DELETE", "/plans/x")):
            assert visitor.request(method, path, json=PLAN).status_code == 401


def test_more_plans_than_may_work_are_refused(planner, monkeypatch):
    monkeypatch.setattr("twin.lab.plan.drive.WORKING_MOST", 0)
    answer = planner.post("/plans", json=PLAN | {"limits": {**LIMITS, "simulations": 3}})
    assert answer.status_code == 409 and "at work" in answer.json()["detail"]


def test_openapi_describes_the_limits(planner):
    schemas = planner.get("/openapi.json").json()["components"]["schemas"]
    limits = schemas["PlanQuestion"]["properties"]["limits"]
    assert limits["properties"]["goal"]["enum"] == ["efficiency", "rate", "npus"]
    assert "scenario" not in limits["properties"]
    assert drive.Plan.model_fields.keys() == {*limits["properties"], "scenario"}
