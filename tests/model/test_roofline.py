from dataclasses import replace

import numpy as np
import pytest

from twin.facts import Fact
from twin.hardware.chip import load_chip
from twin.hardware.fabric import build_fabric
from twin.kernels.compiled import entry
from twin.model import layer
from twin.model.costs import build_costs
from twin.model.record import walk
from twin.model.roofline import (
    chip_of_tables,
    facts_of_stack,
    interpolate,
    kernel_facts,
    load_machine,
    roofline_s,
    stack_facts,
)
from twin.model.shape import ModelError
from twin.scenario import Deployment, Scenario, with_overrides

GB200 = {"supernode.chip": "gb200", "deployment.precision.weights": "fp4"}


def costs(facts, **fields):
    s = with_overrides(Scenario(), {"deployment.mode": "decode_only"} | fields)
    return build_costs(s, facts, build_fabric(s.supernode, facts))


def test_a_roof_is_the_longer_far_from_the_ridge_and_more_at_it():
    assert roofline_s(5.0, 0.0) == 5.0
    assert roofline_s(10.0, 1.0) == pytest.approx(10.0, rel=0.01)
    assert roofline_s(3.0, 4.0) == 5.0


def test_interpolation_passes_its_points_and_stays_at_the_ends():
    xs, ys = np.array([1.0, 2.0, 4.0]), np.array([3.0, 2.0, 1.0])
    for call in (interpolate, entry(interpolate)):
        assert [call(x, xs, ys) for x in (0.0, 2.0, 3.0, 9.0)] == [3.0, 2.0, 1.5, 1.0]


def test_the_slowest_of_many_dies_is_slower(facts):
    m = load_machine(facts, load_chip(facts, "ascend-910c"))
    assert 1.0 == m.slowest_over_mean(1) <= m.slowest_over_mean(8) < m.slowest_over_mean(320)
    assert m.drawn_share(0.5) < m.drawn_share(1.0) == 1.0


@pytest.mark.parametrize("chip", ["ascend-910b-313t", "ascend-910b-280t", "ascend-910c-560t"])
def test_a_chip_with_few_cores_draws_less_than_its_hbm_gives(facts, chip):
    """Each draws 32 bytes in a cycle, in which it multiplies 16 x 32 x 16 values of INT8."""
    m = load_machine(facts, load_chip(facts, chip))
    by_cores = m.chip.peak("int8") / 16384 * 32
    assert m.stream_bytes_per_s() == pytest.approx(by_cores)
    assert by_cores < m.chip.hbm_bytes_per_s * m.gemm_bandwidth_utilisation
    assert 1.6e9 < by_cores / 32 / 20 < 2.0e9  # the clock of 20 cores


@pytest.mark.parametrize("chip", ["ascend-910c", "h800"])
def test_a_share_of_the_cores_computes_by_the_share_and_draws_no_less_than_it(facts, chip):
    whole, half = (load_machine(facts, load_chip(facts, chip), cores=x) for x in (1.0, 0.5))
    assert half.gemm_flops("int8") == 0.5 * whole.gemm_flops("int8")
    assert half.attention_peak == 0.5 * whole.attention_peak
    assert half.vector_bytes_per_s() == 0.5 * whole.vector_bytes_per_s()
    assert half.gate_token_s == 2.0 * whole.gate_token_s
    assert 0.5 <= half.drawn_share(1.0) == whole.drawn_share(0.5) < 1.0
    assert (
        half.copy_speed_share(1.0)
        == whole.copy_speed_share(0.5)
        == 1.0
        > half.copy_speed_share(0.5)
    )
    assert half.stream_bytes_per_s(0.5) == whole.stream_bytes_per_s(0.25)


def test_every_stack_replaces_facts_that_exist(facts):
    for stack in facts.names("stacks"):
        assert stack_facts(facts, stack) or f"stacks.{stack}.kernels" in facts
        for name, fact in stack_facts(facts, stack).items():
            assert name in facts and fact.unit, f"{stack}: {name}"


def test_every_stack_says_its_release_where_it_is_chosen(facts):
    options = Deployment.model_fields["stack"].json_schema_extra["options"]
    for stack in facts.names("stacks"):
        assert facts[f"stacks.{stack}.release"].value in options[stack]


def test_a_stack_has_what_the_one_that_it_is_based_on_has(facts):
    base, own = (stack_facts(facts, f"tensorrt-llm{more}") for more in ("", "-streaming"))
    assert base.items() < own.items()


def test_a_stack_moves_what_it_names_and_nothing_else(facts):
    plain = costs(facts).decode
    other = costs(facts, **{"deployment.stack": "sglang-npu"}).decode
    moved = [(a, b) for (_, a), (_, b) in zip(walk(plain), walk(other), strict=True) if a != b]
    assert moved and all(b > a for a, b in moved)
    streaming = costs(facts, **GB200, **{"deployment.stack": "tensorrt-llm-streaming"}).decode
    assert streaming.host.answer == pytest.approx(11e-6)
    assert costs(facts, **GB200).decode.host.answer == 0.0


