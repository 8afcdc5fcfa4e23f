"""The verdict of an explanation: one or two sentences with figures that were simulated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twin.lab.explain.headroom import FAR, Headroom
from twin.lab.explain.view import View, attained, load_of
from twin.metrics.measures import amount, three_figures

if TYPE_CHECKING:
    from twin.lab.explain.explain import Measured


def verdict(view: View, room: Headroom, causes: Sequence[Measured]) -> str:
    """Whether the SLO is kept, how much traffic would keep it, what is first to mend."""
    limit = _limit(view, room) if room.bounded or room.factor >= FAR else ""
    if view.held:
        sentences = [f"It keeps its SLO{limit}."]
    else:
        met = attained(view.summary)
        whose = f"Only {amount(met, 'share')} of requests keep" if met else "No request keeps"
        sentences = [f"{whose} the SLO{limit}."]
    if causes and (not view.held or causes[0].score > 0.1):
        first = causes[0]
        sentences.append(f"First cause: {_lower(first.label)}{_of(first)}.")
    if view.free_npus:
        idle = "1 NPU is" if view.free_npus == 1 else f"{view.free_npus} NPUs are"
        sentences.append(f"{idle} idle.")
    return " ".join(sentences)


def _of(cause: Measured) -> str:
    return f" ({cause.named})" if cause.named else ""


def _limit(view: View, room: Headroom) -> str:
    path, load = load_of(view.scenario)
    if not room.factor:
        return "; less traffic alone does not bring it back"
    if room.factor >= FAR:
        return f", and would at {three_figures(room.factor)} times the traffic"
    most = three_figures(load * room.factor)
    unit = {"workload.rate_req_per_s": f"{most} req/s",
            "workload.concurrency": f"{most} requests in flight"}.get(
                path, f"{most} times the trace's speed")  # fmt: skip
    return f", up to {unit}" if view.held else f"; it is kept up to {unit}"


def _lower(label: str) -> str:
    return label if label[:2].isupper() else label[0].lower() + label[1:]
