"""The steady state: what a deployment sustains when it is always full. Fabric, costs and expert
imbalance meet here and nowhere else; the engine sets up with `assemble`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twin.experts import Imbalance, imbalance
from twin.experts.process import Routed
from twin.facts import Facts
from twin.hardware.demands import dram_ratio, lending_nodes
from twin.hardware.fabric import build_fabric
from twin.hardware.network import Network
from twin.kernels.compiled import without_compiling
from twin.model.batch import recompute_s_per_token
from twin.model.costs import Costs, RoleCosts, build_costs
from twin.model.feeding import predict_at_load
from twin.model.fetch import node_dram_bytes
from twin.model.parallel import kv_holders
from twin.model.predict import Held, Prediction, Traffic, capped_clocks, predict, shares_by_cause
from twin.model.shape import ModelError
from twin.model.stages import experts_of, router_groups
from twin.policies.batching import fetch_pays
from twin.scenario import Pool, Scenario, with_overrides
from twin.scenario.policies import HIT_ROUTERS
from twin.workload.generate import MeanLengths, mean_lengths
from twin.workload.lengths import drawn_lengths, relative_lengths
from twin.workload.offered import Caches, Offered, lru_hit_tokens, offered_load
from twin.workload.requests import TraceTable

Counts = NDArray[np.float64]  # imported expert counts f8[layers, experts]

NO_IMBALANCE = Imbalance(np.ones(1), np.ones(1), np.ones((1, 1)))  # of a role not deployed


@dataclass(frozen=True, slots=True)
class Assembly:
    """A machine with its prices and its expert imbalance, before any time passes."""

    net: Network
    costs: Costs
    routed: Routed
    prefill_imbalance: Imbalance
    decode_imbalance: Imbalance  # the same as prefill's where instances are colocated
    tokens_per_request: Mapping[str, float] = field(compare=False)  # of a pass, by role


def assemble(
    scenario: Scenario, facts: Facts, trace: TraceTable | None = None, counts: Counts | None = None
) -> Assembly:
    """Returns machine, costs and expert imbalance of a scenario. counts: imported expert counts.
    Without `trace` and `counts` the last four results are cached. Raises HardwareError, ModelError,
    ExpertsError or WorkloadError."""
    if trace is None and counts is None:  # needed again for the largest batch of the same question
        return _assemble(scenario, facts)
    return _assemble.__wrapped__(scenario, facts, trace, counts)


@lru_cache(maxsize=4)
def _assemble(
    scenario: Scenario, facts: Facts, trace: TraceTable | None = None, counts: Counts | None = None
) -> Assembly:
    """What `assemble` returns, for the last four questions; under a power cap at capped clocks."""
    net = build_fabric(scenario.supernode, facts)
    prompt_tokens, *_ = mean_lengths(scenario.workload, facts, trace)
    costs = build_costs(scenario, facts, net)
    reads_pool = scenario.memory_pool.enabled and costs.prefilling_role is not None
    if reads_pool and not net.rates_out("ub")[net.of_kind("cpu")].any():
        costs.servers.prices()  # raises HardwareError, as every run of the scenario does
    shape, experts = costs.shape, experts_of(scenario.experts, costs.shape)
    routing = Routed(
        experts, shape.routed_experts, shape.moe_layers, shape.top_k, facts.subset("experts"),
        scenario.seed, *router_groups(experts, shape),
    )  # fmt: skip
    tokens_per_request = {  # of prompts, and of tokens that an iteration verifies
        role_name: max(prompt_tokens, 1.0) if role_name == "prefill" else role.decode.query_tokens
        for role_name, role in costs.roles.items()
    }
    used_routing = routing
    if experts.balancing.policy == "oracle":
        used_routing = replace(routing, experts=experts.model_copy(update={"placement": "perfect"}))

    def imbalance_of(role: RoleCosts | None) -> Imbalance:
        """Expert imbalance of an instance with these costs; NO_IMBALANCE without experts."""
        if role is None or not role.layout.slots_per_die:
            return NO_IMBALANCE
        places, slots_per_die = role.layout.places, role.layout.slots_per_die
        nodes = min(places, -(-role.layout.routed_dies // role.dies_per_node))
        links_may_limit = role.coefficients.layout.ports < 1.0 or bool(scenario.faults)
        inputs = (
            used_routing, places, slots_per_die, tokens_per_request[role.pool.role], nodes,
            links_may_limit,
        )  # fmt: skip
        return _cached_imbalance(*inputs) if counts is None else imbalance(*inputs, counts=counts)

    imbalances = imbalance_of(costs.prefill_role), imbalance_of(costs.decoding_role)
    assembly = Assembly(net, costs, routing, *imbalances, tokens_per_request)
    if scenario.cost.cap_w <= 0.0:
        return assembly
    prediction = _predict_rates(assembly, traffic_of(scenario, facts, trace, costs))
    return replace(
        assembly,
        costs=build_costs(scenario, facts, net, capped_clocks(scenario, facts, prediction)),
    )


def predict_steady(
    scenario: Scenario, facts: Facts, trace: TraceTable | None = None,
    counts: Counts | None = None, *, traffic: Traffic | None = None,
) -> Prediction:  # fmt: skip
    """Sustained rates of the deployment when it is always full, and their limit; traffic:
    `traffic_of` if None. Raises as `assemble`, and ModelError for a model or request too large."""
    return Priced(scenario, facts, trace, counts, traffic).prediction


@dataclass(frozen=True, slots=True)
class Room:
    """Which requests of a sample KV space has room for."""

    fits: NDArray[np.bool_]  # bool[n]: the others are refused at the router
    ends: NDArray[np.bool_]  # bool[n]: whose whole answer fits too; of others a part is computed
    answers: NDArray[np.int32]  # i4[n] tokens that are computed of each answer
    space_text: str  # sentence about the tokens that there is space for

    @property
    def all_fit(self) -> bool:
        """Whether every request and its whole answer find room."""
        return bool(self.ends.all())

    @property
    def admitted_share(self) -> float:
        """Share of the requests that are not refused at the router."""
        return float(self.fits.mean())


def room_for(
    costs: Costs, block_tokens: int, prompts: NDArray[np.int32], answers: NDArray[np.int32]
) -> Room:
    """Which requests of these lengths, i4[n] tokens each, find room in KV space, by the rules of
    the engine. A decode rank must hold the prompt and a block, a prefill die the prompt, and a
    decode rank without other requests prompt, answer and half a block."""
    fits, answer_tokens, space_texts = np.ones(prompts.size, bool), answers, list[str]()
    if (decode := costs.decoding_role) is not None:
        holder = "a die" if decode.pool.rank_dies == 1 else "a rank"
        space_texts.append(f"{holder} has KV space for {decode.kv_tokens_per_rank:,} tokens")
        fits &= prompts + block_tokens <= decode.kv_tokens_per_rank
        max_answer_tokens = int(decode.kv_tokens_per_rank - 0.5 * block_tokens) - prompts + 1
        answer_tokens = np.minimum(answers, np.maximum(max_answer_tokens, 1)).astype(answers.dtype)
    if (prefill := costs.prefill_role) is not None:
        fits &= prompts <= prefill.kv_tokens_per_rank
        space_texts.append(f"a prefill die has it for {prefill.kv_tokens_per_rank:,}")
    return Room(fits, fits & (answer_tokens == answers), answer_tokens, ", ".join(space_texts))


@dataclass(frozen=True)
class Priced:
    """A scenario with inputs of formulas, each computed once. Raises as `predict_steady`."""

    scenario: Scenario
    facts: Facts
    trace: TraceTable | None = None
    counts: Counts | None = None
    given: Traffic | None = None  # in place of the workload's own

    @cached_property
    def parts(self) -> Assembly:
        """The machine, its costs and the imbalance of its experts, as `assemble` returns them."""
        return assemble(self.scenario, self.facts, self.trace, self.counts)

    @cached_property
    def traffic(self) -> Traffic:
        """Mean tokens of prompts, answers and reused prompt parts, without refused requests."""
        if self.given is not None:
            return self.given
        traffic = traffic_of(self.scenario, self.facts, self.trace, self.parts.costs)
        if self.room.all_fit:
            return traffic
        prompt_tokens = self.sample.prompts.astype(float)
        mean_prompt_tokens = float(prompt_tokens.mean())
        mean_answer_tokens = float(self.sample.answers.mean())
        length_ratio = mean_prompt_tokens / traffic.input_tokens
        return Traffic(
            mean_prompt_tokens, mean_answer_tokens, traffic.hit_tokens * length_ratio,
            spread=float((prompt_tokens**2).mean()) / mean_prompt_tokens**2,
            prompts=relative_lengths(self.sample.prompts),
            here_tokens=traffic.here_tokens * length_ratio,
        )  # fmt: skip

    @cached_property
    def prediction(self) -> Prediction:
        """Steady state with all slots taken; decode runs at the rate of its limiting stage."""
        workload, imbalance_table = self.scenario.workload, self.parts.decode_imbalance.table
        client_count = workload.concurrency if workload.arrivals == "closed_loop" else 0
        parts, costs = self.parts, self.parts.costs
        if self.given is None and not self.room.all_fit:  # API servers process refused ones too
            admitted_per_s = costs.front_end_requests_per_s * self.room.admitted_share
            parts = replace(parts, costs=replace(costs, front_end_requests_per_s=admitted_per_s))
        return predict_at_load(
            _predict_rates(parts, self.traffic), self.traffic, imbalance_table, client_count
        )

    @cached_property
    def all_requests(self) -> Offered:
        """A sample of the scenario's requests, including those that a run refuses."""
        return offered_load(self.scenario, self.facts, self.trace)

    @cached_property
    def room(self) -> Room:
        """Which of `all_requests` find room in KV space. Raises ModelError if none does."""
        sample = self.all_requests
        room = self.room_for(sample.prompts, sample.answers)
        if not room.ends.any():
            shortest_tokens = int((sample.prompts + sample.answers).min())
            raise ModelError(
                f"a request of {shortest_tokens:,} tokens does not fit: {room.space_text}, and "
                f"a request needs up to {self.scenario.memory_pool.block_tokens} more (a block); "
                "shorten requests, use kv = int8 or more NPUs"
            )
        return room

    def room_for(self, prompts: NDArray[np.int32], answers: NDArray[np.int32]) -> Room:
        """Which requests of these lengths, i4[n] each, KV space has room for, as in a run."""
        return room_for(self.parts.costs, self.scenario.memory_pool.block_tokens, prompts, answers)

    @cached_property
    def sample(self) -> Offered:
        """The requests of `all_requests` that a run does not refuse, and their rate. An answer that
        outgrows KV space is cut there."""
        whole_sample = self.all_requests
        if self.room.all_fit:
            return whole_sample
        fits, req_per_s = self.room.fits, whole_sample.rate_req_per_s
        return replace(
            whole_sample, requests=int(fits.sum()),
            rate_req_per_s=None if req_per_s is None else req_per_s * self.room.admitted_share,
            prompts=whole_sample.prompts[fits], answers=self.room.answers[fits],
            arrivals=whole_sample.arrivals[fits], seen=whole_sample.seen[fits],
        )  # fmt: skip

    @cached_property
    def whole_answers(self) -> NDArray[np.int32]:
        """Tokens of the sample's answers that end within KV space, which count as finished."""
        return self.room.answers[self.room.ends]

    @cached_property
    def seen_tokens(self) -> NDArray[np.float64]:
        """Tokens of each prompt of the sample, f8[requests], that the memory pool holds; without a
        memory pool, tokens that earlier prompts contained."""
        s = self.scenario
        if not s.memory_pool.enabled or s.deployment.mode == "decode_only":
            return self.sample.seen
        return pool_hit_tokens(s, self.facts, self.trace, self.parts.costs)[self.room.fits]

    @property
    def pool(self) -> Pool:
        """The pool of instances that decodes: the colocated pool if there is one."""
        pools = self.parts.costs.deployed.pools
        return pools.get("colocated") or pools["decode"]


