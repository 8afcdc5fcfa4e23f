"""What happens between steps: faults, their aftermath, decisions on expert placement.

Rare things, in plain Python; each takes effect at the first step's border from its time on."""

import heapq
import math
from collections.abc import Callable

Action = Callable[[float], None]


class Agenda:
    """Actions by the time they are due; equal times in the order they were entered. An action is
    called with the time of the border at which it takes effect."""

    def __init__(self, step_s: float) -> None:
        """Begin without an action; actions run at the borders of steps of step_s."""
        self._step_s = step_s
        self._entries: list[tuple[float, int, Action]] = []
        self._count = 0

    def add(self, time_s: float, action: Action) -> None:
        """Enter an action that is due at `time_s`."""
        heapq.heappush(self._entries, (time_s, self._count, action))
        self._count += 1

    def next_step(self) -> int | None:
        """Number of the step before which the next action is due; None without actions."""
        if not self._entries:
            return None
        return max(0, math.ceil(self._entries[0][0] / self._step_s - 1e-9))

    def run(self, step: int) -> None:
        """Run every action due before `step`, including those that actions enter."""
        while (due_step := self.next_step()) is not None and due_step <= step:
            _, _, action = heapq.heappop(self._entries)
            action(step * self._step_s)
