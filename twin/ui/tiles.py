"""A prediction as tiles and a table: what to show, with its unit and its basis, not how.

Every tile is the arguments of one metric. Draws nothing.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from twin.metrics.measures import amount, seconds
from twin.model.predict import DecodePrediction, Prediction, PrefillPrediction
from twin.scenario import Scenario
from twin.ui import theme
from twin.ui.fields import glossed
from twin.workload.offered import Offered

Tile = dict[str, Any]


def capacity(s: Scenario, prediction: Prediction, asked: Offered | str) -> list[Tile]:
    """What the deployment sustains, what limits it, and how that meets load and SLO."""
    shown = [
        _tile(
            "Sustained requests",
            amount(prediction.requests_per_s, "rate", "req/s"),
            "Requests per second that all pools together keep up with, for ever.",
        ),
        _load(prediction, asked),
    ]
    if prediction.decode is not None:
        shown += _decode(s, prediction.decode)
    shown.append(
        _tile(
            "KV room, per die",
            amount(prediction.kv_tokens_per_die, "rate", "tokens"),
            "Tokens whose KV fits into the HBM of one die beside weights and buffers.",
        )
    )
    if prediction.prefill is not None:
        shown.append(
            _tile(
                "Prefill, per NPU",
                amount(prediction.prefill.tokens_per_s_per_npu, "rate", "tokens/s"),
                "Prompt tokens computed per second by one NPU (two dies on a 910C) of the "
                f"prefill pool, hits not counted; a full batch takes "
                f"{seconds(prediction.prefill.batch_s)} and waits longest for "
                f"{prediction.prefill.resource}.",
            )
        )
    return shown


def _load(prediction: Prediction, asked: Offered | str) -> Tile:
    if isinstance(asked, str) or asked.rate_req_per_s is None:
        return _tile("Limited by", theme.title(prediction.limit), "The pool that is full first.")
    load = asked.rate_req_per_s / prediction.requests_per_s
    text = amount(load, "share")
    return _tile(
        "Offered load",
        f":red[{text}]" if load > 1 else text,
        f"{amount(asked.rate_req_per_s, 'rate', 'req/s')} offered, over what is sustained; the "
        f"{prediction.limit} is full first. Above 100 % queues grow without end.",
    )


def _decode(s: Scenario, part: DecodePrediction) -> list[Tile]:
    return [
        _tile(
            "TPOT, slots full",
            seconds(part.tpot_s),
            f"Time per output token. An iteration takes {seconds(part.iteration_s)} and gives "
            f"each request {part.tokens_per_iteration:.3g} tokens; it waits longest for "
            f"{part.resource} in {theme.title(part.longest_operator).lower()}.",
            **against_slo(part.tpot_s, 1e-3 * s.slo.tpot_ms),
        ),
        _tile(
            "Decode, per NPU",
            amount(part.tokens_per_s_per_npu, "rate", "tokens/s"),
            "Output tokens per second of one NPU (two dies on a 910C) of the decode pool.",
        ),
        _tile(
            "Batch, per NPU",
            f"{part.batch_per_npu:,.0f} requests",
            f"Requests one NPU decodes at once; limited by {part.limited_by}.",
        ),
    ]


def against_slo(value_s: float, limit_s: float) -> dict[str, Any]:
    """Arguments of a metric that say how far a time is from its SLO."""
    gap_s = value_s - limit_s
    return {
        "delta": f"{'+' if gap_s > 0 else '-'}{seconds(abs(gap_s))}",
        "delta_color": "inverse",
        "delta_description": f"{'over' if gap_s > 0 else 'under'} SLO",
    }


def _tile(label: str, value: str, help_: str, **more: Any) -> Tile:
    return {"label": label, "value": value, "help": glossed(label, help_), **more}


def operators(phase: str, part: DecodePrediction | PrefillPrediction) -> pl.DataFrame:
    """Seconds by operator of one iteration, as the operators table of a run has them."""
    times = list(part.operators.values())
    return pl.DataFrame(
        {
            "phase": [phase] * len(times),
            "operator": list(part.operators),
            "total_s": times,
            "per_iteration_s": times,
        }
    )
