"""Several served models with object storage, local DRAM or the pool; fleet.py simulates waiting. A
slot is the scenario's deployment at the formula's rate."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twin.extras.model_cache.fleet import Fleet, FleetRun, Place, Served, ServedModel
from twin.facts import Facts
from twin.hardware.flows import Plane
from twin.hardware.prices import pool_read
from twin.metrics.measures import Kind, amount
from twin.model.fetch import pool_plane
from twin.model.memory import whole_model_bytes
from twin.model.operators import formats
from twin.model.shape import ModelError, load_shape
from twin.scenario import Scenario, npus_used, with_overrides
from twin.steady import assemble, steady, traffic_of

WARM_UP = 0.1  # of the time, which no figure of a store counts
HOUR_S = 3600.0
MOST_REQUESTS = 200_000  # some seconds of work with as many slots as `SLOTS`, more with more
SLOTS = 64
MOST_SHARE = 1e9  # of a model's requests: a sum of them stays a number


@dataclass(frozen=True, slots=True)
class Question:
    """Numbers of models and slots, popularity, and storage."""

    models: int = 8
    instances: int = 8  # slots of NPUs
    skew: float = 0.0  # exponent of popularity by rank; 0: all alike
    local_models: int = 1  # that the DRAM of a slot's nodes has room for, of the largest
    pool_models: int = 16  # that the memory pool has room for
    bucket_bytes_per_s: float = 2.5e9  # of object storage, arXiv 2506.12708v2 section 4.4.3
    shares: tuple[float, ...] = ()  # of the requests by model, in place of `skew`
    names: tuple[str, ...] = ()  # files of data/models, taken in turn; none: the scenario's
    rate_req_per_s: float = 0.05  # of all models
    idle_s: float = 60.0  # Knative's stable window: a model without requests gives NPUs back
    hours: float = 24.0
    seed: int = 0


def figure(label: str, kind: Kind, unit: str = "") -> Any:
    """A figure of a store that the table shows."""
    return field(metadata={"shown": (label, kind, unit)})


@dataclass(frozen=True, slots=True)
class Store:
    """A store of weights: means after the warm-up, NPU-hours over all of the time."""

    name: Place
    wait_s_by_model: tuple[float | None, ...]
    # Until every slot has the first model, from nothing; processes not counted.
    cold_s: float = figure("Cold start", "time")
    # The same again out of DRAM; None: nothing is stored.
    warm_s: float | None = figure("DRAM to NPU", "time")
    # Of starts and switches, weights found in DRAM; None: there were none.
    hit_ratio: float | None = figure("Hit ratio", "share")
    switch_s: float | None = figure("Mean switch", "time")  # of weights alone
    switch_from_dram_s: float | None = figure("... out of DRAM", "time")
    switch_from_bucket_s: float | None = figure("... out of object storage", "time")
    # Copies of a model in DRAM when every slot has loaded the same one.
    dram_models: float = figure("DRAM for one model in every NPU slot", "rate", "x")
    dram_bytes: float = figure("DRAM taken at most", "bytes")
    starts: int = figure("Starts on free NPUs", "count")
    switches: int = figure("Switches on NPUs of another model", "count")
    # Of a request, for NPUs, weights, graphs and those before it.
    wait_s_mean: float = figure("Waiting of requests, mean", "time")
    wait_s_p99: float = figure("Waiting of requests, p99", "time")
    slo_share: float = figure("First token within the SLO", "share")
    goodput_per_hour: float = figure("Goodput", "rate", "requests/h")  # within the SLO
    npu_hours: float = figure("NPU-hours held", "rate")  # from a start until NPUs are given back
    npu_hours_starting: float = figure("... starting", "rate")
    npu_hours_idle: float = figure("... idle", "rate")  # held without a request in hand


@dataclass(frozen=True, slots=True)
class ModelCache:
    """Answer of one question."""

    models: tuple[str, ...]  # by popularity
    model_bytes: float  # of the largest
    requests: int
    stores: tuple[Store, ...]

    @property
    def title(self) -> str:
        """Served models and slots, in a few words."""
        size = amount(self.model_bytes, "bytes")
        return f"{self.requests:,} requests for {len(self.models)} models of up to {size}"


def model_stores(scenario: Scenario, facts: Facts, sizes: Question) -> ModelCache:
    """Results with no DRAM, local DRAM and the memory pool for one scenario; raises as `steady`."""
    most = MOST_REQUESTS * SLOTS // max(SLOTS, sizes.instances)
    if sizes.rate_req_per_s * sizes.hours * HOUR_S > most:
        raise ModelError(f"more than {most:,} requests: ask for less time or a lower rate")
    shares = _shares(sizes)
    names = sizes.names or (scenario.deployment.model,)
    served_by_name = {name: _served(scenario, facts, name) for name in names}
    served_models, pooled = zip(
        *(served_by_name[names[k % len(names)]] for k in range(sizes.models)), strict=True
    )
    largest = max(model.size_bytes for model in pooled)
    draws = np.random.default_rng(sizes.seed)
    end_s = sizes.hours * HOUR_S
    count = int(draws.poisson(sizes.rate_req_per_s * end_s))
    arrived_s = np.sort(draws.uniform(0.0, end_s, count)).tolist()
    model_of_request = draws.choice(sizes.models, count, p=shares).tolist()
    stores: list[tuple[Place, tuple[ServedModel, ...], int]] = [
        ("object storage", served_models, 0),
        ("local DRAM", served_models, sizes.local_models),
        ("memory pool", pooled, sizes.pool_models),
    ]
    answers = []
    for place, models, room in stores:
        fleet = Fleet(
            models, sizes.instances, place, room * largest, sizes.bucket_bytes_per_s, sizes.idle_s,
            facts.si("startup.process"), facts.si("startup.regroup"),
        )  # fmt: skip
        outcome = FleetRun(fleet).serve(model_of_request, arrived_s)
        answers.append(summed_up(fleet, outcome, end_s, scenario.slo.ttft_s, npus_used(scenario)))
    titles = [f"{k + 1}. {model.name}" for k, model in enumerate(pooled)]
    return ModelCache(tuple(titles), largest, count, tuple(answers))


def summed_up(fleet: Fleet, out: Served, end_s: float, ttft_s: float, npus: int) -> Store:
    """Figures of a store; npus: of a slot."""
    warm_run = FleetRun(replace(fleet, process_s=0.0, regroup_s=0.0, idle_s=0.0))
    cold_s = warm_run.load_everywhere(0, 0.0)
    copies = warm_run.serve([], []).dram_bytes / fleet.models[0].size_bytes
    warm_s = warm_run.load_everywhere(0, cold_s) if copies else None
    is_counted = out.arrived_s >= WARM_UP * end_s
    model, wait_s = out.model[is_counted], out.wait_s[is_counted]
    within_slo = wait_s + np.array([m.ttft_s for m in fleet.models])[model] <= ttft_s
    starts = [one for one in out.starts if one.begun_s >= WARM_UP * end_s]

    def took_s(*hit: bool) -> float | None:
        return _mean([one.weights_s for one in starts if one.hit in hit])

    mean_waits = tuple(_mean(wait_s[model == k].tolist()) for k in range(len(fleet.models)))
    return Store(
        fleet.place, mean_waits, cold_s, warm_s, _mean([float(one.hit) for one in starts]),
        took_s(True, False), took_s(True), took_s(False), copies, out.dram_bytes,
        sum(not one.switched for one in starts), sum(one.switched for one in starts),
        float(wait_s.mean()) if wait_s.size else 0.0,
        float(np.quantile(wait_s, 0.99)) if wait_s.size else 0.0,
        float(within_slo.mean()) if wait_s.size else 1.0,
        HOUR_S * float(within_slo.sum()) / ((1.0 - WARM_UP) * end_s),
        npus * out.held_s / HOUR_S, npus * out.starting_s / HOUR_S,
        npus * (out.held_s - out.starting_s - out.busy_s) / HOUR_S,
    )  # fmt: skip


def table(stores: Sequence[Store]) -> list[tuple[str, ...]]:
    """One row per figure: its name, and its value with each store."""
    shown_fields = {f.name: f.metadata["shown"] for f in fields(Store) if f.metadata}
    return [
        (label, *(amount(getattr(store, name), kind, unit) for store in stores))
        for name, (label, kind, unit) in shown_fields.items()
    ]


def takes_for_granted(scenario: Scenario, facts: Facts, sizes: Question) -> str:
    """Assumptions of the figures, and of the seconds in the paper's table."""
    size, cold_s = facts.si("startup.table.model"), facts.si("startup.table.cold")
    stated_rate, implied = facts.si("startup.bucket"), size / cold_s
    used = sizes.instances * npus_used(scenario)
    npus = assemble(scenario, facts).net.npus
    more_text = f", more than the {npus:,} of this machine" if used > npus else ""
    return (
        f"An NPU slot is this deployment: {sizes.instances} take {used:,} NPUs{more_text}. Starts "
        "and switches are those of weights alone; requests also wait "
        f"{facts.si('startup.process'):.0f} s for processes on free NPUs, and "
        f"{facts.si('startup.regroup'):.0f} s for graphs on those of another model. "
        f"The paper has {cold_s:.0f} s for {size / 1e9:.0f} GB: {implied / 1e9:.1f} GB/s. "
        f"The {stated_rate / 1e9:g} GB/s of a bucket that it states give "
        f"{size / stated_rate:.0f} s, and it does not say what takes the rest: with "
        f"{implied / 1e9:.1f} GB/s its other seconds follow."
    )


