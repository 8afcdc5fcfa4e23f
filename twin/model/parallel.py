"""Parallelisms of attention, as declarations: which dies form a group, what share of the KV each
holds, and what they send in a layer. From an entry of PARALLELISMS follow exchanges, coefficients,
KV space, bytes between dies and what is refused. Experts are spread over all dies whatever these
are (stages.py); prefill's own ways of splitting heads stand in prefill_costs.py."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from twin.model.formats import ACTIVATION_BYTES
from twin.model.shape import ModelError, Shape
from twin.scenario import Pool
from twin.scenario.groups import Phase
from twin.scenario.words import numbered

LSE_BYTES = 4.0  # log-sum-exp of a head, FP32
CANDIDATE_BYTES = 8.0  # score and place of a token that an indexer selects on one die, 4 B each

Where = Literal["before", "core", "after"]


@dataclass(frozen=True, slots=True)
class ModelSplit:
    """What formulas of a parallelism read."""

    shape: Shape  # what a die has of the model
    whole: Shape
    kv: str  # format of the cache
    heads: int  # dies that split the heads of a request
    context: int  # dies, or groups of them, that split its context
    stages: int  # that have a part of the layers each


Bytes = Callable[[ModelSplit], float]


@dataclass(frozen=True, slots=True)
class Sent:
    """One collective of a layer. Bytes: of a token of a rank in decode, of a die in prefill."""

    phase: Phase
    where: Where  # of the attention core: before, around, after
    together: Bytes  # that the group has; a die receives all but its own share
    added: Bytes = lambda _: 0.0  # that a die's vector cores read to add them up
    layers: Callable[[Shape], float] = lambda _: 1.0  # share of the layers that have it


@dataclass(frozen=True, slots=True)
class Parallelism:
    """One way to divide attention among dies."""

    size: Callable[[Pool], int]
    stride: Callable[[Pool, int], int]  # dies from one member of a group to the next, of so many
    sends: tuple[Sent, ...]


def _hidden_bytes(x: ModelSplit) -> float:
    """Bytes of the hidden state of one token."""
    return ACTIVATION_BYTES * x.shape.hidden


def _query_bytes(x: ModelSplit) -> float:
    """Bytes per token of queries and of indexer candidates, for all dies that split a context."""
    candidate_bytes = CANDIDATE_BYTES * x.shape.index_top_k * x.shape.index_share
    return x.context * (ACTIVATION_BYTES * x.shape.core_query_width + candidate_bytes)


def _result_bytes(x: ModelSplit) -> float:
    """Bytes of a token's results on all dies that split a context, all heads, with log-sum-exp."""
    return x.context * (ACTIVATION_BYTES * x.shape.core_value_width + LSE_BYTES * x.shape.heads)


def _cached_bytes(x: ModelSplit) -> float:
    """KV bytes of a token, mean layer, on all dies (or groups of them) that split a context."""
    head_share = x.whole.kv_width_of(x.heads) / x.whole.kv_width
    token_layer_bytes = x.whole.cached_bytes_per_token(x.kv) / x.whole.layers
    return x.context * x.heads * head_share * token_layer_bytes


def _stage_bytes(x: ModelSplit) -> float:
    """Bytes of a token's hidden states in all pipeline stages together."""
    return x.stages * ACTIVATION_BYTES * x.shape.hidden * x.shape.residual_streams


def _stage_bytes_per_die(x: ModelSplit) -> float:
    """Bytes per token of hidden states that one die of a decode rank sends between all pipeline
    stages: its share (vLLM and SGLang, `send_tensor_dict` with an `all_gather_group`)."""
    return _stage_bytes(x) / x.heads