def predict_with_advice(priced: Priced) -> Prediction:
    """Steady state at full load; if TPOT exceeds the SLO's, the advice names a batch within it."""
    forecast, limit_s = priced.prediction, priced.scenario.slo.tpot_ms * 1e-3
    if forecast.decode is None or forecast.decode.tpot_s <= limit_s:
        return forecast
    return replace(forecast, advice=f"{forecast.advice} {largest_batch(priced, limit_s).sentence}")


def traffic_of(
    scenario: Scenario, facts: Facts, trace: TraceTable | None = None, costs: Costs | None = None
) -> Traffic:
    """Mean tokens of prompts, of answers, and of a prompt's hits in the memory pool and in HBM,
    found with a sample. costs: of the scenario; if None, computed when prompts reuse blocks."""
    lengths = mean_lengths(scenario.workload, facts, trace)
    memory_hit_tokens = hbm_hit_tokens = 0.0
    if scenario.deployment.mode != "decode_only":
        sample = offered_load(scenario, facts, trace)
        if sample.reuse > 0.0:
            costs = costs or build_costs(scenario, facts, build_fabric(scenario.supernode, facts))
        if costs and scenario.memory_pool.in_hbm:
            hbm_share = _hbm_hit_share(scenario, facts, trace, lengths, costs)
            hbm_hit_tokens = hbm_share * lengths.input_tokens
        if costs and scenario.memory_pool.enabled:
            seen_tokens = pool_hit_tokens(scenario, facts, trace, costs)
            hit_share = float(seen_tokens.sum()) / float(sample.prompts.sum())
            memory_hit_tokens = hit_share * lengths.input_tokens
    return Traffic(
        lengths.input_tokens, lengths.output_tokens, max(memory_hit_tokens, hbm_hit_tokens),
        spread=lengths.prompt_spread, prompts=lengths.prompts, here_tokens=hbm_hit_tokens,
    )  # fmt: skip


