"""Traces against the format, and against the run they tell of."""

import gzip
import io
import json
from collections import Counter
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from tests.engine.small import run, small
from tests.extras.perfetto.trace_format import check, parsed
from tests.metrics.test_resilience import events
from twin.engine.build import build_world
from twin.engine.clock import steps_in
from twin.engine.lifecycle.machine import Machine
from twin.engine.loop import advance
from twin.engine.setup import set_up
from twin.engine.simulate import Run
from twin.extras.perfetto.writer import TraceError, stages_text, write_trace
from twin.lab.explain.streams import mean_load_timelines
from twin.lab.files import NotWritten
from twin.lab.library import load_facts
from twin.lab.runs.watched import Source, span_of_request, stage_times

MODES = ("disaggregated", "colocated", "prefill_only", "decode_only")


def source(answer):
    """What a trace of a run that was just made is made from."""
    return Source(answer.scenario, answer.tables, load_facts())


def passes(answer, begin_s, end_s):
    """What the instances of a run did in a span."""
    return source(answer).window(begin_s, end_s, 100_000).passes


def trace(answer, *span, **more):
    file = io.BytesIO()
    answer = source(answer) if isinstance(answer, Run) else answer
    written = write_trace(answer, file, *span, **more)
    found = parsed(file.getvalue())
    assert len(found) == written.events
    check(found)
    return found, written


def broken(answer, *rows):
    """The run as if these events had happened in it."""
    tables = answer.tables | {"events": events(*rows)}
    return replace(source(answer), tables=tables)


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
    rows = passes(answer, 1.0, 4.0)["decode", 0]
    gaps = [b.begin_s - a.end_s for a, b in zip(rows[:-1], rows[1:], strict=True)]
    assert min(gaps) >= 0.0
    both = [p for index in (0, 1) for p in passes(answer, 0.0, 4.0)["decode", index]]
    inside = [p for p in both if p.end_s > 1.0]
    lengths = np.array([p.end_s - p.begin_s for p in inside])
    assert lengths.mean() == pytest.approx(answer.summary["decode_iteration_s_mean"], rel=0.01)
    busy = sum(min(p.end_s, 4.0) - max(p.begin_s, 1.0) for p in inside) / 3.0 / 2
    assert busy == pytest.approx(answer.summary["decode_utilisation"], rel=1e-9)


def test_every_token_of_the_run_is_emitted_by_a_pass():
    answer = run()
    windows = answer.tables["windows"]
    rows = [p for one in passes(answer, 0.0, 4.0).values() for p in one]
    inside = [p for p in rows if p.end_s <= 4.0]
    emitted = sum(p.tokens for p in inside if p.requests)
    told = float((windows["output_tokens_per_s"] * windows["window_s"]).sum())
    assert emitted == pytest.approx(told, rel=0.1)
    for p in rows:
        took_s = sum(time for _, time in p.operators)
        assert took_s <= p.end_s - p.begin_s + 1e-12
        assert p.tokens > 0


def test_every_finish_is_the_end_of_an_iteration_to_the_bit():
    answer = run()
    ends = {p.end_s for p in passes(answer, 0.0, 4.0)["decode", 1]}
    finish = answer.tables["requests"].filter(pl.col("decode_instance") == 1)["finish_s"]
    assert set(finish.drop_nulls().to_list()) <= ends


def watched(scenario):
    """The engine's own iterations and batches, seen by looking after every step: their ends."""
    setup = set_up(scenario, load_facts(), None)
    machine = Machine(setup, load_facts(), build_world(setup))
    world = machine.world
    instance = world.instance
    found = {(i.role, i.index): set() for i in setup.instances}
    for k in range(steps_in(scenario.horizon_s, scenario.step_s)):
        advance(world, k, k + 1)
        for i, i_found in enumerate(found.values()):  # prefill, then decode: rows of the table
            if instance.running[i]:
                i_found.add(float(instance.ends_s[i]))
    return {key: np.array(sorted(ends)) for key, ends in found.items()}


def test_passes_are_the_iterations_and_batches_that_the_engine_ran():
    # Longer than a step, so that none passes unseen.
    slow = {"deployment.model": "deepseek-r1", "supernode.nodes": 12, "horizon_s": 10.0,
            "deployment.prefill.npus_per_instance": 16, "deployment.decode.npus_per_instance": 16,
            "deployment.prefill.instances": 2, "workload.rate_req_per_s": 20.0}  # fmt: skip
    logged = passes(run(slow), 0.0, 9.0)
    for key, ends in watched(small(slow)).items():
        true = ends[ends < 9.0]
        assert true.size > 10
        assert np.array_equal([p.end_s for p in logged[key] if p.end_s < 9.0], true)


