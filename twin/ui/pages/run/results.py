"""The head of a finished run's page: scenario, figures, their reliability, files."""

import io
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import Any

import polars as pl
import streamlit as st

from twin.hooks import Section, hooks_of
from twin.lab.evidence.envelope import outside_evidence
from twin.lab.evidence.near import figure_bands
from twin.lab.explain.view import has_one_slo
from twin.lab.library import scenario_to_toml
from twin.lab.share import links
from twin.lab.store import RunRow, Store, StoreError
from twin.lab.store.archive import export_runs
from twin.lab.sweep.compare import changed_fields
from twin.metrics.measures import numbered
from twin.metrics.registry import as_text, metric_of, metrics_at
from twin.metrics.steadiness import UNSTEADY
from twin.scenario import Scenario, SpecError
from twin.ui import formulas, record, runs, session, words
from twin.ui.fields import form_paths, list_sentences, sentence, with_glossary
from twin.ui.link import copy_link, go_to, link_page
from twin.ui.pages import PAGES
from twin.ui.pages.playback import player as playback
from twin.ui.show import draw_download, file_name, json_text, plain, slo_margin

OFFERED = 30  # runs to compare with
FORMULA = r"^[=+\-@\t\r\x00]"  # what a spreadsheet takes for a formula, or may after trimming
LONG_ROWS = 200_000  # from here on a CSV is compressed, and no JSON is offered
SUMMARY, QUESTION = "Summary", "Scenario"
WHOLE = "Whole run"  # as an archive
ENDINGS = {  # of the name of a file
    "CSV": "csv", "CSV, gzip": "csv.gz", "JSON": "json", "Parquet": "parquet", "TOML": "toml",
    "Archive": "twin.tar",
}  # fmt: skip


def draw_header(row: RunRow, scenario: Scenario) -> None:
    """Draw title and question, and the buttons for the run."""
    runs.draw_heading(row, scenario.question or words.card_line(scenario))
    for list_sentence in list_sentences(scenario):
        st.markdown(f":material/bolt: {plain(list_sentence)}")
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        runs.offer_copy(scenario)
        if not playback.missing_tables(row.id):
            link_page("playback", "Play back", {links.RUN: row.id})
        with st.popover("Compare with", icon=":material/compare_arrows:"):
            _draw_baseline_choice(row, scenario)
        with st.popover("Download", icon=":material/download:"):
            draw_downloads(row, scenario)
        publish_run = session.store().runs.publish
        copy_link(links.run_url(row.id, scenario), on_copy=lambda: publish_run(row.id))
    if row.state == "failed":
        warning = "The engine's own laws do not hold in this run, so do not rely on its figures."
        st.error(f"{warning} {sentence(row.message)}", icon=":material/error:")
    elif row.message:
        st.warning(sentence(row.message), icon=":material/warning:")


def _draw_baseline_choice(row: RunRow, scenario: Scenario) -> None:
    """Draw the choice of a run to compare with, those that differ in the fewest fields first."""

    def distance(run: RunRow) -> tuple[int, bool]:
        """Sort key of a run: number of fields that differ, and whether it is an edited preset."""
        try:
            field_count = len(changed_fields(record.scenario(run.scenario), scenario))
        except (StoreError, SpecError):  # damaged, or of fields this twin does not know
            field_count = len(form_paths())
        return field_count, words.BETWEEN in run.name  # a preset before its edits

    other_runs = [run for run in runs.latest_runs(OFFERED + 1, "done") if run.id != row.id]
    labels_by_id = runs.choice_labels(sorted(other_runs, key=distance))
    if not labels_by_id:
        st.markdown("There is no other finished run yet: edit a copy and run it.")
        return
    label_of = labels_by_id.__getitem__
    run_id = st.selectbox("Baseline", list(labels_by_id), key="baseline", format_func=label_of)
    if st.button("Compare", type="primary", key="compare"):
        go_to("compare", {links.RUNS: f"{run_id},{row.id}"})


def draw_tiles(row: RunRow, scenario: Scenario, excluded_keys: Sequence[str] = ()) -> None:
    """Draw a run's headline figures, without those of excluded keys; warn if it was not steady."""
    if (steady_state := row.summary.get("steady_state")) in UNSTEADY:
        st.warning(UNSTEADY[str(steady_state)], icon=":material/trending_up:")
    with st.grid(5, min_column_width=165, key="headline"):
        for tile in tile_rows(row.summary, scenario, row.summary.keys() - excluded_keys):
            st.metric(**tile)


