"""Stages of a model's layers: where experts sit, and what a model without the stage of experts does
not have.

Without it every layer has one dense FFN, so nothing is dispatched, combined or balanced. The dies
of a rank split attention, FFN and vocabulary (arXiv 1909.08053 section 3); ranks share nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from twin.model.shape import ModelError, Shape
from twin.scenario import Deployment, Experts, Pool, Scenario, serving

NO_EXPERTS = Experts(popularity="uniform", placement="perfect", redundant=0)


@dataclass(frozen=True, slots=True)
class ExpertLayout:
    """Where an instance's experts sit."""

    dies: int
    routed_dies: int
    slots_per_die: int  # routed expert slots of such a die
    shared_dies: int  # dies that hold only the shared expert; 0: every die holds a copy


def experts_of(s: Scenario, shape: Shape) -> Experts:
    """The scenario's experts; of a model without any, experts that change nothing."""
    return s.experts if "experts" in shape.stages else NO_EXPERTS


def expert_layout(s: Shape, redundant: int, dies: int) -> ExpertLayout:
    """Slots and dies for routed, redundant and shared experts.

    With more dies than routed experts the shared expert gets dies of its own: what the routed slots
    leave (arXiv 2506.12708v2 section 4.1), or what the routed experts leave when redundant ones
    fill second slots (arXiv 2508.02520 section 7.1), at most its share of the rows. Else every die
    has it.
    """
    slots = s.routed_experts + redundant
    fair = max(1, round(dies / (s.top_k + 1)))
    if s.shared_experts == 0:
        return ExpertLayout(dies, dies, math.ceil(slots / dies), 0)
    if dies > slots:
        shared = min(dies - slots, fair)
        return ExpertLayout(dies, dies - shared, 1, shared)
    if dies > s.routed_experts and dies - s.routed_experts >= fair // 2:
        shared = min(dies - s.routed_experts, fair)
        routed = dies - shared
        return ExpertLayout(dies, routed, math.ceil(slots / routed), shared)
    return ExpertLayout(dies, dies, math.ceil(slots / dies), 0)


def idle_dies(s: Shape, layout: ExpertLayout, redundant: int) -> int:
    """Dies for routed experts that hold none: there are fewer experts than slots for them."""
    slots = layout.routed_dies if layout.slots_per_die else 0
    return max(0, slots - s.routed_experts - redundant)


def router_groups(experts: Experts, shape: Shape) -> tuple[int, int]:
    """Groups of the model's router, and how many a token may reach; raises ModelError."""
    groups = shape.expert_groups
    if experts.group_limited and groups == 1:
        raise ModelError(
            f"experts.group_limited: the router of {shape.title} has no groups of experts: "
            "set it to false"
        )
    return groups, min(groups, shape.most_nodes)


def split_dies(pool: Pool, shape: Shape) -> int:
    """Dies that hold the model's weights once, other than those of routed experts. Prefill splits
    projections alone where the model has experts (prefill_costs.py): its shape stays whole."""
    return pool.rank_dies if "experts" in shape.stages else pool.own.tp_dies


def room_for_weights(pool: Pool, shape: Shape) -> tuple[str, ...]:
    """What makes room where the weights of a model without experts do not fit a die; else none."""
    if "experts" in shape.stages:
        return ()
    if pool.phase == "prefill" and pool.own.attention == "dp":
        return ("take deployment.prefill.attention = 'tp'",)
    return (f"raise deployment.{pool.phase}.tp_dies",)


def refuse(d: Deployment, pools: tuple[Pool, ...], shape: Shape) -> None:
    """Raise ModelError where a deployment of a model without experts has what only experts or
    latents give."""
    if "experts" in shape.stages:
        return
    if any(pool.experts for pool in pools):
        raise ModelError(
            f"deployment.decode.expert_npus = {d.decode.expert_npus}: {shape.title} has no routed "
            "experts to put on NPUs of their own: take 0"
        )
    if any(pool.own.attention == "sp_tp_sp" for pool in pools):
        raise ModelError(
            "deployment.prefill.attention = 'sp_tp_sp' gathers latents, which "
            f"{shape.title} does not have: take 'tp', which splits its weights over "
            "deployment.prefill.tp_dies, or 'dp'"
        )


def notes(s: Scenario, shape: Shape, dies_per_npu: int) -> list[str]:
    """What a scenario states that does nothing, or not what an engine does, where its model has no
    routed experts: a sentence each."""
    if "experts" in shape.stages:
        return []
    said = [f"{shape.title} has no routed experts: the settings under experts change nothing."]
    for pool in serving(s).values():
        ranks = pool.npus * dies_per_npu // pool.own.tp_dies
        if pool.phase == "decode" and ranks > 1:
            said.append(
                f"The {ranks} ranks of a {pool.role} instance iterate together, as the slowest: "
                f"ranks of {shape.title} share nothing, so an instance of one rank each "
                f"(deployment.{pool.role}.npus_per_instance) is faster."
            )
    return said
