"""Golden figures of the real traces, and the committed fits against them.

The trace files are not part of the project; these tests need them beside it and skip, saying so,
where they are not.
"""

import json

import numpy as np
import pytest

from tests.lab.length_tables import LEVELS, lognormal_table, quantile_table
from twin.lab.library import ROOT, load_facts
from twin.lab.traces.reader import EVERY, read_trace, trace_figures
from twin.scenario import Trace, Workload
from twin.workload.generate import generate_requests, mean_lengths
from twin.workload.lengths import drawn_lengths
from twin.workload.reuse_curve import reuse_curve

TRACES = ROOT.parent / "shared" / "traces"
MOONCAKE = TRACES / "mooncake" / "conversation_trace.jsonl.gz"
AZURE = TRACES / "azure2023" / "AzureLLMInferenceTrace_conv.csv.gz"
LENGTHS = TRACES / "lengths"

needs_traces = pytest.mark.skipif(
    not MOONCAKE.exists(), reason="NO REAL TRACES beside the project: golden figures not checked"
)


def golden(name):
    return json.loads((TRACES / "trace_stats.json").read_text())[name]


@pytest.fixture(scope="module")
def mooncake():
    return read_trace(MOONCAKE)


def assert_lengths(seen, expected, **tolerance):
    for side in ("input", "output"):
        for key, value in seen[f"{side}_tokens"].items():
            assert value == pytest.approx(expected[side][key], **tolerance), (side, key)


def table_facts(name):
    facts = load_facts()
    return {s: list(facts[f"workloads.{name}.{s}"].value) for s in ("levels", "input", "output")}


def assert_fitted(name, table):
    fitted = table_facts(name)
    assert fitted["input"] == quantile_table(table.input_tokens)
    assert fitted["output"] == quantile_table(table.output_tokens)
    means = mean_lengths(Workload(lengths=name), load_facts())
    assert means.input_tokens == pytest.approx(table.input_tokens.mean(), rel=0.011)
    assert means.output_tokens == pytest.approx(table.output_tokens.mean(), rel=0.011)


@needs_traces
def test_mooncake_statistics(mooncake):
    seen, expected = trace_figures(mooncake), golden("mooncake/conversation_trace")
    assert_lengths(seen, expected, rel=1e-12)
    assert seen["rows"] == expected["arrivals"]["n"]
    assert seen["duration_s"] == expected["arrivals"]["duration_s"]
    assert seen["interarrival_cv"] == pytest.approx(expected["arrivals"]["cv_interarrival"])
    assert seen["blocks"] == expected["prefix"]["unique_blocks"]
    assert seen["block_tokens"] == 512 and seen["timestamp_step_s"] == pytest.approx(2.997)


@needs_traces
@pytest.mark.parametrize("share", ["0.01", "0.05", "0.1", "0.25", "0.5", "1.0"])
def test_lru_bound_is_the_golden_ratio_exactly(mooncake, share):
    expected = golden("mooncake/conversation_trace")["prefix"]["lru"][share]
    assert reuse_curve(mooncake, EVERY).hit_ratio(expected["blocks"]) == expected["token_hit_ratio"]


@needs_traces
def test_spreading_brings_poisson_arrivals_back(mooncake):
    w = Workload(arrivals="trace", trace=Trace(digest=mooncake.digest))
    gaps = np.diff(generate_requests(w, 1e9, 1, 512, load_facts(), mooncake).arrival_s)
    assert gaps.std() / gaps.mean() == pytest.approx(1.01, abs=0.04)


@needs_traces
def test_azure_statistics():
    seen, expected = trace_figures(read_trace(AZURE)), golden("azure2023/conv")
    assert_lengths(seen, expected, rel=1e-12)
    assert seen["duration_s"] == pytest.approx(expected["arrivals"]["duration_s"], abs=1e-6)
    assert seen["interarrival_cv"] == pytest.approx(expected["arrivals"]["cv_interarrival"])