def stage_of(s: Shape, pool: Pool) -> Shape:
    """Shape of a pool's slowest pipeline stage: most layers, and with experts where possible."""
    if pool.own.pp_stages == 1:
        return s
    layers = math.ceil(s.layers / pool.own.pp_stages)

    def layers_of_stage(count: int) -> int:
        """Number of the stage's layers of some kind, of which the model has `count`."""
        return round(count * layers / s.layers)

    return replace(
        s,
        layers=layers,
        dense_layers=max(0, layers - s.moe_layers),
        window_layers=layers_of_stage(s.window_layers),
        select_layers=layers_of_stage(s.select_layers),
        pool_layers=layers_of_stage(s.pool_layers),
        linear_layers=layers_of_stage(s.linear_layers),
    )


def share_beyond_window(s: Shape) -> float:
    """Share of the model's layers that attend beyond a window of tokens."""
    if not s.is_compressed:
        return s.mean_keys
    return min(1.0, (s.select_layers + s.pool_layers) / s.layers)


PARALLELISMS: Mapping[str, Parallelism] = {
    # arXiv 1909.08053 section 3; the halves of an all-reduce: each die keeps its own tokens.
    "heads": Parallelism(
        size=lambda pool: pool.own.tp_dies,
        stride=lambda *_: 1,
        sends=(
            Sent("decode", "before", _hidden_bytes),
            Sent("decode", "after", _hidden_bytes, added=_hidden_bytes),
        ),
    ),
    # Prefill: pieces of a prompt, with the KV of all gathered (vLLM-Ascend, mla_cp.py: all_gather;
    # a ring moves as many bytes, arXiv 2310.01889). Decode: dies of a rank that has several copies
    # of the KV (vLLM, decode_context_parallel_size; SGLang, dcp-size; Helix, arXiv 2507.07120).
    "context": Parallelism(
        size=lambda pool: pool.own.cp_dies,
        stride=lambda pool, _: pool.own.tp_dies if pool.phase == "prefill" else 1,
        sends=(
            Sent("prefill", "before", _cached_bytes),
            Sent("decode", "core", _query_bytes, layers=share_beyond_window),
            Sent("decode", "core", _result_bytes, added=_result_bytes, layers=share_beyond_window),
        ),
    ),
    # Stages of layers: a batch's hidden states go from each die to its counterpart of the next.
    "layers": Parallelism(
        size=lambda pool: pool.own.pp_stages,
        stride=lambda pool, dies: (
            pool.layer_dies if pool.phase == "decode" else dies // pool.own.pp_stages
        ),
        sends=(
            Sent("prefill", "after", _stage_bytes, layers=lambda s: 1.0 / s.layers),
            Sent("decode", "after", _stage_bytes_per_die, layers=lambda s: 1.0 / s.layers),
        ),
    ),
}


def first_group(pool: Pool, name: str, dies: int) -> slice:
    """Slice of an instance's `dies` that selects the first group of the parallelism `name`."""
    parallelism = PARALLELISMS[name]
    stride_dies = parallelism.stride(pool, dies)
    return slice(0, parallelism.size(pool) * stride_dies, stride_dies)


