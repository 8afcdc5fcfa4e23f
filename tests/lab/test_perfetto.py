"""Traces against the format, and against the run they tell of."""

import gzip
import io
import json
from collections import Counter
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from tests.engine.small import run, small
from tests.lab.trace_format import check, parsed
from tests.metrics.test_resilience import events
from twin.engine.build import build_world
from twin.engine.clock import steps_in
from twin.engine.loop import advance
from twin.engine.machine import Machine
from twin.engine.setup import set_up
from twin.lab.library import load_facts
from twin.lab.perfetto import TraceError, stream_plans, write_trace
from twin.lab.perfetto.spans import decode_spans, merged, prefill_spans
from twin.lab.perfetto.streams import Piece, StreamPlan, _pipeline, passes
from twin.model.overlap import pipeline_s

MODES = ("disaggregated", "colocated", "prefill_only", "decode_only")


def trace(answer, *span, **more):
    file = io.BytesIO()
    written = write_trace(answer, file, *span, **more)
    found = parsed(file.getvalue())
    assert len(found) == written.events
    check(found)
    return found, written


def broken(answer, *rows):
    """The run as if these events had happened in it."""
    tables = answer.tables | {"events": events(*rows)}
    return SimpleNamespace(scenario=answer.scenario, tables=tables)


@pytest.mark.parametrize("mode", MODES)
def test_a_trace_of_every_mode_keeps_the_format(mode):
    answer = run({"deployment.mode": mode})
    found, written = trace(answer, 1.0, 2.0)
    kinds = Counter(e["ph"] for e in found)
    assert kinds["X"] > 50 and kinds["C"] > 10 and kinds["s"] == kinds["f"] > 5
    assert not written.left_out
    assert all(1e6 - 1e6 < e["ts"] < 2e6 + 1e6 for e in found if e["ph"] != "M")


def test_iterations_lie_end_to_end_and_are_as_long_as_the_run_says():
    answer = run()
    spans = decode_spans(answer.tables, "decode", 0, 1.0, 4.0)
    gaps = [b.begin_s - a.end_s for a, b in zip(spans[:-1], spans[1:], strict=True)]
    assert min(gaps) >= -1e-12
    lengths = np.array([s.end_s - s.begin_s for s in spans])
    mean = answer.summary["decode_iteration_s_mean"]
    assert lengths.mean() == pytest.approx(mean, rel=0.05)
    busy = lengths.sum() / 3.0
    assert busy == pytest.approx(answer.summary["decode_utilisation"], abs=0.05)


def test_every_finish_within_a_busy_time_is_the_end_of_an_iteration():
    answer = run()
    spans = decode_spans(answer.tables, "decode", 1, 0.0, 4.0)
    ends = np.array([s.end_s for s in spans])
    finish = answer.tables["requests"].filter(pl.col("decode_instance") == 1)["finish_s"]
    for t in finish.drop_nulls().to_list():
        assert np.abs(ends - t).min() < 1e-9


def watched(scenario):
    """The engine's own iterations and batches, seen by looking after every step: their ends."""
    setup = set_up(scenario, load_facts(), None)
    machine = Machine(setup, load_facts(), build_world(setup))
    world = machine.world
    found = {("decode", d): set() for d in range(world.decode.running.size)}
    found |= {("prefill", p): set() for p in range(world.prefill.running.size)}
    for k in range(steps_in(scenario.horizon_s, scenario.step_s)):
        advance(world, k, k + 1)
        for role, state in (("decode", world.decode), ("prefill", world.prefill)):
            for i in range(state.running.size):
                if state.running[i]:
                    found[role, i].add(float(state.ends_s[i]))
    return {key: np.array(sorted(ends)) for key, ends in found.items()}


def test_spans_are_the_iterations_and_batches_that_the_engine_ran():
    # Longer than a step, so that none passes unseen.
    slow = {"deployment.model": "deepseek-r1", "supernode.nodes": 12, "horizon_s": 10.0,
            "deployment.prefill.npus_per_instance": 16, "deployment.decode.npus_per_instance": 16,
            "deployment.prefill.instances": 2, "workload.rate_req_per_s": 20.0}  # fmt: skip
    scenario = small(slow)
    answer = run(slow)
    for (role, index), ends in watched(scenario).items():
        if role == "decode":
            spans = decode_spans(answer.tables, role, index, 2.0, 9.0)
        else:
            spans = prefill_spans(answer.tables, index, 2.0, 9.0)
        mine = np.array([s.end_s for s in spans if s.end_s < 9.0])
        true = ends[(ends > spans[0].begin_s) & (ends < 9.0)]
        assert true.size > 10 and abs(mine.size - true.size) <= 0.01 * true.size
        stamped = np.array([s.stamped for s in spans if s.end_s < 9.0])
        assert stamped.any() and set(mine[stamped]) <= set(true)
        if role == "prefill":
            assert np.array_equal(mine, true)
        # Between stamps the ends are those of equal iterations: near, not exact.
        off = np.abs(mine[:, None] - true[None, :]).min(axis=1)
        assert off.mean() < 0.05 * np.diff(true).mean()