def test_facts_of_a_stack_are_other_facts(facts):
    own = facts_of_stack(facts, "sglang-npu", "ascend-910c")
    assert own != facts and own["calibration.comm_fixed"].unit == "us"
    assert facts_of_stack(facts, "plain", "ascend-910c") is facts


def test_a_stack_takes_the_kernels_of_its_month_and_without_one_the_latest(facts):
    said = {
        f"chips.h100.kernels.own.{until}.gemm.fp8.compute": Fact(share, "%", "test", "m")
        for until, share in (("2025-02", 40.0), ("2025-06", 50.0), ("latest", 60.0))
    } | {"stacks.own.kernels": Fact(("own",), "", "test", "m")}
    for month, share in (
        ("2024-12", 0.4), ("2025-02", 0.4), ("2025-03", 0.5), ("2025-07", 0.6), ("", 0.6)
    ):  # fmt: skip
        dated = {"stacks.own.month": Fact(month, "", "test", "m")} if month else {}
        known = facts.replaced(said | dated)
        of = facts_of_stack(known, "own", "h100")
        assert load_machine(of, load_chip(of, "h100")).product_efficiency("fp8").compute == share
        assert kernel_facts(known, "own", "h200") == {}  # nothing is known of that chip
        assert facts_of_stack(known, "own", "h200") == known


def test_a_library_without_a_later_release_leaves_the_operators_as_they_are(facts):
    said = {
        "chips.h100.kernels.own.2025-02.gemm.fp8.compute": Fact(40.0, "%", "test", "m"),
        "stacks.own.kernels": Fact(("own",), "", "test", "m"),
    }
    assert kernel_facts(facts.replaced(said), "own", "h100") == {}


def test_every_library_of_a_chip_is_named_by_a_stack_and_replaces_whole_tables(facts):
    named = {e for s in facts.names("stacks") for e in facts.group(f"stacks.{s}").get(
        "kernels", Fact((), "", "", "a")).value}  # fmt: skip
    for chip in facts.names("chips"):
        for library in facts.names(f"chips.{chip}.kernels"):
            assert library in named
            latest = facts.group(f"chips.{chip}.kernels.{library}.latest")
            for name in latest:
                operator = name.rpartition(".")[0]
                own = facts.group(f"chips.{chip}.operators.{operator}")
                assert {part for part in own if part != "note"} <= {
                    part.rpartition(".")[2] for part in latest if part.startswith(operator)
                }


def test_a_chip_without_tables_reaches_the_shares_of_the_one_that_it_names(facts):
    assert chip_of_tables(facts, "h100-pcie") == "h100" == chip_of_tables(facts, "h100")
    for stack in ("plain", "vllm-0-24"):
        card, module = (
            load_machine(known, load_chip(known, chip))
            for chip in ("h100-pcie", "h100")
            for known in [facts_of_stack(facts, stack, chip)]
        )
        assert card.reaches == module.reaches
        assert card.gemm_flops("fp8") / module.gemm_flops("fp8") == pytest.approx(1513 / 1979)
        assert card.eager_layer_s == module.eager_layer_s != {}


@pytest.mark.parametrize(
    "prompts, tokens, us, within",
    [(6, 4_104, 780, 0.02), (10, 4_104, 1_286, 0.02), (63.5, 1_032, 1_073, 0.02),
     (8, 8_192, 3_845, 0.15)],
)  # fmt: skip
def test_grouped_query_prompts_on_ascend_take_what_their_profile_has(
    facts, prompts, tokens, us, within
):
    """4 query heads of 128 on a die; the last size was held back when the others were fitted."""
    machine = load_machine(facts, load_chip(facts, "ascend-910b"))
    reach = machine.prompt_efficiency("bf16", "gqa")
    pair_s = 4 * 4 * 128 / (machine.chip.peak(reach.peak) * reach.compute)
    seconds = reach.start_s + prompts * tokens * (0.5 * tokens + reach.edge) * pair_s
    assert seconds == pytest.approx(1e-6 * us, rel=within)


