"""The mean time of a request in pieces that add up: waiting from stamps, faults and imbalance by
runs without them, the rest by operators' busy time; ideal: weights once at full HBM bandwidth."""

from collections.abc import Mapping

import numpy as np
import polars as pl

from twin.lab.explain.runs import Runs
from twin.lab.explain.streams import mean_load_timelines
from twin.lab.explain.view import Settings, View
from twin.lab.explain.words import PIECES
from twin.metrics.latency import STAMPS
from twin.metrics.operators import OPERATORS
from twin.model.decode import decode_hbm_bytes
from twin.model.timeline import Timeline
from twin.scenario import SpecError, with_overrides

SLACK = "slack"
_OUTSIDE = ("mtp", "lm_head", "sampling")
_PIECES = dict.fromkeys(_OUTSIDE, "outside") | dict.fromkeys(("fetch", "kv_fetch"), "kv")
_PIECES |= {"launch_gaps": "host"} | dict.fromkeys(("gate", "dispatch", "combine"), "exchange")
EVEN: Settings = {"experts.placement": "perfect", "experts.balancing.policy": "none"}


def waterfall(runs: Runs, view: View) -> dict[str, float]:
    """Mean seconds, by piece (PIECES), of a request finished after the warm-up; {} without any."""
    request_s = _mean_request_s(runs, view)
    clean_view, removed_s = view, {}
    if view.scenario.faults:
        clean_view, removed_s["faults"] = _run_without(runs, clean_view, {"faults": []})
    if view.has_experts and view.scenario.experts.popularity != "uniform":
        clean_view, removed_s["imbalance"] = _run_without(runs, clean_view, EVEN)
    run_tables = runs.tables[clean_view.scenario]
    stage_s = _mean_stage_s(run_tables["requests"], clean_view.scenario.warmup_s)
    if not request_s or stage_s is None:
        return {}
    front_end_s, router_s, queue_s, prefill_s, transfer_s, decode_s = stage_s
    served_s = min(front_end_s, 1e-3 * view.scenario.front_end.service_ms)
    piece_s = dict.fromkeys(PIECES, 0.0)
    piece_s |= {"host": served_s, "kv": transfer_s}
    piece_s["queueing"] = front_end_s - served_s + router_s + queue_s
    timelines = mean_load_timelines(clean_view.scenario, clean_view.facts, run_tables)
    for phase, spent_s in (("prefill", prefill_s), ("decode", decode_s)):
        for piece, piece_share in _piece_shares(run_tables, phase, timelines.get(phase)).items():
            piece_s[piece] += piece_share * spent_s
    _separate_weights(piece_s, clean_view, decode_s)
    unexplained_s = request_s - sum(removed_s.values()) - sum(piece_s.values())
    piece_s["queueing"] += unexplained_s if piece_s["queueing"] + unexplained_s > 0 else 0.0
    return piece_s | removed_s


def _run_without(runs: Runs, view: View, settings: Settings) -> tuple[View, float]:
    """The view of a run with settings that remove a cause, and the seconds of a mean request that
    this saves; the same view and 0 if it saves none or cannot run."""
    try:
        scenario = with_overrides(view.scenario, settings)
        summary = runs.run_with_tables(scenario)
    except (SpecError, ValueError) as error:
        if not type(error).__module__.startswith("twin."):
            raise
        return view, 0.0
    new_view = View(scenario, view.facts, summary, view.full, view.operators)
    saved_s = _mean_request_s(runs, view) - _mean_request_s(runs, new_view)
    return (new_view, saved_s) if _mean_request_s(runs, new_view) and saved_s > 0 else (view, 0.0)


def _mean_request_s(runs: Runs, view: View) -> float:
    """Mean seconds from arrival to end of a view's finished requests; 0 if none finished."""
    stage_s = _mean_stage_s(runs.tables[view.scenario]["requests"], view.scenario.warmup_s)
    return float(sum(stage_s)) if stage_s is not None else 0.0


def _mean_stage_s(requests: pl.DataFrame, warmup_s: float) -> np.ndarray | None:
    """Mean seconds of finished requests between consecutive stamps, f8[6]; a missing stamp takes no
    time. None if none finished."""
    finished = requests.filter(pl.col("finish_s") >= warmup_s)
    if not finished.height:
        return None
    stamps = finished.select(pl.col(stamp).cast(pl.Float64) for stamp in STAMPS).to_numpy().copy()
    for stamp_index in range(1, stamps.shape[1] - 1):
        is_missing = ~np.isfinite(stamps[:, stamp_index])
        stamps[is_missing, stamp_index] = stamps[is_missing, stamp_index - 1]
    return np.asarray(np.diff(stamps, axis=1).mean(axis=0))


