"""Sessions of agents: think times, blocks of their own, called agents, prompts left out."""

import gzip
import json
from dataclasses import replace

import polars as pl
import pytest

from tests.extras.agent_sessions.doors import called, session
from tests.lab.test_real_traces import TRACES, needs_traces
from tests.lab.test_traces import chains
from tests.made_trace import lines
from twin.lab.traces.reader import read_trace, trace_figures
from twin.lab.traces.source import UPLOAD, TraceError

BAD = {
    "is not a session": b'{"block_size": 64, "requests": []}\n{"x": [3]}',
    "has no block_size": json.dumps({"requests": []}).encode(),
    "request 1 has no out": json.dumps(
        {"block_size": 64, "requests": [{"t": 0, "in": 64, "hash_ids": [1]}]}
    ).encode(),
}


@pytest.mark.parametrize("sentence", BAD)
def test_a_malformed_session_gets_one_clear_sentence(sentence):
    with pytest.raises(TraceError) as refused:
        read_trace(BAD[sentence], "bad.file")
    text = str(refused.value)
    assert sentence in text and "\n" not in text and len(text) < 300


def test_a_session_keeps_think_time_and_its_blocks():
    t = read_trace(json.dumps(session()).encode())
    assert t.block_tokens == 64 and t.arrival_s.tolist() == [0, 10]
    assert chains(t) == [[0, 1, 2], [0, 1, 2, 3, 4]]
    assert t.think_s.tolist() == [3, 3]


def test_called_agents_belong_to_the_session():
    t = read_trace(json.dumps(called(session())).encode())
    assert t.arrival_s.tolist() == [0, 5, 10] and set(t.session) == {0}


def test_sessions_of_a_folder_share_no_local_hash(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(session("a")))
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(json.dumps(session("b")).encode()))
    t = read_trace(tmp_path)
    assert sorted(t.session) == [0, 0, 1, 1] and t.blocks == 10
    assert read_trace(tmp_path).digest == t.digest
    by_line = json.dumps(session("a")) + "\n" + json.dumps(session("b"))
    assert read_trace(by_line.encode()).digest == t.digest


def test_prompts_beyond_the_limit_are_left_out_and_the_rest_of_a_session_stays():
    both = [session("a"), session("b", blocks=(3, 40))]
    t = read_trace(lines(*both), limits=replace(UPLOAD, prompt_tokens=1000))
    assert len(t) == 3
    assert t.counts == {"dropped: prompts beyond 1,000 tokens": 1}
    assert len(read_trace(lines(*both))) == 4
    with pytest.raises(TraceError, match="dropped: prompts beyond 10 tokens"):
        read_trace(lines(*both), limits=replace(UPLOAD, prompt_tokens=10))


def test_session_parquet(tmp_path):
    rows = session()["requests"]
    frame = pl.DataFrame(
        {
            "trace": ["a", "a", "b"],
            "subagent": [0, 1, 0],
            "t": [0.0, 4.0, 0.0],
            "input_length": [rows[0]["in"], rows[1]["in"], rows[0]["in"]],
            "output_length": [1, 2, 3],
            "think_time": [0.0, 1.0, None],
            "hash_ids": [rows[0]["hash_ids"], rows[1]["hash_ids"], rows[0]["hash_ids"]],
        }
    )
    frame.write_parquet(tmp_path / "t.parquet")
    t = read_trace(tmp_path / "t.parquet")
    assert len(t) == 3 and t.blocks == 5 + 3 and t.block_tokens == 64
    with pytest.raises(TraceError, match="from disk only"):
        read_trace((tmp_path / "t.parquet").read_bytes())


def test_a_nest_of_agents_is_refused():
    body = session()
    for _ in range(20):
        body = {**body, "requests": [{"t": 0.0, "requests": body["requests"]}]}
    with pytest.raises(TraceError, match="agents deep"):
        read_trace(json.dumps(body).encode())


@needs_traces
def test_agent_session_files():
    table = read_trace(TRACES / "agentic-kv-cache-tester" / "trace_0274.json.gz")
    seen = trace_figures(table)
    assert len(table) == 105 and seen["sessions"] == 1 and seen["block_tokens"] == 64
    assert not table.counts and seen["ideal_hit_token_ratio"] > 0.9
