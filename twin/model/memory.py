"""What fits into a die's HBM, in bytes: weights, exchange buffers, and the rest for KV."""

from dataclasses import dataclass

from twin.facts import Facts
from twin.hardware.chip import Chip
from twin.model.formats import FORMATS
from twin.model.operators import Formats, combine_bytes, dispatch_bytes
from twin.model.shape import ModelError, Shape
from twin.model.stages import ExpertLayout, expert_layout


@dataclass(frozen=True, slots=True)
class Budget:
    """One die's HBM in bytes."""

    hbm: float
    weights: float
    buffers: float
    reserve: float
    others: float = 0.0  # what an instance of the other role has on the same die, its KV too
    slots: float = 0.0  # of all slots: KV of layers with a window, states of linear attention

    @property
    def kv(self) -> float:
        """Bytes of a die's HBM that are left for KV blocks."""
        return self.hbm - self.weights - self.buffers - self.reserve - self.others - self.slots


def whole_model_bytes(s: Shape, f: Formats) -> float:
    """Bytes of all weights of the model, each stored once, without its MTP module."""
    return layer_stack_bytes(s, f, expert_layout(s, 0, 1), mtp=False)


def layer_stack_bytes(
    s: Shape, f: Formats, layout: ExpertLayout | None, mtp: bool, tp: int = 1, output: bool = False,
    vocabularies: int = 2,
) -> float:  # fmt: skip
    """Bytes of one die's weights. Up-projections, and with `output` the output projection, are
    split by heads over `tp` dies. layout: None: without experts; mtp: whether with the MTP module;
    vocabularies: 2: embedding and LM head, 1: one of them (first or last stage)."""
    bytes_per_weight = FORMATS[f.linear].weight_bytes
    split_weights = s.q_up_weights + s.kv_up_weights + (s.o_weights if output else 0)
    attention_bytes = s.attention_weights * bytes_per_weight
    attention_bytes -= split_weights * bytes_per_weight * (1.0 - 1.0 / min(tp, s.heads))
    experts_bytes = expert_bytes(s, f, layout) if layout else 0.0
    draft_layers = 1 if mtp else 0
    gate_bytes = s.hidden * s.routed_experts * FORMATS["bf16"].weight_bytes
    stack_bytes = attention_bytes * (s.layers + draft_layers - s.linear_layers)
    stack_bytes += (gate_bytes + experts_bytes) * (s.moe_layers + draft_layers)
    if s.linear_layers:
        output_weights = s.linear_kind.out_values(s) * s.hidden if output else 0
        linear_attention_weights = s.linear_weights - output_weights * (
            1.0 - 1.0 / min(tp, s.heads)
        )
        stack_bytes += linear_attention_weights * bytes_per_weight * s.linear_layers
    stack_bytes += s.dense_layers * s.dense_weights * bytes_per_weight
    stack_bytes += vocabularies * s.vocabulary * s.hidden * FORMATS["bf16"].weight_bytes
    if mtp:
        stack_bytes += 2.0 * s.hidden * s.hidden * bytes_per_weight
    return stack_bytes


def expert_bytes(s: Shape, f: Formats, layout: ExpertLayout) -> float:
    """Bytes of the expert weights on a die in one layer, by its slots and shared experts."""
    shared_experts_per_die = 0 if layout.shared_dies else s.shared_experts
    experts_per_die = layout.slots_per_die + shared_experts_per_die
    weight_bytes = experts_per_die * s.expert_weights * FORMATS[f.expert].weight_bytes
    return weight_bytes + shared_experts_per_die * s.expert_weights * f.shared_more_bytes


def exchange_buffer_bytes(
    s: Shape, layout: ExpertLayout, tokens_per_die: float, early_quantisation: bool,
    scale_bytes: float, gathered: bool = False,
) -> float:  # fmt: skip
    """Bytes of a die's static dispatch and combine buffers: peers x tokens x message. arXiv
    2506.12708v2 section 4.2.1: most tokens of a peer = local batch x min(top_k, experts). With
    split experts, or gathered tokens: hidden states of all tokens, and their results' sums."""
    if gathered or layout.split > 1:
        return layout.dies * tokens_per_die * 2.0 * combine_bytes(s)
    slots_per_die = layout.slots_per_die
    message_bytes = dispatch_bytes(s, early_quantisation, scale_bytes) + combine_bytes(s)
    return layout.dies * tokens_per_die * min(s.top_k, slots_per_die) * message_bytes


def budget(
    chip: Chip, facts: Facts, weights: float, buffers: float, what: str,
    remedy: str = "use more NPUs per instance, fewer redundant experts, a smaller batch",
) -> Budget:  # fmt: skip
    """A die's HBM split into `weights` and `buffers` (bytes), a reserve, and KV. Raises ModelError,
    saying that `what` does not fit and the `remedy`, if nothing is left for KV."""
    memory = Budget(chip.hbm_bytes_per_die, weights, buffers, facts.si("operators.memory.reserve"))
    if memory.kv <= 0.0:
        raise ModelError(
            f"{what} does not fit: a die of {chip.title} has {memory.hbm / 1e9:.1f} GB, weights "
            f"take {weights / 1e9:.1f} GB, exchange buffers {buffers / 1e9:.1f} GB and the "
            f"runtime {memory.reserve / 1e9:.1f} GB: {remedy} or a smaller number format"
        )
    return memory