def pool_hit_tokens(
    scenario: Scenario, facts: Facts, trace: TraceTable | None, costs: Costs
) -> NDArray[np.float64]:
    """Expected tokens of each prompt of a sample that the memory pool holds, f8[requests]. Unless
    all blocks fit, an LRU is simulated over the first requests.
    Each supernode behind a front router has a pool; a local pool is one cache per instance;
    requests go to these caches in turn. SSDs hold copies of the blocks in DRAM."""
    pool, sample = scenario.memory_pool, offered_load(scenario, facts, trace)
    stores_answers, prefill_role = pool.answers, costs.prefilling_role
    if prefill_role is None:
        return np.zeros(sample.prompts.size)
    net, pool_count = build_fabric(scenario.supernode, facts), 1
    pool_nodes = dram_ratio(net, lending_nodes(net))
    if scenario.router.front != "none":
        pool_count = scenario.supernode.supernodes
        pool_nodes /= pool_count
    if pool.scope == "local":
        pool_count, pool_nodes = prefill_role.pool.instances, prefill_role.dies / net.dies_per_node
        if _routes_by_prefix(scenario):
            pool_count, pool_nodes = 1, pool_nodes * pool_count
    node_bytes = max(node_dram_bytes(pool, facts, net.dies_per_node), pool.ssd_gb_per_node * 1e9)
    room_blocks = node_bytes * pool_nodes / costs.held_bytes(sample.block_tokens)
    if pool.policy == "infinite":
        room_blocks = math.inf
    ttl_s = pool.ttl_s if pool.policy == "ttl" else math.inf
    has_room = pool_count == 1 and sample.blocks <= room_blocks and math.isinf(ttl_s)
    if has_room and not stores_answers:
        return sample.seen
    hits = lru_hit_tokens(
        scenario, facts, trace, Caches(pool_count, room_blocks, ttl_s), stores_answers
    ).astype(np.float64)  # fmt: skip
    if hits.size == sample.seen.size:
        return hits
    # Of a longer trace, as much less as in its first part.
    return sample.seen * (hits.sum() / max(float(sample.seen[: hits.size].sum()), 1.0))


