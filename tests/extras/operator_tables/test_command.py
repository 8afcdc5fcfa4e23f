"""`operator-facts` as a person or a script meets it."""

import json

import polars as pl

from tests.extras.operator_tables.test_fits import gemm_table


def test_facts_are_printed_or_given_as_json(twin, tmp_path):
    gemm_table().rows.with_columns(gemm_dtype=pl.lit("fp8_block")).write_parquet(
        tmp_path / "gemm.parquet"
    )
    done = twin("operator-facts", str(tmp_path), "--chip", "h200", "--json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    assert found["table"].startswith("gemm fp8")
    assert found["rows"] == 72


def test_a_path_without_a_table_is_one_sentence(twin, tmp_path):
    done = twin("operator-facts", str(tmp_path), "--chip", "h200")
    assert done.returncode == 2
    said = " ".join(done.stderr.decode().replace("│", " ").split())  # drawn in a box, in lines
    assert "has no table of operators" in said
