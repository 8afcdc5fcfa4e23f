"""When each instance was at work: iterations and batches, read back from a run's stamps.

A run keeps stamps of requests, not of iterations. But a request finishes when an iteration ends,
a prompt begins and ends with a batch, and an instance that holds requests runs iterations back to
back. So ends at which somebody finished are exact, and between two of them lie as many iterations
of equal length as the window's mean iteration says. Where a window was busier than its stamps tell,
spans of mean length fill it. This module knows no file format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

Tables = Mapping[str, pl.DataFrame]

SURE = 0.1  # of a window: so much work that stamps do not tell of is filled in


@dataclass(frozen=True, slots=True)
class Span:
    """One iteration or batch of an instance."""

    begin_s: float
    end_s: float
    stamped: bool  # both ends are stamps of the run; else equal parts between two stamps


def decode_spans(
    tables: Tables, role: str, instance: int, begin_s: float, end_s: float
) -> list[Span]:
    """Iterations of a decode or colocated instance that touch [begin, end), in order."""
    rows, horizon_s = _rows(tables, "decode_instance", instance)
    joins = "transfer_end_s" if role == "decode" else "prefill_start_s"
    known = rows.filter(pl.col(joins).is_not_null() & _undisturbed(rows))
    begins = known[joins].to_numpy()
    ends = known["finish_s"].fill_null(horizon_s).to_numpy()
    stamps = rows["finish_s"].drop_nulls().to_numpy()
    if role == "colocated":
        stamps = np.concatenate([stamps, rows["prefill_end_s"].drop_nulls().to_numpy()])
    busy = without(merged(begins, ends), down_spans(tables, role, instance, horizon_s))
    mean_s = _mean_iteration(tables, role, instance)
    found: list[Span] = []
    for low, high in busy:
        if high > begin_s and low < end_s:
            cuts = np.unique(np.concatenate([[low, high], stamps]))
            cuts = cuts[(cuts >= low) & (cuts <= high)]
            found += _divided(cuts, mean_s, begin_s, end_s, stamps)
    return filled(found, tables, role, instance, begin_s, end_s)


def prefill_spans(tables: Tables, instance: int, begin_s: float, end_s: float) -> list[Span]:
    """Batches of a prefill instance that touch [begin, end), in order.

    A batch shows where a prompt begins or ends with it; several pieces in the middle of one long
    prompt look like one batch.
    """
    rows, horizon_s = _rows(tables, "prefill_instance", instance)
    rows = rows.filter(pl.col("prefill_start_s").is_not_null() & _undisturbed(rows))
    begins = rows["prefill_start_s"].to_numpy()
    ends = rows["prefill_end_s"].fill_null(float("inf")).to_numpy()
    found: list[Span] = []
    down = down_spans(tables, "prefill", instance, horizon_s)
    for low, high in without(merged(begins, np.minimum(ends, horizon_s)), down):
        if high > begin_s and low < end_s:
            cuts = np.unique(np.concatenate([[low, high], begins, ends]))
            cuts = cuts[(cuts >= low) & (cuts <= high)]
            found += [
                Span(float(a), float(b), bool(np.any(ends == b) | np.any(begins == b)))
                for a, b in zip(cuts[:-1], cuts[1:], strict=True)
                if b > begin_s and a < end_s
            ]
    return filled(found, tables, "prefill", instance, begin_s, end_s)


def filled(
    found: list[Span], tables: Tables, role: str, instance: int, begin_s: float, end_s: float
) -> list[Span]:
    """The spans, and spans of mean length where a window was busier than stamps tell.

    A request that a fault threw out takes the stamps of its first service with it.
    """
    own = tables.get("instances")
    if own is None:
        return found
    phase = tables["operators"].filter(
        pl.col("phase") == ("prefill" if role == "prefill" else "decode")
    )
    usual_s = float(phase["per_iteration_s"].sum() or 0.0)
    rows = own.filter(
        (pl.col("role") == role)
        & (pl.col("instance") == instance)
        & (pl.col("t_s") < end_s)
        & (pl.col("t_s") + pl.col("window_s") > begin_s)
    ).sort("t_s")
    known = [(s.begin_s, s.end_s) for s in found]
    more: list[Span] = []
    for at_s, width_s, busy in rows.select("t_s", "window_s", "busy").iter_rows():
        low, high = max(at_s, begin_s), min(at_s + width_s, end_s)
        touching = [s for s in known if s[1] > low and s[0] < high]
        holes = without([(low, high)], touching)
        missing_s = (busy or 0.0) * (high - low) - (high - low - sum(b - a for a, b in holes))
        if missing_s < SURE * (high - low) or usual_s <= 0:
            continue
        for a, b in without(holes, down_spans(tables, role, instance, end_s)):
            part_s = min(b - a, missing_s)
            missing_s -= part_s
            edges = np.linspace(a, a + part_s, max(1, round(part_s / usual_s)) + 1)
            pairs = zip(edges[:-1], edges[1:], strict=True)
            more += [Span(float(x), float(y), False) for x, y in pairs if y > x]
    return sorted(found + more, key=lambda s: s.begin_s)


def _rows(tables: Tables, column: str, instance: int) -> tuple[pl.DataFrame, float]:
    """Requests of an instance, and the end of the run."""
    windows = tables["windows"]
    end_s = float(windows["t_s"][-1] + windows["window_s"][-1]) if windows.height else 0.0
    return tables["requests"].filter(pl.col(column) == instance), end_s


def _undisturbed(rows: pl.DataFrame) -> pl.Expr:
    """Requests served in one go: stamps of the others do not bound their stay in an instance."""
    plain = ~pl.col("status").cast(pl.String).is_in(["rejected", "lost"])
    for column in ("preemptions", "retries"):
        if column in rows.columns:
            plain = plain & (pl.col(column).fill_null(0) == 0)
    return plain


def merged(begins: np.ndarray, ends: np.ndarray) -> list[tuple[float, float]]:
    """The union of spans as disjoint spans in order; spans that touch become one.

    >>> merged(np.array([3.0, 0.0, 1.0]), np.array([4.0, 2.0, 3.0]))
    [(0.0, 4.0)]
    """
    if not begins.size:
        return []
    order = np.argsort(begins, kind="stable")
    begins, reach = begins[order], np.maximum.accumulate(ends[order])
    first = np.concatenate([[True], begins[1:] > reach[:-1]])
    starts = np.flatnonzero(first)
    last = np.concatenate([starts[1:] - 1, [begins.size - 1]])
    return [(float(begins[a]), float(reach[b])) for a, b in zip(starts, last, strict=True)]


def without(
    spans: list[tuple[float, float]], holes: list[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Spans with holes cut out.

    >>> without([(0.0, 9.0)], [(2.0, 3.0), (8.0, 12.0)])
    [(0.0, 2.0), (3.0, 8.0)]
    """
    for low, high in holes:
        spans = [
            part
            for a, b in spans
            for part in ((a, min(b, low)), (max(a, high), b))
            if part[0] < part[1]
        ]
    return spans


