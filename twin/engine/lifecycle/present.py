"""Who was there when: instances and NPUs of each pool over a run, and the tables of their lives.

Where nobody comes or goes, what the deployment declares is there all the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from twin.engine.lifecycle.elastic import ROLES, Elastic, decision_rows
from twin.engine.lifecycle.life import STATES
from twin.engine.setup import Setup

if TYPE_CHECKING:
    Counts = np.ndarray | float

LIVES = {
    "role": pl.String, "instance": pl.Int32, "state": pl.String, "t_s": pl.Float64,
    "end_s": pl.Float64, "npus": pl.Int32, "first_npu": pl.Int32,
}  # fmt: skip


class Present:
    """Instances and NPUs by pool over time."""

    def __init__(self, setup: Setup, elastic: Elastic | None) -> None:
        self._setup, self._elastic = setup, elastic

    def _time(self, role: str, edges_s: np.ndarray, *states: str) -> np.ndarray:
        """Instance-seconds of a pool in some states (none: in any) between edges."""
        assert self._elastic is not None
        total = np.zeros(edges_s.size - 1)
        for span in self._elastic.life.spans:
            of_role = self._setup.instances[span.instance].role == role
            if of_role and (not states or span.state in states):
                end_s = np.minimum(span.end_s, edges_s[1:])
                total += np.clip(end_s - np.maximum(span.t_s, edges_s[:-1]), 0.0, None)
        return total

    def _mean(self, windows: int, role: str, *states: str) -> np.ndarray:
        """Mean instances of a pool in each window."""
        edges_s = np.linspace(0.0, self._setup.scenario.horizon_s, windows + 1)
        return self._time(role, edges_s, *states) / np.diff(edges_s)

    def _size(self, role: str) -> float:
        return self._setup.of_role(role)[0].dies / self._setup.dies_per_npu

    def instances(self, windows: int) -> tuple[Counts, Counts]:
        """Prefill and decode instances that can compute, mean of each window."""
        if self._elastic is None:
            return tuple(len(self._setup.of_role(role)) for role in ROLES)  # type: ignore
        prefill, decode = (self._mean(windows, role, "serve", "drain") for role in ROLES)
        return prefill, decode

    def npus_held(self, windows: int) -> tuple[Counts, Counts]:
        """NPUs that belong to an instance, and those of prefill, mean of each window."""
        if self._elastic is None:
            dies = self._setup.dies_per_npu
            of_prefill = sum(i.dies for i in self._setup.of_role("prefill")) / dies
            held = {die for i in self._setup.instances for die in i.die_of_rank}
            return len(held) / dies, of_prefill
        prefill, decode = (self._mean(windows, role) * self._size(role) for role in ROLES)
        return prefill + decode, prefill

    def npus_by_state(self, windows: int) -> dict[str, np.ndarray]:
        """NPUs that serve in each pool, and those that start or drain; nothing where none moves."""
        if self._elastic is None:
            return {}
        found = {f"{r}_npus": self._mean(windows, r, "serve") * self._size(r) for r in ROLES}
        changing = [self._mean(windows, r, *NOT_SERVING) * self._size(r) for r in ROLES]
        return found | {"changing_npus": changing[0] + changing[1]}

    def npus(self) -> dict[str, float]:
        """NPUs by pool, mean of the steady state."""
        if self._elastic is None:
            npus: dict[str, float] = {}
            for i in self._setup.instances:
                npus[i.role] = npus.get(i.role, 0) + i.dies // self._setup.dies_per_npu
            return npus
        return {role: self._steady(role) * self._size(role) for role in ROLES}

    def _steady(self, role: str, *states: str) -> float:
        s = self._setup.scenario
        edges_s = np.array([s.warmup_s, s.horizon_s])
        return float(self._time(role, edges_s, *states)[0]) / (s.horizon_s - s.warmup_s)

    def totals(self) -> dict[str, float]:
        """Instances of the steady state that can compute; NPU-seconds held, and changes."""
        if self._elastic is None:
            return {f"{role}_instances": float(len(self._setup.of_role(role))) for role in ROLES}
        found = {f"{role}_instances": self._steady(role, "serve", "drain") for role in ROLES}
        whole = np.array([0.0, self._setup.scenario.horizon_s])
        for name, states in (("held", ()), ("not_serving", NOT_SERVING)):
            found[f"npu_s_{name}"] = sum(
                float(self._time(role, whole, *states)[0]) * self._size(role) for role in ROLES
            )
        begun = [s for s in self._elastic.life.spans if s.state == "process" and s.t_s < s.end_s]
        return found | {
            "role_changes": float(self._elastic.role_changes), "starts": float(len(begun)),
        }  # fmt: skip

    def tables(self) -> dict[str, pl.DataFrame]:
        """Lives of the instances, and decisions with what they saw; none where nobody moves."""
        if self._elastic is None:
            return {}
        horizon_s, rows = self._setup.scenario.horizon_s, []
        for span in self._elastic.life.spans:
            i = self._setup.instances[span.instance]
            if span.t_s < min(span.end_s, horizon_s):
                rows.append((
                    i.role, i.index, span.state, span.t_s, min(span.end_s, horizon_s),
                    i.dies // self._setup.dies_per_npu,
                    i.die_of_rank[0] // self._setup.dies_per_npu,
                ))  # fmt: skip
        found = {"lives": pl.DataFrame(rows, schema=LIVES, orient="row")}
        if decisions := decision_rows(self._elastic):
            found["decisions"] = pl.DataFrame(decisions, infer_schema_length=None)
        return found


NOT_SERVING = tuple(state for state in STATES if state != "serve")
