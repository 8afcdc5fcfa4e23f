"""Stages of a model's layers: where experts sit, and what a model without the stage of experts does
not have. There every layer has one dense FFN, so nothing is dispatched, combined or balanced. Dies
of a rank split attention, FFN and vocabulary (arXiv 1909.08053 section 3); ranks share nothing."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from twin.facts import Facts
from twin.kernels.rng import apply
from twin.model.parallel import stage_of
from twin.model.shape import ModelError, Shape
from twin.scenario import Experts, Pool

NO_EXPERTS = Experts(popularity="uniform", placement="perfect", redundant=0)


@dataclass(frozen=True, slots=True)
class ExpertLayout:
    """Layout of an instance's experts over its dies."""

    dies: int
    routed_dies: int
    slots_per_die: int  # routed expert slots of such a die
    shared_dies: int  # dies that hold only the shared expert; 0: every die holds a copy
    split: int = 1  # dies that hold a part of each of their experts
    loads: tuple[float, ...] = ()  # of its experts by class of popularity; none: all alike

    @property
    def places(self) -> int:
        """Number of places for whole routed experts: dies, or groups of dies that split each."""
        return self.routed_dies // self.split


def experts_of(experts: Experts, shape: Shape) -> Experts:
    """The scenario's settings of experts, or NO_EXPERTS for a model without experts."""
    return experts if "experts" in shape.stages else NO_EXPERTS


def shape_on_die(whole: Shape, pool: Pool) -> Shape:
    """The part of a model on one die of a pool: its layers, and its share of heads and experts."""
    if pool.phase == "prefill":  # a pass of decode is priced through all stages
        whole = stage_of(whole, pool)
    inner_values = math.ceil(whole.expert_intermediate / pool.own.experts_tp)
    return replace(whole.split(split_dies(pool, whole)), expert_intermediate=inner_values)


