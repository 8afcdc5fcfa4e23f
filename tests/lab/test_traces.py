"""Trace files in every format, small and made here: read as they are, or refused clearly."""

import gzip
import json
import re
import subprocess
import sys
import tarfile

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docs.make import trace_table
from tests.conftest import ROOT
from tests.doors.on_disk import brought
from tests.draws import draws
from tests.made_trace import archive, lines
from twin.lab.traces import requests
from twin.lab.traces.formats import Format
from twin.lab.traces.reader import EVERY, FORMATS, OWN, read_trace, trace_figures
from twin.lab.traces.source import Limits, TraceError
from twin.workload.chains import expand_runs
from twin.workload.reuse_curve import reuse_curve

SMALL = Limits(packed_bytes=1 << 20, unpacked_bytes=8 << 20, rows=1000)


def mooncake(t, tokens, hashes, out=5, **other):
    row = {"timestamp": t, "input_length": tokens, "output_length": out, "hash_ids": hashes}
    return {**row, **other}


MOONCAKE = lines(
    mooncake(0, 1300, [7, 8, 9]), mooncake(0, 1024, [7, 8]), mooncake(3000, 700, [7, 11])
)
AZURE = (
    b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n"
    b"2023-11-16 18:15:50.9951690,396,109"
)
BURST = (
    b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    b"5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,0,1087,Conversation log\n"
    b"118,GPT-4,417,276,693,API log\n"
)
BURST_3 = (
    b"Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,"
    b"Log Type\n"
    b"5,a,1.0,ChatGPT,472,18,490,Conversation log\n6,b,1.0,ChatGPT,10,2,12,Conversation log\n"
    b"7,a,1.0,GPT-4,417,276,693,API log\n"
)
VIDUR = b"arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,100,10\n1.75,200,20\n"
SPLITWISE = (
    b"request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n"
    b"0,2,0,0.25,1,300,30\n1,2,0,1.5,1,400,40\n"
)
LENGTHS = (
    b"num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n30,3,33,10\n40,4,44,10\n"
)
BAILIAN = lines(
    *[
        {"chat_id": c, "parent_chat_id": p, "timestamp": t, "type": "text", "turn": 1}
        | {"input_length": n, "output_length": 9, "hash_ids": list(range(-(-n // 16)))}
        for c, p, t, n in ((10, -1, 0.25, 40), (11, -1, 1.0, 16), (12, 10, 2.5, 100))
    ]
)
RAGPULSE = lines(
    *[
        {"timestamp": t, "input_length": 3000, "output_length": 100, "session_id": s}
        | {"hash_ids": {"sys_prompt": [1], "passages_ids": [2], "history": [], "user_input": [3]}}
        for t, s in (("82", "a"), ("93", "b"), ("125", "a"))
    ]
)


FILES = {
    "mooncake": MOONCAKE,
    "azure": AZURE,
    "burstgpt": BURST,
    "vidur": VIDUR,
    "splitwise": SPLITWISE,
    "vidur lengths": LENGTHS,
    "lengths": b"input,output\n30,3\n",
    "guidellm": b"timestamp,input_length,output_length\n0,30,3\n",
    "bailian": BAILIAN,
    "ragpulse": RAGPULSE,
}
for extra in brought():
    FILES |= getattr(extra, "TRACES", {})


def chains(table):
    offset, ids = expand_runs(table.segment_offset, table.segment_first, table.segment_blocks)
    return [ids[a:b].tolist() for a, b in zip(offset, offset[1:], strict=False)]


@pytest.mark.parametrize("kind", FILES)
def test_the_format_is_found_by_content_packed_or_not(kind):
    packed, plain = (read_trace(b, "any.name") for b in (gzip.compress(FILES[kind]), FILES[kind]))
    assert packed.format == plain.format == kind
    assert packed.digest == plain.digest


@pytest.mark.parametrize("kind", FILES)
def test_every_format_has_a_preview_of_plain_values(kind):
    seen = trace_figures(read_trace(FILES[kind], "f"))
    assert json.loads(json.dumps(seen, allow_nan=False)) == seen
    assert seen["format"] == kind and seen["rows"] > 0


def test_a_format_is_one_entry(monkeypatch):
    layout = requests.Layout("when", "asked", "answered")
    entry = Format("dummy", "Dummy log", "CSV", "times in s",
                   lambda head: layout.columns <= head.header, layout.read)  # fmt: skip
    with pytest.raises(TraceError, match="in no format that is read"):
        read_trace(b"when,asked,answered\n1.5,10,2\n")
    monkeypatch.setitem(FORMATS, entry.name, entry)
    table = read_trace(b"when,asked,answered\n1.5,10,2\n2.5,20,4\n")
    assert table.format == "dummy" and table.input_tokens.tolist() == [10, 20]
    assert "| Dummy log | CSV | times in s |" in trace_table()
    with pytest.raises(TraceError, match="Dummy log"):
        read_trace(b"hello\n1\n")


def test_mooncake():
    t = read_trace(MOONCAKE)
    assert t.arrival_s.tolist() == [0, 0, 3] and t.block_tokens == 512
    assert chains(t) == [[0, 1, 2], [0, 1], [0, 3]]
    assert reuse_curve(t, EVERY).ideal_hit_ratio == (1024 + 512) / (1300 + 1024 + 700)
    assert t.source_row.tolist() == [1, 2, 3]


def test_mooncake_block_size_is_found_or_given():
    rows = [mooncake(i, 100, list(range(7))) for i in range(3)]
    assert read_trace(lines(*rows)).block_tokens == 16
    wider = [mooncake(i, 100, list(range(4))) for i in range(3)]
    assert read_trace(lines(*wider), block_tokens=32).block_tokens == 32


def test_too_many_hashes_for_the_block_size_are_refused():
    rows = [mooncake(i, 100, list(range(7))) for i in range(3)]
    with pytest.raises(TraceError, match="the block size must be smaller"):
        read_trace(lines(*rows), block_tokens=512)


def test_hashes_beyond_the_prompt_are_clipped_and_counted():
    rows = [mooncake(i, 512, [i]) for i in range(9)] + [mooncake(9, 512, [0, 1, 2])]
    t = read_trace(lines(*rows))
    assert t.counts == {"clipped: hashes beyond the prompt": 1}
    assert chains(t)[-1] == [0]


def test_azure_keeps_seven_digits_and_reads_zones():
    assert read_trace(AZURE).arrival_s[1] == pytest.approx(4.314579, abs=1e-9)
    mixed = (
        b"TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n"
        b"2024-05-10 00:00:01+00:00,2399,6\n2024-05-10 02:00:02+02:00,76,15\n"
    )
    assert read_trace(mixed).arrival_s.tolist() == pytest.approx([0, 0.99007, 1.99007])


def test_burstgpt_is_read_by_name_and_failures_are_counted():
    t = read_trace(BURST)
    assert t.input_tokens.tolist() == [472, 417]
    assert t.counts == {"dropped: no output tokens": 1}
    assert t.arrival_s.tolist() == [0, 113] and t.source_row.tolist() == [2, 4]
    assert read_trace(BURST_3).session.tolist() == [0, 1, 0]


@pytest.mark.parametrize("data", [
    BURST_3.replace(b",b,", b",,").replace(b"6,,", b"5.5,,1.0,GPT-4,5,5,10,API log\n6,,"),
    lines(*(mooncake(t, 512, [1], session_id=s) for t, s in enumerate(("a", None, None, "a")))),
    lines(mooncake(0, 512, [1], session_id="a"), mooncake(1, 512, [1]), mooncake(2, 512, [1]),
          mooncake(3, 512, [1], session_id="a")),
])  # fmt: skip
def test_requests_without_a_session_are_sessions_of_their_own(data):
    assert read_trace(data).session.tolist() == [0, 1, 2, 0]


def test_commas_within_quotes_are_part_of_a_text():
    t = read_trace(b'arrived_at,prompt,num_prefill_tokens,num_decode_tokens\n'
                   b'0,"hi, you",100,10\n1,plain,200,20\n2,"a ""b"", c",300,30\n')  # fmt: skip
    assert t.input_tokens.tolist() == [100, 200, 300]


@pytest.mark.parametrize("data, result", [
    (VIDUR.replace(b"0.5", b"1700000000000").replace(b"1.75", b"1700000000500"), ["slowly"]),
    (lines(mooncake(1700000000, 512, [1])), ["fast"]),
    (VIDUR.replace(b"0.5", b"1700000000").replace(b"1.75", b"1700000000.5"), []),
    (lines(mooncake(1700000000000, 512, [1])), []),
    (VIDUR, []),
])  # fmt: skip
def test_times_in_another_unit_than_the_format_has_are_said(data, result):
    said = [w for w in read_trace(data).warnings if "1,000 times too" in w]
    assert [w.split()[-1] for w in said] == result


def test_vidur_splitwise_and_bare_lengths():
    assert read_trace(VIDUR).arrival_s.tolist() == [0, 1.25]
    assert read_trace(SPLITWISE).output_tokens.tolist() == [30, 40]
    assert not read_trace(LENGTHS).has_time


def test_bailian_follows_parents_and_counts_seconds():
    t = read_trace(BAILIAN)
    assert t.session.tolist() == [0, 1, 0] and t.block_tokens == 16
    assert t.arrival_s.tolist() == [0, 0.75, 2.25]


def test_ragpulse_has_sessions_and_no_chains():
    t = read_trace(RAGPULSE)
    assert t.session.tolist() == [0, 1, 0] and not t.has_prefix
    assert t.arrival_s.tolist() == [0, 11, 43]


def test_rows_out_of_order_are_sorted_and_said():
    t = read_trace(lines(mooncake(3000, 512, [1]), mooncake(0, 512, [2])))
    assert t.arrival_s.tolist() == [0, 3] and t.source_row.tolist() == [2, 1]
    assert "have been sorted" in t.warnings[0]


GOOD = mooncake(0, 512, [1])
BAD = {
    "line 2 is not JSON": lines(GOOD) + b'\n{"timestamp": 0, "input_length": 5',
    "line 2 is not an object": lines(GOOD, [1, 2]),
    "line 2 has no output_length": lines(GOOD, {"timestamp": 1, "input_length": 1, "hash_ids": []}),
    "line 1: input_length = -5 must": lines(mooncake(0, -5, [1])),
    "line 1: input_length = True must": lines(mooncake(0, True, [1])),
    "line 1: input_length = 1.5 must": lines(mooncake(0, 1.5, [1])),
    "line 1: output_length = 10000000000000": lines(mooncake(0, 1, [1], out=10**30)),
    "line 1: timestamp = -1 must": lines(mooncake(-1, 1, [1])),
    "line 1: timestamp = '0' must": lines(mooncake("0", 1, [1])),
    "line 1: timestamp = inf must": b'{"timestamp": 1e999, "input_length": 1, "output_length": 1}',
    "NaN is not a number": b'{"timestamp": NaN, "input_length": 1, "output_length": 1}',
    "line 1 holds a figure": b'{"timestamp": ' + b"9" * 5000 + b', "input_length": 1}',
    "line 1: hash_ids must hold whole": lines(mooncake(0, 1, ["a"])),
    "line 2: hash_ids must hold whole": lines(GOOD, mooncake(0, 1024, [1.5, 2])),
    "line 1: hash_ids must": lines(mooncake(0, 1024, [[1], [2, 3]])),
    "line 1 is nested too deeply": b'{"input_length": ' + b"[" * 200_000,
    "line 2 is not UTF-8": lines(GOOD) + b"\n\xff\xfe",
    "in no format that is read": b"hello,world\n1,2\n",
    "is empty": b"",
    "is empty ": b"  \n ",
    "holds a header and no row": b"arrived_at,num_prefill_tokens,num_decode_tokens\n",
    "line 3: num_prefill_tokens = 'x'": VIDUR.replace(b"200", b"x"),
    "line 3: num_decode_tokens is empty": VIDUR.replace(b",20\n", b",\n"),
    "line 1: input_length is empty": lines(mooncake(0, None, [1])),
    "line 3: num_decode_tokens = 'nan'": VIDUR.replace(b",20\n", b",nan\n"),
    "line 2: arrived_at = '1e999'": VIDUR.replace(b"0.5", b"1e999"),
    "line 3 has 2 values where the header names 3": VIDUR.replace(b",20\n", b"\n"),
    "line 3: TIMESTAMP = 'yesterday'": AZURE.replace(b"2023-11-16 18:15:50.9951690", b"yesterday"),
    "line 3: TIMESTAMP = '2023-13-16": AZURE.replace(
        b"2023-11-16 18:15:50", b"2023-13-16 18:15:50"
    ),
    "line 2 is longer than 64 KB": VIDUR.replace(b"100", b"1" * 70_000),
    "names a column twice": b"input,output,input\n1,2,3\n",
    "is a zip archive": b"PK\x03\x04rest",
    "not a sound gzip": b"\x1f\x8b" + b"x" * 50,
    "middle of its gzip": gzip.compress(MOONCAKE)[:-9],
    "compressed twice": gzip.compress(gzip.compress(MOONCAKE)),
}


@pytest.mark.parametrize("sentence", BAD)
def test_a_malformed_file_gets_one_clear_sentence(sentence):
    with pytest.raises(TraceError) as refused:
        read_trace(BAD[sentence], "bad.file")
    text = str(refused.value)
    assert sentence.strip() in text and "\n" not in text and len(text) < 300


@draws(300)
@given(
    st.sampled_from(sorted(FILES)),
    st.integers(0, 1 << 16),
    st.integers(0, 8),
    st.sampled_from([b"", b"-1", b"1e999", b"null", b"[]", b'"', b"\x00", b"\xff", b"\n", b"\x1e"]),
)
def test_a_damaged_file_is_read_or_refused_and_nothing_else(kind, at, gone, put):
    data = FILES[kind]
    at %= len(data)
    try:
        table = read_trace(data[:at] + put + data[at + gone :], limits=SMALL)
    except TraceError as refused:
        assert "\n" not in str(refused)
    else:
        assert trace_figures(table)["rows"] == len(table)


def test_a_gzip_bomb_is_stopped_before_it_unpacks():
    bomb = gzip.compress(b"0" * (64 << 20))
    with pytest.raises(TraceError, match="unpacks to more than"):
        read_trace(bomb, limits=SMALL)
    wide = Limits(packed_bytes=1 << 30, unpacked_bytes=1 << 40, rows=10)
    with pytest.raises(TraceError, match="200 times its size"):
        read_trace(bomb, limits=wide)


def test_a_tar_bomb_is_stopped_before_it_is_read():
    info = tarfile.TarInfo("chunk-0-trace.csv")
    info.size = 1 << 40
    with pytest.raises(TraceError, match="unpacks to more than"):
        read_trace(info.tobuf() + b"\0" * 1024, limits=SMALL)


def test_a_name_cannot_break_the_sentence():
    with pytest.raises(TraceError) as refused:
        read_trace(archive({"bad\nname\x1b": b"hello"}), "up\nload")
    assert str(refused.value).startswith("up?load is in no format")


def test_too_large_or_too_many_is_refused():
    tiny = Limits(packed_bytes=100, unpacked_bytes=1 << 20, rows=1)
    with pytest.raises(TraceError, match="is larger than"):
        read_trace(MOONCAKE, limits=tiny)
    with pytest.raises(TraceError, match="more than 2: cut it"):
        read_trace(MOONCAKE, limits=Limits(1 << 20, 1 << 20, rows=2))


def test_a_duplicate_key_is_not_fatal():
    data = b'{"timestamp": 5, "timestamp": 0, "input_length": 1, "output_length": 1}'
    assert len(read_trace(data)) == 1


def test_a_path_that_is_not_there(tmp_path):
    with pytest.raises(TraceError, match="is not a file or a folder"):
        read_trace(tmp_path / "none")
    with pytest.raises(TraceError, match="holds no file"):
        read_trace(tmp_path)
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(MOONCAKE)
    with pytest.raises(TraceError, match="give one of them"):
        read_trace(tmp_path)


def peak_of_import(path, rows) -> int:
    """Most memory of a process of its own that reads a CSV of so many requests."""
    i = pl.int_range(rows)
    written = pl.select(
        TIMESTAMP=pl.datetime(2024, 5, 10) + pl.duration(milliseconds=i),
        ContextTokens=100 + i % 4000,
        GeneratedTokens=1 + i % 300,
    )
    written.write_csv(path, datetime_format="%F %T%.3f0000")
    code = (
        "import sys; from twin.lab.runs.process import peak_bytes\n"
        "from twin.lab.traces.reader import read_trace\n"
        f"assert len(read_trace(sys.argv[1])) == {rows}; print(peak_bytes())"
    )
    command = [sys.executable, "-c", code, str(path)]
    told = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    path.unlink()
    return int(told)


def test_a_long_file_takes_the_memory_of_its_table_and_no_more(tmp_path):
    """Bytes of the file and of the columns for each further request, and no Python objects."""
    few, many = (peak_of_import(tmp_path / "a.csv", rows) for rows in (250_000, 750_000))
    assert (many - few) / 500_000 < 200


@pytest.mark.long
def test_ten_million_requests_are_read_in_two_gigabytes(tmp_path):
    assert peak_of_import(tmp_path / "a.csv", 10_000_000) < 2e9


def test_what_a_portion_ends_in_changes_nothing(monkeypatch):
    """Lines, numbers of lines, hashes and sessions go on from one portion to the next."""
    rows = [mooncake(10 * i, 600, [i % 7, 100 + i], session_id=f"s{i % 5}") for i in range(200)]
    data = lines(*rows[:50]) + b"\n\n" + lines(*rows[50:])
    whole = read_trace(data, "a.jsonl")
    for size in (0, 1, 777):
        monkeypatch.setattr(requests, "PORTION_BYTES", size)
        assert read_trace(data, "a.jsonl").digest == whole.digest
    with pytest.raises(TraceError, match="line 202 is not JSON"):
        read_trace(data + b"\n{", "a.jsonl")
    bare = b"\n" + lines({"timestamp": 9, "input_length": 600, "output_length": 9})
    with pytest.raises(TraceError, match="line 202 has no hash_ids"):
        read_trace(data + bare, "a.jsonl")


def test_a_file_of_no_known_format_hears_which_columns_a_csv_needs():
    with pytest.raises(TraceError) as refused:
        read_trace(b"hello,world\n1,2\n", "own.csv")
    assert OWN in str(refused.value)
    columns = re.findall(r"[a-z_]*_[a-z_]+", OWN)
    assert len(read_trace(f"{','.join(columns)}\n0,100,10\n1,100,10\n".encode(), "own.csv")) == 2