def test_batches_hold_every_prompt_from_begin_to_end():
    answer = run()
    spans = prefill_spans(answer.tables, 0, 0.0, 4.0)
    edges = {s.begin_s for s in spans} | {s.end_s for s in spans}
    rows = answer.tables["requests"].filter(pl.col("prefill_instance") == 0)
    assert set(rows["prefill_start_s"].drop_nulls()) <= edges
    assert set(rows["prefill_end_s"].drop_nulls()) <= edges
    busy = sum(min(s.end_s, 4.0) - max(s.begin_s, 1.0) for s in spans if s.end_s > 1.0)
    assert busy / 3.0 == pytest.approx(answer.summary["prefill_utilisation"], abs=0.1)


def test_operators_fill_their_iteration_in_the_proportions_of_the_run():
    answer = run()
    found, _ = trace(answer, 1.0, 3.0)
    (tid,) = {e["tid"] for e in found if e["ph"] == "X" and e["pid"] == 12
              and e["name"] == "decode iteration"}  # fmt: skip
    mine = [e for e in found if e["ph"] == "X" and e["tid"] == tid]
    whole = sum(e["dur"] for e in mine if e["name"] == "decode iteration")
    parts = Counter()
    for e in mine:
        parts[e["name"]] += e["dur"]
    del parts["decode iteration"]
    assert sum(parts.values()) == pytest.approx(whole, rel=1e-6)
    rows = answer.tables["operators"].filter(pl.col("phase") == "decode")
    for name, share in rows.select("operator", "share").iter_rows():
        assert parts[name] / whole == pytest.approx(share, abs=0.02)


def test_a_request_flows_from_arrival_to_finish():
    answer = run({"workload.output_tokens": 10})
    found, _ = trace(answer, 1.0, 3.0)
    names = {e["pid"]: e["args"]["name"] for e in found if e["name"] == "process_name"}
    done = answer.tables["requests"].filter(
        (pl.col("arrival_s") > 1.0) & (pl.col("finish_s") < 2.9)
    ).row(0, named=True)  # fmt: skip
    way = [e for e in found if e["ph"] in "stf" and e["id"] == done["request_id"]]
    assert [names[e["pid"]].split()[0] for e in way] == [
        "requests", "prefill", "prefill", "decode", "decode", "decode",
    ]  # fmt: skip
    assert way[0]["ts"] == pytest.approx(done["arrival_s"] * 1e6, abs=0.1)
    assert way[-1]["ts"] == pytest.approx(done["finish_s"] * 1e6, abs=0.1)


def test_faults_are_instants_and_what_lasts_is_a_bar():
    found, _ = trace(
        broken(
            run(),
            {"t_s": 1.2, "kind": "fault", "element": "NPU 1.0", "detail": "failed"},
            {"t_s": 1.3, "end_s": 1.8, "kind": "instance_down", "role": "decode", "instance": 1},
            {"t_s": 1.4, "end_s": 9.0, "kind": "rebalance", "role": "decode", "instance": 0},
            {"t_s": 3.9, "kind": "shift", "element": "popularity"},
        ),
        1.0,
        2.0,
    )
    instants = {e["name"]: e for e in found if e["ph"] == "i"}
    assert set(instants) == {"fault NPU 1.0", "instance down decode 1", "rebalance decode 0"}
    assert instants["fault NPU 1.0"]["ts"] == pytest.approx(1.2e6)
    bars = {e["name"]: e["ts"] for e in found if e["ph"] == "e" and e["cat"] != "request"}
    assert bars["instance down decode 1"] == pytest.approx(1.8e6)
    assert bars["fault NPU 1.0"] == bars["rebalance decode 0"] == pytest.approx(2e6)
    iterations = [e for e in found if e["ph"] == "X" and e["name"] == "decode iteration"]
    down = [e for e in iterations if e["pid"] == 13 and 1.31e6 < e["ts"] < 1.79e6]
    assert not down and len(iterations) > 10


def test_without_a_wish_the_trace_begins_at_the_first_fault():
    answer = broken(run(), {"t_s": 2.5, "kind": "fault", "element": "NPU 1.0"})
    _, written = trace(answer)
    assert (written.begin_s, written.end_s) == (2.0, 4.0)


def test_a_bounded_trace_leaves_out_whole_slices_and_says_how_many():
    found, written = trace(run(), 0.5, 4.0, most_events=3000)
    assert len(found) <= 3000 and written.left_out > 0
    assert "no room" in written.sentence


def test_a_trace_is_the_same_bytes_again_and_gzip_too(tmp_path):
    one, two, three = tmp_path / "a.json.gz", tmp_path / "b.json.gz", io.BytesIO()
    for to in (one, two, three):
        write_trace(run(), to, 1.0, 1.5)
    assert one.read_bytes() == two.read_bytes()
    assert gzip.decompress(one.read_bytes()) == three.getvalue()
    assert json.loads(three.getvalue())["otherData"]["begin_s"] == 1.0