def _routes_by_prefix(scenario: Scenario) -> bool:
    """Whether the router sends a prompt to the local cache that holds its prefix."""
    policy, prefix = scenario.router.policy, scenario.workload.prefix
    return policy in HIT_ROUTERS or (policy == "session_sticky" and prefix == "sessions")


def _hbm_hit_share(
    scenario: Scenario, facts: Facts, trace: TraceTable | None, means: MeanLengths, costs: Costs
) -> float:
    """Share of prompt tokens that prefix caches in HBM hold, by an LRU over a sample. The space
    holds prompts of running requests, but no KV of their answers. If the router looks for hits, all
    caches count as one; else each of n caches gets every n-th request. means: mean lengths."""
    role = costs.prefilling_role
    if role is None:
        return 0.0
    cache_tokens = float(role.kv_tokens_per_rank)
    cache_count = role.pool.instances * kv_holders(role.pool, role.dies)
    if role.pool.role == "colocated":
        request_tokens = means.input_tokens + 0.5 * means.output_tokens
        cache_tokens -= min(role.slots(role.pool.batch_per_npu), cache_tokens / request_tokens) * (
            request_tokens - means.input_tokens
        )
    block_tokens = scenario.memory_pool.block_tokens
    room_blocks = cache_tokens * costs.kv_bytes_per_token / costs.held_bytes(block_tokens)
    if scenario.router.policy in HIT_ROUTERS:
        cache_count, room_blocks = 1, room_blocks * cache_count
    hits = lru_hit_tokens(scenario, facts, trace, Caches(cache_count, float(int(room_blocks))))
    prompt_tokens = offered_load(scenario, facts, trace).prompts[: hits.size]
    return float(hits.sum()) / float(prompt_tokens.sum())


