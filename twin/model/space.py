"""What fits on the dies of an instance: its weights, its exchange buffers, and the KV of a die.
Groups of two pools on one die share its HBM, and a group lends KV space to another pool's
attention. memory.py has the bytes of each part; this module knows no time."""

import math
from dataclasses import dataclass, replace

from twin.model import memory as hbm
from twin.model import stages
from twin.model.deployed import Deployed
from twin.model.drafters import Drafter
from twin.model.formats import FORMATS
from twin.model.parallel import stage_of
from twin.model.setting import Setting
from twin.model.shape import ModelError, Shape
from twin.scenario import Deployment, Experts, Pool
from twin.scenario.words import numbered

FEWEST_TOKENS = 64  # of an NPU's batch of prompts


@dataclass(frozen=True, slots=True)
class Space:
    """One die of an instance."""

    memory: hbm.Budget
    kv_tokens: int  # that its rank has room for, all layers
    lent_tokens: int = 0  # room beyond that for requests of a pool whose attention it runs


ATTENTION_REMEDY = "lower deployment.decode.expert_npus"
EXPERT_REMEDY = "raise deployment.decode.expert_npus, use fewer redundant experts"


def kv_layers(shape: Shape, drafter: Drafter) -> int:
    """Number of layers that store KV, with a drafter's layer if there is one."""
    return shape.layers + (1 if drafter.passes else 0)


def kv_bytes(shape: Shape, drafter: Drafter, kv: str) -> float:
    """KV bytes per token in all layers that store it until the request ends; kv: number format."""
    if drafter.shape is None:
        draft_layers = kv_layers(shape, drafter) - shape.layers
        # An MTP module is a layer like the others; that of a compressed model has a window alone.
        drafter_bytes = 0.0 if shape.is_compressed else shape.kv_bytes_per_token_layer(kv)
        return shape.cached_bytes_per_token(kv) + drafter_bytes * draft_layers
    return shape.cached_bytes_per_token(kv) + drafter.shape.kv_bytes_per_token_layer(kv)


