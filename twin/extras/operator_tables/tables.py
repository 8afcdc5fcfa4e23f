"""Measured operators of a chip, found by columns: aiconfigurator's tables and own profiles."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from twin.lab.files import printable

# Columns by which an operator's table is recognised, the first that fits.
OPERATORS = {
    "gemm": {"gemm_dtype", "m", "n", "k", "latency"},
    "grouped": {"moe_dtype", "moe_ep_size", "num_experts", "inter_size", "distribution", "latency"},
    "mla": {"mla_dtype", "kv_cache_dtype", "num_heads", "batch_size", "isl", "step", "latency"},
    "alltoall": {"op_name", "kernel_source", "moe_ep_size", "num_tokens", "topk", "latency"},
    "exchange": {"node_num", "num_token", "num_topk", "dispatch_avg_t_us", "combine_avg_t_us"},
}
# Tables whose columns do not say which operator they have: by the beginning of their names.
NAMED = {
    "context_mla": "prefill_mla", "context_attention": "prefill_gqa", "generation_attention": "gqa",
    "wideep_context_mla": "eager_mla", "wideep_context_moe": "contiguous",
    "custom_allreduce": "collective", "nccl_perf": "gather", "dsa_context_module": "sparse",
}  # fmt: skip
# In names of other files: whole modules in a graph, other kernels, and end results.
OTHERS = ("module", "wideep_generation_mla", "mlp", "silicon", "sample")
ONE_FORMAT = {"exchange": "fp8", "alltoall": "fp4", "collective": "bf16", "gather": "bf16",
              "eager_mla": "fp8"}  # fmt: skip
PROFILE = {"Input Shapes", "Duration(us)", "Type"}  # kernel_details.csv of Ascend's profiler
FORMATS = {"bfloat16": "bf16", "bf16": "bf16", "fp8": "fp8", "fp8_block": "fp8", "nvfp4": "fp4",
           "INT8": "int8", "DT_BF16": "bf16", "FLOAT16": "fp16"}  # fmt: skip
# Of experts alone: weights of 4 bits that are computed in more.
PACKED = {"int4_wo": "w4a16", "w4a8_mxfp4_mxfp8": "mxfp4", "w4a16_mxfp4": "mxfp4_bf16"}


class NoTable(ValueError):
    """A path without a table of operators: one sentence."""


@dataclass(frozen=True)
class Table:
    """Rows of one operator in one format by one engine's release."""

    operator: str
    format: str
    engine: str
    rows: pl.DataFrame


def read_tables(path: Path) -> list[Table]:
    """The tables of a file, or of all files below a folder. Raises NoTable where there is none."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    tables = [
        table for file in files if file.suffix in (".parquet", ".csv")
        and (file.name.startswith(tuple(NAMED)) or not any(word in file.name for word in OTHERS))
        for table in _tables_of_file(file)
    ]  # fmt: skip
    if not tables:
        raise NoTable(f"{printable(str(path))} has no table of operators")
    return tables


def _tables_of_file(file: Path) -> Iterator[Table]:
    """Yield the operator tables that a file has, one for each format of numbers."""
    frame = (pl.read_parquet if file.suffix == ".parquet" else pl.read_csv)(file)
    columns = set(frame.columns)
    if columns >= PROFILE:
        frame, columns = _gemm_rows(frame), OPERATORS["gemm"]
    by_name = [operator for beginning, operator in NAMED.items() if file.name.startswith(beginning)]
    by_columns = [operator for operator, required in OPERATORS.items() if columns >= required]
    if not by_name + by_columns:
        return
    operator = (by_name + by_columns)[0]
    engine = " ".join(file.parts[-3:-1]) if len(file.parts) > 2 else file.stem
    if (only_format := ONE_FORMAT.get(operator)) is not None:
        yield Table(operator, only_format, engine, frame)
        return
    if operator == "mla":
        frame = frame.filter(pl.col("batch_size") > 0)
    dtype_column = {"gemm": "gemm_dtype", "grouped": "moe_dtype", "contiguous": "moe_dtype"}.get(
        operator, "kv_cache_dtype"
    )
    format_of = FORMATS | (PACKED if operator == "grouped" else {})
    for (dtype,), rows in sorted(frame.group_by([dtype_column]), key=lambda group: str(group[0])):
        # Of two ways to scale FP8 DeepSeek's checkpoints take blocks, NVIDIA's of others a tensor.
        is_per_tensor = dtype == "fp8" and "fp8_block" in frame[dtype_column]
        if dtype not in format_of or (is_per_tensor and operator != "gemm"):
            continue
        yield Table("gemm_gqa" if is_per_tensor else operator, format_of[str(dtype)], engine, rows)


def _gemm_rows(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows of a gemm table (m, n, k, format, latency ms) from the matrix products of an Ascend
    profile, whose shapes read "m,k;k,n" and whose times are in us."""
    shape_texts = pl.col("Input Shapes").str.replace_all('"', "").str.split(";").list.slice(0, 2)
    dimensions = shape_texts.list.join(",").str.split(",").cast(pl.List(pl.Int64), strict=False)
    products = frame.filter(pl.col("Type").str.contains("MatMul") & (dimensions.list.len() == 4))
    m, k, weight_rows, weight_columns = (dimensions.list.get(dimension) for dimension in range(4))
    formats = pl.col("Input Data Types").str.split(";").list.first()
    return products.select(
        formats.alias("gemm_dtype"), m.alias("m"), k.alias("k"),
        pl.when(weight_rows == k).then(weight_columns).otherwise(weight_rows).alias("n"),
        (pl.col("Duration(us)") / 1e3).alias("latency"),
    )  # fmt: skip
