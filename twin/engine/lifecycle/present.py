"""Who was there when: instances and NPUs of each pool over a run, and the tables of their lives.

Where instances are fixed, what the deployment declares is there all the time."""

import numpy as np
import polars as pl

from twin.engine.lifecycle.elastic import Elastic
from twin.engine.lifecycle.life import STATES
from twin.engine.setup import Setup
from twin.engine.tabling import schema

Counts = np.ndarray | float
NOT_SERVING = tuple(state for state in STATES if state != "serve")
COMPUTING = ("serve", "drain")  # states in which an instance may compute
DUTIES = ("prefill", "decode")
LIVES = schema("role,instance,state,t_s,end_s,npus,first_npu")


class Present:
    """Instances and NPUs by pool over time; a colocated instance counts in both, its NPUs once."""

    def __init__(self, setup: Setup, elastic: Elastic | None) -> None:
        """Read from the life cycles of `elastic`; None: all instances are there all the time."""
        self._setup, self._elastic = setup, elastic

    def _instance_s(self, role: str, edges_s: np.ndarray, *states: str) -> np.ndarray:
        """Instance-seconds of a pool in some states (none given: in any) in each interval between
        edges_s, f8[edges - 1]."""
        assert self._elastic is not None
        instance_s = np.zeros(edges_s.size - 1)
        for span in self._elastic.life.spans:
            is_of_role = self._setup.instances[span.instance].role in (role, "colocated")
            if is_of_role and (not states or span.state in states):
                end_s = np.minimum(span.end_s, edges_s[1:])
                instance_s += np.clip(end_s - np.maximum(span.t_s, edges_s[:-1]), 0.0, None)
        return instance_s

    def _mean_instances(self, windows: int, role: str, *states: str) -> Counts:
        """Mean instances of a pool in some states (none given: in any) by window, f8[windows]; one
        number if instances are fixed."""
        if self._elastic is None:
            return len(self._setup.of_role(role))
        window_edges_s = np.linspace(0.0, self._setup.scenario.horizon_s, windows + 1)
        return self._instance_s(role, window_edges_s, *states) / np.diff(window_edges_s)

    def _npus_each(self, role: str) -> float:
        """NPUs of an instance of a pool."""
        instances = self._setup.of_role(role)
        return instances[0].dies / self._setup.dies_per_npu(instances[0].role) if instances else 0.0

    def instances(self, windows: int) -> tuple[Counts, Counts]:
        """(mean prefill instances that can compute, decode ones), f8[windows] or one number."""
        prefill, decode = (self._mean_instances(windows, role, *COMPUTING) for role in DUTIES)
        return prefill, decode

    def npus_held(self, windows: int) -> tuple[Counts, Counts]:
        """(mean NPUs of all instances, of prefill instances), f8[windows] or one number for all."""
        prefill_npus = self._mean_instances(windows, "prefill") * self._npus_each("prefill")
        if self._elastic is None:  # pools may share NPUs
            used_dies = {die for instance in self._setup.instances for die in instance.die_of_rank}
            return float(self._setup.fabric.npus_of(used_dies)), prefill_npus
        return self._mean_npus(windows), prefill_npus

    def _mean_npus(self, windows: int, *states: str) -> Counts:
        """Mean NPUs of all pools in some states (none given: in any) in each window."""
        roles = self._setup.roles
        return sum(
            self._mean_instances(windows, role, *states) * self._npus_each(role) for role in roles
        )

    def npus_by_state(self, windows: int) -> dict[str, np.ndarray]:
        """Mean NPUs that serve, by pool, and mean NPUs that start or drain, f8[windows] each, by
        name of column; {} if instances are fixed."""
        if self._elastic is None:
            return {}
        npus_by_column = {
            f"{role}_npus": self._mean_instances(windows, role, "serve") * self._npus_each(role)
            for role in self._setup.roles
        } | {"changing_npus": self._mean_npus(windows, *NOT_SERVING)}
        return {name: np.asarray(npus) for name, npus in npus_by_column.items()}

    def npus(self) -> dict[str, float]:
        """Mean number of NPUs of each pool in the steady state, by role."""
        roles = self._setup.roles
        if self._elastic is None:
            die_counts = {role: sum(i.dies for i in self._setup.of_role(role)) for role in roles}
            return {role: die_counts[role] // self._setup.dies_per_npu(role) for role in roles}
        return {role: self._steady_instances(role) * self._npus_each(role) for role in roles}

    def _steady_instances(self, role: str, *states: str) -> float:
        """Mean number of a role's instances in these states after the warm-up."""
        edges_s = np.array([self._setup.scenario.warmup_s, self._setup.scenario.horizon_s])
        return float((self._instance_s(role, edges_s, *states) / np.diff(edges_s))[0])

    def totals(self) -> dict[str, float]:
        """By name: mean instances that can compute; NPU-seconds held; role changes and starts."""
        if self._elastic is None:
            return {f"{duty}_instances": float(len(self._setup.of_role(duty))) for duty in DUTIES}
        totals = {f"{duty}_instances": self._steady_instances(duty, *COMPUTING) for duty in DUTIES}
        run_edges_s = np.array([0.0, self._setup.scenario.horizon_s])
        for name, states in (("held", ()), ("not_serving", NOT_SERVING)):
            totals[f"npu_s_{name}"] = sum(
                float(self._instance_s(role, run_edges_s, *states)[0]) * self._npus_each(role)
                for role in self._setup.roles
            )
        spans = self._elastic.life.spans
        starts = [span for span in spans if span.state == "process" and span.t_s < span.end_s]
        role_changes = float(self._elastic.role_changes)
        return totals | {"role_changes": role_changes, "starts": float(len(starts))}

    def tables(self) -> dict[str, pl.DataFrame]:
        """Tables `lives` and `decisions` (with their inputs); {} without elasticity."""
        if self._elastic is None:
            return {}
        horizon_s, life_rows = self._setup.scenario.horizon_s, []
        for span in self._elastic.life.spans:
            instance = self._setup.instances[span.instance]
            if span.t_s < min(span.end_s, horizon_s):
                life_rows.append((
                    instance.role, instance.index, span.state, span.t_s, min(span.end_s, horizon_s),
                    instance.dies // self._setup.dies_per_npu(instance.role),
                    int(self._setup.fabric.npu[instance.die_of_rank[0]]),
                ))  # fmt: skip
        life_tables = {"lives": pl.DataFrame(life_rows, schema=LIVES, orient="row")}
        if decisions := self._elastic.decisions:
            life_tables["decisions"] = pl.DataFrame(decisions, infer_schema_length=None)
        return life_tables
