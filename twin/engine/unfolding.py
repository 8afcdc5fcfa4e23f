"""A run as it unfolds, for whoever watches: latency and throughput so far, over simulated time."""

import numpy as np

from twin.engine import codes as w
from twin.engine.columns import World

POINTS = 60  # of a run, at most


class Unfolding:
    """Mean TTFT, mean TPOT and tokens/s of each past span; requests before `_low` have ended."""

    def __init__(self, world: World):
        """Of a world before its first step."""
        self._world = world
        self._low = 0
        self._tokens = 0.0
        self.points: dict[str, list[float | None]] = {
            name: [] for name in ("t_s", "ttft_s", "tpot_s", "tokens_per_s")
        }

    def note(self, now_s: float) -> None:
        """Add the span since the last point, if it is long enough."""
        world = self._world
        before_s = self.points["t_s"][-1] or 0.0 if self.points["t_s"] else 0.0
        span_s = now_s - before_s
        if span_s < 0.999 * world.settings.horizon_s / POINTS:
            return
        r, rows = world.request, slice(self._low, int(world.record.counters[w.ARRIVED]))
        first, finish = r.transfer_end_s[rows], r.finish_s[rows]
        begun = (first > before_s) & (first <= now_s) & (r.routed_s[rows] > 0.0)  # not at the start
        ended = (finish > before_s) & (finish <= now_s) & (r.output_tokens[rows] > 1)
        tpot_s = (finish[ended] - first[ended]) / (r.output_tokens[rows][ended] - 1)
        book = world.record.windows[:-1]
        field = w.DECODE_TOKENS if world.settings.has_decode else w.PREFILL_TOKENS
        tokens = float(book[:, field].sum())
        for name, value in (
            ("t_s", now_s),
            ("ttft_s", _mean(first[begun] - r.arrival_s[rows][begun])),
            ("tpot_s", _mean(tpot_s) if world.settings.has_decode else None),
            ("tokens_per_s", (tokens - self._tokens) / span_s),
        ):
            self.points[name].append(value)
        self._tokens = tokens
        unfinished = np.flatnonzero(~((finish <= now_s) | (r.status[rows] >= w.REJECTED)))
        self._low += int(unfinished[0]) if unfinished.size else len(finish)


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if values.size else None