def full_traffic(scenario: Scenario, facts: Facts, hit_share: float = 0.0) -> Traffic:
    """Mean lengths of the workload and the distribution of the tokens of a request in progress
    while every slot is taken. hit_share: reused share of a prompt. Long answers are in progress
    longer: the age of a renewal process has the k-th moment E[a^(k + 1)] / ((k + 1) E[a])."""
    workload = scenario.workload
    if workload.lengths == "fixed":
        prompt_tokens, answer_tokens = float(workload.input_tokens), float(workload.output_tokens)
        return Traffic(prompt_tokens, answer_tokens, hit_share * prompt_tokens)
    prompts, answers = drawn_lengths(facts, workload)
    prompt_moments = [prompts.moment(k) for k in (1, 2, 3)]
    age_moments = [answers.moment(k + 1) / ((k + 1.0) * answers.mean) for k in (1, 2, 3)]
    variance = skew = 0.0  # central moments
    for mean, second_moment, third_moment in (prompt_moments, age_moments):
        variance += second_moment - mean * mean
        skew += third_moment - 3.0 * mean * second_moment + 2.0 * mean**3
    held_tokens = Held(age_moments[0], math.sqrt(variance), skew / variance**1.5)
    mean_tokens = prompt_moments[0]
    spread = prompt_moments[1] / mean_tokens**2
    return Traffic(
        mean_tokens, answers.mean, hit_share * mean_tokens, held_tokens, spread, prompts.multiples
    )


@lru_cache(maxsize=128)
def _cached_imbalance(*question: Any) -> Imbalance:
    """Returns `imbalance(*question)`, the expert imbalance of an instance; caches the last 128."""
    with without_compiling():
        return imbalance(*question)


@dataclass(frozen=True, slots=True)
class Target:
    """Largest batch, and its figures, under a bound on the time per output token."""

    tpot_s: float  # the bound
    batch_per_npu: int  # the largest batch that keeps it; 0: none does
    batch_tpot_s: float  # its TPOT; of an infeasible bound that of the smallest batch
    best_batch_per_npu: int  # the smallest batch, one request a die
    best_tpot_s: float
    causes: dict[str, float]  # share of the best iteration that each cause takes, longest first

    @property
    def bottleneck(self) -> str:
        """Returns the cause that takes most time of the best TPOT."""
        return next(iter(self.causes))

    @property
    def sentence(self) -> str:
        """The result as a sentence for people."""
        bound_text = f"TPOT of {self.tpot_s * 1e3:,.4g} ms"
        if self.batch_per_npu > 0:
            return (
                f"{self.batch_per_npu:,} requests per NPU is the largest batch that keeps a "
                f"{bound_text}: {self.batch_tpot_s * 1e3:,.4g} ms."
            )
        first_cause, *further = self.causes
        return (
            f"No batch keeps a {bound_text} in this deployment: the best is "
            f"{self.best_tpot_s * 1e3:,.4g} ms with {self.best_batch_per_npu} per NPU, "
            f"{100 * self.causes[first_cause]:.0f} % of it {first_cause}"
            + (f" and {100 * self.causes[further[0]]:.0f} % {further[0]}." if further else ".")
        )


