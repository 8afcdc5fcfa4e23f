"""The band of the regime that a figure stands in, in words: what it rests on, what is beyond it."""

from dataclasses import replace

import pytest

from twin.lab.evidence.bands import MOST, PRIOR, coverage_texts, row_bands
from twin.lab.evidence.judge import evidence, stored_errors, write_errors
from twin.lab.evidence.near import (
    FIGURES,
    bands_by_run,
    bands_text,
    figure_bands,
    known_ratios,
    known_throughput_ratio,
    stack_of_scenario,
)
from twin.lab.evidence.rows import SUPERNODE, UNJUDGED, UNSEEN, load_published, scenario_of
from twin.lab.library import load_facts, published_table
from twin.lab.share.shipped import shipped_evidence

ALONE = {"deployment.mode": "decode_only"}
CLOSED = {**ALONE, "workload.arrivals": "closed_loop"}


@pytest.fixture(scope="module")
def facts():
    return load_facts()


def tpot(facts, **settings):
    return figure_bands(scenario_of({**ALONE, **settings}), facts)[0]


def test_a_band_says_how_far_measurements_may_be_and_what_it_rests_on(facts):
    found = tpot(facts)
    assert 0 < found.band.own < PRIOR and not found.extrapolated
    low, high = found.ends(MOST)
    assert low < 1.0 < high
    assert f"{100 * (high - 1):+.0f} % from it" in found.sentence
    assert f"{found.band.own} unseen rows of the stack of {SUPERNODE}" in found.sentence
    assert f"other systems weigh as {PRIOR}" in found.sentence
    assert found.range_text(0.05) == f"{50 * low:.1f} to {50 * high:.1f} ms"


def test_a_time_and_a_rate_of_one_run_have_one_band(facts):
    time, rate = figure_bands(scenario_of(ALONE), facts)
    (low, high), (slow, fast) = time.ends(MOST), rate.ends(MOST)
    assert (low * fast, high * slow) == (pytest.approx(1.0), pytest.approx(1.0))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"deployment.decode.batch_per_npu": 1000}, "a batch of 1000 requests per NPU; rows of"),
        ({"deployment.mode": "colocated"}, "all rows of this stack measure the pools apart"),
        ({"supernode.chip": "h100"}, "the scenario names no stack, and rows on H100"),
        ({"supernode.chip": "h200", "deployment.stack": "vllm-ascend-0-13"},
         "no row of TPOT is of vLLM-Ascend"),
    ],
)  # fmt: skip
def test_what_rows_do_not_reach_is_said_and_its_band_is_wider(facts, settings, words):
    found = tpot(facts, **settings)
    assert any(words in each for each in found.extrapolated)
    assert f"Extrapolated: {found.extrapolated[0]}." in found.sentence
    assert found.band.spread > tpot(facts).band.spread


def test_a_figure_that_was_never_published_of_a_stack_says_so(facts):
    found = {each.figure.name: each for each in figure_bands(scenario_of({}), facts)}
    assert "Extrapolated: no row of TTFT" in found["TTFT"].sentence
    assert found["TTFT"].band.own == 0


def test_a_stack_by_name_has_its_own_rows_and_none_is_the_supernodes_on_its_chip_only():
    assert stack_of_scenario(scenario_of({"deployment.stack": "sglang-npu"})) == "sglang-npu"
    assert stack_of_scenario(scenario_of({})) == SUPERNODE
    assert stack_of_scenario(scenario_of({"supernode.chip": "h20"})) == ""


def test_errors_are_kept_of_every_row_that_no_fit_helped_and_earlier_facts_are_said(
    facts, tmp_path
):
    rows = [row for row in load_published() if row.id.startswith(("cm384-decode-8", "slides"))]
    answers = evidence(facts, rows)
    path = tmp_path / "errors.toml"
    write_errors(facts, answers, path)
    stored = published_table(path)
    assert (
        stored["error"]
        == stored["today"]
        == {a["id"]: pytest.approx(a["error"], abs=1e-4) for a in answers if a["kind"] == "seen"}
    )
    honest = [row for row in load_published() if row.kind in (*UNSEEN, "seen")]
    assert set(stored_errors()["error"]) == {row.id for row in honest if not row.at_most}
    assert {row.id for row in honest} <= set(stored_errors()["today"])
    other = facts.replaced({"calibration.jitter": 0.02})
    assert "with earlier facts" in figure_bands(scenario_of({}), other)[0].sentence


