"""Sections that only some runs have: instances that came and went, a day, clients, memory pool."""

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from tests.engine.small import small
from tests.ui.fake_run import fake_checks, fake_summary, fake_tables
from tests.ui.stored_runs import done, scenario
from tests.ui.test_faults_results import sections_of
from tests.ui.test_run import Runner, opened, words
from twin.engine.simulate import ENGINE_VERSION, simulate
from twin.lab.library import load_facts, presets
from twin.lab.store import Owner
from twin.scenario import with_overrides
from twin.ui import session
from twin.ui.charts import history as charts
from twin.ui.pages import PAGES
from twin.ui.pages.run.own_sections import starts_sentence
from twin.ui.pages.run.sections import held_by_attention_dies


@pytest.fixture(autouse=True)
def runner(store, monkeypatch):
    monkeypatch.setattr(session, "runner", lambda: Runner(store))


def finished(store, s, tables, **summary):
    """A stored run with these tables, and these figures in its summary."""
    owner = Owner.current()
    run = store.runs.add(store.scenarios.save(s), session.facts(), "engine 1", s.seed, owner=owner)
    result = SimpleNamespace(digest="0" * 64, summary=fake_summary(s, tables) | summary,
                             tables=tables, checks=fake_checks(), notes=[], valid=True)  # fmt: skip
    assert store.runs.finish(run, owner, result, 1.0)
    return run


# The section of a run whose instances came, went and changed role.

LIVES = pl.DataFrame(
    [
        ("prefill", 0, "serve", 0.0, 120.0, 16, 0),
        ("prefill", 1, "serve", 0.0, 40.0, 16, 16),
        ("prefill", 1, "drain", 40.0, 42.0, 16, 16),
        ("decode", 0, "serve", 0.0, 120.0, 160, 32),
        ("decode", 1, "load", 42.0, 43.0, 16, 16),
        ("decode", 1, "graphs", 43.0, 50.0, 16, 16),
        ("decode", 1, "serve", 50.0, 120.0, 16, 16),
    ],
    schema=["role", "instance", "state", "t_s", "end_s", "npus", "first_npu"],
    orient="row",
)
SEEN = {
    f"{role}_{name}": value
    for role in ("prefill", "decode")
    for name, value in (
        ("serving", 2), ("starting", 0), ("draining", 0), ("waiting", 3), ("in_hand", 0.4),
        ("busy", 0.9), ("latency", 0.7), ("needed", 1.2), ("wanted", 1),
    )
}  # fmt: skip
DECISIONS = pl.DataFrame(
    [
        {"t_s": t_s, "seen_s": t_s - 5.0, "arrivals_per_s": 10.0, **SEEN, "started": 0,
         "stopped": 0, "changed_role": changed, "held_back": ""}
        for t_s, changed in ((35.0, 1), (65.0, 0))
    ]
)  # fmt: skip


def moved(store):
    s = scenario(elastic__controller="rebalance")
    tables = fake_tables(s, requests=400, windows=20)
    npus = {"prefill_npus": 32.0, "decode_npus": 160.0, "changing_npus": 0.0}
    tables["windows"] = tables["windows"].with_columns(**{k: pl.lit(v) for k, v in npus.items()})
    tables |= {"lives": LIVES, "decisions": DECISIONS}
    return finished(store, s, tables, role_changes=1, goodput_per_npu_hour=321.0)


def test_a_run_whose_instances_stay_has_no_such_section(app, store):
    assert "Instances" not in sections_of(opened(app, done(store, scenario())))


def test_lives_and_decisions_are_told(app, store):
    at = opened(app, moved(store), "Instances")
    assert not at.exception
    assert "321" in words(at) and "2 decisions" in words(at)
    [table] = [d.value for d in at.dataframe if "Changed role" in d.value.columns]
    assert table["Changed role"].to_list() == [1]  # the decision that moved nothing is not listed


