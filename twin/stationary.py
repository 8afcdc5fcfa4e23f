"""The steady state of a decode instance at a load, where the load and the time of its iterations
agree: with even ranks by formula, what uneven ranks add by the population, repeated."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twin.kernels.rng import stream_key
from twin.model.batch import fit_batch_s
from twin.model.coefficients import DecodeCosts
from twin.model.decode import decode_iteration_s
from twin.model.mixed import prompts_by_rank
from twin.model.record import dtype_of, numbers, scale_indices
from twin.model.waiting import relative_variance_in_progress, variance_share_of_mean
from twin.policies.batching import slots_of_ranks, tokens_per_iteration
from twin.policies.router import RANK_CHOICES
from twin.population import LOOK_EVERY, even_iteration_s, run_population, stretch_size
from twin.slots import ITERATION, NONE, Population
from twin.steady import Priced
from twin.workload.lengths import elapsed_tokens, mean_square, relative_lengths

LONG_LIFE = 5_000  # iterations of a mean answer: few requests come or leave in one
BURN, MEASURED = 1.5, 2.5  # lives of a request before and while times are taken, each pass
PROMPTS, LONGEST = 100, 4_000  # of mixed serving: prompts that a pass has at least; iterations
FEWEST, MOST = 3, 40  # passes
ITERATIONS = 4_000_000  # after which no pass begins: answers of 25,000 tokens have all of theirs
LINE = 5  # passes from which a line is drawn through them
SCATTER = 5e-3  # relative standard error of what uneven ranks add: passes end below it
HALVINGS = 40
CLOSE = 1e-2  # of the arrivals of an iteration: passes end when they change by less
LEAST_CV = 0.1  # of gaps: evener ones change nothing
SAMPLED, MOST_ITERATIONS = 2_000, 1_000_000  # answers whose stamps are read; iterations for them
RARE = 0.001  # arrivals of an iteration: fewer hardly meet, and their stamps take long to see
NONE_COMES = 1e-9  # arrivals of an iteration
FEW = 30  # answers whose seconds a token have a mean
OVER = 0.02  # more than full places answer, so that they stay full
NEAR = 0.05  # of the load: how much longer an iteration gets with it
WINDOW = 20.0  # square roots of the requests in progress: how far from them others are likely
LEAST_IDLE = 1e-3  # of all places, with requests that wait for one
# Lengths of the wait of a mixed instance that are distinguished, and those of a mean iteration.
WAITS, WAITS_A_MEAN = 256, 16
RARELY = 1e-9  # shares of the time below it count as none
KNOTS_APART = 1.25  # requests between which an iteration's seconds are interpolated


@dataclass(frozen=True, slots=True)
class Swings:
    """How the iterations of an instance differ."""

    lasting: float = 0.0  # relative standard deviation over time, of what lasts
    single: float = 0.0  # relative variance from one iteration to the next
    joining: float = 0.0  # requests that join the instance in an iteration, mean


@dataclass(slots=True)
class Stationary:
    """A decode instance in the steady state at a load."""

    population: Population
    iteration_s: float  # mean
    token_s: float  # of an answer, mean over requests: a few tokens count as much as a thousand
    swings: Swings
    late: float  # share of the time in which too many wait for a place
    rate_req_per_s: float  # what it answers
    life: float  # iterations that an answer needs, mean
    reserved_s: float
    overloaded: bool  # whether more come than full places answer
    error: float  # relative standard error of its iterations' mean


@dataclass(frozen=True, slots=True)
class Arriving:
    """Arrivals of one decode instance."""

    inputs: NDArray[np.int32]  # lengths of a sample of requests, tokens
    outputs: NDArray[np.int32]
    rate_req_per_s: float  # at most; infinite: clients alone decide
    reserved_s: float  # between the choice of a rank and the first iteration there
    clients: float = math.inf  # of a closed loop
    away_s: float = 0.0  # between an answer of theirs and the next one's first iteration
    cv: float = 1.0  # coefficient of variation of the gaps between arrivals
    most_iteration_s: float = math.inf  # of the load that is looked for
    patience_s: float = math.inf  # that a request may wait for its place
    sharing: int = 1  # mixed instances of which the next to begin an iteration takes what comes
    # Factor by which other traffic prolongs the exchange, of (requests/s, seconds of an iteration).
    wire_factor: Callable[[float, float], float] = lambda _rate, _iteration_s: 1.0


@dataclass(slots=True)
class Passes:
    """What passes over a population showed, a number of each."""

    ratios: list[float] = field(default_factory=list)  # seconds over those of even ranks
    came: list[float] = field(default_factory=list)  # prompt tokens over the expected ones
    late: list[float] = field(default_factory=list)  # share of the time in which too many wait
    lasting_squares: list[float] = field(default_factory=list)  # of iterations, relative
    own_squares: list[float] = field(default_factory=list)
    answers: NDArray[np.float64] = field(default_factory=lambda: np.zeros(4))  # `_mean_token_s`

    def add(self, p: Population, even_s: float, arriving: Arriving) -> None:
        """Add the measurements of the last pass, which `p.seen` holds. even_s: seconds that all
        measured iterations would take with even ranks; arriving: sample of the requests."""
        iterations, total_s, _, _, late_count, _, *swing_sums = map(float, p.seen[:9])
        ended_answers, tpot_sum_s, expected_prompts, arrived_tokens = map(float, p.seen[9:])
        self.ratios.append(total_s / even_s)
        expected_tokens = expected_prompts * (p.colocated * float(arriving.inputs.mean()))
        self.came.append(arrived_tokens / expected_tokens if expected_tokens > 0.0 else 1.0)
        self.late.append(late_count / iterations)
        self.answers += (ended_answers, tpot_sum_s, iterations, total_s)
        stretches, square_sum, neighbour_sum = swing_sums
        if stretches > 0.0:  # a pass over few iterations may end within its first one
            self.lasting_squares.append(neighbour_sum / stretches * (iterations / even_s) ** 2)
            own_mean_square = max(square_sum - neighbour_sum, 0.0) / stretches
            self.own_squares.append(own_mean_square * (iterations / total_s) ** 2 * stretch_size(p))

    def ratio_and_error(self) -> tuple[float, float]:
        """(mean ratio of measured seconds to those with even ranks, relative standard error)."""
        return controlled_mean_and_error(self.ratios, self.came)


def _empty_population(priced: Priced, arriving: Arriving) -> Population:
    """Returns the population of a decode or colocated instance with every slot free."""
    s, imbalance, pool = priced.scenario, priced.parts.decode_imbalance, priced.pool
    costs = priced.parts.costs.roles[pool.role]
    decode, seed, is_mixed = s.deployment.decode, s.seed, pool.role == "colocated"
    dies_per_npu = costs.chip.dies_per_npu
    rank_slots = slots_of_ranks(costs.ranks, pool.batch_per_npu, pool.rank_dies, dies_per_npu)
    fresh_tokens = priced.traffic.fresh_tokens * is_mixed
    fresh_pairs = priced.traffic.fresh_pairs * is_mixed
    longest_tokens = int(arriving.outputs.max(initial=1))
    operator_s = costs.operator_sink()
    one_request = np.ones(1, np.int64), np.ones(1), 0, 1
    shortest_s = float(decode_iteration_s(costs.decode, *one_request, *imbalance.table, operator_s))
    wait_iterations = int(arriving.reserved_s / shortest_s)
    acceptance = priced.parts.costs.mtp_acceptance
    life = mean_iterations(arriving.outputs, decode.mtp_draft_tokens, acceptance)
    slot_count = int(rank_slots.sum())
    next_slots = np.arange(1, slot_count + 1, dtype=np.int32)
    next_slots[-1] = NONE
    coefficients = numbers(costs.decode).view(dtype_of(DecodeCosts))
    array_sizes = {"ranks": costs.ranks, "places": slot_count, "operators": operator_s.size,
                   "answers": SAMPLED if is_mixed else 1, "waits": WAITS,
                   "ring": 1 << (longest_tokens + wait_iterations + 4).bit_length()}  # fmt: skip
    return Population(
        array_sizes, prices=coefficients, colocated=int(is_mixed),
        fresh=fresh_tokens / float(arriving.inputs.mean()),
        pair=fresh_pairs / mean_square(arriving.inputs),
        prompt_ranks=pool.prompt_ranks, prompt_delay=pool.prompt_delay,
        chunk_most=costs.prompt_tokens / costs.ranks, most_waiting=math.inf, expected_s=0.0,
        instances=float(arriving.sharing), prompt_s=_prompt_wait_s(priced, arriving), step_s=0.0,
        hot_tokens=imbalance.tokens, hot_factor=imbalance.factor,
        inputs=arriving.inputs, shortest=int(arriving.inputs.min()), outputs=arriving.outputs,
        room_tokens=float(costs.kv_tokens_per_rank), page_tokens=0.5 * s.memory_pool.block_tokens,
        regular=1.0 / max(arriving.cv, LEAST_CV) ** 2,
        rank_choice=RANK_CHOICES[decode.rank_choice], draft_tokens=decode.mtp_draft_tokens,
        acceptance=acceptance,
        skips=int(life > LONG_LIFE), draw=stream_key(seed, "population.who"),
        gap=stream_key(seed, "population.when"), accept=stream_key(seed, "population.mtp"),
        round=stream_key(seed, "population.rounding"),
        offset=stream_key(seed, "population.offset"), slots=rank_slots, following=next_slots,
    )  # fmt: skip


def mean_iterations(outputs: NDArray[np.int32], draft_tokens: int, acceptance: float) -> float:
    """Mean iterations of answers after their first token. outputs i4[requests]: tokens of each
    answer; draft_tokens: of an iteration; acceptance: chance that a draft is accepted."""
    mean_tokens = float(np.maximum(outputs.astype(np.int64) - 1, 0).sum()) / outputs.size
    return max(mean_tokens / tokens_per_iteration(draft_tokens, acceptance), 1.0)


def stationary_state(priced: Priced, arriving: Arriving) -> Stationary:
    """Returns the steady state of an instance that decodes under the load `arriving`. The effect of
    uneven ranks is measured on its population in passes; each pass continues the last one."""
    p = _empty_population(priced, arriving)
    life = mean_iterations(arriving.outputs, p.draft_tokens, p.acceptance)
    context_tokens = float(arriving.inputs.mean()) + elapsed_tokens(arriving.outputs)
    mean_prompt = _mean_prompt(p)
    requests_per_rank = float(math.floor(p.room_tokens / (context_tokens + p.page_tokens)))
    slots = float(np.minimum(p.slots, requests_per_rank).sum())
    unevenness, passes = 1.0, Passes()
    prompt_wait = 0.0  # iterations from a prompt's arrival to its first token, mean

    def time_s(inflow: float) -> float:
        """Seconds of an iteration in which `inflow` requests arrive, with uneven ranks."""
        return unevenness * _even_mean_s(
            p, min(inflow * life, slots), context_tokens, inflow, mean_prompt
        )

    min_passes = LINE + 1 if p.colocated else FEWEST
    has_open_arrivals, alone_prices = p.colocated and math.isinf(arriving.clients), p.prices.copy()
    inflow = mean_s = 0.0  # mean arrivals in an iteration, and its mean seconds
    max_passes = max(min_passes + 1, min(MOST, int(ITERATIONS / (BURN + MEASURED) / life)))
    for pass_number in range(max_passes):
        last_inflow = inflow
        _set_contended_prices(p, alone_prices, arriving.wire_factor, inflow, mean_s)
        guess = inflow if p.colocated else 0.0
        inflow, is_full = _arrivals_at_load(p, time_s, arriving, life + prompt_wait, slots, guess)
        is_settled = pass_number > 0 and abs(inflow / last_inflow - 1.0) < CLOSE
        if pass_number >= min_passes and is_settled and passes.ratio_and_error()[1] < SCATTER:
            break
        mean_s = time_s(inflow)
        _begin_pass(p, mean_s, bool(has_open_arrivals))
        reserved_for = arriving.reserved_s / mean_s
        p.most_waiting = arriving.patience_s / mean_s * inflow
        if not (is_settled and p.colocated):  # else the last pass is a beginning like any other
            residents = 0 if pass_number else int(inflow * life)
            run_population(p, residents, int(BURN * life) + 1, inflow, reserved_for)
        p.seen[:] = 0.0
        run_population(p, 0, _measured_iterations(p, life, inflow), inflow, reserved_for)
        iterations, total_s, decoding_sum, context_sum, _, coming_sum = map(float, p.seen[:6])
        if decoding_sum > 0.0:  # else none came: one alone is even
            context_tokens = context_sum / decoding_sum
            seen_inflow = inflow * total_s / iterations / mean_s if has_open_arrivals else inflow
            even_ranks_s = iterations * _even_mean_s(
                p, decoding_sum / iterations, context_tokens, seen_inflow, mean_prompt
            )
            prompt_wait = coming_sum / iterations / inflow if p.colocated else 0.0
            passes = Passes() if pass_number == 1 else passes  # the first is still near its begin
            passes.add(p, even_ranks_s, arriving)
            unevenness = passes.ratio_and_error()[0]
    inflow, is_full = _arrivals_at_load(p, time_s, arriving, life + prompt_wait, slots, guess)
    iteration_s, requests = time_s(inflow), inflow * life
    if is_full and iterations:
        iteration_s, requests = total_s / iterations, decoding_sum / iterations
    req_per_s = requests / life / iteration_s
    slow_variance, lasting_share, seen_ratio = 0.0, 0.0, 1.0
    if math.isinf(arriving.clients) and not is_full:
        slow_variance, lasting_share, seen_ratio = _swing_by_load(
            p, arriving, time_s, inflow, (requests, context_tokens, slots)
        )
    rank_variance = max(_mean(passes.lasting_squares) / unevenness**2 - 1.0, 0.0)
    # Iterations with and without prompts average out within an answer; what ranks add does not.
    swing_variance = slow_variance if p.colocated else rank_variance + lasting_share * slow_variance
    p.expected_s = iteration_s if has_open_arrivals else 0.0
    swings = Swings(math.sqrt(swing_variance), _mean(passes.own_squares), req_per_s * iteration_s)
    tpot_s = _mean_token_s(p, passes.answers, seen_ratio * iteration_s)
    return Stationary(
        p, iteration_s, tpot_s, swings, _mean(passes.late), req_per_s, life, arriving.reserved_s,
        is_full, passes.ratio_and_error()[1],
    )  # fmt: skip


def _prompt_wait_s(priced: Priced, arriving: Arriving) -> float:
    """Seconds that a mean prompt adds to the wait by which a router compares colocated instances; 0
    if requests do not go to the instance with the shortest wait."""
    costs, traffic = priced.parts.costs.colocated_role, priced.traffic
    if costs is None or arriving.sharing == 1:
        return 0.0
    imbalance_table = priced.parts.decode_imbalance.table
    _, s_per_token, s_per_pair = fit_batch_s(
        costs, costs.prompt_tokens, traffic.input_tokens, imbalance_table
    )
    return traffic.fresh_tokens * s_per_token + traffic.fresh_pairs * s_per_pair


def _begin_pass(p: Population, mean_s: float, by_second: bool) -> None:
    """Prepare the population for a pass. mean_s: seconds of a mean iteration; by_second: whether
    longer iterations bring more arrivals.
    With several instances the waits of the last pass give `p.chances`: for each length of this
    instance's wait the probability that all other instances wait longer, as a running sum."""
    p.expected_s = mean_s if by_second else 0.0
    p.step_s = p.step_s or mean_s / WAITS_A_MEAN
    if p.instances > 1.0 and p.waits.sum() > 0.0:
        shares = p.waits / p.waits.sum()  # of the time, by length of the wait
        longer = np.concatenate([[1.0], np.maximum(1.0 - np.cumsum(shares), 0.0)])  # chances
        all_longer = -np.diff(longer**p.instances) / (p.instances * np.maximum(shares, RARELY))
        mean_chances = np.where(shares > RARELY, all_longer, longer[1:] ** (p.instances - 1.0))
        p.chances[:] = np.cumsum(mean_chances)
        p.waits[:] = 0.0