@pytest.mark.parametrize(
    "kind, requests, tokens, heads, query, us, within",
    [("latent", 60, 2_048, 64, 1, 272.99, 0.01), ("latent", 60, 2_048, 128, 1, 287.75, 0.05),
     ("latent", 128, 1_024, 128, 1, 322.85, 0.05), ("latent", 96, 2_048, 128, 2, 548.55, 0.13),
     ("latent", 5, 4_850, 16, 1, 59.8, 0.05), ("gqa", 60, 2_048, 64, 1, 488.29, 0.02),
     ("gqa", 16, 2_048, 64, 1, 145.8, 0.03)],
)  # fmt: skip
def test_decode_attention_of_cann_takes_what_was_measured(
    facts, kind, requests, tokens, heads, query, us, within
):
    """One head's width of values is 512 of latents and 128 of grouped queries; of the first five,
    one made the figure. Engines call these kernels; the paper's has its own."""
    of_engine = facts_of_stack(facts, "vllm-ascend-0-13", "ascend-910b")
    machine = load_machine(of_engine, load_chip(of_engine, "ascend-910b"))
    reach = machine.attention_efficiency("bf16", kind)
    values, width = (576, 2 * (576 + 512)) if kind == "latent" else (2 * 8 * 128, 4 * 128)
    compute_s = query * heads * width / (machine.chip.peak(reach.peak) * reach.compute)
    read_s = 2 * values / (machine.chip.hbm_bytes_per_s * reach.bandwidth)
    seconds = reach.start_s + requests * tokens * roofline_s(compute_s, read_s)
    assert seconds == pytest.approx(1e-6 * us, rel=within)
    papers = load_machine(facts, load_chip(facts, "ascend-910c"))
    assert papers.attention_efficiency("bf16", "latent").bandwidth == pytest.approx(0.841)
    over_selected_keys = machine.attention_efficiency("bf16", "mla")
    assert over_selected_keys.bandwidth == pytest.approx(0.841)


@pytest.mark.parametrize("tokens, us, within", [(2, 5.7, 0.6), (32, 22.7, 0.1), (128, 31.6, 0.1),
                                                (256, 35.7, 0.25)])  # fmt: skip
def test_experts_are_chosen_on_ascend_in_what_their_kernel_takes(facts, tokens, us, within):
    """MoeGatingTopK of 256 experts; of the product before it only its launch."""
    fields = {"deployment.stack": "vllm-ascend-0-13", "deployment.decode.microbatch": "off"}
    gate = costs(facts, **fields).decode.sequence.gate
    selecting = replace(gate, fixed=7.8e-6)
    assert layer.collective_s(selecting, tokens) == pytest.approx(1e-6 * us, rel=within)
    assert layer.collective_s(selecting, 8_192) < 0.2 * (8_192 * gate.token)
    papers = costs(facts, **{"deployment.decode.microbatch": "off"}).decode.sequence.gate
    assert papers.saved == 0.0


def test_a_stack_that_is_unknown_or_of_other_chips_is_refused(facts):
    with pytest.raises(
        ModelError, match="not in data/stacks.toml: take plain, cann-recipes, chitu, mindie"
    ):
        costs(facts, **{"deployment.stack": "no-such"})
    with pytest.raises(ModelError, match="figures of nvidia chips and says nothing of ascend-910c"):
        costs(facts, **{"deployment.stack": "tensorrt-llm"})
    with pytest.raises(ModelError, match="figures of nvidia chips and says nothing of ascend-910c"):
        costs(facts, **{"deployment.stack": "vllm-0-24"})


def core_s(facts, chip: str, kv: str) -> float:
    """Seconds of decode's attention core per cached token of a die, launches left out."""
    fields = {"supernode.chip": chip, "deployment.precision.weights": "fp8",
              "deployment.precision.kv": kv, "deployment.decode.mtp_draft_tokens": 0}  # fmt: skip
    return costs(facts, **fields).decode.splits[0].core.context  # waits for no other die


@pytest.mark.parametrize(
    ("chip", "least", "most"),
    [("h100", 1.1, 1.4), ("h200", 1.1, 1.4), ("b200", 1.5, 2.0), ("h20", 1.9, 2.0)],
)
def test_8_bit_kv_helps_as_far_as_the_kernel_of_the_chip_computes_in_8_bits(
    facts, chip, least, most
):
    # Computed in BF16 with half of the bytes on H100 and H200; in FP8 on B200 and H20.
    assert least < core_s(facts, chip, "bf16") / core_s(facts, chip, "int8") <= most


def test_attention_bound_by_computing_takes_flops_over_the_peak_that_its_kernel_has(facts):
    m = load_machine(facts, load_chip(facts, "h20"))
    flops = 128 * 2.0 * (2 * 512 + 64)
    for kv, peak in (("bf16", 148e12), ("int8", 296e12)):
        assert core_s(facts, "h20", kv) == pytest.approx(m.in_decode * flops / (0.855 * peak), 0.02)
    assert [m.attention_efficiency(kv).peak for kv in ("bf16", "int8")] == ["bf16", "fp8"]


def test_another_attention_kernel_than_the_measured_one_has_its_own_figures(facts):
    m = load_machine(facts, load_chip(facts, "ascend-910c"), kernel="amla")
    assert m.attention_efficiency("bf16").compute == facts.si(
        "operators.ascend.attention_compute.amla"
    )
