"""A table made by the formula gives its parameters back, and held-back rows are met."""

import numpy as np
import polars as pl
import pytest

from twin.extras.operator_tables.fits import Peaks, computed_rows, fit_table
from twin.extras.operator_tables.tables import Table

PEAKS = Peaks({"bf16": 1e15, "fp8": 2e15}, 4e12, 8)
START, COMPUTE, BANDWIDTH = 6e-6, 0.6, 0.85


def gemm_table(noise: float = 0.0) -> Table:
    shapes = [
        (m, n, k)
        for m in (1, 16, 64, 96, 256, 1024, 4096, 16384)
        for n in (2048, 4096, 7168)
        for k in (2048, 7168, 16384)
    ]
    m, n, k = (np.array(side, dtype=float) for side in zip(*shapes, strict=True))
    computing = 2 * computed_rows(m, (64, 128)) * n * k / 2e15 / COMPUTE
    moving = (n * k + m * (k + 2 * n)) / 4e12 / BANDWIDTH
    scaling = 3 * m * k / 4e12 / 0.8  # BF16 read and FP8 written, at 0.8 of the memory's rate
    seconds = START + np.hypot(computing, moving) + scaling
    seconds *= np.exp(noise * np.random.default_rng(3).standard_normal(m.size))
    rows = pl.DataFrame({"m": m, "n": n, "k": k, "latency": 1e3 * seconds})
    return Table("gemm", "fp8", "made", rows)


def test_parameters_and_tiles_are_found_again():
    (found,) = fit_table(gemm_table(), PEAKS)
    facts = found.facts
    assert facts["start"] == pytest.approx(START, rel=0.05)
    assert facts["compute"] == pytest.approx(COMPUTE, rel=0.02)
    assert facts["bandwidth"] == pytest.approx(BANDWIDTH, rel=0.02)
    assert (facts["tile_small"], facts["tile_large"]) == (64, 128)
    assert found.mean < 0.01


def test_the_error_said_is_that_of_rows_held_back():
    (found,) = fit_table(gemm_table(noise=0.1), PEAKS)
    # The mean absolute value of a normal deviation is sqrt(2 / pi) of its scale.
    assert found.mean == pytest.approx(0.1 * np.sqrt(2 / np.pi), rel=0.6)


def test_a_format_without_a_peak_here_has_no_facts():
    assert fit_table(gemm_table(), Peaks({"bf16": 1e15}, 4e12, 8)) == []


def test_weights_that_a_chip_computes_are_not_measured_unpacked():
    """MXFP4 is unpacked to BF16 by chips without products in FP4, and only there a fact."""
    nothing = pl.DataFrame()
    with_fp4 = Peaks({"bf16": 1e15, "fp4": 4e15}, 4e12, 8)
    assert fit_table(Table("grouped", "mxfp4_bf16", "made", nothing), with_fp4) == []


@pytest.mark.parametrize(("nodes", "share"), [(1, 7 / 8), (4, 3 / 4)])
def test_bytes_to_other_dies_or_to_other_nodes_alone_count(nodes, share):
    tokens = np.array([2.0**power for power in range(12)] * 2)
    sent = {"dispatch": tokens * 8 * share * 7392, "combine": tokens * 8 * share * 14336}
    rows = pl.DataFrame(
        {"num_token": tokens, "node_num": nodes, "hidden_size": 7168, "num_topk": 8}
        | {f"{phase}_avg_t_us": 1e6 * (2e-5 + size / 4e10) for phase, size in sent.items()}
    )
    found = fit_table(Table("exchange", "fp8", "made", rows), PEAKS)
    assert len(found) == 2
    for each in found:
        assert each.facts["rate"] == pytest.approx(4e10, rel=0.02)
        assert each.facts["start"] == pytest.approx(2e-5, rel=0.02)