def first_stage(pool: Pool, dies: tuple[int, ...]) -> tuple[int, ...]:
    """The dies of an instance with the first layers; in decode these are each rank's first dies."""
    stage_dies = PARALLELISMS["layers"].stride(pool, len(dies))
    return tuple(die for i, die in enumerate(dies) if i // stage_dies % pool.own.pp_stages == 0)


def place_in_stage(pool: Pool, die: int, dies: int) -> int:
    """Index of an instance's die number `die` among the dies of its pipeline stage."""
    stage_dies = PARALLELISMS["layers"].stride(pool, dies)
    return die // (stage_dies * pool.own.pp_stages) * stage_dies + die % stage_dies


def kv_holders(pool: Pool, dies: int) -> int:
    """Number of parts of a prefilling instance that each hold the KV of whole prompts: its ranks if
    it decodes too; with data-parallel attention dies, or groups that split prompts; otherwise 1."""
    if pool.role == "colocated":
        return dies // pool.rank_dies
    settings = pool.own
    return dies // (settings.pp_stages * settings.cp_dies) if settings.attention == "dp" else 1


def kv_senders(pool: Pool, dies: int, receivers: int) -> int:
    """Number of a prefilling instance's dies that send a prompt's KV to a rank of `receivers` dies:
    as many as receive it, if that many hold it."""
    return min(dies // kv_holders(pool, dies), receivers)


def received_bytes(pool: Pool, name: str, part: ModelSplit) -> float:
    """Bytes per token, all layers, that the dies of a rank together (in decode), or one die (in
    prefill), receive in the collectives of the parallelism `name`."""
    parallelism = PARALLELISMS[name]
    group_dies = parallelism.size(pool)
    collectives = [sent for sent in parallelism.sends if sent.phase == pool.phase]
    group_bytes = sum(sent.together(part) * sent.layers(part.whole) for sent in collectives)
    return pool.layer_dies * group_bytes * (group_dies - 1) / group_dies * part.whole.layers


def _stage_dies(pool: Pool, shape: Shape, dies: int) -> int:
    """Number of dies of a pipeline stage; ModelError where layers cannot be split so."""
    stage_count = pool.own.pp_stages
    setting = f"deployment.{pool.phase}.pp_stages = {stage_count}"
    if pool.phase == "decode" and (pool.cores < 1.0 or pool.experts or pool.offload):
        raise ModelError(
            f"{setting}: dies that decode shares with prefill, that run its attention or have "
            "experts alone need all layers: take 1, or give decode NPUs of its own that do all"
        )
    if pool.lender or pool.cores != pool.own.cores:
        raise ModelError(
            f"{setting}: dies that prefill shares with decode, or that run its attention, need all "
            "layers: take 1, or give prefill NPUs of its own"
        )
    if dies % stage_count:
        raise ModelError(
            f"{setting} must divide the {numbered(dies, 'die')} of a {pool.role} instance"
        )
    if stage_count > shape.layers:
        raise ModelError(f"{setting} is more than the {shape.layers} layers of {shape.title}")
    return dies // stage_count


def refuse_bad_splits(pool: Pool, shape: Shape, draft_shape: Shape | None, dies: int) -> None:
    """Raise ModelError where a context or layers cannot be split as stated. draft_shape: of a
    drafter's own layer, None without one; dies: number of an instance's dies with attention."""
    own, cp_dies, stage_count = pool.own, pool.own.cp_dies, pool.own.pp_stages
    if stage_count > 1:
        dies = _stage_dies(pool, shape, dies)
        if dies % pool.layer_dies:
            raise ModelError(
                f"deployment.{pool.phase}.tp_dies = {own.tp_dies} must divide the "
                f"{numbered(dies, 'die')} of a pipeline stage of a {pool.role} instance"
            )
    if cp_dies == 1:
        return
    field = f"deployment.{pool.phase}.cp_dies = {cp_dies}"
    if shape.linear_layers:
        raise ModelError(
            f"{field}: the state of linear attention of {shape.title} goes through the context "
            "token by token, so no part of it can begin before the one before has ended: take 1"
        )
    if pool.phase == "prefill":
        if dies % (own.tp_dies * cp_dies):
            raise ModelError(
                f"{field} times the {numbered(own.tp_dies, 'die')} that split heads must divide "
                f"the {dies} dies with attention of a {pool.role} instance"
            )
        return
    if pool.offload:
        raise ModelError(
            f"{field}: offloaded attention (deployment.decode.attention_offload) has whole "
            "requests on dies of prefill: take 1"
        )
    if own.tp_dies % cp_dies:
        raise ModelError(
            f"{field} must divide deployment.decode.tp_dies = {own.tp_dies}: dies that split the "
            "heads of a request share out its context"
        )
    for model, name in ((shape, shape.title), (draft_shape, "its drafter")):
        if model and model.kv_width_of(own.tp_dies // cp_dies) != model.kv_width_of(own.tp_dies):
            raise ModelError(
                f"{field}: the {numbered(own.tp_dies, 'die')} of a rank have the {model.kv_heads} "
                f"KV heads of {name} {max(1, own.tp_dies // model.kv_heads)} times, and only "
                "copies can be shared out by tokens: take no more"
            )
