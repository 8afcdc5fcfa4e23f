"""Optimisations that a scenario switches on or off: one entry each, with what it does to the costs.
A switch's name, label, help, source and options are a field of `scenario.deployment.Optimisations`;
what it changes in the coefficients is its function here, found by the field's name."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from twin.model.coefficients import DecodeCosts, LayerCosts
from twin.model.formats import ACTIVATION_BYTES
from twin.model.setting import Cores, Setting


@dataclass(frozen=True, slots=True)
class Switch:
    """Effect of a field on a mode of decode's layers, and on decode's costs as a whole. Each
    function gets the present value, the setting and the field's value. A field without either acts
    where a figure is chosen (roofline.py, prefill_costs.py)."""

    # The last argument of `mode`: whether operators run in sequence.
    mode: Callable[[LayerCosts, Setting, Any, Cores, bool], LayerCosts] | None = None
    decode: Callable[[DecodeCosts, Setting, Any], DecodeCosts] | None = None


def switch_mode(mode: LayerCosts, x: Setting, cores: Cores, in_sequence: bool) -> LayerCosts:
    """Coefficients of a decode layer with the effect of all optimisation switches. cores: of its
    attention stream; in_sequence: whether operators run in sequence, not in two streams."""
    for name, switch in SWITCHES.items():
        if switch.mode is not None:
            mode = switch.mode(mode, x, getattr(x.optimisations, name), cores, in_sequence)
    return mode


def switch_decode(costs: DecodeCosts, x: Setting) -> DecodeCosts:
    """A decode instance's coefficients with the effect of all optimisation switches."""
    for name, switch in SWITCHES.items():
        if switch.decode is not None:
            costs = switch.decode(costs, x, getattr(x.optimisations, name))
    return costs


def _fuse_attention(mode: LayerCosts, x: Setting, is_on: bool, cores: Cores, _: bool) -> LayerCosts:
    """Coefficients of a layer with FusedDeepMLA: fewer launches, and queries bypass HBM between its
    parts; unchanged unless `is_on`."""
    if not is_on:
        return mode
    shape, m = x.shape, x.machine
    query_bytes = ACTIVATION_BYTES * shape.query_width
    written_bytes = 2 * query_bytes + ACTIVATION_BYTES * shape.core_query_width
    prolog, *other_products = mode.before
    prolog = replace(
        prolog,
        fixed=prolog.fixed - 2 * x.product_start_s,
        io=max(0.0, prolog.io - written_bytes / m.stream_bytes_per_s(cores.cube, x.formats.linear)),
        vector=prolog.vector - query_bytes / m.vector_bytes_per_s(cores.vector),
    )
    gate = replace(mode.gate, fixed=mode.gate.fixed - 2 * x.gap_s)  # its weights are still read
    return replace(mode, before=(prolog, *other_products), gate=gate)


def _overlap_kv_branch(
    mode: LayerCosts, x: Setting, is_on: bool, cores: Cores, sequence: bool
) -> LayerCosts:
    """Coefficients of a layer in which the KV branch of the prolog runs at the same time as the
    query branch (multi-stream); unchanged unless `is_on` and in sequence."""
    if not is_on or not sequence:
        return mode
    saved_bytes = 4 * ACTIVATION_BYTES * (x.shape.kv_lora + x.shape.rope_dim)
    prolog, *other_products = mode.before
    vector_s = prolog.vector - saved_bytes / x.machine.vector_bytes_per_s(cores.vector)
    return replace(mode, before=(replace(prolog, vector=vector_s), *other_products))


def _prefetch_weights(costs: DecodeCosts, x: Setting, is_on: bool) -> DecodeCosts:
    """Coefficients of an instance that reads weights during a collective's start and wait, as far
    as they fit the on-chip cache; unchanged unless `is_on`."""
    if not is_on:
        return costs
    layer_costs = costs.sequence
    fill_cache_s = x.facts.si("operators.weight_prefetch.bytes") / x.machine.stream_bytes_per_s()
    prolog, *other_products = layer_costs.before
    weight_s = max(0.0, prolog.weight - min(fill_cache_s, layer_costs.combine.fixed))
    layer_costs = replace(
        layer_costs,
        before=(replace(prolog, weight=weight_s), *other_products),
        experts=replace(layer_costs.experts, ahead=min(fill_cache_s, layer_costs.dispatch.fixed)),
    )
    return replace(costs, sequence=layer_costs)


def _set_tiles(costs: DecodeCosts, x: Setting, on: bool) -> DecodeCosts:
    """Coefficients with the fused MoE operator's number of tiles, whose stages overlap; 0: off."""
    tile_count = x.facts["operators.fused_deep_moe.tiles"].value if on else 0.0
    return replace(costs, tiles=float(tile_count))


def _add_speculation(costs: DecodeCosts, x: Setting, kind: str) -> DecodeCosts:
    """Coefficients with the overhead of a speculation framework (`kind`) in each iteration."""
    overhead_s = 0.0
    if costs.drafts and kind == "fusion_spec":
        overhead_s = x.facts.si("operators.fusion_spec.overhead")
    if costs.drafts and kind == "unfused":
        overhead_s = costs.query_tokens * x.machine.graph_launch_s
    return _add_host_gap(costs, overhead_s)


def _add_host_gap(costs: DecodeCosts, gap_s: float) -> DecodeCosts:
    """The costs with `gap_s` more of the host's time between iterations."""
    return replace(costs, host=replace(costs.host, gap=costs.host.gap + gap_s))


SWITCHES: dict[str, Switch] = {
    "attention_kernel": Switch(),
    "fused_deep_mla": Switch(mode=_fuse_attention),
    "fused_deep_moe": Switch(decode=_set_tiles),
    "shared_expert_scheduling": Switch(decode=lambda c, _, on: replace(c, in_cast=float(not on))),
    "weight_prefetch": Switch(decode=_prefetch_weights),
    "multi_stream": Switch(
        mode=_overlap_kv_branch, decode=lambda costs, _, on: replace(costs, shared_early=float(on))
    ),
    "flash_comm": Switch(),
    "layer_in_parallel": Switch(),
    "host_gap_ms": Switch(decode=lambda costs, _, pause_ms: _add_host_gap(costs, pause_ms * 1e-3)),
    "speculation": Switch(decode=_add_speculation),
}
