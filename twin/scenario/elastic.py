"""Instances that come, go and change role while a run goes on."""

from typing import Literal

from twin.scenario.declaration import (
    DIGEST,
    Section,
    choice,
    quantity,
    rows,
    section,
    text,
    unless,
    when,
)

# Controllers that keep one measurement of each pool between two marks, by name: the measurement, a
# field of `PoolSeen` in policies/controllers.py and a column of a run's table of decisions.
PRESSURES = {"queue": "in_hand", "slo": "latency", "kv": "busy"}
READS_MARKS = (*PRESSURES, "own")
BY_MARKS = when("elastic.controller", *READS_MARKS)
DECIDES = unless("elastic.controller", "fixed", "schedule")
MOVES = unless("elastic.controller", "fixed")


class Step(Section):
    """One row of a schedule: from a time on, so many instances of each pool."""

    at_s: float = quantity(0.0, "s", "At", (0, 604_800), step=60)
    """From when on."""
    prefill: int = quantity(1, "instances", "Prefill instances", (0, 512))
    """Prefill instances that are wanted."""
    decode: int = quantity(1, "instances", "Decode instances", (0, 128))
    """Decode instances that are wanted, or colocated ones where these do both."""

    def wanted_instances(self, role: str) -> int:
        """Number of instances that this row of the schedule wants in the pool of `role`: `prefill`
        for the role "prefill", `decode` for all other roles."""
        return self.prefill if role == "prefill" else self.decode


class Own(Section):
    """A controller of the operator's own: a Python file of the folder that the server names."""

    name: str = text("", "Own controller", most=60)
    """Name of the file without its ending."""
    digest: str = text("", "Digest of the own controller", pattern=DIGEST)
    """SHA-256 of the file's content: the controller is a part of the question."""


class Elastic(Section):
    """Instances that come, go and change role."""

    controller: Literal["fixed", "schedule", "queue", "slo", "kv", "rebalance", "own"] = choice(
        "fixed", "Controller", options={
            "queue": "Autoscaling by queues", "slo": "Autoscaling by SLO",
            "kv": "Autoscaling by busy time and KV space",
            "rebalance": "Prefill:decode re-balancing", "own": "Own Python function",
        }, also="autoscaling, scale out, scale to zero",  # fmt: skip
    )  # fmt: skip
    """Who decides how many instances of each pool serve: nobody; a schedule; each pool by itself,
    by the work in hand of what it can hold, by TTFT and TPOT of the SLO, or by busy time and KV
    space; both pools together, as many as the load that is expected takes within the SLO; or
    the operator's own function. [KPA, Dynamo and Arrow (arXiv 2505.11916):
    docs/studies/ELASTICITY.md]"""
    npus: int = quantity(
        0, "NPUs", "NPUs that instances may take", (0, 16_384), applies=MOVES, step=8
    )
    """NPUs that instances may take up in all; 0: those of the instances that the deployment
    declares, which are what serves at the start."""
    least_instances: int = quantity(
        1, "instances", "Fewest instances of a pool", (0, 128), applies=MOVES
    )
    """A pool never has fewer that serve, behind a front router in each supernode; with 0 all stop
    when no request has come for `idle_s`, and one of each pool starts when one comes. A schedule
    decides by itself when none serves."""
    idle_s: float = quantity(
        60.0, "s", "Idle time before zero", (0, 86_400), step=30, since=4,
        applies=(DECIDES, when("elastic.least_instances", 0)),
    )  # fmt: skip
    """A model that has had no request for so long gives all of its NPUs back. [Knative's
    autoscaler: stable window of 60 s]"""
    idle: Literal["release", "keep"] = choice(
        "release", "NPUs without need", options={"release": "Give back", "keep": "Keep in a pool"},
        applies=when("elastic.controller", "rebalance"),
    )  # fmt: skip
    """Whether re-balancing gives back what neither pool needs, or keeps every NPU in one."""
    high: float = quantity(0.8, "", "High mark", (0.05, 10), applies=BY_MARKS)
    """A pool grows when its pressure, 1 at its limit, is above it, to where it would be below.
    [Knative's autoscaler: 0.7; Dynamo: KV 0.9]"""
    low: float = quantity(0.5, "", "Low mark", (0.01, 10), applies=BY_MARKS)
    """A pool shrinks when its pressure is below it. [Dynamo: KV 0.5]"""
    interval_s: float = quantity(30.0, "s", "Decision interval", (1, 86_400), applies=DECIDES)
    """Time between two decisions; metrics are means over it. [Dynamo's planner: 30 s at the
    start]"""
    metrics_age_s: float = quantity(5.0, "s", "Age of the metrics", (0, 3600), applies=DECIDES)
    """How old the metrics are when a decision is made on them. [assumption]"""
    cool_down_s: float = quantity(60.0, "s", "Cool-down", (0, 86_400), applies=DECIDES)
    """After a change a pool is left alone for so long. [Knative's autoscaler: stable window of 60
    s]"""
    shrink_after_s: float = quantity(
        300.0, "s", "Patience before shrinking", (0, 86_400), applies=DECIDES,
    )  # fmt: skip
    """A pool shrinks to no fewer than it was found to need within this time, unless the other pool
    needs its NPUs. [Kubernetes: downscale stabilisation of 300 s]"""
    changes_per_hour: int = quantity(30, "changes", "Changes per hour", (1, 3600), applies=DECIDES)
    """Most starts, stops and changes of role within any hour. [assumption]"""
    drain: Literal["finish", "hand_on"] = choice(
        "finish", "Draining of decode",
        options={"finish": "Finish its requests", "hand_on": "Hand their KV on"}, applies=MOVES,
    )  # fmt: skip
    """A decode instance that is to stop takes no more requests, and finishes those it has or
    hands their KV to others with room; prefill and colocated instances always finish."""
    weights: Literal["pool", "local", "object_storage"] = choice(
        "pool", "Weights come from",
        options={"pool": "Memory pool", "local": "DRAM of its own nodes"}, applies=MOVES,
    )  # fmt: skip
    """From where an instance that starts loads its weights: the pooled DRAM; its own nodes' DRAM,
    when they have held the model before; else a bucket of object storage, which all that load at
    once share. [arXiv 2506.12708v2 Table 2]"""
    graphs: Literal["cached", "compiled"] = choice(
        "cached", "Graphs of an instance that starts", applies=MOVES
    )
    """Whether compiled graphs are found in a cache or compiled at every start. [vLLM's start-up
    logs, data/startup.toml]"""
    schedule: tuple[Step, ...] = rows(
        "Schedule", most=1000, applies=when("elastic.controller", "schedule")
    )
    """How many instances of each pool are wanted from when on."""
    own: Own = section(Own, group="", applies=when("elastic.controller", "own"))