def tile_rows(
    summary: Mapping[str, Any], s: Scenario, keys: Container[str] | None = None
) -> list[dict[str, Any]]:
    """Arguments of `st.metric` for figures of a run's summary. keys: metrics shown; None: all."""
    tiles, estimates = [], () if s.models else figure_bands(s, session.facts(), run=True)
    estimate_by_metric = {estimate.figure.metric: estimate for estimate in estimates}
    for metric in metrics_at("tile"):
        value = summary.get(metric.key) if keys is None or metric.key in keys else None
        if value is None or not metric.shows("tile", value, s):
            continue
        tile: dict[str, Any] = {
            "label": metric.tile,
            "value": as_text(metric.key, value).removesuffix(" per NPU").removesuffix(" requests"),
            "help": with_glossary(f"{metric.tile} {metric.term}", metric.help),
        }
        if metric.slo is not None and has_one_slo(s):
            tile |= slo_margin(float(value), metric.slo(s))
        note_key, note_pattern = metric.note
        if summary.get(note_key) is not None:
            note_text = note_pattern.format(as_text(note_key, summary[note_key]))
            tile |= {"delta": note_text, "delta_color": "off", "delta_arrow": "off"}
        if (band := estimate_by_metric.get(metric.key)) is not None and value:
            band_text = band.range_text(float(value)).removesuffix(" tokens/s per NPU")
            tile["help"] += f"\n\n{band.sentence}"
            tile |= {"delta": f"80 % band: {band_text}", "delta_color": "off", "delta_arrow": "off"}
        tiles.append(tile)
    return tiles


def draw_validity(row: RunRow, scenario: Scenario) -> None:
    """Draw how far to trust the figures: laws, counted time, notes, error bands, evidence."""
    broken_laws = [check for check in row.checks if not check["ok"]]
    laws_text, icon = f"All {len(row.checks)} laws held", ":material/verified:"
    if broken_laws:
        laws_text = f"{len(broken_laws)} of {len(row.checks)} laws broken"
        icon = ":material/gpp_bad:"
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if row.summary.get("steady_state") == "steady":
            st.badge("Steady state", icon=":material/trending_flat:", color="green")
        with st.popover(laws_text, icon=icon, type="tertiary"):
            for check in sorted(row.checks, key=lambda c: bool(c["ok"])):
                sign_icon = ":green[:material/check:]" if check["ok"] else ":red[:material/close:]"
                detail_text = f" :gray[{check['detail']}]" if check.get("detail") else ""
                st.markdown(f"{sign_icon} **{check['id']}** {check['statement']}{detail_text}")
        st.caption(_span_sentence(scenario), width="content")
    if early_sentence := missed_early_sentence(row.summary, scenario):
        st.caption(f":material/info: {early_sentence}")
    for note in row.notes:
        if note not in UNSTEADY.values() and not note.startswith("Steady-state figures leave out"):
            model = note.partition(":")[0] if scenario.models else ""  # a key, as tables have it
            st.caption(f":material/info: {sentence(note, model)}")
    is_slow = (row.summary.get("tpot_s_mean") or 0.0) > scenario.slo.tpot_ms * 1e-3
    if is_slow and has_one_slo(scenario):
        st.caption(f":material/timer: {formulas.bound(scenario)}")
    runs.draw_error_bands({scenario.name: scenario})
    if respects_outside := outside_evidence(scenario, session.facts()):
        count_text = numbered(len(respects_outside), "respect")
        evidence_text = f"Outside the published evidence in {count_text}"
        with st.popover(evidence_text, icon=":material/explore:", type="tertiary"):
            for respect in respects_outside:
                st.markdown(f"- {respect}")
            if "evidence" in PAGES:  # an extra's
                link_page("evidence", "How far the evidence reaches")


def missed_early_sentence(summary: Mapping[str, Any], s: Scenario) -> str:
    """Sentence if percentiles meet the SLO but too few requests do; otherwise ''. Percentiles of
    TTFT count first tokens after the warm-up, the share counts requests that finish after it."""
    share, slo_limits = summary.get("slo_attainment"), (
        ("ttft_s_p99", s.slo.ttft_s), ("tpot_s_p99", 1e-3 * s.slo.tpot_ms),
    )  # fmt: skip
    is_met = all((summary.get(key) or 0.0) <= limit for key, limit in slo_limits)
    # Each percentile leaves one request in a hundred open.
    if share is None or share >= 0.98 or not is_met or s.tenants or s.models or s.clients.retries:
        return ""
    return (
        "Requests that missed the SLO finished after the warm-up and had their first token during "
        "it, when TTFT was longer. A longer warm-up leaves them out."
    )