def test_a_one_sided_exchange_is_fitted_over_ranks_that_each_have_an_expert_of_a_token():
    cases = [(2.0**power, ranks) for power in range(14) for ranks in (4, 8, 32)]
    tokens, ranks = (np.array(side) for side in zip(*cases, strict=True))
    sizes = {"dispatch": 7168 * 9 / 16, "combine": 14336}
    frames = []
    for phase, size in sizes.items():
        sent = tokens * 8 * (1.0 - 1.0 / ranks) * size
        seconds = np.where(ranks < 8, 1.0, 2e-5 + sent / 6e11)  # four ranks get fewer copies
        frames.append(pl.DataFrame(
            {"op_name": f"alltoall_{phase}", "kernel_source": "NVLinkOneSided", "topk": 8,
             "hidden_size": 7168, "num_tokens": tokens, "moe_ep_size": ranks,
             "latency": 1e3 * seconds}
        ))  # fmt: skip
    found = fit_table(Table("alltoall", "fp4", "made", pl.concat(frames)), PEAKS)
    assert [each.part for each in found] == ["dispatch inside a node", "combine inside a node"]
    for each in found:
        assert each.rows == 28
        assert each.facts["rate"] == pytest.approx(6e11, rel=0.02)
        assert each.facts["start"] == pytest.approx(2e-5, rel=0.02)


def test_latent_attention_with_8_bit_kv_is_fitted_in_both_ways_to_compute():
    cases = [(b, c, h) for b in (1, 8, 64, 256) for c in (1024, 4096, 16384) for h in (64, 128)]
    batch, context, heads = (np.array(side, dtype=float) for side in zip(*cases, strict=True))
    cached = batch * context
    moving = cached * 576 / 4e12 / 0.9
    computing = cached * heads * 2 * 1088 / 1e15 / 0.7
    rows = pl.DataFrame(
        {"num_heads": heads, "batch_size": batch, "isl": context, "step": 0.0}
        | {"latency": 1e3 * (2e-5 + np.hypot(computing, moving))}
    )
    bf16, fp8 = fit_table(Table("mla", "fp8", "made", rows), PEAKS)
    assert bf16.facts["compute"] == pytest.approx(0.7, rel=0.05)
    assert fp8.facts["compute"] == pytest.approx(0.35, rel=0.05)  # of twice the peak


def test_a_sparse_core_is_told_from_the_projections_and_the_indexer_of_its_module():
    cases = [(b, n, h, skip) for b in (1, 2) for n in (4096, 8192, 16384, 32768)
             for h in (8, 16, 64, 128) for skip in (False, True)]  # fmt: skip
    batch, prompt, heads, skip = (np.array(side) for side in zip(*cases, strict=True))
    tokens = batch * prompt
    blocks = np.ceil(heads / 64) * 64
    core = np.cbrt((blocks * 2 * 1088 / 1e15 / 0.45) ** 3 + ((576 + 80) / 4e12 / 0.8) ** 3)
    weights = 7168 * (1536 + 576) + 1536 * heads * 192
    weights += heads * 512 * 256 + heads * 128 * 7168
    weights += ~skip * (1536 * 64 * 128 + 7168 * (128 + 64))
    scores = ~skip * (6e-8 + 0.5 * (prompt + 1) * 2 * 64 * 129 / 2e15 / 0.25)
    seconds = tokens * (2048 * core + 2 * weights / 2e15 / 0.6 + scores)
    names = np.where(skip, "dsa_context_module_skip_indexer", "dsa_context_module")
    frame = {"batch_size": batch, "isl": prompt, "num_heads": heads, "op_name": names}
    frame |= {"step": 0, "gemm_type": "fp8_block", "kernel_source": "flashmla_kv"}
    frame |= {"architecture": "DeepseekV32ForCausalLM", "latency": 1e3 * seconds}
    (found,) = fit_table(Table("sparse", "fp8", "made", pl.DataFrame(frame)), PEAKS)
    assert found.facts["compute"] == pytest.approx(0.45, rel=0.03)
    assert found.facts["tile_small"] == 64
    assert found.mean < 0.02


