"""Which table a fact is of is decided by tables alone, and the lines are facts of a chip."""

import tomllib
from dataclasses import replace

import pytest

from twin.extras.operator_tables.chosen import chip_toml, choose_tables, library_toml
from twin.extras.operator_tables.fits import SUMMED, Fitted
from twin.facts import facts_from_tables
from twin.lab.library import load_facts

SHARES = {"start": 2e-5, "compute": 0.7, "bandwidth": 0.9, "tile_small": 64.0, "tile_large": 128.0}


def fitted(engine: str, part: str = "", mean: float = 0.05, rows: int = 100, **more) -> Fitted:
    return Fitted("grouped", "fp8", engine, part, SHARES | more, rows, 20, mean, 3 * mean)


def spread_of(found) -> list[Fitted]:
    return [each for each in choose_tables(found) if each.operator == "grouped"]


def test_a_library_is_one_engine_s_own_kernels_and_each_table_whole():
    found = [fitted("sglang 0.5.14", "triton"), fitted("vllm 0.24.0", "triton", compute=0.5)]
    facts = facts_from_tables(
        tomllib.loads(library_toml(choose_tables(found, "vllm"), "somewhere", "vllm"))
    )
    assert facts.si("kernels.vllm.latest.fused.fp8.compute") == pytest.approx(0.5)
    assert facts.names("kernels.vllm.latest") == ["fused"]  # spread experts are another library's
    assert {"tile_small", "tile_large", "start"} <= set(
        facts.group("kernels.vllm.latest.fused.fp8")
    )


def test_a_kernel_for_spread_experts_goes_before_a_newer_release():
    newer, spread = fitted("sglang 0.5.14", "triton"), fitted("sglang 0.5.10", "deepepmoe")
    assert spread_of([newer, spread]) == [spread]
    # Dies of one rank have all tokens: there it is the other kernel.
    assert [(e.operator, e.part) for e in choose_tables([newer, spread])] == [
        ("grouped", "deepepmoe"), ("fused", "triton"),
    ]  # fmt: skip


def test_models_without_latent_attention_have_the_kernel_that_sglang_compiles_itself():
    """A fact of its own only where another kernel is the one of all experts."""
    fast, own = fitted("sglang 0.5.14", "flashinfer", rows=200), fitted("sglang 0.5.14", "triton")
    foreign = fitted("vllm 0.24.0", "triton")
    names = [(e.operator, e.part) for e in choose_tables([fast, own, foreign])]
    assert names == [("grouped", "flashinfer"), ("fused", "flashinfer"), ("fused_gqa", "triton")]
    assert "fused_gqa" not in {e.operator for e in choose_tables([own, foreign])}
    # Which models take which is said in the lines, and by a library that its kernel is of all.
    facts = facts_from_tables(tomllib.loads(chip_toml(choose_tables([fast, own]), "somewhere")))
    assert facts["operators.fused.fp8.serves"].value == "mla"
    assert "serves" not in facts.group("operators.fused_gqa.fp8")
    facts = facts_from_tables(
        tomllib.loads(library_toml(choose_tables([foreign], "vllm"), "there", "vllm"))
    )
    assert facts["kernels.vllm.latest.fused.fp8.serves"].value == "all"


def test_products_of_one_scale_a_tensor_are_of_the_library_whose_checkpoints_have_it():
    """NVIDIA's own, so TensorRT-LLM's: others serve checkpoints in blocks."""
    found = [
        replace(fitted(engine, row=3.8), operator=operator)
        for engine in ("sglang 0.5.14", "trtllm 1.3.0")
        for operator in ("gemm", "gemm_gqa")
    ]
    of_engine = {name: [e.operator for e in choose_tables(found, name)] for name in ("", "trtllm")}
    assert of_engine == {"": ["gemm"], "trtllm": ["gemm", "gemm_gqa"]}
    facts = facts_from_tables(
        tomllib.loads(library_toml(choose_tables(found, "trtllm"), "there", "trtllm"))
    )
    assert facts.si("kernels.trtllm.latest.gemm_gqa.fp8.row") == pytest.approx(3.8)


def test_experts_whose_packed_weights_are_read_unpacked_are_not_what_is_served():
    unpacked = replace(fitted("sglang 0.5.14", bandwidth=0.2), format="mxfp4_bf16")
    packed = replace(fitted("vllm 0.24.0"), format="mxfp4_bf16")
    assert spread_of([unpacked, packed]) == [packed]


def test_releases_are_compared_as_numbers_and_the_larger_table_counts_among_equals():
    old, new = fitted("sglang 0.5.9"), fitted("sglang 0.5.14")
    large = fitted("sglang 0.5.14", "other", rows=200)
    assert spread_of([old, new, large]) == [large]


def test_a_table_that_is_far_off_gives_way_to_another_engine_whatever_it_says():
    poor, other = fitted("sglang 0.5.14", mean=0.21), fitted("vllm 0.24.0", mean=0.14)
    assert spread_of([poor, other]) == [other]
    assert choose_tables([poor]) == []


def test_attention_that_reads_at_a_fraction_of_the_memory_is_not_what_is_served():
    slow = Fitted("mla", "fp8", "sglang 0.5.14", "computed in bf16",
                  {"start": 2e-5, "compute": 0.3, "bandwidth": 0.06, "power": 2.0},
                  100, 20, 0.03, 0.1)  # fmt: skip
    assert choose_tables([slow]) == []


