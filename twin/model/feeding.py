"""Decode where something else limits: how many requests are under way, and how fast tokens come.

Full slots say what decode could do; where prefill or the front end sustains less, fewer are under
way and their tokens come sooner. It knows the steady state alone: arrivals are even.
"""

from __future__ import annotations

from dataclasses import replace

from twin.model.batch import Hot
from twin.model.costs import Costs
from twin.model.predict import DecodePrediction, Prediction, Traffic, decode_with
from twin.scenario import Scenario

STEPS, CLOSE = 12, 2e-3  # to find how many are under way, and how close they come


def fed(s: Scenario, full: Prediction, traffic: Traffic, hot: Hot) -> Prediction:
    """The same prediction with decode as what limits it feeds it."""
    decode = full.decode
    if decode is None or full.costs.decode_role is None or full.limit == "decode":
        return full
    rate = full.requests_per_s
    return replace(full, fed=_under_way(s, full.costs, traffic, hot, decode, rate, full.limit))


def _under_way(
    s: Scenario, costs: Costs, traffic: Traffic, hot: Hot, full: DecodePrediction, rate: float,
    limit: str,
) -> DecodePrediction:  # fmt: skip
    """Decode when `rate` requests/s arrive, fewer than full slots would answer.

    By Little's law: requests under way are rate x time, and time is nearly linear in them.
    """
    assert costs.decode_role is not None
    least = 1.0 / costs.decode_role.dies  # one request alone: nobody sees a part of one
    before = full.batch_per_npu / costs.chip.dies_per_npu
    took_before = before / full.requests_per_s
    count, at = max(rate * took_before, least), full
    for _ in range(STEPS):
        if count == before:
            break
        at = decode_with(s, costs, traffic, hot, count, limit)
        if abs(at.requests_per_s / rate - 1.0) < CLOSE:
            break
        took = count / at.requests_per_s
        slope = (took - took_before) / (count - before)
        before, took_before = count, took
        straight = rate * (took - slope * count) / max(1e-3, 1.0 - rate * slope)
        # A step in the time (one request more on the fullest die) may point far off the line.
        count = min(max(straight, 0.5 * before, least), 2.0 * before)
    return at