def test_prompts_give_back_the_share_of_the_peak_and_the_pairs_at_the_diagonal():
    cases = [(b, n, h) for b in (1, 4, 16) for n in (256, 1024, 4096, 16384) for h in (16, 128)]
    batch, prompt, heads = (np.array(side, dtype=float) for side in zip(*cases, strict=True))
    pairs = batch * prompt * (0.5 * (prompt + 1) + 400)
    rows = pl.DataFrame(
        {"num_heads": heads, "batch_size": batch, "isl": prompt}
        | {"latency": 1e3 * (2e-5 + pairs * heads * 2 * 320 / 1e15 / 0.6)}
    )
    (found,) = fit_table(Table("prefill_mla", "bf16", "made", rows), PEAKS)
    assert found.facts["compute"] == pytest.approx(0.6, rel=0.02)
    assert found.facts["edge"] == pytest.approx(400, rel=0.05)


def test_an_all_reduce_is_told_by_number_of_dies():
    values = np.array([2.0**power for power in range(9, 28)] * 2)
    dies = np.repeat([2, 8], 19)
    sent = 2 * (1 - 1 / dies) * 2 * values  # of two bytes each
    small, large = 4e-6 + sent / 1e11, 2e-5 + sent / 3e11
    rows = pl.DataFrame(
        {"num_gpus": dies, "message_size": values, "kernel_source": "made_graph"}
        | {"latency": 1e3 * np.where(dies == 2, small, np.minimum(small, large))}
    )
    found = fit_table(Table("collective", "bf16", "made", rows), PEAKS)
    assert [each.part for each in found] == ["2 dies", "8 dies"]
    for each in found:
        assert each.facts["start"] == pytest.approx(4e-6, rel=0.02)
        assert each.facts["rate"] == pytest.approx(1e11, rel=0.02)
    one, two = (each.facts for each in found)
    assert one["later"] == one["gain"] == 0.0
    assert two["start"] + two["later"] == pytest.approx(2e-5, rel=0.05)
    assert two["rate"] * (1.0 + two["gain"]) == pytest.approx(3e11, rel=0.03)


def test_gathers_and_reduce_scatters_are_halves_whose_bytes_leave_a_die_once():
    values = np.array([2.0**power for power in range(9, 28)] * 2)
    rows = pl.DataFrame(
        {"num_gpus": 8, "message_size": values, "nccl_dtype": "half"}
        | {"op_name": np.repeat(["all_gather", "reduce_scatter"], 19)}
        | {"latency": 1e3 * (1e-5 + (1 - 1 / 8) * 2 * values / 2e11)}
    )
    others = rows.with_columns(pl.lit("all_reduce").alias("op_name"), latency=1.0)
    (found,) = fit_table(Table("gather", "bf16", "made", pl.concat([rows, others])), PEAKS)
    assert found.part == "8 dies"
    assert found.facts["start"] == pytest.approx(1e-5, rel=0.02)
    assert found.facts["rate"] == pytest.approx(2e11, rel=0.02)


def test_a_launch_of_few_tokens_is_the_hosts_time():
    rows = pl.DataFrame(
        {"batch_size": 1, "isl": list(range(1, 25)), "num_heads": 128}
        | {"latency": [0.6] * 23 + [0.61]}
    )
    (found,) = fit_table(Table("eager_mla", "fp8", "made", rows), PEAKS)
    assert found.facts["host"] == pytest.approx(6e-4, rel=0.01)


