"""A run's results as files, made only when clicked. Text that a spreadsheet would take for a
formula gets a leading apostrophe; a long table is compressed as it is written."""

import io
import re
from collections.abc import Callable
from typing import Any

import polars as pl
import streamlit as st

from twin.hooks import Section, found
from twin.lab.library import scenario_to_toml
from twin.lab.store import RunRow, Store
from twin.lab.store.archive import export_runs
from twin.metrics.registry import metric_of
from twin.scenario import Scenario
from twin.ui import session
from twin.ui.show import download, json_text

FORMULA = r"^[=+\-@\t\r\x00]"  # what a spreadsheet takes for a formula, or may after trimming
LONG_ROWS = 200_000  # from here on a CSV is compressed, and no JSON is offered
SUMMARY, QUESTION = "Summary", "Scenario"
WHOLE = "Whole run"  # as an archive
ENDINGS = {  # of the name of a file
    "CSV": "csv", "CSV, gzip": "csv.gz", "JSON": "json", "Parquet": "parquet", "TOML": "toml",
    "Archive": "twin.tar",
}  # fmt: skip


def downloads(row: RunRow, scenario: Scenario) -> None:
    """What to download, and a button for every format of it."""
    store = session.store()
    counts = {name.capitalize(): each.rows for name, each in store.runs.tables(row.id).items()}
    extras = found(Section, "run.download")
    what = [SUMMARY, WHOLE, *counts, QUESTION, *extras]
    chosen = st.selectbox("What", what, key="download-what")
    if chosen in extras:
        extras[chosen].load()(store, row, scenario)
        return
    if chosen == WHOLE:
        st.caption("Scenario, facts, engine version and tables: `twin library import` takes it in.")
    rows = counts.get(chosen)
    if rows is not None:
        st.caption(f"{rows:,} rows; times in seconds, sizes in bytes.")
    with st.container(horizontal=True):
        for kind, make in _formats(store, row, scenario, chosen, rows).items():
            file = f"{stem(row)}-{chosen.lower()}.{ENDINGS[kind]}"
            download(kind, make, file, f"download-{chosen}-{kind}")


def _formats(
    store: Store, row: RunRow, scenario: Scenario, chosen: str, rows: int | None
) -> dict[str, Callable[[], bytes]]:
    """How each format of something is made; nothing is made yet."""
    if chosen == WHOLE:
        return {"Archive": lambda: export_runs(store, row.id)}
    if chosen == QUESTION:
        return {
            "TOML": lambda: scenario_to_toml(scenario).encode(),
            "JSON": lambda: json_text(scenario.model_dump(mode="json")).encode(),
        }
    if chosen == SUMMARY:
        return {
            "CSV": lambda: csv_bytes(summary_table(row)),
            "JSON": lambda: json_text(answer(row)).encode(),
        }

    def table() -> pl.DataFrame:
        return store.runs.table(row.id, chosen.lower())

    def parquet() -> bytes:
        file = io.BytesIO()
        table().write_parquet(file, compression="zstd")
        return file.getvalue()

    if rows is not None and rows >= LONG_ROWS:
        return {"CSV, gzip": lambda: csv_bytes(table(), packed=True), "Parquet": parquet}
    return {
        "CSV": lambda: csv_bytes(table()),
        "Parquet": parquet,
        "JSON": lambda: table().write_json().encode(),
    }


def stem(row: RunRow) -> str:
    """The start of a file's name: the scenario's name and enough of the run's id."""
    return f"{re.sub(r'[^a-z0-9]+', '-', row.name.lower()).strip('-')[:60] or 'run'}-{row.id[:8]}"


def csv_bytes(frame: pl.DataFrame, *, packed: bool = False) -> bytes:
    """The table as CSV with one header line; text that would be a formula behind an apostrophe."""
    texts = [n for n, t in frame.schema.items() if t in (pl.String, pl.Enum, pl.Categorical)]
    safe = frame.with_columns(
        pl.col(n).cast(pl.String).str.replace(FORMULA, "'${0}") for n in texts
    )
    file = io.BytesIO()
    safe.write_csv(file, compression="gzip" if packed else "uncompressed")
    return file.getvalue()


def answer(row: RunRow) -> dict[str, Any]:
    """A run as one object, named as the command line names it."""
    return {
        "run": row.id, "scenario": row.scenario, "digest": row.result_digest,
        "engine_version": row.engine_version, "facts": row.facts_digest, "wall_s": row.wall_s,
        "requests": row.summary.get("requests"), "name": row.name, "valid": row.valid,
        "checks": row.checks, "notes": row.notes, "summary": row.summary,
    }  # fmt: skip


def summary_table(row: RunRow) -> pl.DataFrame:
    """The summary as a table: figure, value in SI, unit of the value, what it is."""
    rows = []
    for key, value in row.summary.items():
        described = metric_of(key)
        number = float(value) if isinstance(value, int | float) else None
        unit = "1 = 100 %" if described.kind == "share" else described.unit
        rows.append((key, number, unit, described.help))
    names = {"figure": pl.String, "value": pl.Float64, "unit": pl.String, "what": pl.String}
    return pl.DataFrame(rows, schema=names, orient="row")