def down_spans(
    tables: Tables, role: str, instance: int, horizon_s: float
) -> list[tuple[float, float]]:
    """When an instance was out of service."""
    events = tables.get("events")
    if events is None:
        return []
    rows = events.filter(
        (pl.col("kind") == "instance_down")
        & (pl.col("role") == role)
        & (pl.col("instance") == instance)
    )
    ends = rows["end_s"].cast(pl.Float64).fill_null(horizon_s)
    return [(float(a), float(b)) for a, b in zip(rows["t_s"], ends, strict=True)]


def _mean_iteration(tables: Tables, role: str, instance: int) -> tuple[np.ndarray, np.ndarray]:
    """Window begins, and the mean iteration of the instance in each, NaN where none is known."""
    windows, own = tables["windows"], tables.get("instances")
    if own is not None and "iteration_s" in own.columns:
        rows = own.filter((pl.col("role") == role) & (pl.col("instance") == instance)).sort("t_s")
        if rows.height:
            return rows["t_s"].to_numpy(), _floats(rows["iteration_s"])
    if "decode_iteration_s" not in windows.columns:
        return windows["t_s"].to_numpy(), np.full(windows.height, np.nan)
    return windows["t_s"].to_numpy(), _floats(windows["decode_iteration_s"])


def _floats(column: pl.Series) -> np.ndarray:
    """A column with NaN for null."""
    return column.cast(pl.Float64).fill_null(float("nan")).to_numpy()


def _divided(
    cuts: np.ndarray,
    mean_s: tuple[np.ndarray, np.ndarray],
    begin_s: float,
    end_s: float,
    stamps: np.ndarray,
) -> list[Span]:
    """Iterations between stamps, as many to each gap as its window's mean iteration says."""
    found: list[Span] = []
    at, lengths = mean_s
    for low, high in zip(cuts[:-1], cuts[1:], strict=True):
        if high <= begin_s or low >= end_s:
            continue
        window = max(0, int(np.searchsorted(at, low, "right")) - 1)
        usual = float(lengths[window]) if lengths.size else float("nan")
        parts = max(1, round((high - low) / usual)) if usual > 0 else 1
        edges = np.linspace(low, high, parts + 1)
        exact = parts == 1 and bool(np.any(stamps == high))
        found += [
            Span(float(a), float(b), exact)
            for a, b in zip(edges[:-1], edges[1:], strict=True)
            if b > begin_s and a < end_s
        ]
    return found
