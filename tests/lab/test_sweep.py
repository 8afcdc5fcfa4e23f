"""Sweeps: which points they ask for, where the SLO breaks, what was published beside them."""

import csv
import io
import json

import pytest

from twin.hardware.recipes import as_sold
from twin.lab.library import load_facts, presets
from twin.lab.sweep import sweep
from twin.scenario import SpecError, value_of

RATE, INSTANCES = "workload.rate_req_per_s", "deployment.prefill.instances"


@pytest.mark.parametrize(
    "text",
    ["nothing=1:2:3", f"{RATE}=1:2", f"{RATE}=1:2:1", f"{RATE}=1", f"{RATE}=0:2:3:log",
     f"{RATE}=a:b:3", f"{RATE}=1,x", f"{RATE}=1:1:5", f"{RATE}=nan:2:3", ""],
)  # fmt: skip
def test_what_is_no_axis_is_one_sentence(text):
    with pytest.raises(SpecError, match="field|values"):
        sweep.parse_axis(text)


def test_an_axis_reads_back_as_it_is_written():
    for text in (f"{RATE}=10:1000:5:log", f"{INSTANCES}=1:8:4", "slo.tpot_ms=10:50:9"):
        made = sweep.parse_axis(text)
        assert sweep.parse_axis(made.text) == made


def test_points_differ_in_their_fields_and_name_and_nothing_else():
    origin = presets()[0].scenario
    axes = [sweep.parse_axis(f"{RATE}=50:200:4"), sweep.parse_axis(f"{INSTANCES}=4,6")]
    points = sweep.points(origin, axes)
    assert len(points) == 8
    for point in points:
        assert (value_of(point.scenario, RATE), value_of(point.scenario, INSTANCES)) == point.values
    same = next(p for p in points if p.values == (100.0, 6))
    assert same.scenario == origin  # so that its stored run is found
    assert len({p.scenario.name for p in points}) == 8


def test_a_point_that_cannot_be_says_why_and_the_others_stand():
    origin = presets()[0].scenario
    points = sweep.points(origin, [sweep.parse_axis("warmup_s=10,9999")])
    assert points[0].scenario is not None
    assert points[1].scenario is None
    assert "warmup_s" in points[1].refusal


def test_a_machine_is_swept_as_it_is_sold():
    origin = presets()[0].scenario
    fields = "supernode.machine", "supernode.sub_planes"
    for point in sweep.points(origin, [sweep.parse_axis("supernode.machine=full-mesh,torus-3d")]):
        sold = as_sold(str(point.values[0]), load_facts())
        assert [value_of(point.scenario, path) for path in fields] == [
            sold[path] for path in fields
        ]
        assert point.scenario.deployment == origin.deployment
    (none,) = sweep.points(origin, [sweep.Axis("supernode.machine", ("no-such",))])
    assert "no machine here" in none.refusal


def test_more_fields_or_points_than_can_be_drawn_are_refused():
    origin = presets()[0].scenario
    many = [sweep.parse_axis(f"{RATE}=1:64:40"), sweep.parse_axis(f"{INSTANCES}=1:8:8")]
    with pytest.raises(SpecError, match="at most"):
        sweep.points(origin, many)
    with pytest.raises(SpecError, match="one field"):
        sweep.points(origin, [many[0], many[0]])


def said(values, ttft_s, path=RATE):
    """The conclusion over points whose TTFT p99 is so long, with an SLO of 5 s."""
    origin = presets()[0].scenario
    axis = sweep.Axis(path, tuple(values))
    summaries = [
        {} if t is None
        else {"ttft_s_p99": t, "tpot_s_p99": 0.01, "slo_attainment": 1.0 if t <= 5.0 else 0.9}
        for t in ttft_s
    ]  # fmt: skip
    return sweep.conclusion(axis, [origin] * len(values), summaries)


@pytest.mark.parametrize(
    ("ttft_s", "sentence"),
    [
        ([1, 2, 7], "Holds its SLO up to 100 req/s; at 150 req/s TTFT p99 is 7.00 s"),
        ([9, 2, 1], "Holds its SLO from 100 req/s; at 50 req/s TTFT p99 is 9.00 s"),
        ([1, None, 7], "Holds its SLO up to 50 req/s; at 150 req/s"),
        ([1, 7, 1], "It changes 2 times along the way."),
        ([1, 2, 3], "The SLO holds anywhere from 50 req/s to 150 req/s."),
        ([6, 7, 8], "The SLO is not met anywhere from 50 req/s to 150 req/s."),
    ],
)
def test_the_knee_is_said_in_one_sentence(ttft_s, sentence):
    assert sentence in said([50.0, 100.0, 150.0], ttft_s)


def test_published_points_are_those_of_the_evidence():
    points = {(round(1e3 * p.tpot_s, 1), p.tokens_per_s_per_npu) for p in sweep.published_points()}
    assert {(49.4, 1943.0), (14.9, 538.0), (24.6, 974.0)} <= points
    assert all(p.source for p in sweep.published_points())


def test_the_command_simulates_every_point_and_keeps_its_run(twin):
    words = ("sweep", "quickstart", "--over", f"{RATE}=20:120:2", "--set", "horizon_s=12",
             "--set", "warmup_s=2", "--set", "workload.output_tokens=64")  # fmt: skip
    answer = twin(*words, "--json")
    assert answer.returncode == 0
    points = json.loads(answer.stdout)["points"]
    assert [p[RATE] for p in points] == [20.0, 120.0]
    assert all(p["state"] == "done" and p["slo_kept"] for p in points)
    assert points[0]["tpot_s_p99"] < points[1]["tpot_s_p99"]
    again = list(csv.DictReader(io.StringIO(twin(*words, "--csv").stdout.decode())))
    assert [row["run"] for row in again] == [p["run"] for p in points]
    assert twin("sweep", "quickstart", "--over", "nope=1:2:3").returncode == 2


def test_where_tenants_have_their_own_slo_the_share_that_kept_it_decides():
    tenants = next(p.scenario for p in presets() if p.key == "two-tenants")
    summary = {"ttft_s_p99": 24.0, "tpot_s_p99": 0.019, "slo_attainment": 0.998}
    assert sweep.meets_slo(tenants, summary)
    assert sweep.meets_slo(tenants, summary | {"slo_attainment": tenants.slo.share})
    assert not sweep.meets_slo(tenants, summary | {"slo_attainment": tenants.slo.share - 0.01})
    assert sweep.meets_slo(tenants, {}) is None
