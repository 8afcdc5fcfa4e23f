"""A fleet: shares, streams, spans and merged figures, each by its law."""

import json
from collections import Counter

import numpy as np
import pytest

from tests.engine.small import small
from twin.engine.simulate import simulate
from twin.extras.fleet.answer import Served, answer_in_words, fleet_answer, merged_percentiles
from twin.extras.fleet.layout import lay_out_fleet, spans_of
from twin.extras.fleet.question import (
    FleetError,
    fleet_from,
    fleet_of_toml,
    fleet_to_toml,
    load_fleet,
)
from twin.lab.library import DATA, load_facts
from twin.lab.store import open_store
from twin.metrics.latency import PERCENTILES
from twin.scenario import scenario_digest
from twin.workload.generate import generate_requests
from twin.workload.profile import rate_factor_at

FACTS = load_facts()


def here(scenarios):
    """Runs made in this process, stored nowhere."""
    for scenario in scenarios:
        made = simulate(scenario, FACTS)
        yield Served(scenario, made.summary, made.tables["requests"], made.digest)


DAY = {"workload.profile.shape": "servegen_r1_day", "workload.profile.period_s": 24.0,
       "workload.profile.lengths": True, "workload.lengths": "sharegpt", "horizon_s": 24.0,
       "workload.rate_req_per_s": 12.0}  # fmt: skip
SCENARIOS = {"one": small(), "day": small(DAY), "bursty": small({"workload.arrivals": "gamma",
             "workload.cv": 2.0}), "even": small({"workload.arrivals": "uniform"})}  # fmt: skip
REGIONS = [{"name": "east", "share": 3.0}, {"name": "west", "shift_h": 8.0}]
EAST = {"name": "e", "scenario": "day", "count": 3, "region": "east"}
WEST = {"name": "w", "scenario": "day", "count": 2, "region": "west"}
BOTH = {"name": "b", "scenario": "day", "weight": 2.0}
LOST = [{"kind": "e", "number": 1, "from_s": 6.0, "to_s": 9.0},
        {"kind": "w", "number": 0, "from_s": 8.0}]  # fmt: skip


def named(name):
    return SCENARIOS[name]


def of(*kinds, **more):
    return fleet_from({"kinds": kinds} | more)


def kind(scenario="one", count=1, **more):
    return {"name": scenario, "scenario": scenario, "count": count, **more}


def offered(laid, t):
    """Expected arrivals per second at each supernode of a unit, without restarts."""
    return (laid.req_per_s_by_region(t, FACTS).T[:, :, None] * laid.share[laid.span_at(t)]).sum(
        axis=1
    )


def counted(laid):
    return np.array([unit.count for unit in laid.units])


@pytest.mark.parametrize("spill", ["region", "all"])
@pytest.mark.parametrize("lost", [[], LOST, [*LOST, {"kind": "e", "number": 0, "from_s": 7.0}]])
@pytest.mark.parametrize("kinds", [(EAST, WEST), (EAST, WEST, BOTH)])
def test_shares_add_up_to_the_traffic_at_every_minute(kinds, lost, spill):
    laid = lay_out_fleet(of(*kinds, regions=REGIONS, lost=lost, spill=spill), named)
    t = np.arange(0.5, 1440.0) * 24.0 / 1440.0
    whole = laid.req_per_s_by_region(t, FACTS).sum(axis=0)
    assert offered(laid, t) @ counted(laid) == pytest.approx(whole)
    assert (laid.share >= 0.0).all()
    gone = [u for u, unit in enumerate(laid.units) for gap in unit.lost if gap[0] <= 7.5 < gap[1]]
    assert not offered(laid, np.array([7.5]))[:, gone].any()