def expert_layout(s: Shape, redundant: int, dies: int, split: int = 1) -> ExpertLayout:
    """Slots and dies of routed, `redundant` and shared experts, each split over `split` dies. With
    more dies than routed experts, the shared expert has dies of its own: those that routed slots do
    not use (arXiv 2506.12708v2 section 4.1), or, if redundant experts fill second slots, those that
    routed experts do not use (arXiv 2508.02520 section 7.1); at most its share of the rows.
    Otherwise every die has the shared expert, or its part of it."""
    routed_slots = s.routed_experts + redundant
    if split > 1:
        return ExpertLayout(dies, dies, math.ceil(routed_slots / (dies // split)), 0, split)
    fair_share_dies = max(1, round(dies / (s.top_k + 1)))
    if s.shared_experts == 0:
        return ExpertLayout(dies, dies, math.ceil(routed_slots / dies), 0)
    if dies > routed_slots:
        shared_dies = min(dies - routed_slots, fair_share_dies)
        return ExpertLayout(dies, dies - shared_dies, 1, shared_dies)
    if dies > s.routed_experts and dies - s.routed_experts >= fair_share_dies // 2:
        shared_dies = min(dies - s.routed_experts, fair_share_dies)
        routed_dies = dies - shared_dies
        return ExpertLayout(dies, routed_dies, math.ceil(routed_slots / routed_dies), shared_dies)
    return ExpertLayout(dies, dies, math.ceil(routed_slots / dies), 0)


def with_class_loads(
    layout: ExpertLayout, experts: Experts, facts: Facts, classes: int
) -> ExpertLayout:
    """The layout with the load of each class of a die's experts, divided by their mean. A die's
    experts differ in popularity like evenly spaced ranks of a layer, as balanced placement leaves
    them; classes are pooled over layers. Imported popularity and a perfect placement have none."""
    skew, slots_per_die = experts.skew, layout.slots_per_die
    is_uneven = experts.popularity in ("skewed", "power_law") and experts.placement != "perfect"
    if not is_uneven or skew <= 0.0 or slots_per_die <= 1:
        return layout
    quantiles = (np.arange(slots_per_die) + 0.5) / slots_per_die
    layer_scales = [1.0]
    if experts.popularity == "skewed":
        log_loads = apply(math.log, quantiles / (1.0 - quantiles))
        layer_scales = facts["experts.popularity.layer_scale"].value
    else:
        exponent = 1.0 - experts.power_law_alpha
        log_span = math.log(facts.si("experts.popularity.power_law_span"))
        log_loads = quantiles * log_span
        if abs(exponent) > 1e-9:
            log_loads = apply(math.log1p, quantiles * math.expm1(exponent * log_span)) / exponent
    layer_loads = apply(math.exp, skew * np.outer(np.asarray(layer_scales, np.float64), log_loads))
    sorted_loads = np.sort((layer_loads / layer_loads.mean(axis=1, keepdims=True)).ravel())
    if sorted_loads.size < classes:  # one layer, few experts a die: each is in many classes
        sorted_loads = np.repeat(sorted_loads, classes)
    class_means = [
        float(class_loads.mean()) for class_loads in np.array_split(sorted_loads, classes)
    ]
    return replace(layout, loads=tuple(class_means))


def idle_dies(s: Shape, layout: ExpertLayout, redundant: int) -> int:
    """Number of dies for routed experts that hold none, because there are fewer experts than slots.
    redundant: number of redundant experts."""
    place_count = layout.places if layout.slots_per_die else 0
    return max(0, place_count - s.routed_experts - redundant) * layout.split


def router_groups(experts: Experts, shape: Shape) -> tuple[int, int]:
    """(expert groups of the model's router, most groups that a token reaches). Raises ModelError if
    the scenario limits routing to groups and the router has none."""
    groups = shape.expert_groups
    if experts.group_limited and groups == 1:
        raise ModelError(
            f"experts.group_limited: the router of {shape.title} has no groups of experts: "
            "set it to false"
        )
    return groups, min(groups, shape.most_nodes)


def split_dies(pool: Pool, shape: Shape) -> int:
    """Number of dies over which one copy of the weights, without routed experts, is split. Prefill
    of a model with experts splits only projections (prefill_costs.py): its shape stays whole."""
    return pool.layer_dies if "experts" in shape.stages else pool.own.tp_dies


def weight_advice(pool: Pool, shape: Shape) -> tuple[str, ...]:
    """What to advise if the weights do not fit a die, as a tuple of one text; () for a model with
    experts. It does not check whether they fit."""
    if "experts" in shape.stages:
        return ()
    if pool.phase == "prefill" and pool.own.attention == "dp":
        return ("take deployment.prefill.attention = 'tp'",)
    return (f"raise deployment.{pool.phase}.tp_dies",)


def refuse_bad_settings(pools: Iterable[Pool], shape: Shape) -> None:
    """Raise ModelError for a deployment of a model without experts with settings that need experts
    or latents, or for experts that cannot be split as stated."""
    for pool in pools:
        _refuse_expert_split(pool, shape)
        if pool.experts and "experts" not in shape.stages:
            raise ModelError(
                f"deployment.decode.expert_npus = {pool.experts.npus}: {shape.title} has no routed "
                "experts to put on NPUs of their own: take 0"
            )
        if pool.own.attention == "sp_tp_sp" and "experts" not in shape.stages:
            raise ModelError(
                "deployment.prefill.attention = 'sp_tp_sp' gathers latents, which "
                f"{shape.title} does not have: take 'tp', which splits its weights over "
                "deployment.prefill.tp_dies, or 'dp'"
            )


def _refuse_expert_split(pool: Pool, shape: Shape) -> None:
    """Raise ModelError where experts cannot be split as stated."""
    experts_tp = pool.own.experts_tp
    field = f"deployment.{pool.phase}.experts_tp = {experts_tp}"
    if experts_tp > 1 and "experts" not in shape.stages:
        raise ModelError(
            f"{field}: {shape.title} has no routed experts to split: take 1 "
            f"(deployment.{pool.phase}.tp_dies splits its dense FFN)"
        )
    if experts_tp > 1 and pool.experts:
        raise ModelError(
            f"{field}: experts on NPUs of their own (deployment.decode.expert_npus) get tokens by "
            "messages, parts of experts by a gather of all: take 1"
        )
    if experts_tp > max(1, shape.expert_intermediate):
        raise ModelError(
            f"{field} is more than the {shape.expert_intermediate} inner values of an expert of "
            f"{shape.title}: take fewer"
        )


def setting_notes(pools: Iterable[Pool], shape: Shape, ranks_of: Mapping[str, int]) -> list[str]:
    """For a model without routed experts, a sentence for each setting that has no effect or that
    engines do not offer; [] for other models. ranks_of: number of an instance's ranks, by role."""
    if "experts" in shape.stages:
        return []
    sentences = [f"{shape.title} has no routed experts: the settings under experts change nothing."]
    for pool in pools:
        ranks = ranks_of[pool.role]
        if pool.phase == "decode" and ranks > 1:
            sentences.append(
                f"The {ranks} ranks of a {pool.role} instance iterate together, as the slowest: "
                f"ranks of {shape.title} share nothing, so an instance of one rank each "
                f"(deployment.{pool.role}.npus_per_instance) is faster."
            )
    return sentences
