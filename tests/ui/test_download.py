"""Downloads: safe in a spreadsheet, numbers stay numbers, the question survives the way."""

import gzip
import io
import json

import polars as pl

from tests.ui.stored_runs import done, scenario
from twin.engine.recorder import STATUS
from twin.lab.library import scenario_from_toml
from twin.lab.store import open_store
from twin.lab.store.archive import read_archive_file
from twin.ui.pages.run import results


def formats(store, what, rows=None):
    s = scenario("Kept")
    run = done(store, s)
    row = store.runs.get(run)
    return s, row, results.download_makers(store, row, s, what, rows)


def test_text_that_would_be_a_formula_is_quoted_and_numbers_are_not():
    risky = ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\0x", "plain", "a=b", None]
    frame = pl.DataFrame({"text": risky, "number": [-1.5] * 9})
    lines = results.csv_bytes(frame).decode().splitlines()
    read = pl.read_csv(io.BytesIO(results.csv_bytes(frame)))
    assert lines[0] == "text,number"
    assert read["text"].to_list()[:6] == ["'" + text for text in risky[:6]]
    assert read["text"].to_list()[6:] == ["plain", "a=b", None]
    assert read["number"].to_list() == [-1.5] * 9


def test_named_states_come_out_as_words():
    frame = pl.DataFrame({"status": pl.Series(["finished", "queued"], dtype=STATUS)})
    assert results.csv_bytes(frame).decode().split() == ["status", "finished", "queued"]


def test_a_table_is_the_same_in_every_format(store):
    _, row, made = formats(store, "Windows", rows=20)
    stored = store.runs.table(row.id, "windows")
    assert pl.read_parquet(io.BytesIO(made["Parquet"]())).equals(stored)
    assert pl.read_csv(io.BytesIO(made["CSV"]())).height == stored.height
    assert len(json.loads(made["JSON"]())) == stored.height


def test_a_long_table_is_compressed_and_not_offered_as_json(store):
    _, row, made = formats(store, "Requests", rows=2_000_000)
    assert list(made) == ["CSV, gzip", "Parquet"]
    text = gzip.decompress(made["CSV, gzip"]()).decode()
    assert text.startswith("request_id,")


def test_the_scenario_comes_back_equal(store):
    s, _, made = formats(store, "Scenario")
    assert scenario_from_toml(made["TOML"]()) == s


def test_the_summary_names_units_and_pins_the_run(store):
    _, row, made = formats(store, "Summary")
    answer = json.loads(made["JSON"]())
    assert answer["run"] == row.id
    assert answer["digest"] == row.result_digest
    assert answer["summary"] == row.summary
    table = pl.read_csv(io.BytesIO(made["CSV"]()))
    units = dict(table.select("figure", "unit").iter_rows())
    assert units["ttft_s_p50"] == "s"
    assert units["hit_token_ratio"] == "1 = 100 %"


def test_a_file_name_is_plain_whatever_the_run_is_called(store):
    row = store.runs.get(done(store, scenario("../é = <b> Köln")))
    assert set(results.file_stem(row)) <= set(
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
    )


def test_the_whole_run_opens_in_another_twin(store, tmp_path):
    _, row, made = formats(store, "Whole run")
    archive = tmp_path / "run.twin.tar"
    archive.write_bytes(made["Archive"]())
    other = open_store(f"sqlite:///{tmp_path / 'other' / 'twin.db'}")
    assert read_archive_file(other, archive).left_out == []
    same = other.runs.get(row.id)
    assert (same.summary, same.engine_version) == (row.summary, row.engine_version)
    assert other.facts(row.facts_digest) == store.facts(row.facts_digest)
    assert other.scenarios.load(row.scenario) == store.scenarios.load(row.scenario)
    assert other.runs.table(row.id, "requests").equals(store.runs.table(row.id, "requests"))
    other.close()