def _piece_shares(
    tables: Mapping[str, pl.DataFrame], phase: str, timeline: Timeline | None
) -> dict[str, float]:
    """Share of a phase's time by piece of the waterfall. Where two streams overlap, they divide the
    time of layers in proportion to their operators' busy time. timeline: of the two streams;
    None: one stream."""
    busy_rows = [
        row for row in operator_seconds(tables["operators"], phase, timeline) if row[1] != SLACK
    ]
    stream_s = sum(seconds for stream, _, seconds in busy_rows if stream)
    outer_s = sum(seconds for stream, _, seconds in busy_rows if not stream)
    layer_share = timeline.end - timeline.begin if timeline is not None else 0.0
    # The streams overlap: what both are at work shares the time that the layers last.
    stream_scale = (
        layer_share / (1.0 - layer_share) * outer_s / stream_s if stream_s and outer_s else 1.0
    )
    piece_s: dict[str, float] = {}
    for stream, operator, seconds in busy_rows:
        scaled_s = seconds * (stream_scale if stream else 1.0)
        piece_s[piece_of(operator)] = piece_s.get(piece_of(operator), 0.0) + scaled_s
    total_s = sum(piece_s.values())
    return {piece: scaled_s / total_s for piece, scaled_s in piece_s.items()} if total_s else {}


def operator_seconds(
    operators: pl.DataFrame, phase: str, timeline: Timeline | None
) -> list[tuple[str, str, float]]:
    """(stream, operator, busy seconds) of a mean iteration of a phase, in order; stream '': outside
    the two concurrent streams, of which a run records the longer. The timeline adds the other."""
    phase_rows = operators.filter(pl.col("phase") == phase)
    busy_s = dict(zip(phase_rows["operator"], phase_rows["per_iteration_s"], strict=True))
    if timeline is None:
        return [("", name, seconds) for name, seconds in busy_s.items() if seconds > 0]
    iteration_s, layers_share = sum(busy_s.values()), timeline.end - timeline.begin
    layer_rows = [
        (stream, name, layer_share * layers_share * iteration_s)
        for stream, name, layer_share in layer_shares(timeline)
    ]
    in_layers = {name for _, name, _ in layer_rows}
    outer_s = {
        name: seconds
        for name, seconds in busy_s.items()
        if seconds > 0 and (name not in in_layers or name in _OUTSIDE)
    }
    outer_scale = (1.0 - layers_share) * iteration_s / (sum(outer_s.values()) or 1.0)
    return layer_rows + [("", name, seconds * outer_scale) for name, seconds in outer_s.items()]


def layer_shares(timeline: Timeline) -> list[tuple[str, str, float]]:
    """(stream, operator, share of a layer's time) of both streams; each ends with its idle time."""
    stream_rows = []
    for stream_number, stream in enumerate(timeline.streams):
        share_by_operator: dict[str, float] = {}
        for piece in timeline.pieces:
            piece_s = sum(seconds for _, seconds in piece.operators)
            if piece.stream == stream_number and piece_s > 0:
                for operator, seconds in piece.operators:
                    layer_share = seconds / piece_s * (piece.high - piece.low)
                    share_by_operator[operator] = share_by_operator.get(operator, 0.0) + layer_share
        share_by_operator[SLACK] = max(0.0, 1.0 - sum(share_by_operator.values()))
        stream_rows += [
            (stream, operator, layer_share) for operator, layer_share in share_by_operator.items()
        ]
    return stream_rows


def piece_of(operator: str) -> str:
    """Name of the waterfall's piece to which an operator's time belongs."""
    if piece := _PIECES.get(operator):
        return piece
    operator_entry = OPERATORS.get(operator)
    return (
        "attention"
        if operator_entry is not None and operator_entry.place == "attention"
        else "experts"
    )


def _separate_weights(piece_s: dict[str, float], view: View, decode_s: float) -> None:
    """Move time from attention and experts to `weights` in `piece_s` (seconds by piece): what
    reading all weights once at full bandwidth takes. decode_s: decode seconds of a mean request."""
    role = view.full.costs.decode_role if view.full is not None else None
    iteration_s = view.figure("decode_iteration_s_mean")
    if role is None or view.full is None or not iteration_s:
        return
    hbm_bytes_per_s = role.chip.hbm_bytes_per_s * role.dies
    tokens = 1e6 * role.dies  # with so many tokens no expert stays unread
    read_share = (
        decode_hbm_bytes(role.decode, tokens, 0.0, float(role.ranks))
        / hbm_bytes_per_s
        / iteration_s
    )
    layers_s = piece_s["attention"] + piece_s["experts"]
    weights_s = min(read_share * decode_s, 0.95 * layers_s)
    for piece in ("attention", "experts"):
        piece_s[piece] *= 1.0 - weights_s / layers_s if layers_s else 1.0
    piece_s["weights"] = weights_s
