"""The closed steady state by formula: what a deployment gives when it is always full. The kernels
that the simulation calls for every iteration are called once, for full slots and mean lengths. No
arrivals, no queue, no cold start; reuse and imbalance arrive as numbers and tables."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from twin.facts import Facts
from twin.hardware.power import Use, clock_share
from twin.metrics.operators import awaited_resource
from twin.model import mixed
from twin.model.batch import LoadCurve
from twin.model.coefficients import CAUSES, DecodeCosts
from twin.model.costs import Costs, RoleCosts
from twin.model.decode import decode_flops, decode_hbm_bytes, decode_iteration_s
from twin.model.prefill import (
    layerwise_s,
    prefill_batch_s,
    prefill_flops,
    prefill_hbm_bytes,
    prefill_hits_s,
)
from twin.model.record import without_cause
from twin.model.roofline import max_of_normals
from twin.model.shape import ModelError
from twin.scenario import Scenario

EVEN: LoadCurve = (np.array([1.0]), np.array([1.0]))
LEVEL = 1.1  # prefill and decode that sustain rates this close are in balance
ROUNDS = 3  # between how long prompts wait for other ranks and how many come
NEARLY = 0.95  # of a budget, where it limits


@dataclass(frozen=True, slots=True)
class Held:
    """Tokens of a request in progress beyond a mean prompt: mean, standard deviation, skew. Long
    answers are in progress longer, so the mean is more than half an answer: E[a^2] / (2 E[a]), the
    mean age of a renewal process."""

    mean: float
    deviation: float
    skew: float = 0.0


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests as the formula needs them: mean tokens, and the reused part of a prompt."""

    input_tokens: float
    output_tokens: float
    hit_tokens: float = 0.0
    held: Held | None = None  # of answers of unequal length; None: all alike, at even stages
    spread: float = 1.0  # mean square of a prompt over its mean's: long ones have most pairs
    prompts: tuple[float, ...] = mixed.ALIKE  # equally likely lengths of a prompt, over the mean
    here_tokens: float = 0.0  # of the hits, in the HBM of the instance: read from nowhere

    @property
    def held_mean(self) -> float:
        """Mean tokens of a request in progress beyond those of its prompt."""
        return self.held.mean if self.held else 0.5 * self.output_tokens

    @property
    def read_tokens(self) -> float:
        """Mean tokens of a prompt that are read from the memory pool."""
        return max(0.0, self.hit_tokens - self.here_tokens)

    @property
    def fresh_tokens(self) -> float:
        """Mean tokens of a prompt that have to be computed."""
        return max(1.0, self.input_tokens - self.hit_tokens)

    @property
    def fresh_pairs(self) -> float:
        """Mean query-key pairs of a prompt: each computed token with all tokens before it."""
        return self.spread * self.fresh_tokens * (self.hit_tokens + 0.5 * (self.fresh_tokens + 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPrediction:
    """An instance in the steady state."""

    phase: ClassVar[str]
    tokens_per_s_per_npu: float
    operators: dict[str, float]  # seconds of an iteration or a batch on the critical path
    cube_utilisation: float  # FLOP/s over the peak of the weights' format
    requests_per_s: float  # all instances of its pool

    @property
    def longest_operator(self) -> str:
        """Name of the operator that takes longest in an iteration or batch."""
        return max(self.operators, key=lambda n: (self.operators[n], n))

    @property
    def resource(self) -> str:
        """Name of the resource that the longest operator waits for."""
        return awaited_resource(self.longest_operator, self.phase)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodePrediction(PoolPrediction):
    """A decode instance with all slots taken."""

    phase = "decode"
    batch_per_npu: float  # what slots and KV space allow
    limited_by: str  # "slots" or "KV space"
    iteration_s: float
    tokens_per_iteration: float  # of one request
    tpot_s: float
    hbm_utilisation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillPrediction(PoolPrediction):
    """A prefill instance that always has a full batch."""

    phase = "prefill"
    batch_s: float
    batch_tokens: float  # computed, without hits


@dataclass(frozen=True, slots=True)
class Prediction:
    """The sustained rates of a deployment, and what limits them; a missing pool is None."""

    decode: DecodePrediction | None
    prefill: PrefillPrediction | None
    front_end_requests_per_s: float
    requests_per_s: float
    limit: str  # "prefill", "decode", "colocated" or "front end"
    advice: str
    costs: Costs
    fed: DecodePrediction | None = None  # where something else limits decode (feeding.py)

    @property
    def serving(self) -> DecodePrediction | None:
        """Prediction of decode with as many requests as prefill or arrivals let through, otherwise
        with full slots; None without decode."""
        return self.fed or self.decode


def predict(
    costs: Costs, traffic: Traffic, prefill_hot: LoadCurve = EVEN, decode_hot: LoadCurve = EVEN
) -> Prediction:
    """Steady state of a deployment. prefill_hot, decode_hot: (tokens that enter an MoE layer, load
    of the hottest die divided by the mean), f8[G] each. Raises ModelError if no request fits."""
    front_requests_per_s = costs.front_end_requests_per_s
    if (prompt_role := costs.prefilling_role) is not None:
        prompts_per_s = costs.tokenised_prompts_per_s(traffic.input_tokens)
        front_requests_per_s = min(front_requests_per_s, prompt_role.pool.instances * prompts_per_s)
    requests_per_s = {"front end": front_requests_per_s}
    prefill = decode = None
    if costs.colocated_role is not None:
        decode, prefill = _predict_colocated(costs, costs.colocated_role, traffic, decode_hot)
        requests_per_s["colocated"] = decode.requests_per_s
    if costs.prefill_role is not None:
        prefill = _predict_prefill(costs, costs.prefill_role, traffic, prefill_hot)
        requests_per_s["prefill"] = prefill.requests_per_s
    if costs.decode_role is not None:
        decode = predict_decode(costs, traffic, decode_hot, *slots_of(costs.decode_role, traffic))
        requests_per_s["decode"] = decode.requests_per_s
    limit = min(requests_per_s, key=lambda name: (requests_per_s[name], name))
    advice = " ".join([_advice(costs, requests_per_s, limit, decode), *costs.remarks])
    return Prediction(
        decode, prefill, front_requests_per_s, requests_per_s[limit], limit, advice, costs
    )


def rank_load(
    requests: float, ranks: int, traffic: Traffic
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(requests i8[R], context tokens f8[R]) of each rank, the fullest first, for a mean of
    `requests` per rank. Requests are at even stages of their answers (or distributed as
    `traffic.held` says), so contexts of ranks vary; an iteration waits for the slowest rank."""
    total_requests = round(requests * ranks)
    rank_requests = np.full(ranks, total_requests // ranks, np.int64)
    rank_requests[: total_requests % ranks] += 1
    most_requests = float(rank_requests[0])
    rank_context = (rank_requests * (traffic.input_tokens + traffic.held_mean)).astype(np.float64)
    if traffic.held is not None:
        z = max_of_normals(ranks)  # of sums that are normal but for their skew (Cornish and Fisher)
        z += (z * z - 1.0) * traffic.held.skew / (6.0 * math.sqrt(max(most_requests, 1.0)))
        rank_context[0] += max(z, 0.0) * math.sqrt(most_requests) * traffic.held.deviation
        return rank_requests, rank_context
    context_deviation = math.sqrt(most_requests / 12.0) * traffic.output_tokens
    longest_context = most_requests * (traffic.input_tokens + traffic.output_tokens)
    rank_context[0] = min(
        rank_context[0] + max_of_normals(ranks) * context_deviation, longest_context
    )
    return rank_requests, rank_context


def _with_fullest_rank(
    count: NDArray[Any], context: NDArray[np.float64], most: float
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """(requests, context tokens) of each rank, f8[R], with the expected maximum of `most` requests
    on the first rank and unchanged sums. count, context: requests and context tokens before."""
    request_context = context[1:].sum() / count[1:].sum()  # of a mean request
    rank_requests = np.full(count.size, (count.sum() - most) / (count.size - 1))
    rank_requests[0] = most
    rank_context = rank_requests * request_context
    rank_context[0] += context[0] - count[0] * request_context
    return rank_requests, rank_context


def slots_of(role: RoleCosts, traffic: Traffic) -> tuple[float, str]:
    """(mean number of requests that a rank decodes at once; what limits it: "slots" or "KV space").
    Raises ModelError if not one request fits."""
    wanted_slots = role.slots(role.pool.batch_per_npu)
    request_tokens = traffic.input_tokens + traffic.held_mean
    kv_slots, rank_dies = math.floor(role.kv_tokens_per_rank / request_tokens), role.pool.rank_dies
    if kv_slots < 1:
        owner = "a die" if rank_dies == 1 else f"a rank of {rank_dies} dies"
        raise ModelError(
            f"a request of {request_tokens:,.0f} tokens does not fit: {owner} has KV space for "
            f"{role.kv_tokens_per_rank:,} tokens; shorten requests, use kv = int8 or more NPUs"
        )
    return (float(kv_slots), "KV space") if kv_slots < wanted_slots else (wanted_slots, "slots")


def predict_decode(
    costs: Costs, traffic: Traffic, hot: LoadCurve, count: float, limited: str, most: float = 0.0
) -> DecodePrediction:
    """A decode instance with `count` requests per rank on average. limited: what limits them; most:
    requests of the busiest rank, 0 if they are even; hot: load of the hottest die by tokens."""
    role = costs.decode_role
    assert role is not None
    requests, context = rank_load(count, role.ranks, traffic)
    if most > requests[0] and requests.sum() > most:
        requests, context = _with_fullest_rank(requests, context, most)
    ops = role.operator_sink()
    pass_s = float(decode_iteration_s(role.decode, requests, context, 0, role.ranks, *hot, ops))
    rank_sums = float(requests.sum()), role.pool.own.requests * float(context.sum())
    flops = decode_flops(role.decode, *rank_sums)
    return _decode_figures(costs, role, traffic, pass_s, ops, count, limited, rank_sums, flops)


def _decode_figures(
    costs: Costs, role: RoleCosts, traffic: Traffic, iteration_s: float, ops: NDArray[np.float64],
    count: float, limited: str, totals: tuple[float, float], flops: float,
) -> DecodePrediction:  # fmt: skip
    """Prediction for instances with iterations of `iteration_s`. ops: seconds of each operator;
    count: requests of a rank; limited: what limits them; totals: (requests, context tokens) of all
    ranks; flops: of the iteration."""
    tpot_s = iteration_s / costs.tokens_per_iteration
    npu_requests = count * (role.chip.dies_per_npu / role.pool.rank_dies)
    answers_per_iteration = role.pool.instances * npu_requests * role.npus
    hbm_bytes = decode_hbm_bytes(role.decode, *totals, float(role.ranks))
    return DecodePrediction(
        batch_per_npu=npu_requests,
        limited_by=limited,
        iteration_s=iteration_s,
        tokens_per_iteration=costs.tokens_per_iteration,
        tpot_s=tpot_s,
        tokens_per_s_per_npu=npu_requests / tpot_s,
        operators=_seconds_by_operator(role, ops),
        cube_utilisation=flops / (iteration_s * role.peak_flops),
        hbm_utilisation=hbm_bytes / (iteration_s * role.chip.hbm_bytes_per_s * role.dies),
        requests_per_s=answers_per_iteration / (tpot_s * max(1.0, traffic.output_tokens - 1.0)),
    )


def _seconds_by_operator(role: RoleCosts, ops: NDArray[np.float64]) -> dict[str, float]:
    """Seconds by name of operator, without operators that take no time. ops: seconds by index."""
    operator_s = zip(role.operators, ops.tolist(), strict=True)
    return {operator: seconds for operator, seconds in operator_s if seconds > 0.0}


def _predict_prefill(
    costs: Costs, role: RoleCosts, traffic: Traffic, hot: LoadCurve
) -> PrefillPrediction:
    """Prediction of the prefill pool with full batches. hot: load of the hottest die by tokens."""
    is_data_parallel = role.pool.own.attention == "dp"
    if traffic.input_tokens > role.kv_tokens_per_rank:
        # On NPUs of decode there is room for one batch, however many they are.
        remedy = "raise deployment.prefill.tokens_per_npu" if role.pool.lender else "add NPUs"
        raise ModelError(
            f"a prompt of {traffic.input_tokens:,.0f} tokens does not fit: a die of a prefill "
            f"instance has KV space for {role.kv_tokens_per_rank:,} tokens; shorten it or {remedy}"
        )
    # Every die holds the whole latent KV of a batch, hits included (arXiv 2506.12708v2 section
    # 4.3.3); data parallel attention spreads prompts over the dies.
    cp_dies = role.pool.own.cp_dies
    group_count = role.stage_dies // cp_dies
    kv_tokens = float(role.kv_tokens_per_rank) * (group_count if is_data_parallel else 1)
    token_budget = role.prompt_tokens
    prompts = max(1.0, min(token_budget / traffic.fresh_tokens, kv_tokens / traffic.input_tokens))
    tokens, pairs = prompts * traffic.fresh_tokens, prompts * traffic.fresh_pairs
    fullest_share = 1.0 / role.stage_dies
    if is_data_parallel:  # whole prompts on a die or group: some have one more, or the only one
        fullest_share = math.ceil(prompts / group_count) / prompts / cp_dies
    operator_s = role.operator_sink()
    cached_tokens = prompts * traffic.hit_tokens
    batch_s = prefill_batch_s(
        role.prefill, tokens, tokens * fullest_share, pairs * fullest_share, *hot, operator_s
    )
    batch_s = float(batch_s + prefill_hits_s(role.prefill, cached_tokens, operator_s))
    operators, cached_tokens = _seconds_by_operator(role, operator_s), prompts * traffic.read_tokens
    if (fetch_s := costs.servers.read_s(role.fetch, cached_tokens, prompts)) > 0.0:
        if costs.servers.pool.layerwise:
            fetch_s = float(layerwise_s(role.prefill, fetch_s, batch_s)) - batch_s
        batch_s += fetch_s
        hottest_server_s = costs.servers.hottest_server_s(
            role.fetch, cached_tokens, prompts, role.pool.instances
        )
        operators["fetch"] = fetch_s + max(0.0, hottest_server_s - batch_s)
        batch_s = max(batch_s, hottest_server_s)
    return PrefillPrediction(
        batch_s=batch_s,
        batch_tokens=tokens,
        tokens_per_s_per_npu=tokens / batch_s / role.npus,
        operators=operators,
        cube_utilisation=prefill_flops(role.prefill, tokens, pairs) / (batch_s * role.peak_flops),
        requests_per_s=role.pool.instances * prompts / batch_s,
    )


def _predict_colocated(
    costs: Costs, role: RoleCosts, traffic: Traffic, hot: LoadCurve
) -> tuple[DecodePrediction, PrefillPrediction]:
    """(decode, prefill) of colocated instances in balance: prompts are computed as answers end."""
    pool, fresh, budget = role.pool, traffic.fresh_tokens, role.prompt_tokens
    slots, limited_by = slots_of(role, traffic)
    room_tokens, group, ranks = budget / role.ranks, pool.prompt_ranks, role.ranks
    # A prompt's own iterations hold its slot and give the first token; answers end in the others.
    decode_passes = max(1.0, traffic.output_tokens - 1.0) / costs.tokens_per_iteration
    group_room_tokens = room_tokens * min(group, ranks)
    iterations = decode_passes + mixed.prompt_iterations(fresh, group_room_tokens, traffic.prompts)
    if delay := pool.prompt_delay:  # the longer they wait, the fewer come
        decode_iterations = iterations
        for _ in range(ROUNDS):
            prompt_tokens = slots * ranks / iterations * fresh
            prompt_load = prompt_tokens, prompt_tokens, fresh, room_tokens, ranks, group
            wait_iterations = mixed.delayed_prompts_by_rank(*prompt_load, traffic.prompts, delay)[1]
            iterations = decode_iterations + wait_iterations
    else:
        iterations += _prompt_wait(
            slots * min(group, ranks), iterations, fresh / group_room_tokens, traffic.spread
        )
    # Prompts an iteration, and answers of a rank.
    joining, slots = slots * ranks / iterations, slots * decode_passes / iterations
    if joining * fresh > NEARLY * budget:  # prompts can hardly keep up: fewer answers are under way
        limited_by = "prompt tokens an iteration may prefill"
    iteration_tokens, pairs = joining * fresh, joining * traffic.fresh_pairs
    requests, context = rank_load(slots, ranks, traffic)
    prompt_arguments = (iteration_tokens, pairs, fresh, room_tokens, ranks, group, traffic.prompts)
    prompts, _ = mixed.delayed_prompts_by_rank(*prompt_arguments, delay)
    operator_s = role.operator_sink()
    iteration_s = mixed.mixed_mean_s(role.decode, requests, context, prompts, hot, operator_s)
    iteration_s += float(mixed.mixed_hits_s(role.decode, joining * traffic.hit_tokens, operator_s))
    cached_tokens = joining * traffic.read_tokens
    iteration_s += costs.servers.read_s(role.fetch, cached_tokens, joining)
    hottest_s = costs.servers.hottest_server_s(role.fetch, cached_tokens, joining, pool.instances)
    iteration_s = max(iteration_s, hottest_s)
    rank_sums = float(requests.sum()), float(context.sum())
    flops = mixed.mixed_flops(role.decode, *rank_sums, iteration_tokens, pairs)
    decode = _decode_figures(
        costs, role, traffic, iteration_s, operator_s, slots, limited_by, rank_sums, flops
    )
    prefill = PrefillPrediction(
        batch_s=iteration_s,
        batch_tokens=iteration_tokens,
        tokens_per_s_per_npu=iteration_tokens / iteration_s / role.npus,
        operators={"prefill_chunk": float(operator_s[role.operators.index("prefill_chunk")])},
        cube_utilisation=decode.cube_utilisation,
        requests_per_s=pool.instances * joining / iteration_s,
    )
    return decode, prefill


def _prompt_wait(slots: float, held: float, service: float, spread: float) -> float:
    """Mean iterations that a prompt waits for earlier prompts at the ranks that compute it, which
    have `slots` slots: mean value analysis of a closed network, slot by slot, in which an arrival
    sees the state with one slot fewer (Reiser and Lavenberg). service: iterations of a prompt;
    held: all other iterations of a request; spread: mean square / squared mean of service."""
    queue_length = busy_slots = wait = 0.0
    for customers in range(1, math.ceil(slots) + 1):
        wait = service * max(0.0, queue_length - busy_slots) + 0.5 * spread * service * busy_slots
        wait = max(wait, min(customers, slots) * service - held)  # ranks are never more than busy
        prompts_per_pass = min(customers, slots) / (held + wait)
        queue_length, busy_slots = prompts_per_pass * (service + wait), prompts_per_pass * service
    return wait


def _advice(
    costs: Costs, rates: dict[str, float], limit: str, decode: DecodePrediction | None
) -> str:
    """A sentence on the balance of prefill and decode, and on what helps. rates: requests/s by
    pool; limit: name of the pool, or of the front end, that limits."""
    if "prefill" not in rates or "decode" not in rates:
        return f"The {limit} sustains {rates[limit]:,.1f} requests/s."
    prefill_requests_per_s, decode_requests_per_s = rates["prefill"], rates["decode"]
    if rates["front end"] < min(prefill_requests_per_s, decode_requests_per_s):
        if rates["front end"] < costs.front_end_requests_per_s:
            return "The tokenisers limit, one per instance: add instances."
        return "The front end limits: add API servers."
    pools = {pool_role: role.pool for pool_role, role in costs.roles.items()}
    pool_npus = {pool_role: pool.instances * pool.npus for pool_role, pool in pools.items()}
    if max(prefill_requests_per_s, decode_requests_per_s) <= LEVEL * min(
        prefill_requests_per_s, decode_requests_per_s
    ):
        return "Prefill and decode are in balance within 10 %."
    scarce_pool = "prefill" if prefill_requests_per_s < decode_requests_per_s else "decode"
    if any(pool.lender for pool in pools.values()):
        other_pool = "decode" if scarce_pool == "prefill" else "prefill"
        if scarce_pool == "decode" and decode is not None and decode.limited_by == "KV space":
            return (
                "With every slot taken the decode pool limits, for its KV space holds "
                f"{decode.batch_per_npu:.3g} of {pools['decode'].batch_per_npu} requests per NPU: "
                "a smaller deployment.prefill.tokens_per_npu leaves it more."
            )
        return (
            f"With every slot taken the {scarce_pool} pool limits. Cores for it "
            f"(deployment.prefill.core_share) are taken from {other_pool}."
        )
    npus_per_rate = (
        pool_npus["prefill"] / prefill_requests_per_s,
        pool_npus["decode"] / decode_requests_per_s,
    )
    balanced_percent = 100 * npus_per_rate[0] / (npus_per_rate[0] + npus_per_rate[1])
    present_percent = 100 * pool_npus["prefill"] / (pool_npus["prefill"] + pool_npus["decode"])
    return (
        f"The {scarce_pool} pool limits: in balance {balanced_percent:.0f} % of the NPUs would "
        f"prefill, now it is {present_percent:.0f} %."
    )


def capped_clocks(scenario: Scenario, facts: Facts, full: Prediction) -> dict[str, float]:
    """Share of the rated clock, by role, at which an always full instance stays within the power
    cap; raises HardwareError if even the lowest clock does not."""
    use_by_role = full_load(full)
    if (guest := full.costs.deployed.guest) is not None:  # both compute on one die: one clock
        prefill, decode = use_by_role["prefill"], use_by_role["decode"]
        shared_use = Use(guest.cores, prefill.cube + decode.cube, prefill.hbm + decode.hbm)
        use_by_role = dict.fromkeys(use_by_role, shared_use)
    return {role: clock_share(scenario, facts, role, use) for role, use in use_by_role.items()}


def full_load(full: Prediction) -> dict[str, Use]:
    """Busy shares of cores and HBM, by role, of a deployment whose instances are always full."""
    use_by_role, costs = {}, full.costs
    if full.decode is not None:
        is_colocated = costs.colocated_role is not None
        use = Use(float(is_colocated), full.decode.cube_utilisation, full.decode.hbm_utilisation)
        use_by_role["colocated" if is_colocated else "decode"] = use
    if full.prefill is not None and (role := costs.prefill_role) is not None:
        hbm_bytes = prefill_hbm_bytes(role.prefill, full.prefill.batch_tokens)
        hbm_share = hbm_bytes / (full.prefill.batch_s * role.chip.hbm_bytes_per_s * role.dies)
        use_by_role["prefill"] = Use(1.0, full.prefill.cube_utilisation, hbm_share)
    return use_by_role


def shares_by_cause(costs: Costs, traffic: Traffic, hot: LoadCurve) -> dict[str, float]:
    """Share of an iteration with one request per rank that each cause takes, largest first: how
    much shorter it is without the cause. Operators hide each other, so shares need not sum to 1."""
    role = costs.decoding_role
    assert role is not None
    requests, context = rank_load(1.0, role.ranks, traffic)

    def iteration_with(costs: DecodeCosts) -> float:
        """Seconds of an iteration with these coefficients."""
        return float(
            decode_iteration_s(costs, requests, context, 0, role.ranks, *hot, role.operator_sink())
        )

    iteration_s = iteration_with(role.decode)
    without_s = {cause: iteration_with(without_cause(role.decode, cause)) for cause in CAUSES}
    share_by_cause = {cause: 1.0 - seconds / iteration_s for cause, seconds in without_s.items()}
    return dict(sorted(share_by_cause.items(), key=lambda item: -item[1]))