@pytest.mark.parametrize("spill", ["region", "all"])
def test_scenarios_have_the_load_that_their_shares_say(spill):
    """And what was inside a lost supernode comes to the others, all of it and once."""
    fleet = of(EAST, WEST, BOTH, regions=REGIONS, lost=LOST, spill=spill, resend_s=1.0)
    found = spans_of(fleet, named, FACTS, lambda _: 60)
    laid = found.layout
    t = np.arange(0.5, 24000.0) / 1000.0
    served = np.zeros((t.size, len(laid.units)))
    for span in found.spans:
        w, inside = span.scenario.workload, (t >= span.begin_s) & (t < span.end_s)
        assert span.scenario.horizon_s == pytest.approx(span.end_s - span.begin_s)
        factor = rate_factor_at(w, t[inside] - span.begin_s, span.scenario.horizon_s, FACTS)
        served[inside, span.unit] = w.rate_req_per_s * factor
    again = served - offered(laid, t)
    assert [burst.requests for burst in laid.bursts] == [60, 60]
    for burst in laid.bursts:
        then = (t >= burst.begin_s) & (t < burst.end_s)
        assert again[then].sum(axis=0) @ counted(laid) / 1000.0 == pytest.approx(60.0, rel=2e-3)
        again[then] = 0.0
    assert np.abs(again).max() < 1e-6 * served.max()


def test_requests_of_a_run_of_a_fleet_are_those_of_its_load():
    fleet = of(EAST, WEST, regions=REGIONS, lost=LOST[:1], rate_req_per_s=2000.0)
    found = spans_of(fleet, named, FACTS, lambda _: 500)
    come = sum(
        found.layout.units[span.unit].count
        * len(generate_requests(span.scenario.workload, span.scenario.horizon_s, 1, 128, FACTS))
        for span in found.spans
    )
    t = np.arange(0.5, 24000.0) / 1000.0
    wanted = found.layout.req_per_s_by_region(t, FACTS).sum() / 1000.0 + 500
    assert come == pytest.approx(wanted, abs=5.0 * np.sqrt(2.0 * wanted))


@pytest.mark.parametrize("name", ["one", "day", "bursty", "even"])
@pytest.mark.parametrize("router", ["hash", "weighted", "round_robin"])
def test_a_fleet_of_one_is_its_plain_run(name, router):
    answer = fleet_answer(of(kind(name), router=router), named, here, FACTS)
    plain = simulate(SCENARIOS[name], FACTS)
    (row,), summary = answer["rows"], answer["summary"]
    assert answer["runs"] == 1 and answer["without_loss"] is None
    same = {key for key in summary if plain.summary.get(key) is not None}
    near = {"joules_per_token", "tokens_per_s_per_npu"}
    assert len(same - near) > 15
    assert {key: summary[key] for key in same - near} == {
        key: plain.summary[key] for key in same - near
    }
    for key in near:
        assert summary[key] == pytest.approx(plain.summary[key], rel=1e-12)
    assert all(row[key] == summary[key] for key in summary)
    counts = np.array(row["hours"]["rate_req_per_s"]) * answer["hour_s"]
    assert counts.sum() == pytest.approx(plain.summary["requests"])


def test_a_fleet_of_one_that_begins_in_a_steady_state_is_its_plain_run():
    steady = small({"start": "steady"})
    answer = fleet_answer(of(kind()), lambda _: steady, here, FACTS)
    plain = simulate(steady, FACTS).summary
    keys = [key for key in plain if key.startswith(("ttft_s_", "tpot_s_", "slo_", "goodput_req"))]
    assert {key: answer["summary"][key] for key in keys if key in answer["summary"]}.items() <= (
        plain.items()
    )


def test_supernodes_that_are_alike_are_one_computation():
    ran = Counter()

    def count(scenarios):
        ran.update(scenario_digest(s) for s in scenarios)
        return here(scenarios)

    answer = fleet_answer(of(kind(count=6), seeds=2), named, count, FACTS)
    assert sorted(ran.values()) == [1, 1] and answer["runs"] == 2
    assert [row["supernodes"] for row in answer["rows"]] == [3, 3]
    assert answer["summary"]["requests"] == 3 * sum(row["requests"] for row in answer["rows"])
    again = fleet_answer(of(kind(count=6), seeds=2), named, here, FACTS)
    assert again["digest"] == answer["digest"]


