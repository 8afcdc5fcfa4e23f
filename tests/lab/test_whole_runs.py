import pytest

from tests.benchmarks import whole_runs as bench
from twin.lab.traces.source import TraceError
from twin.scenario import npus_used


def test_full_load_holds_two_million_requests_on_every_npu():
    full = next(b.scenario for b in bench.benchmarks() if b.name == "full-load-hour")
    assert full.workload.rate_req_per_s * full.horizon_s >= 2e6
    assert npus_used(full) == full.supernode.npus == 384


def test_a_wider_machine_gets_as_much_more_of_everything():
    by_name = {b.name: b.scenario for b in bench.benchmarks()}
    one, four = by_name["supernodes-1"], by_name["supernodes-4"]
    assert npus_used(four) == four.supernode.npus == 4 * one.supernode.npus
    assert four.workload.rate_req_per_s == 4 * one.workload.rate_req_per_s


def test_a_trace_that_was_named_and_is_not_there_is_no_other_benchmark(tmp_path):
    with pytest.raises(TraceError, match=r"absent\.jsonl is not a file"):
        bench.benchmarks(tmp_path / "absent.jsonl")


def test_without_the_trace_its_statistics_stand_in(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "MOONCAKE", tmp_path / "absent.jsonl")
    found = {b.name: b for b in bench.benchmarks()}
    hour = found["conversation-hour-32"]
    assert hour.trace is None
    assert hour.scenario.workload.lengths == "mooncake-conversation"