@pytest.mark.parametrize(
    ("span", "said"),
    [((9.0, None), "the run lasts 4 s"), ((2.0, 1.0), "cannot end at 1 s"),
     ((float("nan"), None), "cannot start")],
)  # fmt: skip
def test_a_span_that_cannot_be_is_one_sentence(span, said):
    with pytest.raises(TraceError, match=said):
        write_trace(run(), io.BytesIO(), *span)


def test_an_empty_span_says_so():
    answer = run({"workload.rate_req_per_s": 0.5})
    first = answer.tables["requests"]["arrival_s"].min()
    quiet = SimpleNamespace(
        scenario=answer.scenario,
        tables=answer.tables | {"requests": answer.tables["requests"].clear()},
    )
    assert first is not None
    with pytest.raises(TraceError, match="nothing is in the machine between 1 s and 2 s"):
        write_trace(quiet, io.BytesIO(), 1.0, 2.0)


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path):
    with pytest.raises(TraceError, match="cannot be written"):
        write_trace(run(), tmp_path / "no" / "such.json", 1.0, 1.5)


def test_streams_of_both_roles_are_drawn_layer_by_layer():
    answer = run({"deployment.decode.microbatch": "on"})
    plans = stream_plans(answer.scenario, load_facts(), answer.tables)
    assert set(plans) == {"decode", "prefill"}
    found, _ = trace(answer, 1.0, 1.2, streams=plans)
    names = {e["args"]["name"] for e in found if e["name"] == "thread_name"}
    assert {"attention stream", "MoE stream", "cores stream", "copy engine stream"} <= names
    layers = {e["name"] for e in found if e["ph"] == "X" and e["name"].startswith("layer")}
    assert {f"layer {plans['decode'].layers - 1} microbatch {k}" for k in (0, 1)} <= layers


def test_in_sequence_there_are_no_streams():
    answer = run({"deployment.decode.microbatch": "off", "deployment.prefill.microbatch": False})
    assert stream_plans(answer.scenario, load_facts(), answer.tables) == {}


def pipeline(before, sent, experts, answered):
    return _pipeline(
        (("attention_core", 0.75 * before), ("gate", 0.25 * before)),
        (("dispatch", sent),),
        (("experts", experts),),
        (("combine", answered),),
    )


def test_a_stream_never_does_two_things_and_a_microbatch_never_overtakes_itself():
    plan = StreamPlan(("cores", "copy engine"), 9, 0.1, 0.9, pipeline(6.0, 4.0, 5.0, 7.0))
    found = list(passes(plan))
    for stream in (0, 1):
        spans = sorted((low, high) for s, _, _, low, high, _ in found if s == stream)
        assert all(b[0] >= a[1] - 1e-9 for a, b in zip(spans[:-1], spans[1:], strict=True))
    for m in (0, 1):
        spans = sorted((layer, low, high) for _, layer, k, low, high, _ in found if k == m)
        assert all(b[1] >= a[2] - 1e-9 for a, b in zip(spans[:-1], spans[1:], strict=True))
    assert min(f[3] for f in found) >= 0.1 and max(f[4] for f in found) <= 0.9 + 1e-9


@pytest.mark.parametrize("parts", [(3, 4, 2, 3), (9, 1, 5, 1), (1, 6, 1, 7), (2, 2, 2, 2)])
def test_the_pipeline_keeps_the_pace_of_the_model(parts):
    pieces = pipeline(*map(float, parts))
    cores = sum(p.high - p.low for p in pieces if p.stream == 0)
    assert 2 * (parts[0] + parts[2]) / cores == pytest.approx(pipeline_s(*map(float, parts)))
    assert all(isinstance(p, Piece) for p in pieces)


def test_work_that_no_stamp_tells_of_is_filled_in_as_a_mean():
    answer = run()
    forgotten = answer.tables["requests"].with_columns(retries=pl.lit(1, pl.Int16))
    tables = answer.tables | {"requests": forgotten}
    known = prefill_spans(answer.tables, 0, 1.0, 3.0)
    made_up = prefill_spans(tables, 0, 1.0, 3.0)
    assert made_up and not any(s.stamped for s in made_up)
    assert all(b.begin_s >= a.end_s - 1e-9 for a, b in zip(made_up[:-1], made_up[1:], strict=True))
    inside = [min(s.end_s, 3.0) - max(s.begin_s, 1.0) for s in known]
    assert sum(s.end_s - s.begin_s for s in made_up) == pytest.approx(sum(inside), rel=0.15)


def test_spans_merge_like_sets():
    assert merged(np.array([]), np.array([])) == []
    assert merged(np.array([0.0, 5.0, 1.0]), np.array([2.0, 6.0, 1.5])) == [(0.0, 2.0), (5.0, 6.0)]