def test_merged_figures_are_those_of_all_requests_in_one_table():
    rng = np.random.default_rng(3)
    for _ in range(50):
        parts = [(int(rng.integers(1, 6)), rng.gamma(2.0, size=rng.integers(0, 40)).round(1))
                 for _ in range(4)]  # fmt: skip
        table = np.concatenate([np.tile(values, count) for count, values in parts])
        found = merged_percentiles(parts, "x")
        if table.size:
            wanted = np.percentile(table, PERCENTILES)
            assert [found[f"x_p{p}"] for p in PERCENTILES] == wanted.tolist()
            assert found["x_mean"] == pytest.approx(table.mean())
    assert merged_percentiles([], "x")["x_p99"] is None


def test_what_a_lost_supernode_cost_is_the_fleet_without_a_loss():
    lost = [{"kind": "one", "number": 0, "from_s": 2.0, "to_s": 3.0}]
    fleet = of(kind(count=3), lost=lost, resend_s=1.0)
    answer = fleet_answer(fleet, named, here, FACTS)
    whole = fleet_answer(of(kind(count=3)), named, here, FACTS)
    assert answer["without_loss"] == whole["summary"]  # both begin empty
    hours = whole["summary"]["npu_hours"] - answer["summary"]["npu_hours"]
    assert hours == pytest.approx(16 / 3600.0)  # NPUs of one supernode for a second
    row = next(row for row in answer["rows"] if row["lost_at"])
    rate = np.array(row["hours"]["rate_req_per_s"]).reshape(4, 6).sum(axis=1)
    assert rate[2] == 0.0 and (rate[[0, 1, 3]] > 0.0).all()
    assert answer["began_again"] > 0 and "began again" in answer_in_words(answer)[1]
    unmoved = answer | {"summary": answer["without_loss"] | {"finished": 1, "requests": 1}}
    assert answer_in_words(unmoved)[1].endswith("began again elsewhere.")
    arrived = answer["summary"]["requests"] - answer["began_again"]  # not once more elsewhere
    assert f"of {arrived:,} requests by the end" in answer_in_words(answer)[0]


@pytest.mark.parametrize(
    ("name", "router", "cv2"),
    [("one", "hash", 1.0), ("one", "round_robin", 0.25), ("bursty", "weighted", 1.75),
     ("bursty", "round_robin", 1.0), ("even", "hash", 0.75), ("even", "round_robin", 0.0)],
)  # fmt: skip
def test_a_share_of_a_stream_is_as_bursty_as_the_stream_that_is_split(name, router, cv2):
    """Counted on one long stream: every fourth request, or each with a chance of a quarter."""
    fleet = of(kind(name, 4), router=router)
    (span,) = spans_of(fleet, named, FACTS, lambda _: 0).spans
    whole = named(name).workload.model_copy(update={"rate_req_per_s": 160.0})
    arrived = generate_requests(whole, 2000.0, 1, 128, FACTS).arrival_s
    drawn = np.random.default_rng(1).random(arrived.size) < 0.25
    split = arrived[::4] if router == "round_robin" else arrived[drawn]
    own = generate_requests(span.scenario.workload, 2000.0, 1, 128, FACTS).arrival_s
    for times in (split, own):
        gaps = np.diff(times)
        assert gaps.mean() == pytest.approx(1 / 40.0, rel=0.02)
        assert gaps.var() / gaps.mean() ** 2 == pytest.approx(cv2, rel=0.06, abs=1e-9)


def test_tenants_have_one_home_and_idle_supernodes_cost_npu_hours():
    tenants = [{"name": name, "share": share} for name, share in (("a", 1.0), ("b", 3.0))]
    scenario = small({"tenants": tenants})
    answer = fleet_answer(of(kind(count=5), sticky="tenant"), lambda _: scenario, here, FACTS)
    busy = [row for row in answer["rows"] if row["runs"]]
    assert sum(row["supernodes"] for row in answer["rows"]) == 5 and len(busy) <= 2
    assert answer["summary"]["npu_hours"] == pytest.approx(5 * 16 * 4.0 / 3600.0)
    assert answer["summary"]["energy_kwh"] is None
    laid = lay_out_fleet(of(kind(count=5), sticky="tenant"), lambda _: scenario)
    assert laid.whole @ counted(laid) == pytest.approx([1.0])


