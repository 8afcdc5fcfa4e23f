"""The JSON API: the same questions, answers and refusals as on the pages and the command line."""

import time

import pytest
from starlette.testclient import TestClient

from twin.api.app import MOST_BYTES, application
from twin.lab.runs.executor import Runner
from twin.lab.store import open_store

SHORT = {"horizon_s": 20.0, "warmup_s": 5.0, "workload.rate_req_per_s": 20.0}
QUESTION = {"scenario": "quickstart", "settings": SHORT}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    store = open_store(f"sqlite:///{tmp_path_factory.mktemp('api') / 'twin.db'}")
    runner = Runner(store).start()
    with TestClient(application(lambda _: store, lambda: runner)) as browser:
        yield browser
    runner.close(kill=True)
    store.close()


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
        ("POST", "/runs", {"setting": {}}, 422, "scenario"),
        ("POST", "/runs", {"scenario": {"name": "a" * MOST_BYTES}}, 413, "bytes"),
        ("GET", "/runs/none", None, 404, "none"),
        ("DELETE", "/runs/none", None, 404, "none"),
    ],
)
def test_a_refusal_is_one_sentence(client, method, path, body, status, says):
    answer = client.request(method, path, json=body)
    assert answer.status_code == status
    assert says in answer.json()["detail"] and "\n" not in answer.json()["detail"]


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
