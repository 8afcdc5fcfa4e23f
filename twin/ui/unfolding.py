"""Charts of a run that fill while it runs: small SVG, redrawn in place; plotly would blink."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import groupby

from twin.metrics.measures import amount, seconds
from twin.scenario import Scenario
from twin.ui import theme, words

WIDE, HIGH = 300, 90  # of a chart, in its own units
ROOM = 1.15  # above the highest value


def charts(points: Mapping[str, Sequence[float | None]], scenario: Scenario) -> str:
    """Latency and throughput so far (`points` of a run's progress) over the whole simulated time,
    each against its SLO, as HTML."""
    slo = scenario.slo
    prompts = scenario.deployment.mode == "prefill_only"
    drawn = [
        ("TTFT, mean", "ttft_s", seconds, slo.ttft_s, theme.ROLE["prefill"]),
        ("TPOT, mean", "tpot_s", seconds, 1e-3 * slo.tpot_ms, theme.ROLE["decode"]),
        (
            "Prompt tokens" if prompts else "Output tokens", "tokens_per_s", _tokens, None,
            theme.PLANE["vpc"],
        ),
    ]  # fmt: skip
    parts = [
        _chart(label, points["t_s"], points[key], text, limit, colour, scenario.horizon_s)
        for label, key, text, limit, colour in drawn
        if any(value is not None for value in points.get(key, ()))
    ]
    return f'<div class="unfolding">{"".join(parts)}</div>' if parts else ""


def _tokens(value: float) -> str:
    return amount(value, "rate", "tokens/s")


def _chart(
    label: str,
    at_s: Sequence[float | None],
    values: Sequence[float | None],
    text: Callable[[float], str],
    limit: float | None,
    colour: str,
    horizon_s: float,
) -> str:
    known = [value for value in values if value is not None]
    most, now = max(known), known[-1]
    near = limit is not None and limit < 3.0 * most  # an SLO far above would flatten the line
    top = ROOM * max(most, limit if near and limit else 0.0) or 1.0

    def high(value: float) -> float:
        return HIGH * (1.0 - value / top)

    lines = ""
    for there, pairs in groupby(zip(at_s, values, strict=True), lambda pair: pair[1] is not None):
        if there:
            spots = " ".join(
                f"{WIDE * (t or 0.0) / horizon_s:.1f},{high(v or 0.0):.1f}" for t, v in pairs
            )
            lines += _line(f'points="{spots}"', f'stroke="{colour}" stroke-width="2"')
    if near and limit:
        y = high(limit)
        lines += _line(
            f'points="0,{y:.1f} {WIDE},{y:.1f}"',
            'stroke="currentColor" stroke-width="1" stroke-dasharray="4 4" opacity=".6"',
        )
    lines += _line(
        f'points="0,{HIGH} {WIDE},{HIGH}"', 'stroke="currentColor" stroke-width="1" opacity=".4"'
    )
    against = f"SLO {text(limit)}" if limit is not None else ""
    told = escape(f"{label}: {text(now)} now, {text(most)} at most. {against}", quote=True)
    return (
        f"<figure><figcaption>{escape(label)}<b>{escape(text(now))}</b></figcaption>"
        f'<svg viewBox="0 0 {WIDE} {HIGH}" preserveAspectRatio="none" role="img" '
        f'aria-label="{told}">{lines}</svg>'
        f"<div><span>0 s</span><span>{escape(against)}</span>"
        f"<span>{escape(words.duration(horizon_s))}</span></div></figure>"
    )


def _line(points: str, look: str) -> str:
    return f'<polyline {points} fill="none" vector-effect="non-scaling-stroke" {look}/>'