def test_every_life_has_a_row_and_every_state_its_colour():
    chart = charts.lives(LIVES, 120.0)
    assert {name for bar in chart.figure.data for name in bar.y} == {
        "prefill 0", "prefill 1", "decode 0", "decode 1",
    }  # fmt: skip
    assert {bar.name for bar in chart.figure.data} == {
        "prefill serves", "decode serves", "loads weights", "makes graphs", "drains",
    }  # fmt: skip


def test_instances_of_several_models_are_named_with_their_model():
    several = LIVES.with_columns(model=pl.lit("b"))
    names = {name for bar in charts.lives(several, 120.0).figure.data for name in bar.y}
    assert names == {"prefill 0, b", "prefill 1, b", "decode 0, b", "decode 1, b"}


def test_starts_say_where_weights_and_npus_came_from():
    assert starts_sentence(LIVES.filter(pl.col("state") == "serve"), 0) == ""
    states = ["load", "load", "load", "fetch", "graphs", "graphs"]
    alone = pl.DataFrame({"state": states, "t_s": [0.0] * 6, "end_s": [60.0] * 6})
    lives = alone.with_columns(model=pl.lit("a"))
    said = starts_sentence(lives, 1)
    assert "Of 3 loads of weights" in said and "2 found them in DRAM" in said
    assert "1 start took the NPUs of another" in said
    assert "another model" not in starts_sentence(
        lives, 2
    ) and "another model" not in starts_sentence(alone, 1)


# The section of a run whose rate follows a day.

DAY = {  # 20 hours
    "workload__profile__shape": "day", "workload__profile__period_s": 144.0, "horizon_s": 120.0,
}  # fmt: skip


def test_a_run_of_minutes_has_no_day(app, store):
    assert "Day" not in sections_of(opened(app, done(store, scenario())))


def test_a_day_is_told_hour_by_hour(app, store):
    at = opened(app, done(store, scenario(**DAY)), "Day")
    assert not at.exception
    assert "NPU-hours" in words(at) and "busiest hour" in words(at)
    [table] = [d.value for d in at.dataframe if "Hour" in d.value.columns]
    assert table["Hour"].to_list() == list(range(20))
    assert {"Prefill NPUs", "Decode NPUs", "NPU-hours", "Without work", "Energy, kWh",
            "Hit ratio, %", "Memory pool used, %", "Requests"} <= set(table.columns)  # fmt: skip
    assert "Starting or draining" not in table.columns  # nobody moves


# The section of a run about its clients: tenants, refusals, sessions; and the tenants' form.

PRESETS = {p.key: p.scenario for p in presets()}
TENANTS = [{"name": "chat", "share": 1.0}, {"name": "batch", "share": 4.0}]