def test_the_examples_are_read_and_the_small_one_is_answered():
    for name in ("fleet-small", "fleet-day-100"):
        fleet, files = load_fleet(DATA / "examples" / f"{name}.toml")
        again = fleet_of_toml(fleet_to_toml(fleet).encode(), "again")
        assert again == fleet
        assert spans_of(fleet, files, FACTS, lambda _: 0).spans


WRONG = {
    "kinds is empty": {"kinds": []},
    "seeds = 0 should be": {"seeds": 0},
    "kinds.0.cont is not a field of a fleet": {"kinds": [kind() | {"cont": 1}]},
    "least_loaded' looks at what runs inside": {"router": "least_loaded"},
    "is no region: take one of east": {"kinds": [kind(region="x")], "regions": [{"name": "east"}]},
    "but the fleet has no regions": {"kinds": [kind(region="x")]},
    "no kind takes the traffic of west": {"kinds": [EAST], "regions": REGIONS},
    "has no weights": {"kinds": [kind(weight=2.0)], "router": "round_robin"},
    "two kinds or two regions have one name": {"kinds": [kind(), kind()]},
    "at most 10,000": {"kinds": [kind(count=9_000), kind("day", 9_000)]},
    "lost.0.kind = 'x' is no kind: one are": {"lost": [{"kind": "x", "from_s": 2.0}]},
    "lost.0.number = 1 is beyond the 1": {"lost": [{"kind": "one", "number": 1, "from_s": 2.0}]},
    "lost.0.to_s = 1 s must be after": {"lost": [{"kind": "one", "from_s": 2.0, "to_s": 1.0}]},
    "is lost already at 3 s": {"lost": [{"kind": "one", "from_s": 2.0},
                                        {"kind": "one", "from_s": 3.0}]},
    "between the end of the warm-up at 1 s": {"lost": [{"kind": "one", "from_s": 0.5}]},
    "every supernode is lost": {"lost": [{"kind": "one", "from_s": 2.0}]},
    "ahead need a traffic whose profile is a day": {"regions": [{"name": "r", "shift_h": 1.0}]},
    "needs tenants in the traffic": {"sticky": "tenant"},
    "needs supernodes of one region each": {"router": "round_robin", "regions": REGIONS},
}  # fmt: skip


@pytest.mark.parametrize("said", WRONG)
def test_what_cannot_be_is_one_sentence(said):
    with pytest.raises(FleetError) as refused:
        lay_out_fleet(fleet_from({"kinds": [kind()]} | WRONG[said]), named)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"workload.arrivals": "closed_loop"}, "cannot split workload.arrivals = closed_loop"),
     ({"workload.prompts": 5}, "workload.prompts of the traffic must be 0"),
     ({"workload.prefix": "sessions"}, "to different supernodes")],
)  # fmt: skip
def test_traffic_that_no_front_router_splits_is_refused(settings, said):
    with pytest.raises(FleetError, match=said):
        lay_out_fleet(of(kind(), router="weighted"), lambda _: small(settings))


def test_a_file_that_is_no_fleet_is_one_sentence():
    for text, said in ((b"x = 1", "should hold one table"), (b"[fleet", "is not valid TOML"),
                       (b"[fleet]\nkinds = 3", "f.toml: kinds = 3 should be a list")):  # fmt: skip
        with pytest.raises(FleetError, match=said.replace("[", r"\[")):
            fleet_of_toml(text, "f.toml")


def test_the_command_answers_on_two_processes_as_on_one_and_finds_the_runs_again(twin):
    file = DATA / "examples" / "fleet-small.toml"
    answer = json.loads(twin("fleet", str(file), "--processes", "2", "--json").stdout)
    alone = fleet_answer(*load_fleet(file), here, FACTS)
    shared = alone.keys() - {"rows"}  # which name the stored runs
    assert {key: answer[key] for key in shared} == {key: alone[key] for key in shared}
    assert [row["name"] for row in answer["rows"]] == ["whole 0 and 1 alike", "whole 2", "half 0"]
    assert b"began again elsewhere" in twin("fleet", str(file)).stdout
    store = open_store()
    assert store.runs.search().total == answer["runs"]
    store.close()
