"""The commands `evidence` and `calibrate`: how far the twin is off, and how it is fitted."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from twin.commands.terminal import AsJson, end_with_json, err, out, print_json, print_rows
from twin.extras.evidence.calibrate import calibrate as fitted
from twin.extras.evidence.calibrate import (
    check_options,
    fit_points,
    write_calibration,
    write_private,
)
from twin.extras.evidence.made import add_first, compute_made, load_made, one_skew, write_made
from twin.lab.evidence.bands import row_bands
from twin.lab.evidence.judge import evidence as rows_of
from twin.lab.evidence.judge import headlines, now_text, score_table, write_errors
from twin.lab.library import load_facts
from twin.lab.share.shipped import current_evidence


def evidence(
    first: Annotated[bool, typer.Option(
        "--first", help="Store the first errors of rows never answered before.")] = False,
    write: Annotated[bool, typer.Option(
        "--write", help="Store the errors, which bands are made of.")] = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Put published figures next to the twin's own, with the error of each."""
    facts = load_facts()
    if first:
        new_rows = add_first(facts)
        error_rows = [(row["id"], f"{100 * row['error']:+.1f} %") for row in new_rows]
        if as_json:
            print_json([{**row, "band": row_bands().get(row["id"])} for row in new_rows])
        else:
            print_rows("First errors", ("row", "error"), error_rows)
        return
    if write:
        write_errors(facts, rows_of(facts))
    evidence_table = current_evidence(facts)
    end_with_json(evidence_table["rows"], as_json)
    rows = evidence_table["rows"]
    bands = {row["id"]: "{:+.0f} to {:+.0f} %".format(*(100 * end for end in row["band"][:2]))
             for row in rows if row["band"]}  # fmt: skip
    cells = [
        (row["id"], *(f"{row[key]:,.5g} {row['unit']}" for key in ("published", "twin")),
         *("" if row[key] is None else f"{100 * row[key]:+.1f} %"
           for key in ("error", "first_error")),
         bands.get(row["id"], ""), row["kind"])
        for row in rows
    ]  # fmt: skip
    heads = ("row", "published", "twin", "error", "first error", "band", "kind")
    print_rows("Published figures", heads, cells)
    _print_table("Absolute error: mean (worst, rows)", score_table(rows))
    record, held = load_made(), evidence_table["held"]
    figure_count = record.moving_figure_count
    moving = f"{figure_count} figures without a source of their own move a row: calibrate --help"
    texts = (*headlines(rows), now_text(rows), *held, one_skew(facts), record.default_skew, moving)
    for sentence in texts:
        out.print(escape(sentence))


def calibrate(
    write: Annotated[bool, typer.Option("--write", help="Replace data/calibration.toml.")] = False,
    points: Annotated[Path | None, typer.Option(
        metavar="FILE.csv", help="Fit to figures you measured, not published ones.")] = None,
    private: Annotated[Path | None, typer.Option(
        "--out", metavar="FILE.toml", help="Keep that private fit here.")] = None,
    cross: Annotated[bool, typer.Option(
        "--cross-validate",
        help="Fit without each row, source and system in turn, and count every figure that was "
        "chosen; some minutes. With --write stored in data/record.")] = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Fit the few constants of the model to the published rows that calibrate."""
    check_options(points, private, write)
    if cross:
        with err.status("fitting without each row in turn"):
            results = compute_made(load_facts())
        if write:
            write_made(results)
        end_with_json(asdict(results), as_json)
        for title, table in results.tables().items():
            _print_table(title, table)
        return
    with err.status("fitting"):
        result = fit_points(points, load_facts()) if points else fitted(load_facts())
    if write:
        write_calibration(result)
    if private:
        write_private(result, private)
    answer = {"values": result.values, "errors": result.errors}
    end_with_json(answer | ({"untouched": result.untouched} if points else {}), as_json)
    remarks = dict.fromkeys(result.untouched, "as before: no point informs it")
    rows = [(k, f"{value:g}", remarks.get(k, "")) for k, value in result.values.items()]
    print_rows("Constants", ("constant", "value", ""), rows)
    errors = [(k, f"{100 * value:+.1f} %") for k, value in result.errors.items()]
    print_rows("Rows fitted to", ("row", "error"), errors)
    if private:
        out.print(escape(f"to use it: TWIN_CALIBRATION={private}"))


def _print_table(title: str, rows: Sequence[Mapping[str, str]]) -> None:
    """Print rows with the same keys as a table."""
    print_rows(title, tuple(rows[0]), [tuple(row.values()) for row in rows])