def _span_sentence(s: Scenario) -> str:
    """Sentence on the simulated time that figures count."""
    end_text = words.duration_text(s.horizon_s)
    if not s.warmup_s:
        return f"Figures are of all {end_text} simulated; no warm-up was left out."
    return (
        f"Figures are of {words.duration_text(s.warmup_s)} to {end_text}: the warm-up "
        "before it is left out. Counts are of the whole run."
    )


def draw_downloads(row: RunRow, scenario: Scenario) -> None:
    """Draw the choice of a download, and a button for every format."""
    store = session.store()
    row_counts = {
        name.capitalize(): table.rows for name, table in store.runs.tables(row.id).items()
    }
    extras = hooks_of(Section, "run.download")
    choice_names = [SUMMARY, WHOLE, *row_counts, QUESTION, *extras]
    selected_name = st.selectbox(
        "What", choice_names, key="download-what", format_func=lambda name: name.replace("_", " ")
    )
    if selected_name in extras:
        extras[selected_name].load()(store, row, scenario)
        return
    if selected_name == WHOLE:
        st.caption("Scenario, facts, engine version and tables: `twin library import` takes it in.")
    row_count = row_counts.get(selected_name)
    if row_count is not None:
        st.caption(f"{numbered(row_count, 'row')}; times in seconds, sizes in bytes.")
    with st.container(horizontal=True):
        for kind, make_file in download_makers(
            store, row, scenario, selected_name, row_count
        ).items():
            file = f"{file_stem(row)}-{selected_name.lower()}.{ENDINGS[kind]}"
            draw_download(kind, make_file, file, f"download-{selected_name}-{kind}")


def download_makers(
    store: Store, row: RunRow, scenario: Scenario, choice: str, rows: int | None
) -> dict[str, Callable[[], bytes]]:
    """Functions that return the content of the download `choice`, by name of the format. rows:
    number of rows if it is a table, otherwise None."""
    if choice == WHOLE:
        return {"Archive": lambda: export_runs(store, row.id)}
    if choice == QUESTION:
        return {"TOML": lambda: scenario_to_toml(scenario).encode(),
                "JSON": lambda: json_text(scenario.model_dump(mode="json")).encode()}  # fmt: skip
    if choice == SUMMARY:
        return {"CSV": lambda: csv_bytes(summary_table(row)),
                "JSON": lambda: json_text(run_object(row)).encode()}  # fmt: skip

    read_table = partial(store.runs.table, row.id, choice.lower())

    def parquet_bytes() -> bytes:
        """The chosen table as a Parquet file."""
        buffer = io.BytesIO()
        read_table().write_parquet(buffer, compression="zstd")
        return buffer.getvalue()

    if rows is not None and rows >= LONG_ROWS:
        return {"CSV, gzip": lambda: csv_bytes(read_table(), packed=True), "Parquet": parquet_bytes}
    return {
        "CSV": lambda: csv_bytes(read_table()),
        "Parquet": parquet_bytes,
        "JSON": lambda: read_table().write_json().encode(),
    }


def file_stem(row: RunRow) -> str:
    """Beginning of a download's file name: the run's name and the first 8 characters of its id."""
    return f"{file_name(row.name, fallback='run')[:60]}-{row.id[:8]}"


def csv_bytes(frame: pl.DataFrame, *, packed: bool = False) -> bytes:
    """A table as CSV (gzip if `packed`); text that looks like a formula gets an apostrophe."""
    buffer, text_columns = io.BytesIO(), pl.col(pl.String, pl.Enum, pl.Categorical).cast(pl.String)
    safe_frame = frame.with_columns(text_columns.str.replace(FORMULA, "'${0}"))
    safe_frame.write_csv(buffer, compression="gzip" if packed else "uncompressed")
    return buffer.getvalue()


def run_object(row: RunRow) -> dict[str, Any]:
    """A run as one JSON object, with the same keys as on the command line."""
    return {
        "run": row.id, "scenario": row.scenario, "digest": row.result_digest,
        "engine_version": row.engine_version, "facts": row.facts_digest, "wall_s": row.wall_s,
        "requests": row.summary.get("requests"), "name": row.name, "valid": row.valid,
        "checks": row.checks, "notes": row.notes, "summary": row.summary,
    }  # fmt: skip


def summary_table(row: RunRow) -> pl.DataFrame:
    """The summary as a table: figure, value in SI, unit of the value, what it is."""
    figure_rows = [
        (key, float(value) if isinstance(value, int | float) else None,
         "1 = 100 %" if (metric := metric_of(key)).kind == "share" else metric.unit, metric.help)
        for key, value in row.summary.items()
    ]  # fmt: skip
    column_types = {"figure": pl.String, "value": pl.Float64, "unit": pl.String, "what": pl.String}
    return pl.DataFrame(figure_rows, schema=column_types, orient="row")
