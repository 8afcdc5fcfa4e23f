"""Models without routed experts: how dies hold one, and what a deployment of one cannot have.

Every layer has one dense FFN, so nothing is dispatched, combined or balanced. The dies of a rank
split attention, FFN and vocabulary (arXiv 1909.08053 section 3); ranks share nothing.
"""

from __future__ import annotations

from twin.model.shape import ModelError, Shape
from twin.scenario import Deployment, Experts, Pool, Scenario, serving

NO_EXPERTS = Experts(popularity="uniform", placement="perfect", redundant=0)


def split_dies(pool: Pool, shape: Shape) -> int:
    """Dies that hold the model's weights once, other than those of routed experts. Prefill splits
    projections alone where the model has experts (prefill_costs.py): its shape stays whole."""
    if pool.phase == "prefill" and not shape.routed_experts:
        return pool.own.tp_dies
    return pool.rank_dies


def room_for_weights(pool: Pool, shape: Shape) -> tuple[str, ...]:
    """What makes room where the weights of a model without experts do not fit a die; else none."""
    if shape.routed_experts:
        return ()
    if pool.phase == "prefill" and pool.own.attention == "dp":
        return ("take deployment.prefill.attention = 'tp'",)
    return (f"raise deployment.{pool.phase}.tp_dies",)


def experts_of(s: Scenario, shape: Shape) -> Experts:
    """The scenario's experts; of a model without any, experts that change nothing."""
    return s.experts if shape.routed_experts else NO_EXPERTS


def refuse(d: Deployment, pools: tuple[Pool, ...], shape: Shape) -> None:
    """Raise ModelError where a deployment wants of a model without experts what only experts or
    latents give."""
    if shape.routed_experts:
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
    if shape.routed_experts:
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