def test_a_window_is_the_part_of_the_run_that_touches_it():
    whole = passes(run(), 0.0, 4.0)
    for key, part in passes(run(), 1.5, 2.5).items():
        assert part == [p for p in whole[key] if p.begin_s < 2.5 and p.end_s > 1.5]
    short = source(run()).window(0.0, 4.0, 10)
    assert sum(len(rows) for rows in short.passes.values()) == 10
    assert short.left_out == sum(len(rows) for rows in whole.values()) - 10


def test_batches_hold_every_prompt_from_begin_to_end():
    answer = run()
    rows = passes(answer, 0.0, 4.0)["prefill", 0]
    edges = {p.begin_s for p in rows} | {p.end_s for p in rows}
    served = answer.tables["requests"].filter(pl.col("prefill_instance") == 0)
    assert set(served["prefill_start_s"].drop_nulls()) <= edges
    assert set(served["prefill_end_s"].drop_nulls()) <= edges


def test_a_fault_ends_the_iteration_under_way():
    answer = run({"faults": [{"at_s": 2.0, "element": "die 1.1.0"}], "recovery.spares": False})
    down = answer.tables["events"].filter(pl.col("kind") == "instance_down").row(0, named=True)
    rows = passes(answer, 0.0, 4.0)[down["role"], down["instance"]]
    assert any(p.end_s == down["t_s"] for p in rows)
    assert not any(p.begin_s < down["t_s"] < p.end_s for p in rows)


def test_operators_fill_their_iteration():
    events, _ = trace(run(), 1.0, 1.6)
    (tid,) = {e["tid"] for e in events if e["ph"] == "X" and e["pid"] == 12
              and e["name"] == "decode iteration"}  # fmt: skip
    slices = [e for e in events if e["ph"] == "X" and e["tid"] == tid]
    whole = sum(e["dur"] for e in slices if e["name"] == "decode iteration")
    inside = sum(e["dur"] for e in slices if e["name"] != "decode iteration")
    assert inside == pytest.approx(whole, rel=1e-3)
    assert all(e["args"]["requests"] > 0 for e in slices if e["name"] == "decode iteration")


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
        write_trace(source(run()), to, 1.0, 1.5)
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
        write_trace(source(run()), io.BytesIO(), *span)


def test_an_empty_span_says_so():
    answer = run({"workload.rate_req_per_s": 0.5})
    first = answer.tables["requests"]["arrival_s"].min()
    nobody = answer.tables | {"requests": answer.tables["requests"].clear()}
    quiet = replace(source(answer), tables=nobody)
    assert first is not None
    with pytest.raises(TraceError, match="nothing is in the machine between 1 s and 2 s"):
        write_trace(quiet, io.BytesIO(), 1.0, 2.0)


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path):
    with pytest.raises(NotWritten, match="cannot be written"):
        write_trace(source(run()), tmp_path / "no" / "such.json", 1.0, 1.5)


def test_streams_of_both_roles_are_drawn_layer_by_layer():
    answer = run({"deployment.decode.microbatch": "on"})
    plans = mean_load_timelines(answer.scenario, load_facts(), answer.tables)
    assert set(plans) == {"decode", "prefill"}
    found, _ = trace(answer, 1.0, 1.2)
    names = {e["args"]["name"] for e in found if e["name"] == "thread_name"}
    assert {"attention stream", "MoE stream", "cores stream", "copy engine stream"} <= names
    layers = {e["name"] for e in found if e["ph"] == "X" and e["name"].startswith("layer")}
    assert {f"layer {plans['decode'].layers - 1} microbatch {k}" for k in (0, 1)} <= layers


def test_in_sequence_there_are_no_streams():
    answer = run({"deployment.decode.microbatch": "off", "deployment.prefill.microbatch": False})
    assert mean_load_timelines(answer.scenario, load_facts(), answer.tables) == {}


@pytest.mark.parametrize("mode", ["disaggregated", "colocated"])
def test_the_trace_of_a_request_draws_the_same_stages(mode):
    answer = source(run({"deployment.mode": mode}))
    done = answer.tables["requests"].drop_nulls("finish_s")
    row = done.row(done.height // 2, named=True)
    number, file = row["request_id"], io.BytesIO()
    write_trace(answer, file, *span_of_request(answer, number))
    drawn = {e["name"]: e for e in parsed(file.getvalue())
             if e["ph"] == "b" and e.get("args", {}).get("request") == number}  # fmt: skip
    for name, took in stage_times(row).items():
        if took > 1e-6:
            args = drawn[name]["args"]
            assert args["to_s"] - args["from_s"] == pytest.approx(took)
            assert name in stages_text(answer, number)
