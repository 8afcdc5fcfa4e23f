"""Which operators a file holds is read from its columns."""

import polars as pl
import pytest

from twin.extras.operator_tables.tables import NoTable, read_tables


def test_a_profile_of_ascend_is_a_table_of_its_matrix_products(tmp_path):
    pl.DataFrame(
        {
            "Type": ["MatMulV2", "Add", "MatMulV2"],
            "Input Shapes": ['"8,7168;7168,4096"', '"8,7168;8,7168"', '"8,7168;512,7168"'],
            "Input Data Types": ["DT_BF16;DT_BF16"] * 3,
            "Duration(us)": [40.0, 3.0, 9.0],
        }
    ).write_csv(tmp_path / "kernel_details.csv")
    (table,) = read_tables(tmp_path)
    assert (table.operator, table.format) == ("gemm", "bf16")
    assert table.rows.select("m", "n", "k").rows() == [(8, 4096, 7168), (8, 512, 7168)]
    assert table.rows["latency"].to_list() == pytest.approx([0.040, 0.009])  # ms


def test_fp8_of_one_scale_a_tensor_is_an_operator_of_its_own_where_blocks_were_measured(tmp_path):
    kinds = ["fp8", "fp8_block", "int4_wo"]
    pl.DataFrame(
        {"gemm_dtype": kinds, "m": [1] * 3, "n": [2] * 3, "k": [3] * 3, "latency": [4.0] * 3}
    ).write_parquet(tmp_path / "gemm_perf.parquet")
    found = {x.operator: (x.format, *x.rows["gemm_dtype"]) for x in read_tables(tmp_path)}
    assert found == {"gemm_gqa": ("fp8", "fp8"), "gemm": ("fp8", "fp8_block")}


def test_packed_weights_are_a_format_of_experts_alone(tmp_path):
    kinds = ["int4_wo", "w4a8_mxfp4_mxfp8", "w4a16_mxfp4"]
    same = {name: [8] * 3 for name in ("moe_ep_size", "num_experts", "inter_size")}
    same |= {"moe_dtype": kinds, "distribution": ["balanced"] * 3, "latency": [1.0] * 3}
    pl.DataFrame(same).write_parquet(tmp_path / "moe_perf.parquet")
    found = {table.format: table.operator for table in read_tables(tmp_path)}
    assert found == dict.fromkeys(("w4a16", "mxfp4", "mxfp4_bf16"), "grouped")


def test_of_modules_only_sparse_attention_of_prompts_is_read(tmp_path):
    rows = {"kv_cache_dtype": ["fp8"], "num_heads": [16], "batch_size": [1], "isl": [4096]}
    rows |= {"mla_dtype": ["bfloat16"], "step": [0], "latency": [1.0]}
    for name in ("dsa_context_module_perf", "dsa_generation_module_perf"):
        pl.DataFrame(rows).write_parquet(tmp_path / f"{name}.parquet")
    (table,) = read_tables(tmp_path)
    assert (table.operator, table.format) == ("sparse", "fp8")


def test_end_results_of_systems_are_never_opened(tmp_path):
    (tmp_path / "silicon_sample.csv").write_text("not even a table")
    with pytest.raises(NoTable, match="no table of operators"):
        read_tables(tmp_path)


def test_kernels_with_the_same_columns_are_told_apart_by_the_names_of_their_files(tmp_path):
    same = {"moe_dtype": ["fp8_block"], "moe_ep_size": [8], "num_experts": [256]}
    same |= {"inter_size": [2048], "distribution": ["uniform"], "latency": [1.0]}
    for name in ("wideep_context_moe_perf", "wideep_generation_moe_perf"):
        pl.DataFrame(same).write_parquet(tmp_path / f"{name}.parquet")
    assert {table.operator for table in read_tables(tmp_path)} == {"contiguous", "grouped"}
