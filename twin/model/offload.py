"""Attention of decode offloaded to prefill NPUs: whose, on which cores, and over which way. As
Adrenaline does (arXiv 2503.20552): a share of the requests that decode keeps its KV on prefill
dies. In each layer their queries, new keys and values go there, the core runs on cores that these
dies set aside, and values come back, while decode dies attend for the other requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twin.hardware import demands
from twin.hardware.chip import HardwareError
from twin.hardware.faults import dies_without_path
from twin.model.deployed import Deployed
from twin.model.formats import ACTIVATION_BYTES
from twin.model.shape import ModelError, Shape

if TYPE_CHECKING:
    from twin.model.costs import RoleCosts


@dataclass(frozen=True, slots=True)
class Offload:
    """Requests whose attention decode offloads, and the path to it."""

    share: float  # of the requests that decode, alike on every die
    lender: str  # role of the pool on whose dies it is computed
    cores: float  # of a lender's die, that are set aside
    clock: float  # of these cores, over the rated one
    served: float  # attention dies of decode per prefill die: these ask all at once
    out_bytes_per_s: float  # from each decode die, when all send
    back_bytes_per_s: float
    latency_s: float  # there and back

    def kv_tokens(self, own: int, lent: int, concentration: float) -> int:
        """KV tokens of all requests of a decode rank: those in its own space (`own`) and those
        offloaded. lent: KV tokens that a prefill die stores for other dies; concentration: ranks
        per attention die. Raises ModelError if prefill dies have no space to lend."""
        if not lent:
            raise ModelError(
                "deployment.decode.attention_offload: prefill dies need their KV space for a batch "
                "and the longest prompt, and have none to lend: lower "
                "deployment.prefill.tokens_per_npu or take kv = int8"
            )
        return int(min(own / (1.0 - self.share), lent / (self.share * self.served * concentration)))


def offload(deployed: Deployed) -> Offload:
    """Offload of decode's attention over the plane of KV transfers; HardwareError without links."""
    net, plane, pool = deployed.net, deployed.deployment.kv_transfer_plane, deployed.pools["decode"]
    assert pool.offload is not None
    unlinked_dies = dies_without_path(net, plane)
    linked_dies: dict[str, list[int]] = {"decode": [], "prefill": []}
    for instance in deployed.instances:
        expert_dies = 0
        if pool.experts and instance.role == pool.role:
            expert_dies = instance.dies * pool.experts.npus // pool.npus
        attention_dies = instance.die_of_rank[
            : len(instance.die_of_rank) - expert_dies
        ]  # experts send no queries
        linked_dies[instance.role] += [die for die in attention_dies if die not in unlinked_dies]
    if not all(linked_dies.values()):
        raise HardwareError(
            f"attention cannot be offloaded: no link of the {plane} plane is left to "
            "the NPUs of prefill or of decode"
        )
    out_load = demands.kv_load(net, linked_dies["decode"], linked_dies["prefill"], plane, "pairs")
    back_load = demands.kv_load(net, linked_dies["prefill"], linked_dies["decode"], plane, "pairs")
    decode_dies = len(linked_dies["decode"])
    return Offload(
        share=pool.offload.requests,
        lender=pool.offload.lender,
        cores=pool.offload.cores,
        clock=deployed.clocks.get(pool.offload.lender, 1.0),
        served=decode_dies / len(linked_dies["prefill"]),
        out_bytes_per_s=out_load.rate_alone(net)[0] / decode_dies,
        back_bytes_per_s=back_load.rate_alone(net)[0] / decode_dies,
        latency_s=out_load.latency_s + back_load.latency_s,
    )


def offload_notes(roles: Mapping[str, RoleCosts], max_context: int) -> list[str]:
    """[a sentence] if a decode rank has less KV space with offloaded attention than without, else
    []. roles: costs by role; max_context: tokens of the model's longest prompt."""
    decode, prefill = roles.get("decode"), roles.get("prefill")
    if decode is None or prefill is None or decode.pool.offload is None:
        return []
    own_tokens = int(decode.memory.kv / decode.kv_bytes_per_token)
    if decode.kv_tokens_per_rank >= own_tokens:
        return []
    # Where the longest prompt needs more than a batch, a smaller batch frees next to nothing.
    is_batch_larger = prefill.kv_tokens_per_rank > max_context
    remedy = "deployment.prefill.tokens_per_npu, or the share" if is_batch_larger else "the share"
    return [
        f"deployment.decode.attention_offload = {decode.pool.offload.requests:g} leaves a decode "
        f"die {decode.kv_tokens_per_rank:,} KV tokens of the {own_tokens:,} that it has without: a "
        "prefill die needs its own for a batch and the longest prompt, and lends "
        f"{prefill.kv_tokens_lent:,}. Lower {remedy}."
    ]


def core_message_bytes(s: Shape, kv: str) -> tuple[float, float]:
    """(bytes per token sent to an attention core on another die: query and new KV; bytes of the
    core's result), one layer. kv: number format of KV."""
    sent_bytes = ACTIVATION_BYTES * s.core_query_width + s.kv_bytes_per_token_layer(kv)
    return sent_bytes, ACTIVATION_BYTES * s.core_value_width


def handed_and_moved_bytes(at: Deployed, kv_bytes: float) -> tuple[float, float]:
    """(KV bytes per token handed over to decode, bytes per token that offloaded attention moves in
    an iteration): means over requests, all layers. kv_bytes: KV bytes of a token."""
    decode_pool, shape, kv_format = at.pools.get("decode"), at.shape, at.stored_kv
    away_share = decode_pool.offload.requests if decode_pool and decode_pool.offload else 0.0
    kv_layers = kv_bytes / shape.kv_bytes_per_token_layer(kv_format)
    return (1.0 - away_share) * kv_bytes, away_share * (
        sum(core_message_bytes(shape, kv_format)) * kv_layers
    )
