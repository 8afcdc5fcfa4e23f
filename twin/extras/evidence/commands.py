"""The commands `evidence` and `calibrate`: how far the twin is off, and how it is fitted."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from twin.commands.terminal import AsJson, end_with_json, err, out, print_json, print_rows
from twin.extras.evidence import calibrate as fits
from twin.extras.evidence import made
from twin.lab.evidence import bands, judge
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
        new_rows = made.add_first_errors(facts)
        error_rows = [(row["id"], f"{100 * row['error']:+.1f} %") for row in new_rows]
        if as_json:
            print_json([{**row, "band": bands.row_bands().get(row["id"])} for row in new_rows])
        else:
            print_rows("First errors", ("row", "error"), error_rows)
        return
    if write:
        judge.write_errors(facts, judge.evidence(facts))
    evidence_table = current_evidence(facts)
    end_with_json(evidence_table["rows"], as_json)
    rows = evidence_table["rows"]
    band_of = {row["id"]: "{:+.0f} to {:+.0f} %".format(*(100 * end for end in row["band"][:2]))
             for row in rows if row["band"]}  # fmt: skip
    error_cells = [
        (row["id"], *(f"{row[key]:,.5g} {row['unit']}" for key in ("published", "twin")),
         *("" if row[key] is None else f"{100 * row[key]:+.1f} %"
           for key in ("error", "first_error")),
         band_of.get(row["id"], ""), row["kind"])
        for row in rows
    ]  # fmt: skip
    headers = ("row", "published", "twin", "error", "first error", "band", "kind")
    print_rows("Published figures", headers, error_cells)
    _print_table("Absolute error: mean (worst, rows)", judge.score_table(rows))
    made_results, coverage = made.load_made(), evidence_table["held"]
    figures_text = (
        f"{made_results.moving_figure_count} figures without a source of their own move a row: "
        "calibrate --help"
    )
    sentences = (*judge.headlines(rows), judge.now_text(rows), *coverage, made.skew_sentence(facts),
                 made_results.default_skew_text, figures_text)  # fmt: skip
    for sentence in sentences:
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
    fits.check_options(points, private, write)
    if cross:
        with err.status("fitting without each row in turn"):
            cross_results = made.compute_made(load_facts())
        if write:
            made.write_made(cross_results)
        end_with_json(asdict(cross_results), as_json)
        for title, table in cross_results.tables().items():
            _print_table(title, table)
        return
    with err.status("fitting"):
        facts = load_facts()
        fit = fits.fit_points(points, facts) if points else fits.calibrate(facts)
    if write:
        fits.write_calibration(fit)
    if private:
        fits.write_private_fit(fit, private)
    answer = {"values": fit.values, "errors": fit.errors}
    end_with_json(answer | ({"untouched": fit.untouched} if points else {}), as_json)
    remark_of = dict.fromkeys(fit.untouched, "as before: no point informs it")
    constant_rows = [
        (name, f"{value:g}", remark_of.get(name, "")) for name, value in fit.values.items()
    ]
    print_rows("Constants", ("constant", "value", ""), constant_rows)
    error_rows = [(row_id, f"{100 * error:+.1f} %") for row_id, error in fit.errors.items()]
    print_rows("Rows fitted to", ("row", "error"), error_rows)
    if private:
        out.print(escape(f"to use it: TWIN_CALIBRATION={private}"))


def _print_table(title: str, rows: Sequence[Mapping[str, str]]) -> None:
    """Print a table: its title, and rows as texts by column."""
    print_rows(title, tuple(rows[0]), [tuple(row.values()) for row in rows])
