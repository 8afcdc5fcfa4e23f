"""Operators for people: name, words, place; time is recorded in the order of `operator_names`."""

from dataclasses import dataclass
from typing import Literal

Place = Literal["attention", "MoE", "iteration"]
PROJECTIONS = "attention's projections"
EXCHANGE = "gate, dispatch and combine"
OUTSIDE = "work outside the layers"
FETCH = "reading hits from the memory pool"
BETWEEN_DIES = "moving parts of prompts between dies"
# What an operator waits for that says nothing else.
ROOFS = {"decode": "HBM bandwidth and cube cores", "prefill": "cube cores"}


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator, or another cause of time."""

    name: str
    label: str
    family: str  # completes "... of it is"
    phases: tuple[str, ...]  # iterations it is booked in: decode (and colocated), prefill
    place: Place  # in the attention of every layer, in MoE layers, or once an iteration
    waits_for: str = ""  # what bounds it where it is the longest, if not its phase's `ROOFS`
    meaning: str = ""
    optional: bool = False  # mentioned only where it takes time


BOTH = ("decode", "prefill")
DECODE, PREFILL = ("decode",), ("prefill",)

OPERATORS = {
    entry.name: entry
    for entry in (
        Operator("mla_prolog", "MLA prolog", PROJECTIONS, DECODE, "attention",
                 meaning="Norm, projections of query and latent KV, rotary embedding."),
        Operator("attention_input", "Attention input", PROJECTIONS, PREFILL, "attention",
                 meaning="Norm, down- and up-projections of prompt tokens."),
        Operator("all_gather", "All gather", BETWEEN_DIES, PREFILL, "attention", "UB plane",
                 "Latents of all prompts to the dies that share the heads."),
        Operator("attention_core", "Attention core", "the attention core", BOTH, "attention",
                 "cube cores", "Queries meet cached keys and values."),
        Operator("offloaded_core", "Offloaded attention", "attention on prefill NPUs", DECODE,
                 "attention", "prefill NPUs and the plane of the KV hand-off",
                 "How much longer the core on prefill NPUs takes, with the way there and back.",
                 optional=True),
        Operator("all_to_all", "All to all", BETWEEN_DIES, PREFILL, "attention", "UB plane",
                 "Values of all heads back to the die of each token."),
        Operator("o_proj", "Output projection", PROJECTIONS, BOTH, "attention",
                 meaning="Value up-projection, output projection, residual and norm."),
        Operator("gate", "Gate", EXCHANGE, BOTH, "MoE", "vector cores",
                 "Router scores and the choice of experts."),
        Operator("dispatch", "Dispatch", EXCHANGE, BOTH, "MoE", "UB plane and vector cores",
                 "Tokens to the dies of their experts."),
        Operator("experts", "Experts", "the experts of the most loaded die", BOTH, "MoE",
                 meaning="Grouped products of routed and shared experts."),
        Operator("combine", "Combine", EXCHANGE, BOTH, "MoE", "UB plane",
                 "Experts' answers back to the die of each token."),
        Operator("dense_ffn", "Dense FFN", "dense layers", BOTH, "iteration",
                 meaning="The first layers' FFN; in colocated iterations with their attention."),
        Operator("mtp", "MTP module", OUTSIDE, DECODE, "iteration",
                 meaning="Passes of the layer that drafts: the model's, or one of its own."),
        Operator("lm_head", "LM head", OUTSIDE, BOTH, "iteration",
                 meaning="Logits over the vocabulary."),
        Operator("sampling", "Sampling", OUTSIDE, DECODE, "iteration", "vector cores",
                 "Sort, cumulative sum and filter of the logits."),
        Operator("launch_gaps", "Launch gaps", OUTSIDE, BOTH, "iteration", "host",
                 "What the host takes longer than the NPU."),
        Operator("prefill_chunk", "Prefill chunk", "prefilling prompts in the same iterations",
                 DECODE, "iteration", meaning="What pieces of prompts add to an iteration."),
        Operator("kv_swap", "KV swap", "moving KV to and from host memory", DECODE, "iteration",
                 "link to host memory", "Copies of preempted requests' KV before an iteration, and "
                 "waiting for KV that lies in host memory.",
                 optional=True),
        Operator("pipeline", "Pipeline stages", "pipeline stages that wait", DECODE, "iteration",
                 "the slowest stage and the way between stages",
                 "Hidden states on their way to the next stage; waits for the slowest stage.",
                 optional=True),
        Operator("fetch", "Fetch", FETCH, (), "iteration", "memory pool",
                 "Reading cached tokens before a batch, by formula."),
        Operator("kv_fetch", "KV fetch", FETCH, (), "iteration", "memory pool",
                 "Reading cached tokens before a batch, in a run."),
    )
}  # fmt: skip


def operator_names(phase: str, *places: Place) -> tuple[str, ...]:
    """Names of a phase's operators, in order. places: selects operators of these places that are
    not optional; without places all operators."""
    return tuple(
        name
        for name, entry in OPERATORS.items()
        if phase in entry.phases and (not places or (entry.place in places and not entry.optional))
    )


def family(name: str) -> str:
    """Family of the operator `name`, in words; for an unknown operator its own name."""
    return OPERATORS[name].family if name in OPERATORS else name.replace("_", " ")


def awaited_resource(name: str, phase: str) -> str:
    """Name of the resource that an operator waits for when it is the longest one of a phase."""
    operator = OPERATORS.get(name)
    return (operator.waits_for if operator else "") or ROOFS[phase]


DECODE_OPERATORS, PREFILL_OPERATORS = operator_names("decode"), operator_names("prefill")