def test_a_pool_that_is_not_deployed_has_no_band(facts):
    alone = scenario_of({"deployment.mode": "prefill_only"})
    assert [each.figure.name for each in figure_bands(alone, facts)] == ["prefill throughput"]


def test_a_band_that_runs_share_is_said_once(facts):
    one = scenario_of(ALONE)
    other = scenario_of({"deployment.mode": "prefill_only"})
    ((names, bands),) = bands_by_run({"A": one, "B": one}, facts)
    assert names == ("A", "B") and [each.figure.name for each in bands] == ["TPOT"]
    assert [names for names, _ in bands_by_run({"A": one, "B": other}, facts)] == [("A",), ("B",)]
    assert bands_text(bands) == f"TPOT {bands[0].percents(MOST)}"
    far = figure_bands(scenario_of({"deployment.mode": "colocated"}), facts)
    assert bands_text(far).count("(extrapolated)") == len(far)


def test_throughput_that_the_load_sets_has_no_band_in_a_run(facts):
    free = scenario_of({})
    closed = scenario_of({"workload.arrivals": "closed_loop"})
    assert [each.figure.name for each in figure_bands(free, facts, run=True)] == ["TPOT", "TTFT"]
    assert (
        len(figure_bands(closed, facts, run=True)) == len(figure_bands(free, facts)) == len(FIGURES)
    )


def test_every_row_that_is_judged_has_a_band_made_without_its_system():
    found = row_bands()
    judged = {row.id for row in load_published() if row.kind not in UNJUDGED
              and row.measure != "memory.kv_bytes"}  # fmt: skip
    assert set(found) == judged
    assert all(-1.0 < low < high for low, high, _ in found.values())
    held = [each for _, _, each in found.values() if each is not None]
    assert 0.7 <= sum(held) / len(held) <= 0.9
    came = shipped_evidence(load_facts())
    assert came is not None, "sources or published figures have changed: make shipped"
    assert {r["id"] for r in came["rows"] if r["band"]} == judged
    for r in came["rows"]:
        assert r["band"] is None or tuple(r["band"]) == pytest.approx(found[r["id"]], abs=1e-6)
    assert came["held"] == coverage_texts()


def test_what_bands_hold_is_computed_and_said():
    said = coverage_texts()
    assert all(each.startswith("Bands of 50 and 80 % hold ") for each in said)
    held = [each for _, _, each in row_bands().values() if each is not None]
    assert f"and {100 * sum(held) / len(held):.0f} % of {len(held)} first errors" in said[0]


def test_figures_that_measurements_may_well_find_equal_are_said_to_be(facts):
    base = scenario_of(CLOSED)
    same = scenario_of({**CLOSED, "deployment.decode.batch_per_npu": 64})
    other = scenario_of({**CLOSED, "supernode.chip": "h100"})

    def told(one, factor):
        figures = {f.metric: 1.0 for f in FIGURES}
        faster = {f.metric: 1.0 / factor if f.time else factor for f in FIGURES}
        return known_ratios((one, faster), (base, figures))

    assert [each.figure.name for each in told(same, 1.01)] == ["TPOT", "decode throughput"]
    assert all(each.equal for each in told(same, 1.01))
    assert not any(each.equal for each in told(same, 4.0))
    assert all(f"±{100 * each.within:.0f} %" in each.text for each in told(same, 4.0))
    assert told(same, 1.01)[0].within < told(other, 1.01)[0].within
    assert {"±30 %", "a factor of 2.0"} == {
        replace(each, within=w).band for each in told(same, 4.0) for w in (0.3, 0.99)
    }
    assert "equal within what is known" in told(same, 1.01)[0].text
    assert known_ratios((base, {}), (base, {})) == []
    assert told(same, 1.0) == []  # the same figures
    for by in (1.01, 4.0):  # a plan, which has no figures but a ratio, says the same of it
        assert known_throughput_ratio(same, base, by) == told(same, by)[1]
