"""Losses that a deployment has to survive: what of it is lost, and when it is judged after it."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from twin.facts import Facts
from twin.hardware.chip import HardwareError
from twin.hardware.fabric import wired
from twin.hardware.faults import broken
from twin.hardware.placement import Instance, place_instances
from twin.lab.plan.trial import Trial
from twin.scenario import Fault, Scenario, with_overrides

AFTER_S = 30.0  # from a recovery until what a loss leaves is judged
JUDGED_S = 40.0  # how long it is judged, at least


def lost_elements(
    s: Scenario, facts: Facts, loss: str
) -> Iterator[tuple[str, tuple[dict[str, Any], ...]]]:
    """Elements that a deployment uses, one of each pool, as faults; None: there is none."""
    net = wired(s.supernode, facts)
    firsts: dict[str, Instance] = {}
    for instance in place_instances(s, net):
        firsts.setdefault(instance.role, instance)
    for role, instance in firsts.items():
        vertex = int(net.dies[instance.die_of_rank[-1]])
        node = net.vertex_data[vertex]["node"]
        names = {
            "die": (net.vertices[vertex],),
            "node": (f"node {node}",),
            "sub_plane": ("sub-plane 3",),
            "memory_server": tuple(f"CPU {node}.{k}" for k in range(s.supernode.cpus_per_node)),
        }[loss]
        faults = tuple({"element": name, "at_s": 0.0} for name in names)
        try:
            broken(net, [Fault.model_validate(fault) for fault in faults])
        except (HardwareError, ValueError):
            continue
        yield (f"{names[0]} ({role})" if loss in ("die", "node") else names[0]), faults
        if loss == "sub_plane":
            return


def after_loss(s: Scenario, faults: Sequence[dict[str, Any]]) -> Scenario:
    """The scenario with a loss at the end of its warm-up, judged after its recovery."""
    r = s.recovery
    at_s = min(s.warmup_s, 20.0)
    took_s = {"restart": r.restart_s, "in_place": r.in_place_s}.get(r.policy, 0.0)
    from_s = at_s + r.detection_s + took_s + AFTER_S
    lasts_s = max(s.horizon_s - s.warmup_s, JUDGED_S)
    rows = [{**fault, "at_s": at_s} for fault in faults]
    return with_overrides(
        s, {"faults": rows, "warmup_s": math.ceil(from_s), "horizon_s": math.ceil(from_s + lasts_s)}
    )


def margin_after(s: Scenario, element: str, trial: Trial | str) -> dict[str, Any]:
    """Share that meets the SLO after a loss, less the required share."""
    if isinstance(trial, str):
        return {"status": "failed", "reason": trial, "element": element, "margin": None}
    return {
        "status": "feasible" if trial["holds"] else "infeasible", "element": element,
        "share": trial["share"], "margin": trial["share"] - s.slo.share, "lost": trial["lost"],
        "ttft_s_p99": trial["ttft_s_p99"], "tpot_s_p99": trial["tpot_s_p99"],
        "steady_state": trial["steady_state"], "faults": [f.model_dump() for f in s.faults],
    }  # fmt: skip