def _set_contended_prices(
    p: Population, alone_prices: NDArray[Any], wire_factor: Callable[[float, float], float],
    inflow: float, mean_s: float,
) -> None:  # fmt: skip
    """Set the population's prices to `alone_prices` [1], with the exchange times multiplied by the
    effect of other traffic on links. wire_factor: that factor, of (requests/s, mean_s); inflow:
    arrivals per iteration; mean_s: seconds of an iteration; 0: not known yet, prices stay."""
    if mean_s > 0.0:
        coefficients = alone_prices.view(np.float64).copy()
        coefficients[scale_indices(DecodeCosts, "carried")] *= wire_factor(inflow / mean_s, mean_s)
        p.prices[:] = coefficients.view(alone_prices.dtype)


def answer_times_s(state: Stationary) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(seconds from arrival to the first token, seconds per token after it), f8[n] each, of the
    last answers that a colocated instance ended. Its population runs on until `SAMPLED` answers
    have ended or `MOST_ITERATIONS` have passed, with at least `RARE` arrivals per iteration."""
    p, arrivals = state.population, max(state.swings.joining, RARE)
    last_iteration = p.at[ITERATION] + MOST_ITERATIONS
    while p.ended[0] < SAMPLED and p.at[ITERATION] < last_iteration:
        run_population(p, 0, MOST_ITERATIONS // 100, arrivals, 0.0)
    answer_count = min(int(p.ended[0]), SAMPLED)
    return p.ended_wait_s[:answer_count], p.ended_token_s[:answer_count]


def _measured_iterations(p: Population, life: float, inflow: float) -> int:
    """Number of iterations of a pass in which times are measured. life: mean iterations of an
    answer; inflow: mean arrivals per iteration."""
    iterations = MEASURED * life
    if p.colocated:  # rare prompts decide what others wait for
        iterations = max(iterations, min(PROMPTS / max(inflow, NONE_COMES), LONGEST))
    return int(iterations) + LOOK_EVERY


def _mean_token_s(p: Population, answers: NDArray[np.float64], iteration_s: float) -> float:
    """Mean seconds per token after the first, over answers; from iteration_s if fewer than FEW
    ended.
    answers f8[4]: number of ended answers; sum of their seconds per token; number of measured
    iterations; total seconds of these iterations. iteration_s: mean seconds of an iteration."""
    ended_answers, tpot_sum_s, iterations, measured_s = answers.tolist()
    if ended_answers < FEW:
        return iteration_s / tokens_per_iteration(p.draft_tokens, p.acceptance)
    return float(tpot_sum_s / ended_answers * iteration_s * iterations / measured_s)


def _mean(values: list[float]) -> float:
    """Mean of a list of numbers; 0 of an empty one."""
    return math.fsum(values) / max(len(values), 1)


def controlled_mean_and_error(factors: list[float], arrived: list[float]) -> tuple[float, float]:
    """(mean of `factors`, one per pass; its relative standard error, infinite for fewer than two).
    arrived: for each pass, arrived prompt tokens divided by expected ones. From `LINE` passes on a
    line is fitted to factors by `arrived`; the mean is its value at 1 (control variate)."""
    pass_count, mean_factor, mean_arrived = len(factors), _mean(factors), _mean(arrived)
    if pass_count < 2:
        return mean_factor, math.inf
    shifts = [ratio - mean_arrived for ratio in arrived]
    square_sum = math.fsum(shift * shift for shift in shifts)
    factor_slope, degrees_of_freedom, extrapolated = 0.0, pass_count - 1, 0.0
    if pass_count >= LINE and square_sum > 0.0:
        products = (shift * factor for shift, factor in zip(shifts, factors, strict=True))
        factor_slope, degrees_of_freedom = math.fsum(products) / square_sum, pass_count - 2
        extrapolated = (mean_arrived - 1.0) ** 2 / square_sum
    residuals = (
        factor - mean_factor - factor_slope * shift
        for shift, factor in zip(shifts, factors, strict=True)
    )
    variance = math.fsum(residual * residual for residual in residuals) / degrees_of_freedom
    mean_factor -= factor_slope * (mean_arrived - 1.0)
    return mean_factor, math.sqrt(variance * (1.0 / pass_count + extrapolated)) / mean_factor


def _swing_by_load(
    p: Population, arriving: Arriving, time_s: Callable[[float], float], inflow: float,
    in_progress: tuple[float, float, float],
) -> tuple[float, float, float]:  # fmt: skip
    """Returns how an iteration's time varies with the number of requests in progress: (relative
    variance of the time; share of that variance which outlasts a pass, so that a pass does not
    measure it; mean iteration as answers see it divided by the plain mean).
    time_s: seconds of an iteration by arrivals in it; inflow: mean arrivals in an iteration;
    in_progress: (mean requests in progress, context tokens of a request, most requests in
    progress)."""
    requests, context_tokens, most_requests = in_progress
    growth_s = 0.5 * (time_s(inflow * (1.0 + NEAR)) - time_s(inflow * (1.0 - NEAR))) / NEAR
    relative_growth = growth_s / time_s(inflow)
    lengths, counts = np.unique(np.maximum(arriving.outputs - 1, 1), return_counts=True)
    answers = float(arriving.outputs.size)
    lives = [
        (float(tokens), float(count) / answers)
        for tokens, count in zip(lengths, counts, strict=True)
    ]
    mean_life = math.fsum(life * share for life, share in lives)
    progress_variance = relative_variance_in_progress(lives, requests, arriving.cv)
    lasting_share, seen_ratio = variance_share_of_mean(lives, MEASURED * mean_life), 1.0
    if not p.colocated and requests > NONE_COMES:  # in passes they come by the iteration
        mean_ratio, variance_ratio = _requests_mean_and_variance(
            partial(_even_decode_s, p, context_tokens), requests, most_requests
        )
        seen_ratio += (mean_ratio - 1.0) * min(progress_variance * requests, 1.0)
        lasting_share = max(lasting_share + variance_ratio - 1.0, 0.0)
    return relative_growth**2 * progress_variance, lasting_share, seen_ratio


def _requests_mean_and_variance(
    time_s: Callable[[float], float], requests: float, most_requests: float
) -> tuple[float, float]:
    """(mean, variance) of the number of requests in progress, each divided by `requests`, which is
    the mean number if arrivals came per iteration. Here they come per second: a longer iteration
    brings more, and by Little's law the mean ratio is also that of iterations as answers see them.
    time_s: seconds of an iteration by requests in progress; most_requests: slots.

    Requests share an instance by iterations, so the probability of n requests is p(n) = p(n - 1)
    load time_s(n) / n for any distribution of their lives (insensitivity of processor sharing)."""
    half_width = WINDOW * math.sqrt(requests) + WINDOW
    first_count = max(int(requests - half_width), 0)
    last_count = max(int(min(requests + half_width, most_requests)), 2)
    load_per_s, knot = requests / time_s(requests), first_count
    knot_s = time_s(float(max(first_count, 1)))
    count_weight, count_sum, square_sum, weight_sum = 1.0, 0.0, 0.0, 0.0
    while knot <= last_count:
        next_knot = max(knot + 1, math.ceil(KNOTS_APART * knot))
        next_knot_s = time_s(float(next_knot))
        for count in range(knot, min(next_knot, last_count + 1)):
            interpolated_s = knot_s + (next_knot_s - knot_s) * (count + 1 - knot) / (
                next_knot - knot
            )
            if count + 1 > most_requests:  # more wait for a place, and are none the fewer soon
                count_weight /= max(1.0 - load_per_s * interpolated_s / count, LEAST_IDLE)
            weight_sum += count_weight
            count_sum += count_weight * count
            square_sum += count_weight * count * count
            count_weight *= load_per_s * interpolated_s / (count + 1)
        knot, knot_s = next_knot, next_knot_s
    mean_requests = count_sum / weight_sum
    return mean_requests / requests, (square_sum / weight_sum - mean_requests**2) / requests


def _even_decode_s(p: Population, context_tokens: float, requests: float) -> float:
    """Seconds of an iteration of `requests`, each with context_tokens, spread evenly over ranks."""
    return _even_mean_s(p, requests, context_tokens, 0.0, None)


def _mean_prompt(p: Population) -> tuple[float, float, tuple[float, ...]] | None:
    """(mean tokens of a prompt that are computed; mean query-key pairs of such a token; prompt
    lengths divided by their mean). None unless instances are colocated."""
    if not p.colocated:
        return None
    prompt_tokens = p.fresh * float(p.inputs.mean())
    return prompt_tokens, p.pair * mean_square(p.inputs) / prompt_tokens, relative_lengths(p.inputs)


def _even_mean_s(
    p: Population, decoding: float, context_tokens: float, inflow: float,
    prompts: tuple[float, float, tuple[float, ...]] | None,
) -> float:  # fmt: skip
    """Mean seconds of an iteration with even ranks. decoding: number of requests that decode, over
    all ranks; context_tokens: mean context of a request; inflow: mean arrivals in an iteration;
    prompts: result of `_mean_prompt`."""
    ranks = p.slots.size
    requests = max(decoding, 1.0) / ranks  # none iterates without a request
    if prompts is None:
        return even_iteration_s(p, requests, requests * context_tokens, 0.0, 0.0, 0.0, 0.0, 0)
    group_ranks = ranks if p.prompt_delay else p.prompt_ranks  # prompts that wait come to all alike
    prompt_tokens, token_pairs, prompt_ratios = prompts
    tokens = min(inflow, ranks * p.chunk_most / max(prompt_tokens, 1.0)) * prompt_tokens
    rank_loads = prompts_by_rank(
        tokens, tokens * token_pairs, prompt_tokens, p.chunk_most, ranks, group_ranks, prompt_ratios
    )
    mean_iteration_s = 0.0
    for chance, chunk_tokens, chunk_pairs in rank_loads:
        first_chunk, last_chunk = ((float(chunk_tokens[k]), float(chunk_pairs[k])) for k in (0, -1))
        mean_iteration_s += chance * even_iteration_s(
            p, requests, requests * context_tokens, *first_chunk, *last_chunk,
            min(group_ranks, ranks),
        )  # fmt: skip
    return mean_iteration_s


def _arrivals_at_load(
    p: Population, time_s: Callable[[float], float], arriving: Arriving, life: float, slots: float,
    first_guess: float,
) -> tuple[float, bool]:  # fmt: skip
    """Returns (arrivals per iteration at the load `arriving`; whether all slots are full and serve
    fewer requests than arrive). time_s: seconds of an iteration by arrivals in it; life: mean
    iterations of a request; slots: of all ranks; first_guess: arrivals to try first, 0: none."""

    def excess_over_limits(inflow: float) -> float:
        """Relative excess over the nearest of three limits: request rate, number of clients, and
        time of an iteration; negative below all three."""
        iteration_s = time_s(inflow)
        arrivals_per_s = inflow / iteration_s
        busy_clients = inflow * life + arrivals_per_s * arriving.away_s
        return max(
            arrivals_per_s / arriving.rate_req_per_s, busy_clients / arriving.clients,
            iteration_s / arriving.most_iteration_s,
        ) - 1.0  # fmt: skip

    most_inflow = slots / (life + arriving.reserved_s / time_s(slots / life))
    if p.colocated:
        prompt_tokens = max(p.fresh * float(p.inputs.mean()), 1.0)
        most_inflow = min(most_inflow, p.slots.size * p.chunk_most / prompt_tokens)
    most_excess = excess_over_limits(most_inflow)
    if most_excess < 0.0:
        return most_inflow * (1.0 + OVER), True
    least_inflow, least_excess = 0.0, -1.0
    for _ in range(HALVINGS):  # false position; of the end that stays half (Illinois)
        guess = most_inflow - most_excess * (most_inflow - least_inflow) / (
            most_excess - least_excess
        )
        if least_inflow < first_guess < most_inflow:
            guess, first_guess = first_guess, 0.0
        excess = excess_over_limits(guess)
        if abs(excess) < 0.01 * CLOSE:
            return guess, False
        if excess < 0.0:
            least_inflow, least_excess, most_excess = guess, excess, 0.5 * most_excess
        else:
            most_inflow, most_excess, least_excess = guess, excess, 0.5 * least_excess
    return max(most_inflow, NONE_COMES), False  # where one request alone exceeds a limit