def _shares(sizes: Question) -> NDArray[np.float64]:
    """Popularity by model; raises ModelError unless shares are one positive number per model."""
    if not sizes.shares:
        weight = np.arange(1, sizes.models + 1) ** -sizes.skew
    elif len(sizes.shares) == sizes.models and all(0.0 < x < MOST_SHARE for x in sizes.shares):
        weight = np.array(sizes.shares)
    else:
        raise ModelError(
            f"{len(sizes.shares)} shares for {sizes.models} models: give one positive number each"
        )
    return weight / weight.sum()


def _served(scenario: Scenario, facts: Facts, name: str) -> tuple[ServedModel, ServedModel]:
    """A model in the scenario's deployment, with weights from DRAM of its own nodes, or of the
    pool."""
    own_model: dict[str, Any] = {"deployment.model": name}
    if not load_shape(facts, name).mtp_layers:
        own_model["deployment.decode.mtp_draft_tokens"] = 0
    s = with_overrides(scenario, own_model)
    sustained, parts = steady(s, facts), assemble(s, facts)
    costs, net = parts.costs, parts.net
    roles = [r for r in (costs.prefill_role, costs.decode_role, costs.colocated_role) if r]

    def load_s(plane: Plane, *, near: bool) -> float:
        """Until the slowest instance has its weights; instances load side by side."""
        took_s = 0.0
        for role in roles:
            dies = range(role.dies)
            price = pool_read(net, dies, plane, net.nodes_of(dies) if near else None)
            took_s = max(took_s, role.dies * role.memory.weights / price.bytes_per_s)
        return took_s

    first_s = sustained.prefill.batch_s if sustained.prefill else 0.0
    answer_s = 0.0
    if sustained.decode:
        answer_s = sustained.decode.tpot_s * traffic_of(s, facts).output_tokens
    served_model = ServedModel(
        costs.shape.title, whole_model_bytes(costs.shape, formats(s.deployment.precision)),
        load_s("ub", near=True), sustained.requests_per_s, first_s, first_s + answer_s,
    )  # fmt: skip
    return served_model, replace(served_model, load_s=load_s(pool_plane(s), near=False))


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