def largest_batch(priced: Priced, tpot_s: float) -> Target:
    """The largest batch per NPU, with whole requests per die, whose steady state has a TPOT of at
    most `tpot_s` for mean lengths. Raises ModelError without decode, or if memory is too small."""
    scenario, facts = priced.scenario, priced.facts
    if scenario.deployment.mode == "prefill_only":
        raise ModelError("deployment.mode = 'prefill_only' decodes nothing: it has no TPOT")
    parts, role = priced.parts, priced.parts.costs.decoding_role
    assert role is not None
    dies_per_npu = role.chip.dies_per_npu
    traffic = Traffic(priced.traffic.input_tokens, priced.traffic.output_tokens)

    def prediction_of(slots: int) -> Prediction:
        """The steady state with this number of slots on every decode die."""
        override = {"deployment.decode.batch_per_npu": slots * dies_per_npu}
        changed_scenario = with_overrides(scenario, override)
        costs = build_costs(changed_scenario, facts, parts.net, parts.costs.deployed.clocks)
        return _predict_rates(replace(parts, costs=costs), traffic)

    def tpot_s_of(slots: int) -> float:
        """TPOT (s) with this number of slots a die; infinite if their buffers do not fit."""
        try:
            decode = prediction_of(slots).decode
        except ModelError:  # a batch whose buffers do not fit is no batch
            return math.inf
        assert decode is not None
        return decode.tpot_s if decode.batch_per_npu >= slots * dies_per_npu else math.inf

    one_slot = prediction_of(1)
    assert one_slot.decode is not None
    causes = shares_by_cause(one_slot.costs, traffic, parts.decode_imbalance.table)
    tpot_of_one_s = one_slot.decode.tpot_s
    die_batch, batch_tpot_s, least_too_large = 0, tpot_of_one_s, 1
    if tpot_of_one_s <= tpot_s:
        die_batch, least_too_large = 1, max(2, 4096 // dies_per_npu + 1)
    while least_too_large - die_batch > 1:
        middle_die_batch = (die_batch + least_too_large) // 2
        if (middle_tpot_s := tpot_s_of(middle_die_batch)) <= tpot_s:
            die_batch, batch_tpot_s = middle_die_batch, middle_tpot_s
        else:
            least_too_large = middle_die_batch
    return Target(
        tpot_s, die_batch * dies_per_npu, batch_tpot_s, dies_per_npu, tpot_of_one_s, causes
    )


def _predict_rates(parts: Assembly, traffic: Traffic) -> Prediction:
    """Steady state of a deployment under `traffic`; parts: its machine, costs and imbalance. Hits
    in the memory pool count where reading them takes no longer than computing them again."""
    role, read_tokens = parts.costs.prefilling_role, traffic.read_tokens
    if role is not None and read_tokens > 0.0:
        saved_s = recompute_s(parts, role, traffic.input_tokens) * read_tokens
        if not fetch_pays(parts.costs.servers.read_s(role.fetch, read_tokens), saved_s):
            traffic = replace(traffic, hit_tokens=traffic.here_tokens)
    imbalance_tables = parts.prefill_imbalance.table, parts.decode_imbalance.table
    return predict(parts.costs, traffic, *imbalance_tables)


def recompute_s(parts: Assembly, role: RoleCosts, input_tokens: float) -> float:
    """Seconds that an instance saves by a prompt token whose KV is reused, before it is read. role:
    costs of the instance; input_tokens: mean tokens of a prompt."""
    is_prefill = role.pool.role == "prefill"
    expert_imbalance = parts.prefill_imbalance if is_prefill else parts.decode_imbalance
    return recompute_s_per_token(role, role.prompt_tokens, input_tokens, expert_imbalance.table)
