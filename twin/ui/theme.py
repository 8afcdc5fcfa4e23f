"""Colours of planes, pools and operators, the same on every page, for light and dark and the
colour-blind (tests/ui/test_theme.py). The accent is in .streamlit/config.toml, not for data."""

from twin.metrics.operators import OPERATORS

PLANE = {"ub": "#2C64F0", "rdma": "#C37F18", "vpc": "#217363"}

ROLE = {
    "prefill": "#B94827",
    "decode": "#4A9EC6",
    "memory_pool": "#699D59",
    "colocated": "#864CB7",
    "router": "#E52E7B",
    "front_end": "#8D909E",
}

# Stages of a request, in order: the hue of the pool that serves it, lighter while it waits.
STAGE = {
    "front_end": ROLE["front_end"],
    "router": ROLE["router"],
    "prefill_queue": "#E9A38C",
    "prefill": ROLE["prefill"],
    "kv_transfer": PLANE["rdma"],
    "decode": ROLE["decode"],
}

OPERATOR = {
    "mla_prolog": "#A9C4F5",
    "attention_input": "#A9C4F5",
    "attention_core": "#3F74D1",
    "offloaded_core": "#6A6FD6",
    "o_proj": "#6E9BEA",
    "gate": "#F4CD9A",
    "experts": "#DD7F1F",
    "shared_expert": "#EBA65C",
    "dense_ffn": "#A65A14",
    "dispatch": "#2BA184",
    "combine": "#157561",
    "all_to_all": "#62C3AA",
    "all_gather": "#8FD8C5",
    "mtp": "#8A50A7",
    "lm_head": "#B58BCB",
    "sampling": "#D3BBE0",
    "embedding": "#C9CDD8",
    "launch_gaps": "#9AA1B2",
    "prefill_chunk": ROLE["prefill"],
    "kv_swap": "#7F6A4A",
}
OTHER = "#7C8496"

# Runs side by side on the Compare page, in the order they were picked (two to six).
SERIES = ("#2262FC", "#DA7204", "#0FAC76", "#E00543", "#A058C4", "#8A8DA2")

# Ground of nodes of a further kind, by its number.
KIND = {f"kind_{number}": SERIES[k] for number, k in enumerate((2, 4, 3, 5), start=1)}

# Load, from idle to full. Lightness alone carries it, so it reads in grey too.
SEQUENTIAL = (
    "#EEF2FB", "#D8E2F7", "#BCD0F3", "#9ABAEE", "#76A2E8",
    "#5488E0", "#386CD0", "#2853B0", "#1F3F8A", "#182E63",
)  # fmt: skip

NAMES = {"ub": "UB", "rdma": "RDMA", "vpc": "VPC", "kv_transfer": "KV transfer"}


def operator_colour(name: str) -> str:
    """Colour of an operator by name, or else of one of its family; grey for unknown operators."""
    if name in OPERATOR or name not in OPERATORS:
        return OPERATOR.get(name, OTHER)
    family = OPERATORS[name].family
    family_names = (o.name for o in OPERATORS.values() if o.family == family and o.name in OPERATOR)
    return OPERATOR.get(next(family_names, ""), OTHER)


def title(name: str) -> str:
    """A plane, role, stage or operator as a person reads it: 'attention_core' -> 'Attention core'.

    >>> title("o_proj"), title("attention_core")
    ('Output projection', 'Attention core')
    """
    if name in OPERATORS:
        return OPERATORS[name].label
    return NAMES.get(name) or name.replace("_", " ").capitalize()