@needs_traces
@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("mooncake-conversation", MOONCAKE),
        ("azure-2023-conv", AZURE),
        ("sharegpt", LENGTHS / "shared_gpt_input_output_marginals.csv.gz"),
        (
            "arxiv-summarisation",
            LENGTHS / "arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv.gz",
        ),
    ],
)
def test_committed_tables_are_what_the_fit_gives(name, path):
    assert_fitted(name, read_trace(path))


def test_tables_made_from_published_figures():
    completion = table_facts("code-completion")
    assert completion["levels"] == list(LEVELS)
    assert completion["input"] == lognormal_table(1500, 0.789, 1, 7437)
    assert completion["output"] == lognormal_table(13, 1.24, 1, 2000)


def test_deepseek_service_meets_its_published_totals():
    means = mean_lengths(Workload(lengths="deepseek-service"), load_facts())
    assert means.input_tokens / means.output_tokens == pytest.approx(608 / 168, rel=0.01)
    prompts, answers = drawn_lengths(load_facts(), Workload(lengths="deepseek-service"))
    context = prompts.mean + answers.moment(2) / (2 * answers.mean)  # behind an output token
    assert context == pytest.approx(4989, rel=0.01)


def ideal_hits(r, after_s=0.0):
    """Ideal token hit ratio of generated requests from `after_s` on."""
    seen = np.zeros(r.blocks, bool)
    hit = total = 0
    for i in range(len(r)):
        runs = range(r.segment_offset[i], r.segment_offset[i + 1])
        ids = [np.arange(r.segment_blocks[s]) + r.segment_first[s] for s in runs]
        chain = np.concatenate(ids) if ids else np.zeros(0, np.int64)
        if r.arrival_s[i] >= after_s:
            hit += int(np.cumprod(seen[chain]).sum()) * r.block_tokens
            total += int(r.input_tokens[i])
        seen[chain] = True
    return hit / total


FITTED = {  # fact of data/workloads/<name>.toml -> field of the workload section
    "arrivals": "arrivals",
    "rate": "rate_req_per_s",
    "cv": "cv",
    "prefix": "prefix",
    "follow_up_probability": "follow_up_probability",
    "turn_gap": "turn_gap_s",
    "shared_fraction": "shared_fraction",
    "prefix_groups": "prefix_groups",
}


def workload_as_fitted(facts, name, **fields):
    group = facts.group(f"workloads.{name}")
    fitted = {field: group[fact].value for fact, field in FITTED.items() if fact in group}
    return Workload(**{"rate_req_per_s": 50.0, "lengths": name} | fitted | fields)


def test_fitted_sessions_bring_the_hit_ratio_of_the_mooncake_hour():
    facts = load_facts()
    w = workload_as_fitted(facts, "mooncake-conversation")
    hours = [ideal_hits(generate_requests(w, 3537.0, seed, 512, facts)) for seed in range(3)]
    target = facts.si("workloads.mooncake-conversation.hit_token_ratio")
    assert np.mean(hours) == pytest.approx(target, abs=0.02)


def test_fitted_sessions_bring_the_hit_ratio_of_the_service():
    facts = load_facts()
    w = workload_as_fitted(facts, "deepseek-service", rate_req_per_s=8.0)
    r = generate_requests(w, 3600.0, 1, 128, facts)
    target = facts.si("workloads.deepseek-service.hit_token_ratio")
    assert ideal_hits(r, after_s=1800.0) == pytest.approx(target, abs=0.03)


@pytest.mark.parametrize("name", load_facts().names("workloads"))
def test_every_preset_is_a_workload(name):
    facts = load_facts()
    w = workload_as_fitted(facts, name)
    r = generate_requests(w, 20.0, 1, 128, facts)
    assert len(r) > 0 and r.input_tokens.min() >= 1 and r.output_tokens.min() >= 1