def test_prefills_grouped_products_leave_out_what_passes_by():
    cases = [(t, ep) for t in (32, *(1 << p for p in range(12, 20))) for ep in (8, 32, 64)]
    tokens, ep = (np.array(side, dtype=float) for side in zip(*cases, strict=True))
    rows_here, weights = tokens * 8 / ep, 3 * 7168 * 2048
    read = np.minimum(256 / ep, rows_here)
    moving = read * weights + rows_here * (7168 + 2048 + 2 * (2 * 2048 + 7168))
    copied = rows_here * (4 * 2048 + 2048 + 2 * 7168 + 2 * 7168 * 1.125) / (4e12 * 0.8)
    took = np.hypot(2 * rows_here * weights / 2e15 / 0.7, moving / 4e12 / 0.8)
    seconds = np.maximum(4e-4, 1e-4 + took + copied + 7e-9 * tokens)
    rows = pl.DataFrame(
        {"num_tokens": tokens, "moe_ep_size": ep, "hidden_size": 7168, "inter_size": 2048}
        | {"moe_tp_size": 1, "topk": 8, "num_experts": 256, "distribution": "uniform"}
        | {"kernel_source": "deepepmoe", "latency": 1e3 * seconds}
    )
    product, *_ = fit_table(Table("contiguous", "fp8", "made", rows), PEAKS)
    assert product.facts["compute"] == pytest.approx(0.7, rel=0.1)
    assert product.facts["passing"] == pytest.approx(7e-9, rel=0.3)


@pytest.mark.parametrize(("kernel", "each"), [("deepgemm", 4e-7), ("triton", None)])
def test_a_kernel_that_passes_over_all_experts_takes_time_for_each(kernel, each):
    cases = [(1 << p, e) for p in range(12) for e in (32, 128, 256)]
    tokens, experts = (np.array(side, dtype=float) for side in zip(*cases, strict=True))
    total, weights = tokens * 8, 3 * 7168 * 2048
    read = np.minimum(experts, total)
    moving = read * weights + total * (7168 + 2048 + 2 * (2 * 2048 + 7168))
    between = total * (4 * 2048 + 2048) / (4e12 * 0.8) + 4 * total * 7168 / 4e12
    computing = 2 * read * computed_rows(total / read, (128, 128)) * weights / 2e15
    took = 2e-5 + (each or 0.0) * experts + np.hypot(computing / 0.7, moving / 4e12 / 0.8)
    rows = pl.DataFrame(
        {"num_tokens": tokens, "num_experts": experts, "hidden_size": 7168, "inter_size": 2048}
        | {"moe_tp_size": 1, "moe_ep_size": 1, "topk": 8, "distribution": "balanced"}
        | {"kernel_source": kernel, "latency": 1e3 * (took + between)}
    )
    found = fit_table(Table("grouped", "fp8", "made", rows), PEAKS)[-1]
    assert found.facts.get("each") == (each and pytest.approx(each, rel=0.1))
    assert found.facts["start"] == pytest.approx(2e-5, rel=0.2)


def test_grouped_query_attention_reads_the_keys_and_values_of_its_kv_heads():
    """Other kernels, of one query head a KV head and of 64, do not count."""
    cases = [
        (b, c, k, q)
        for b in (1, 8, 64, 256)
        for c in (1024, 4096, 16384)
        for k, q in ((1, 16), (4, 8), (8, 2), (4, 1), (1, 64))
    ]
    batch, context, kv_heads, group = (np.array(s, dtype=float) for s in zip(*cases, strict=True))
    moving = batch * context * kv_heads * 2 * 128 * 2 / 4e12 / 0.9
    computing = batch * context * kv_heads * group * 4 * 128 / 1e14 / 0.5
    other = np.where((group == 1) | (group == 64), 7.0, 1.0)
    rows = pl.DataFrame(
        {"num_heads": kv_heads * group, "num_key_value_heads": kv_heads, "batch_size": batch}
        | {"isl": context, "step": 0.0, "head_dim": 128, "window_size": 0, "kernel_source": "fa3"}
        | {"latency": 1e3 * other * (1e-5 + np.hypot(computing, moving))}
    )
    (found,) = fit_table(Table("gqa", "bf16", "made", rows), Peaks({"bf16": 1e14}, 4e12, 8))
    assert found.facts["bandwidth"] == pytest.approx(0.9, rel=0.02)
    assert found.facts["compute"] == pytest.approx(0.5, rel=0.05)