def test_lines_are_facts_with_a_source_and_the_error_of_rows_held_back():
    table = tomllib.loads(chip_toml([fitted("sglang 0.5.10", "deepepmoe")], "somewhere"))
    facts = facts_from_tables(table)
    assert facts.si("operators.grouped.fp8.start") == pytest.approx(20e-6)
    assert facts.si("operators.grouped.fp8.compute") == pytest.approx(0.7)
    assert facts.count("operators.grouped.fp8.tile_large") == 128
    held = facts["operators.grouped.fp8.held_back"]
    assert held.si == pytest.approx(0.05) and "15 % at worst" in held.note
    assert held.source == "somewhere: grouped fp8, sglang 0.5.10, deepepmoe"


def test_an_exchange_is_told_by_network_and_phase_as_shares_of_a_link():
    ways = [
        Fitted("exchange", "fp8", "sglang 0.5.12", f"{phase} inside a node",
               {"start": 1.3e-5, "rate": 2.25e11}, 22, 3, 0.02, 0.06)
        for phase in ("dispatch", "combine")
    ]  # fmt: skip
    facts = facts_from_tables(
        tomllib.loads(chip_toml(choose_tables(ways), "somewhere", {"inside": 450.0}))
    )
    for phase in ("dispatch", "combine"):
        assert facts.si(f"operators.exchange.inside.{phase}_start") == pytest.approx(13e-6)
        assert facts.si(f"operators.exchange.inside.{phase}_rate") == pytest.approx(0.5)
    assert facts.names("operators.exchange") == ["inside"]


def test_a_library_s_own_exchange_stands_with_its_kernels():
    ways = [
        Fitted("alltoall", "fp4", "trtllm 1.3", f"{phase} inside a node",
               {"start": 1.9e-5, "rate": 4.5e11}, 88, 12, 0.05, 0.2)
        for phase in ("dispatch", "combine")
    ]  # fmt: skip
    text = library_toml(choose_tables(ways, "trtllm"), "somewhere", "trtllm", 900.0)
    facts = facts_from_tables(tomllib.loads(text))
    path = "kernels.trtllm.latest.exchange"
    assert facts.names(path) == ["inside"]
    assert facts.si(f"{path}.inside.dispatch_start") == pytest.approx(19e-6)
    assert facts.si(f"{path}.inside.combine_rate") == pytest.approx(0.5)
    assert not chip_toml(
        choose_tables(ways), "somewhere", {"inside": 900.0}
    )  # of the chip it is DeepEP's


def test_sums_and_hosts_are_facts_of_a_chip_too():
    sums = [
        Fitted(operator, "bf16", "sglang 0.5.14", f"{dies} dies",
               {"start": 3e-6 * dies, "rate": 1.8e11, "later": 1e-5, "gain": 1.0}, 11, 2, 0.18, 0.3)
        for dies in (2, 8) for operator in ("collective", "gather")
    ]  # fmt: skip
    host = Fitted("eager_mla", "fp8", "sglang 0.5.10", "host", {"host": 6e-4}, 12, 3, 0.02, 0.03)
    text = chip_toml(choose_tables([*sums, host]), "somewhere", {"inside": 450.0})
    facts = facts_from_tables(tomllib.loads(text))
    for name in ("inside", "gathers"):
        table = f"operators.collective.{name}"
        assert facts[f"{table}.dies"].value == (2, 8)
        assert facts[f"{table}.start"].list_si == pytest.approx([6e-6, 24e-6])
        assert facts[f"{table}.rate"].list_si == pytest.approx([0.4, 0.4])
        assert facts[f"{table}.large_start"].list_si == pytest.approx([16e-6, 34e-6])
        assert facts[f"{table}.large_rate"].list_si == pytest.approx([0.8, 0.8])
    assert facts.si("operators.eager.mla.host") == pytest.approx(6e-4)


def test_shares_in_data_are_below_the_peaks_and_none_is_far_off_on_rows_held_back():
    facts = load_facts()
    held = [name for name in facts if ".operators." in name and name.endswith("held_back")]
    assert len(held) >= 50
    for name in held:
        assert 0.0 < facts.si(name) <= (0.2 if ".collective." in name else 0.15)
        own = facts.group(name.rpartition(".")[0])
        shares = [own[part].si for part in ("compute", "bandwidth") if part in own]
        assert all(0.0 < share <= 1.0 for share in shares)
        if "start" in own and ".collective." not in name:
            assert own["start"].si < 50e-6


def test_experts_of_one_rank_have_a_term_for_what_is_written_and_summed():
    """Of one kernel two fits: with a row's bytes for `fused`, without for experts on several."""
    plain, summed = fitted("sglang 0.5.14", "triton"), fitted("sglang 0.5.14", f"triton{SUMMED}")
    summed = replace(summed, facts={**summed.facts, "row": 8.0})
    facts = facts_from_tables(tomllib.loads(chip_toml(choose_tables([plain, summed]), "somewhere")))
    assert facts.si("operators.fused.fp8.row") == pytest.approx(8.0)
    assert "operators.grouped.fp8.row" not in facts
    assert facts.si("operators.grouped.fp8.compute") == pytest.approx(0.7)
