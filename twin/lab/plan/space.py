"""What may vary in a plan: each choice declared once, with the values that it takes."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

from twin.facts import Facts
from twin.hardware.chip import load_chip
from twin.hardware.imported import npus_of
from twin.model.shape import load_shape
from twin.scenario import Scenario, chip_of, fields, unmet_condition, value_of

Settings = dict[str, Any]
Values = Callable[[Scenario, "Machine"], list[Any]]

COUNTS = (*range(1, 9), 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 128, 192, 256)
SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 128, 144, 160, 192, 256, 320, 384)  # NPUs
BATCHES = (4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)  # requests per NPU
OFFLOADED = (0.1, 0.2, 0.3, 0.4)  # of the requests: beyond, decode waits for prefill's cores
DRAFTS_CROSSED = 3  # draft tokens; more, up to what the field declares, around the best


@dataclass(frozen=True, slots=True)
class Machine:
    """Properties of a machine from which the values of a choice are derived."""

    npus: int  # that a deployment may take
    npus_per_node: int
    dies_per_npu: int
    routed_experts: int
    mtp_layers: int

    @classmethod
    def of(cls, s: Scenario, facts: Facts, npus: int = 0) -> "Machine":
        """Properties of a scenario's machine and model; npus: limit of NPUs, 0 for all."""
        chip = load_chip(facts, chip_of(s, "decode"))
        shape = load_shape(facts, s.deployment.model)
        machine_npus = npus_of(s.supernode)
        return cls(
            min(npus or machine_npus, machine_npus), s.supernode.npus_per_node, chip.dies_per_npu,
            shape.routed_experts, shape.mtp_layers,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Choice:
    """Fields that vary together under one option of the plan."""

    label: str
    values: dict[str, Values]  # by the path of a field
    # Crossed with all others and ticked at first; else varied one at a time around the best: all
    # combinations are millions, and these choices change a deployment by some per cent each.
    crossed: bool = True
    along: dict[str, Values] = field(default_factory=dict)  # what comes with a value that is not 0


def _values_within(path: str, values: list[Any]) -> list[Any]:
    """Values of a list that lie within the declared bounds of a field; path: the field's."""
    lowest, highest = fields()[path].low or 0, fields()[path].high or math.inf
    return [value for value in values if lowest <= value <= highest]


def _half_to_twice(path: str, s: Scenario, _: Machine) -> list[Any]:
    """Half, once and twice the present value of a field, without values outside its bounds."""
    value_now = value_of(s, path)
    return _values_within(path, [type(value_now)(value_now * factor) for factor in (0.5, 1.0, 2.0)])


def _options(path: str) -> Values:
    """Function that lists the values of a field: its options, or off and on for a switch."""
    field = fields()[path]
    return lambda _s, _m: list(field.options) if field.kind is str else [False, True]


def _option_fields(section: str) -> dict[str, Values]:
    """By path, functions that list the values of a section's option and switch fields."""
    paths = (path for path, field in fields().items() if field.kind in (str, bool))
    return {path: _options(path) for path in paths if path.startswith(f"{section}.")}


def _doublings(path: str) -> Values:
    """Function that lists a field's values: its minimum, doubled up to its maximum, and the
    scenario's present value."""
    field = fields()[path]
    lowest, highest = int(field.low or 1), int(field.high or 1)
    return _with_own(path, lambda _: (lowest << k for k in range((highest // lowest).bit_length())))


def next_values(path: str, value: float) -> list[Any]:
    """Next smaller and larger value of a field, by one or its declared step, within its bounds."""
    field = fields()[path]
    field_step = 1 if field.kind is int else field.step
    return _values_within(path, [round(value + sign * field_step, 9) for sign in (-1, 1)])


def _with_own(path: str, values: Callable[[Machine], Iterable[Any]]) -> Values:
    """Function that lists what `values` gives, and the scenario's present value, sorted."""
    return lambda s, m: sorted({*values(m), value_of(s, path)})


def instance_sizes(role: str, s: Scenario, m: Machine) -> list[Any]:
    """Sizes (NPUs) that an instance of a role may have: multiples and divisors of a node, and the
    scenario's present size; at most the machine, for prefill half of it."""
    node_npus, most_npus = m.npus_per_node, m.npus / (2 if role == "prefill" else 1)
    fitting_sizes = {npus for npus in SIZES if npus % node_npus == 0 or node_npus % npus == 0}
    return [
        npus for npus in sorted({*fitting_sizes, value_of(s, SIZED[role])}) if npus <= most_npus
    ]


def _modes(s: Scenario, _: Machine) -> list[Any]:
    """Serving modes to compare: disaggregated and colocated, or only the scenario's other one."""
    mode_now, both_modes = s.deployment.mode, ["disaggregated", "colocated"]
    return both_modes if mode_now in both_modes else [mode_now]


def _experts_tp(path: str) -> Values:
    """Function that lists MoE TP degrees: 1, the dies of a node, and the scenario's degree."""
    tp_degrees_of = _with_own(path, lambda m: (1, m.npus_per_node * m.dies_per_npu))
    return lambda s, m: tp_degrees_of(s, m) if m.routed_experts else [1]


def _redundancies(s: Scenario, m: Machine) -> list[Any]:
    """Numbers of redundant experts: 0, 1/8 and 1/4 of the routed, and the scenario's number."""
    experts = m.routed_experts
    return sorted({0, experts // 8, experts // 4, s.experts.redundant}) if experts else [0]


def _expert_npus(s: Scenario, m: Machine) -> list[Any]:
    """Numbers of NPUs that hold experts only (AFD): 0, nodes up to half the machine, and the
    scenario's present number."""
    npus_now, node_npus = s.deployment.decode.expert_npus, m.npus_per_node
    fitting_sizes = {npus for npus in SIZES if npus % node_npus == 0 and 2 * npus <= m.npus}
    return sorted({0, npus_now, *fitting_sizes}) if m.routed_experts else [0]


def _controllers(s: Scenario, _: Machine) -> list[Any]:
    """Names of controllers; 'schedule' and 'own' only if the scenario has their rows or file."""
    is_declared = {"schedule": bool(s.elastic.schedule), "own": bool(s.elastic.own.digest)}
    return [name for name in fields()[CONTROLLER].options if is_declared.get(name, True)]


PREFILL, DECODE, MIXED = "deployment.prefill", "deployment.decode", "deployment.colocated"
COUNTED = {role: f"deployment.{role}.instances" for role in ("prefill", "decode", "colocated")}
SIZED = {role: f"deployment.{role}.npus_per_instance" for role in COUNTED}
OFFLOAD, LENT = f"{DECODE}.attention_offload", f"{PREFILL}.lent_cores"
CONTROLLER = "elastic.controller"
BATCH, MODE, DRAFTS = f"{DECODE}.batch_per_npu", "deployment.mode", f"{DECODE}.mtp_draft_tokens"

# Counts of instances are no list: they follow from what the pools sustain (`candidates`).
CHOICES: dict[str, Choice] = {
    "mode": Choice("Disaggregated or colocated", {MODE: _modes}),
    "instances": Choice("Instances of each pool", {}),
    "sizes": Choice("NPUs of an instance",
                    {SIZED[role]: partial(instance_sizes, role) for role in COUNTED}),
    "decode_batch": Choice(
        "Decode batch",
        {BATCH: lambda s, m: [b for b in sorted({*BATCHES, s.deployment.decode.batch_per_npu})
                              if b >= m.dies_per_npu]},
    ),
    "prefill_batch": Choice(
        "Prefill batch and chunk",
        {path: partial(_half_to_twice, path)
         for path in (f"{PREFILL}.tokens_per_npu", f"{MIXED}.chunk_tokens_per_npu")},
        crossed=False,
    ),
    "attention_tp": Choice(
        "Attention TP in decode",
        {f"{DECODE}.tp_dies": _with_own(f"{DECODE}.tp_dies", lambda m: (
            1, 2 * m.dies_per_npu, m.npus_per_node * m.dies_per_npu))},
        crossed=False,
    ),
    "context_parallel": Choice(
        "Context parallelism",
        {f"{DECODE}.cp_dies": lambda s, _: sorted({
            1, s.deployment.decode.tp_dies, s.deployment.decode.cp_dies}),
         f"{PREFILL}.cp_dies": _with_own(f"{PREFILL}.cp_dies", lambda m: (
            1, m.npus_per_node * m.dies_per_npu))},
        crossed=False,
    ),
    "pipeline": Choice(
        "Pipeline stages",
        {path: _with_own(path, lambda _: (1, 2, 4))
         for path in (f"{PREFILL}.pp_stages", f"{DECODE}.pp_stages")},
        crossed=False,
    ),
    "experts_tp": Choice(
        "Experts split inside (MoE TP)",
        {f"{role}.experts_tp": _experts_tp(f"{role}.experts_tp") for role in (PREFILL, DECODE)},
        crossed=False,
    ),
    "prompt_delay": Choice(
        "Prompts that wait for ranks",
        {f"{MIXED}.prompt_delay": _with_own(f"{MIXED}.prompt_delay", lambda _: (0, 10, 30))},
        crossed=False,
    ),
    "mtp": Choice(
        "MTP draft tokens",
        {DRAFTS: lambda s, m: [*range(DRAFTS_CROSSED + 1)]
         if m.mtp_layers or s.deployment.decode.drafter != "mtp" else [0]},
    ),
    "redundant": Choice("Redundant experts", {"experts.redundant": _redundancies}, crossed=False),
    "memory_pool": Choice(
        "Memory pool",
        _option_fields("memory_pool")
        | {"memory_pool.gb_per_node": partial(_half_to_twice, "memory_pool.gb_per_node")},
        crossed=False,
    ),
    "kv_plane": Choice(
        "Plane of the KV transfer",
        {"deployment.kv_transfer_plane": _options("deployment.kv_transfer_plane")}, crossed=False,
    ),
    "router": Choice("Router", _option_fields("router"), crossed=False),
    "afd": Choice(
        "Experts on NPUs of their own (AFD)", {f"{DECODE}.expert_npus": _expert_npus},
        crossed=False, along={f"{DECODE}.domains": _doublings(f"{DECODE}.domains")},
    ),
    "offload": Choice(
        "Attention offload", {OFFLOAD: _with_own(OFFLOAD, lambda _: (0.0, *OFFLOADED))},
        crossed=False, along={LENT: partial(_half_to_twice, LENT)},
    ),
    "controller": Choice("Controller", {CONTROLLER: _controllers}, crossed=False),
    "kv_format": Choice(
        "Format of the KV cache",
        {"deployment.precision.kv": _options("deployment.precision.kv")}, crossed=False,
    ),
}  # fmt: skip
TICKED = tuple(key for key, choice in CHOICES.items() if choice.crossed)


def varied_values(s: Scenario, vary: tuple[str, ...], m: Machine) -> dict[str, list[Any]]:
    """Values to try, by path, of each field that varies (vary: keys of CHOICES), without fields
    that have no effect in any compared mode."""
    values_by_path = {}
    for path, values_of in (
        entry for choice_key in vary for entry in CHOICES[choice_key].values.items()
    ):
        condition = unmet_condition(path, s)
        modes = _modes(s, m) if condition and condition.path == MODE and "mode" in vary else []
        if not condition or any((mode in condition.values) != condition.negated for mode in modes):
            values_by_path[path] = values_of(s, m)
    return values_by_path


def roles_of(mode: str) -> tuple[str, ...]:
    """Roles of the pools in a serving mode: 'prefill', 'decode', 'colocated'."""
    single = {"colocated": ("colocated",), "prefill_only": ("prefill",), "decode_only": ("decode",)}
    return single.get(mode, ("prefill", "decode"))


def pool_size(base: Scenario, settings: Settings, role: str) -> tuple[int, int]:
    """Number of instances of a pool and NPUs of each; settings: overrides of the base scenario."""
    pool = getattr(base.deployment, role)
    npus = settings.get(SIZED[role], pool.npus_per_instance)
    return settings.get(COUNTED[role], pool.instances), npus


def products(values: dict[str, list[Any]]) -> Iterator[Settings]:
    """Every combination of values, one by path; values of the last path change fastest."""
    return (dict(zip(values, choice, strict=True)) for choice in product(*values.values()))
