"""Files of strangers are read by a process apart, within limits."""

import gzip

import pytest

from tests.draws import some
from twin.lab.kinds import KINDS, TRACE
from twin.lab.runs.apart import Refused, read_in_process
from twin.lab.runs.process import peak_bytes
from twin.lab.traces.reader import read_trace

READ = [kind for kind in KINDS if kind.reader]
ROW = '{"timestamp": %d, "input_length": 100, "output_length": 10, "hash_ids": [%d, %d]}\n'


def trace_file(rows):
    return "".join(ROW % (10 * i, i % 7, i) for i in range(rows)).encode()


def test_it_reads_what_the_reader_reads():
    data = trace_file(50)
    assert read_in_process(TRACE, data, "a.jsonl").digest == read_trace(data, "a.jsonl").digest


@pytest.mark.parametrize("kind", some(READ[:1], *READ[1:]), ids=lambda kind: kind.key)
def test_a_refusal_is_the_readers_own_sentence(kind):
    with pytest.raises(Refused, match="a.bin"):
        read_in_process(kind, b"\x00\x01nothing of the kind", "a.bin")


def test_what_takes_too_much_is_refused_and_costs_this_process_nothing():
    packed = gzip.compress(trace_file(400_000))
    before = peak_bytes()
    with pytest.raises(Refused, match=r"b.jsonl.gz takes more than 300 MB of memory .* cut it"):
        read_in_process(TRACE, packed, "b.jsonl.gz", memory_bytes=300 << 20)
    assert peak_bytes() - before < 32 << 20


def test_what_takes_too_long_is_refused():
    with pytest.raises(Refused, match=r"or 0.01 s"):
        read_in_process(TRACE, trace_file(10), "a.jsonl", seconds=0.01)