def space(x: Setting, at: Deployed, name: str) -> Space:
    """HBM budget and KV tokens of a die of the instance `name` with the setting `x`. Raises
    ModelError if weights, buffers or one request do not fit."""
    settings, chip, dies = at.deployment.decode, x.machine.chip, x.exchange.peers
    if x.pool.phase == "decode":  # a die stores its stage alone
        x = replace(x, shape=stage_of(x.shape, x.pool))
    npus_text = numbered(dies // chip.dies_per_npu, "NPU")
    subject = f"{x.shape.title} on {numbered(dies, 'die')} ({npus_text}) of {name}"
    expert_layers = x.shape.moe_layers + x.drafter.module
    has_expert_dies = x.expert_dies > 0
    weight_bytes = hbm.layer_stack_bytes(
        x.shape, x.formats, None if has_expert_dies else x.layout, x.drafter.module,
        x.head_dies // x.split_dies if x.pool.phase == "prefill" else 1, x.pool.own.tp_dies > 1,
        vocabularies=2 if x.pool.own.pp_stages == 1 else 1,
    )  # fmt: skip
    weight_bytes += x.drafter.weight_bytes
    buffer_bytes = _buffer_bytes(x, at.deployment)
    checked_part, remedies = subject, stages.weight_advice(x.pool, x.whole)
    if has_expert_dies:
        checked_part = f"An attention die's part of {subject}"
        remedies = (f"{ATTENTION_REMEDY}, use more NPUs per instance, a smaller batch",)
    budget = hbm.budget(chip, x.facts, weight_bytes, buffer_bytes, checked_part, *remedies)
    if x.pool.phase == "decode":
        slot_count = settings.batch_per_npu / chip.dies_per_npu * x.pool.rank_dies * x.concentration
        # A state after each verified token, so that drafts can be taken back.
        states_bytes = (1 + settings.mtp_draft_tokens) * x.shape.state_bytes * x.shape.linear_layers
        slot_bytes = x.shape.window_bytes(x.pool.precision.kv) + states_bytes
        budget = replace(budget, slots=slot_count * slot_bytes)
    if at.guest is not None:
        budget = _share_with_guest(budget, x, at, at.guest)
    if has_expert_dies:
        slot_bytes = hbm.expert_bytes(x.shape, x.formats, x.layout) * expert_layers
        expert_part = f"An expert die's part of {subject}"
        hbm.budget(chip, x.facts, slot_bytes, 0.0, expert_part, EXPERT_REMEDY)
    # A rank stands for its share of the instance: with expert dies less than a die's KV.
    token_bytes = kv_bytes(x.shape, x.drafter, x.pool.precision.kv)
    die_tokens = budget.kv / token_bytes
    if x.host is not None:
        kv_format = x.pool.precision.kv
        die_tokens = budget.kv / (token_bytes - x.host.spared_bytes(x.shape, kv_format))
        die_tokens = min(die_tokens, x.host.fitting_tokens(x.shape, kv_format, at.request_tokens))
    rank_tokens = int(die_tokens * (1.0 - x.expert_dies / dies)) * x.pool.own.cp_dies
    if x.pool.own.cores < x.pool.cores:  # it lends the rest, and KV space with them
        own_tokens = min(rank_tokens, _own_kv_tokens(x, at.deployment))
        return Space(budget, own_tokens, rank_tokens - own_tokens)
    return Space(budget, rank_tokens)


def arriving_expert_bytes(x: Setting, experts: Experts) -> float:
    """Bytes on a die for one layer's experts that arrive while the present ones still serve; 0
    unless rebalancing swaps experts in the background."""
    balancing = experts.balancing
    if balancing.policy in ("none", "oracle") or balancing.swap == "stall":
        return 0.0
    weight_bytes = x.shape.expert_weights * FORMATS[x.pool.precision.weights].weight_bytes
    return x.layout.slots_per_die * weight_bytes / x.layout.split


def _buffer_bytes(x: Setting, d: Deployment) -> float:
    """Static exchange buffers of a die, in bytes; prefill's are dynamic, for one batch."""
    dies_per_npu, communication = x.machine.chip.dies_per_npu, x.communication

    def buffers_for(tokens: float) -> float:
        """Bytes of a die's buffers when each die sends `tokens`."""
        return hbm.exchange_buffer_bytes(
            x.shape, x.layout, tokens, communication.early_quantisation,
            x.machine.message_scale_bytes, x.gathers_tokens,
        )  # fmt: skip

    if x.pool.phase == "prefill":
        tokens = d.prefill.tokens_per_npu / dies_per_npu * x.pool.own.pp_stages
        return buffers_for(tokens) / x.layout.dies
    tokens = (1 + d.decode.mtp_draft_tokens) * d.decode.batch_per_npu / dies_per_npu
    if x.pool.role == "colocated":
        tokens += d.colocated.chunk_tokens_per_npu / dies_per_npu
    tokens *= x.concentration
    buffer_tokens = float(communication.buffer_tokens_per_die)
    return buffers_for(min(tokens, buffer_tokens) if buffer_tokens else tokens)


def _own_kv_tokens(x: Setting, d: Deployment) -> int:
    """KV tokens that a prefill die that lends space needs itself: those of a batch, or of the
    longest prompt. With data-parallel attention each die has its own prompts, else those of all."""
    batch_tokens = d.prefill.tokens_per_npu * d.prefill.npus_per_instance
    group_count = x.exchange.peers // x.pool.own.cp_dies
    die_batch_tokens = batch_tokens // group_count if x.pool.own.attention == "dp" else batch_tokens
    return max(die_batch_tokens, x.shape.max_context)


def _share_with_guest(own: hbm.Budget, x: Setting, at: Deployed, guest: Pool) -> hbm.Budget:
    """Budget of a pool on a die that prefill (the guest) shares with decode. Equal weights are
    stored once (semi-PD's unified storage, arXiv 2504.19867): all but experts, and experts too if
    both pools' instances have the same dies. Prefill has room for the KV of one batch, decode has
    the rest. Raises ModelError if the rest fits no request."""
    deployment, prefill, host_pool = at.deployment, at.deployment.prefill, at.pools[guest.lender]
    bytes_per_token = kv_bytes(x.shape, x.drafter, x.pool.precision.kv)
    expert_layers = x.shape.moe_layers + x.drafter.module
    guest_shape, experts_tp = stages.shape_on_die(x.whole, guest), guest.own.experts_tp

    def guest_experts(npus: int) -> tuple[stages.ExpertLayout, float]:
        """(prefill's expert layout on `npus` NPUs; bytes of a die's experts that decode lacks)."""
        guest_layout = stages.expert_layout(
            guest_shape, at.experts.redundant, npus * x.machine.chip.dies_per_npu, experts_tp
        )
        adds_experts = npus != host_pool.npus or experts_tp != host_pool.own.experts_tp
        return guest_layout, adds_experts * hbm.expert_bytes(
            guest_shape, x.formats, guest_layout
        ) * expert_layers

    layout, added_bytes = guest_experts(guest.npus)
    guest_setting = replace(x, pool=guest, layout=layout)
    split_dies = stages.split_dies(guest, x.whole)
    if host_pool.rank_dies > 1:  # decode has a part of the heads, which prefill has in another way
        prefill_bytes, decode_bytes = (
            hbm.layer_stack_bytes(shape, x.formats, None, x.drafter.module, dies, output=dies > 1)
            for shape, dies in (
                (x.whole.split(split_dies), guest_setting.head_dies // split_dies),
                (x.whole.split(host_pool.rank_dies), 1),
            )
        )
        added_bytes += max(0.0, prefill_bytes - decode_bytes)
    buffer_bytes = _buffer_bytes(guest_setting, deployment)
    # Every die holds KV of all prompts, unless each has its own or a piece of them.
    holding_dies = layout.dies if prefill.attention == "dp" else guest.own.cp_dies
    prompt_token_bytes = kv_bytes(x.whole.split(split_dies), x.drafter, guest.precision.kv)
    batch_bytes = prefill.tokens_per_npu * guest.npus / holding_dies * prompt_token_bytes
    if x.pool.lender:
        return replace(own, others=own.kv - batch_bytes)
    # Decode holds one request at least, and a block more (`steady.room_for`).
    request_bytes = (at.request_tokens + at.memory_pool.block_tokens) * bytes_per_token
    room_bytes = own.kv - added_bytes - request_bytes
    if room_bytes > buffer_bytes + batch_bytes:
        return replace(own, others=added_bytes + buffer_bytes + batch_bytes)
    most_tokens = math.ceil(prefill.tokens_per_npu * room_bytes / (buffer_bytes + batch_bytes)) - 1
    npu_counts = range(guest.npus, host_pool.npus + 1)
    if most_tokens >= FEWEST_TOKENS:
        remedy = (
            f"take deployment.prefill.tokens_per_npu = {most_tokens} or less (with {most_tokens} a "
            "die has KV space for one request)"
        )
    elif least_npus := next((count for count in npu_counts if own.kv > guest_experts(count)[1]), 0):
        remedy = f"take {numbered(least_npus, 'NPU')} per prefill instance or more"
    else:
        remedy = "take more NPUs per decode instance or a smaller number format"
    raise ModelError(
        f"deployment.prefill.on = decode_npus does not fit: with decode on it a die has "
        f"{own.kv / 1e9:.1f} GB, prefill's experts take {added_bytes / 1e9:.1f} GB, its exchange "
        f"buffers {buffer_bytes / 1e9:.1f} GB and the KV of a batch {batch_bytes / 1e9:.1f} GB: "
        f"{remedy}"
    )