def tenants_served(store, s):
    """A finished run of sessions of four turns, by the scenario's tenants."""
    tables = fake_tables(s, requests=400, windows=20)
    number = np.arange(400)
    names = [t.name for t in s.tenants] or [""]
    tables["requests"] = tables["requests"].with_columns(
        tenant=pl.Series([names[i % len(names)] for i in number], dtype=pl.Enum(names)),
        session=pl.Series(number // 4), turns_left=pl.Series(3 - number % 4),
        asked_s=pl.col("arrival_s"), attempt=pl.lit(0, pl.Int16),
        reason=pl.Series(["above the rate limit"] + 399 * [""]),
    )  # fmt: skip
    return finished(store, s, tables, asked_again=17, sessions_finished=42)


def test_a_run_of_one_tenant_that_nobody_leaves_has_no_such_section(app, store):
    assert "Clients" not in sections_of(opened(app, done(store, scenario())))


def test_each_tenant_has_its_row_with_units_and_the_reasons_a_picture(app, store):
    at = opened(app, tenants_served(store, PRESETS["two-tenants"]), "Clients")
    (table,) = (d.value for d in at.dataframe if "Goodput" in d.value.columns)
    assert table[""].to_list() == ["chat", "batch"]
    assert all(text.endswith("tokens/s") for text in table["Tokens served"])
    assert all(text.endswith("%") for text in table["Of its fair share"])
    assert all(text.endswith(("s", "ms")) for text in table["TTFT p99"])
    assert {m.label: m.value for m in at.metric}["Asked again"].startswith("17")
    assert not {m.label: m.delta for m in at.metric}["TTFT p99"]  # no one SLO to be held against
    assert len(at.get("plotly_chart")) == 3  # tenants, reasons, and sessions that wait


def test_sessions_that_wait_have_their_times(app, store):
    at = opened(app, tenants_served(store, PRESETS["agentic-sessions"]), "Clients")
    assert "Sessions" in [s.value for s in at.subheader]
    assert "Tenants" not in [s.value for s in at.subheader]
    assert "of sessions" in str(at.get("plotly_chart")[-1].proto.spec)


def test_the_form_has_a_row_for_each_tenant(app):
    app.run()
    app.session_state["history"] = [scenario(tenants=TENANTS)]
    app.session_state["workload-group"] = "Clients"
    app.switch_page(PAGES["workload"].script).run()
    assert not app.exception
    (table,) = (f.value for f in app.dataframe if "share" in f.value.columns)
    assert table["name"].to_list() == ["chat", "batch"]
    assert table["share"].to_list() == [1.0, 4.0]


# The section of a run whose prompts read from the memory pool.

NODES, HOT = 4, 2


def served(times_s, window_s):
    """Every node serves 1 GB a window, the hot one 4."""
    node = np.tile(np.arange(NODES, dtype=np.int32), times_s.size)
    return pl.DataFrame(
        {
            "t_s": np.repeat(times_s, NODES),
            "window_s": np.full(node.size, window_s),
            "node": node,
            "read_bytes": np.where(node == HOT, 4e9, 1e9),
            "held_s": np.zeros(node.size),
        }
    )


def read_back(store, s=None, **held):
    s = s or scenario()
    tables = fake_tables(s, requests=400, windows=20)
    if s.tenants:
        names = [t.name for t in s.tenants]
        whose = pl.Series([names[k % len(names)] for k in range(400)], dtype=pl.Enum(names))
        tables["requests"] = tables["requests"].with_columns(tenant=whose)
    windows = tables["windows"]
    reads = served(windows["t_s"].to_numpy(), float(windows["window_s"][0]))
    tables["servers"] = reads.with_columns(**held)
    tables["traffic"] = windows.select("t_s", "window_s").with_columns(
        traffic=pl.lit("pool_read"), bytes=pl.lit(7e9)
    )
    return finished(store, s, tables, hit_token_ratio=0.5)


def test_a_run_that_wrote_down_no_reads_has_no_such_section(app, store):
    assert "Memory pool" not in sections_of(opened(app, done(store, scenario())))


def test_the_hottest_server_is_named_with_its_imbalance(app, store):
    at = opened(app, read_back(store), "Memory pool")
    assert not at.exception
    assert "Node 2 served" in words(at) and "2.29 x the mean" in words(at)


def test_the_server_that_held_reads_back_is_named_with_the_time_it_cost(app, store):
    slow = pl.when(pl.col("node") == 1).then(0.5).otherwise(0.0)
    at = opened(app, read_back(store, held_s=slow), "Memory pool")
    assert "node 1 held them back most" in words(at)
    at = opened(app, read_back(store), "Memory pool")
    assert "No read waited for a hot server" in words(at)


def test_namespaces_have_a_line_each(app, store):
    at = opened(app, read_back(store, PRESETS["two-tenants"]), "Memory pool")
    assert not at.exception
    assert {"Hit ratio by namespace", "Read from DRAM"} <= {s.value for s in at.subheader}
    hits = pl.DataFrame({"t_s": [0.0, 2.0], "1": [0.5, 0.6], "0": [0.1, None]})
    lines = charts.namespaces(hits, ["chat", "batch"], 0.0).figure.data
    assert [(line.name, line.y[0]) for line in lines] == [("chat", 10.0), ("batch", 50.0)]


def test_a_cell_is_what_a_node_served_in_a_window():
    times_s = np.array([0.0, 5.0, 10.0])
    table = served(times_s, 5.0).sample(fraction=1.0, shuffle=True, seed=1)
    [cells] = charts.servers(table, 0.0).figure.data
    assert np.asarray(cells.z) == pytest.approx(
        np.where(np.arange(NODES)[:, None] == HOT, 0.8, 0.2) * np.ones((1, 3))
    )
    assert list(cells.y) == ["node 0", "node 1", "node 2", "node 3"]


# The section of a run of several models, and the form of further ones.

PAIR = with_overrides(small(), {"models": [
    {"name": "second", "workload": {"rate_req_per_s": 25.0, "output_tokens": 20},
     "deployment": small({"deployment.mode": "colocated"}).deployment.model_dump(mode="json")},
]})  # fmt: skip


@pytest.fixture(scope="module")
def pair_run():
    return simulate(PAIR, load_facts())


def served_together(store, made):
    """A stored run of two models, of the present engine."""
    owner, s = Owner.current(), made.scenario
    run = store.runs.add(store.scenarios.save(s), session.facts(), ENGINE_VERSION, s.seed,
                         owner=owner)  # fmt: skip
    assert store.runs.finish(run, owner, made, 1.0)
    return run


def test_a_run_of_several_models_has_a_row_for_each_and_no_explanation(app, store, pair_run):
    run = served_together(store, pair_run)
    at = opened(app, run, "Models")
    (table,) = (d.value for d in at.dataframe if "Goodput" in d.value.columns)
    assert table[""].to_list() == ["deepseek-v2-lite", "second", "all"]
    assert all(text.endswith(("s", "ms")) for text in table["TTFT p99"])
    sections = sections_of(at)
    assert "Models" in sections and not {"Causes", "Iteration"} & set(sections)
    assert "Models" not in sections_of(opened(app, done(store, scenario())))
    for section in sections:
        at = opened(app, run, section)
        assert not at.exception, section
        assert all(button.key != "explain-run-again" for button in at.button)  # it would not help
    notes = [note for note in pair_run.notes if note.startswith("deepseek-v2-lite:")]
    assert all(any(note in text.value.replace("\\", "") for text in at.caption) for note in notes)


@pytest.mark.parametrize("page", ["start", "workload", "deployment", "supernode", "plan"])
def test_pages_of_the_draft_say_which_model_a_formula_is_of(app, page):
    app.run()
    app.session_state["history"] = [PAIR]
    app.switch_page(PAGES[page].script).run()
    assert not app.exception
    said = [text.value for text in (*app.caption, *app.subheader, *app.warning)]
    assert any("of 2 models" in text or "is of one model" in text for text in said), said


def test_the_form_has_a_row_for_each_further_model(app):
    app.run()
    app.session_state["history"] = [PAIR]
    app.session_state["deployment-group"] = "Pools"
    app.switch_page(PAGES["deployment"].script).run()
    assert not app.exception
    (table,) = (f.value for f in app.dataframe if "deployment.model" in f.value.columns)
    assert table["name"].to_list() == ["second"]
    assert table["workload.rate_req_per_s"].to_list() == [25.0]


def test_where_experts_have_dies_of_their_own_the_others_hold_the_requests():
    settings = {
        "horizon_s": 6.0, "warmup_s": 2.0, "deployment.decode.npus_per_instance": 8,
        "deployment.decode.expert_npus": 4, "deployment.decode.domains": 2,
    }  # fmt: skip
    ranks = simulate(small(settings), load_facts()).tables["ranks"]
    shown = held_by_attention_dies(ranks).filter(pl.col("role") == "decode")
    experts = shown["expert_load"].is_not_null()
    assert 0 < experts.sum() < shown.height
    assert (shown["requests_mean"].is_null() == experts).all()
    decode = ranks.filter(pl.col("role") == "decode")
    held = decode["requests_mean"].sum()
    assert shown["requests_mean"].sum() == pytest.approx(held) and held > 0.0
    used = decode["kv_used_fraction_mean"].mean()
    assert shown["kv_used_fraction_mean"].mean() == pytest.approx(used) and used > 0.0
    plain = ranks.filter(pl.col("role") == "prefill")
    assert held_by_attention_dies(plain).equals(plain)
