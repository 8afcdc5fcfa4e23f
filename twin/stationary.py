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
from twin.policies.router import BLOCK, RANK_CHOICES
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
        """Add the last pass; even_s: seconds of its iterations with even ranks."""
        count, total_s, _, _, late, _, *squares, ended, token_sum_s, expected, came = map(
            float, p.seen
        )
        self.ratios.append(total_s / even_s)
        expected *= p.colocated * float(arriving.inputs.mean())
        self.came.append(came / expected if expected > 0.0 else 1.0)
        self.late.append(late / count)
        self.answers += (ended, token_sum_s, count, total_s)
        stretches, square_sum, neighbours = squares
        if stretches > 0.0:  # a pass over few iterations may end within its first one
            self.lasting_squares.append(neighbours / stretches * (count / even_s) ** 2)
            own_square = max(square_sum - neighbours, 0.0) / stretches * (count / total_s) ** 2
            self.own_squares.append(own_square * stretch_size(p))

    def ratio_and_error(self) -> tuple[float, float]:
        """(seconds over those of even ranks, relative standard error), over all passes."""
        return controlled_mean_and_error(self.ratios, self.came)


def _empty_population(priced: Priced, arriving: Arriving) -> Population:
    """State of an instance that decodes, colocated or not, with every slot of every rank free."""
    s, imbalance, pool = priced.scenario, priced.parts.decode_imbalance, priced.pool
    role = priced.parts.costs.roles[pool.role]
    decode, seed, mixes = s.deployment.decode, s.seed, pool.role == "colocated"
    slots = slots_of_ranks(role.ranks, pool.batch_per_npu, pool.rank_dies, role.chip.dies_per_npu)
    fresh, pairs = priced.traffic.fresh_tokens * mixes, priced.traffic.fresh_pairs * mixes
    longest_tokens = int(arriving.outputs.max(initial=1))
    operator_s = role.operator_sink()
    one_request = np.ones(1, np.int64), np.ones(1), 0, 1
    least_s = float(decode_iteration_s(role.decode, *one_request, *imbalance.table, operator_s))
    iterations, acceptance = int(arriving.reserved_s / least_s), priced.parts.costs.mtp_acceptance
    life = mean_iterations(arriving.outputs, decode.mtp_draft_tokens, acceptance)
    slot_count = int(slots.sum())
    next_slot = np.arange(1, slot_count + 1, dtype=np.int32)
    next_slot[-1] = NONE
    coefficients = numbers(role.decode).view(dtype_of(DecodeCosts))
    array_sizes = {"ranks": role.ranks, "blocks": -(-role.ranks // BLOCK), "places": slot_count,
                   "answers": SAMPLED if mixes else 1, "waits": WAITS,
                   "operators": operator_s.size,
                   "ring": 1 << (longest_tokens + iterations + 4).bit_length()}  # fmt: skip
    return Population(
        array_sizes, prices=coefficients, colocated=int(mixes),
        fresh=fresh / float(arriving.inputs.mean()), pair=pairs / mean_square(arriving.inputs),
        prompt_ranks=pool.prompt_ranks, prompt_delay=pool.prompt_delay,
        chunk_most=role.prompt_tokens / role.ranks, most_waiting=math.inf, expected_s=0.0,
        instances=float(arriving.sharing), prompt_s=_prompt_wait_s(priced, arriving), step_s=0.0,
        hot_tokens=imbalance.tokens, hot_factor=imbalance.factor,
        inputs=arriving.inputs, shortest=int(arriving.inputs.min()), outputs=arriving.outputs,
        room_tokens=float(role.kv_tokens_per_rank), page_tokens=0.5 * s.memory_pool.block_tokens,
        regular=1.0 / max(arriving.cv, LEAST_CV) ** 2,
        rank_choice=RANK_CHOICES[decode.rank_choice], draft_tokens=decode.mtp_draft_tokens,
        acceptance=acceptance,
        skips=int(life > LONG_LIFE), draw=stream_key(seed, "population.who"),
        gap=stream_key(seed, "population.when"), accept=stream_key(seed, "population.mtp"),
        round=stream_key(seed, "population.rounding"),
        offset=stream_key(seed, "population.offset"), slots=slots, following=next_slot,
    )  # fmt: skip


def mean_iterations(outputs: NDArray[np.int32], draft_tokens: int, acceptance: float) -> float:
    """Mean iterations that answers take after their first token; outputs i4[requests]: tokens of
    each answer; acceptance: chance that a draft token is accepted."""
    mean_tokens = float(np.maximum(outputs.astype(np.int64) - 1, 0).sum()) / outputs.size
    return max(mean_tokens / tokens_per_iteration(draft_tokens, acceptance), 1.0)


def stationary_state(priced: Priced, arriving: Arriving) -> Stationary:
    """The steady state of an instance that decodes under a load. The effect of uneven ranks is
    measured on its population in passes, each of which continues the last one."""
    p = _empty_population(priced, arriving)
    life = mean_iterations(arriving.outputs, p.draft_tokens, p.acceptance)
    context_tokens = float(arriving.inputs.mean()) + elapsed_tokens(arriving.outputs)
    prompts = _mean_prompt(p)
    requests_per_rank = math.floor(p.room_tokens / (context_tokens + p.page_tokens))
    slots = float(np.minimum(p.slots, requests_per_rank).sum())
    unevenness, passes = 1.0, Passes()
    prompt_life = mean_s = 0.0  # iterations from a prompt's arrival to its first token, mean

    def time_s(each: float) -> float:
        """Seconds of an iteration in which `each` requests arrive, with uneven ranks."""
        return unevenness * _even_mean_s(p, min(each * life, slots), context_tokens, each, prompts)

    fewest = LINE + 1 if p.colocated else FEWEST
    by_seconds, alone = p.colocated and math.isinf(arriving.clients), p.prices.copy()
    each, most_turns = 0.0, max(fewest + 1, min(MOST, int(ITERATIONS / (BURN + MEASURED) / life)))
    for turn in range(most_turns):
        last_each = each
        _set_contended_prices(p, alone, arriving.wire_factor, each, mean_s)
        near = each if p.colocated else 0.0
        each, is_full = _arrivals_at_load(p, time_s, arriving, life + prompt_life, slots, near)
        is_settled = turn > 0 and abs(each / last_each - 1.0) < CLOSE
        if turn >= fewest and is_settled and passes.ratio_and_error()[1] < SCATTER:
            break
        mean_s = time_s(each)
        _begin_pass(p, mean_s, bool(by_seconds))
        reserved_for = arriving.reserved_s / mean_s
        p.most_waiting = arriving.patience_s / mean_s * each
        if not (is_settled and p.colocated):  # else the last pass is a beginning like any other
            begin = 0 if turn else int(each * life)
            run_population(p, begin, int(BURN * life) + 1, each, reserved_for)
        p.seen[:] = 0.0
        run_population(p, 0, _measured_iterations(p, life, each), each, reserved_for)
        count, total_s, decoding, context_sum, _, coming = map(float, p.seen[:6])
        if decoding > 0.0:  # else none came: one alone is even
            context_tokens = context_sum / decoding
            arrivals = each * total_s / count / mean_s if by_seconds else each
            even_s = count * _even_mean_s(p, decoding / count, context_tokens, arrivals, prompts)
            prompt_life = coming / count / each if p.colocated else 0.0
            passes = Passes() if turn == 1 else passes  # the first one is still near its begin
            passes.add(p, even_s, arriving)
            unevenness = passes.ratio_and_error()[0]
    each, is_full = _arrivals_at_load(p, time_s, arriving, life + prompt_life, slots, near)
    pace = (total_s / count, decoding / count) if is_full and count else (time_s(each), each * life)
    iteration_s, decoding = pace
    rate = decoding / life / iteration_s
    slow_square, lasting_share, seen = 0.0, 0.0, 1.0
    if math.isinf(arriving.clients) and not is_full:
        numbers_inside = decoding, context_tokens, slots
        slow_square, lasting_share, seen = _swing_by_load(p, arriving, time_s, each, numbers_inside)
    lasting_square = max(_mean(passes.lasting_squares) / unevenness**2 - 1.0, 0.0)
    # Iterations with and without prompts average out within an answer; what ranks add does not.
    lasting_swing = math.sqrt(
        slow_square if p.colocated else lasting_square + lasting_share * slow_square
    )
    p.expected_s = iteration_s if by_seconds else 0.0
    swings = Swings(lasting_swing, _mean(passes.own_squares), rate * iteration_s)
    token_s, late = _mean_token_s(p, passes.answers, seen * iteration_s), _mean(passes.late)
    error, reserved_s = passes.ratio_and_error()[1], arriving.reserved_s
    return Stationary(p, iteration_s, token_s, swings, late, rate, life, reserved_s, is_full, error)


def _prompt_wait_s(priced: Priced, arriving: Arriving) -> float:
    """Seconds that a mean prompt adds to the wait of a mixed instance as its router sees it."""
    role, traffic = priced.parts.costs.colocated_role, priced.traffic
    if role is None or arriving.sharing == 1:
        return 0.0
    hot = priced.parts.decode_imbalance.table
    _, token_s, pair_s = fit_batch_s(role, role.prompt_tokens, traffic.input_tokens, hot)
    return traffic.fresh_tokens * token_s + traffic.fresh_pairs * pair_s


def _begin_pass(p: Population, mean_s: float, by_seconds: bool) -> None:
    """Set the mean seconds of an iteration, if arrivals follow these, and sum the chances that all
    other instances wait longer, by how long this one waited in the last pass. Within a step of
    waits the power of the chance is integrated, so that all instances get what comes."""
    p.expected_s = mean_s if by_seconds else 0.0
    p.step_s = p.step_s or mean_s / WAITS_A_MEAN
    if p.instances > 1.0 and p.waits.sum() > 0.0:
        part = p.waits / p.waits.sum()
        longer = np.concatenate([[1.0], np.maximum(1.0 - np.cumsum(part), 0.0)])  # at both ends
        all_longer = -np.diff(longer**p.instances) / (p.instances * np.maximum(part, RARELY))
        mean_chances = np.where(part > RARELY, all_longer, longer[1:] ** (p.instances - 1.0))
        p.chances[:] = np.cumsum(mean_chances)
        p.waits[:] = 0.0


def _set_contended_prices(
    p: Population, alone: NDArray[Any], wire_factor: Callable[[float, float], float],
    each: float, mean_s: float,
) -> None:  # fmt: skip
    """Set the prices of iterations of `mean_s` seconds (0: not known yet) in which `each` requests
    arrive, where other traffic prolongs what links carry; alone: prices [1] without it."""
    if mean_s > 0.0:
        coefficients = alone.view(np.float64).copy()
        coefficients[scale_indices(DecodeCosts, "carried")] *= wire_factor(each / mean_s, mean_s)
        p.prices[:] = coefficients.view(alone.dtype)


def answer_times_s(state: Stationary) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(seconds from arrival to the first token, seconds per token after it) of the last answers
    that a colocated instance ended, f8[n] each. Its population runs on until `SAMPLED` answers have
    ended or for `MOST_ITERATIONS`, with `RARE` arrivals per iteration at least."""
    p, each = state.population, max(state.swings.joining, RARE)
    last = p.at[ITERATION] + MOST_ITERATIONS
    while p.ended[0] < SAMPLED and p.at[ITERATION] < last:
        run_population(p, 0, MOST_ITERATIONS // 100, each, 0.0)
    count = min(int(p.ended[0]), SAMPLED)
    return p.ended_wait_s[:count], p.ended_token_s[:count]


def _measured_iterations(p: Population, life: float, each: float) -> int:
    """Number of iterations of a pass over which times are taken. life: mean iterations of an
    answer; each: mean arrivals per iteration."""
    iterations = MEASURED * life
    if p.colocated:  # rare prompts decide what others wait for
        iterations = max(iterations, min(PROMPTS / max(each, NONE_COMES), LONGEST))
    return int(iterations) + LOOK_EVERY


def _mean_token_s(p: Population, answers: NDArray[np.float64], iteration_s: float) -> float:
    """Seconds per token of an answer after its first, mean over requests. answers f8[4]: ended
    answers, the sum of their seconds per token, measured iterations, and the seconds of these; for
    fewer than FEW answers the mean iteration decides."""
    ended, token_sum_s, looks, looks_s = answers.tolist()
    if ended < FEW:
        return iteration_s / tokens_per_iteration(p.draft_tokens, p.acceptance)
    return float(token_sum_s / ended * iteration_s * looks / looks_s)


def _mean(values: list[float]) -> float:
    """Mean of a list of numbers; 0 of an empty one."""
    return math.fsum(values) / max(len(values), 1)


def controlled_mean_and_error(factors: list[float], came: list[float]) -> tuple[float, float]:
    """(mean of the factors of passes, its standard error over it, infinite for fewer than two).
    came: prompt tokens of each pass over the expected ones, whose mean is 1. From `LINE` passes on
    the mean is read where the line through both is at 1. [A control variate]"""
    count, mean_factor, mean_came = len(factors), _mean(factors), _mean(came)
    if count < 2:
        return mean_factor, math.inf
    offsets = [x - mean_came for x in came]
    offset_square = math.fsum(x * x for x in offsets)
    slope, freedom, extra = 0.0, count - 1, 0.0
    if count >= LINE and offset_square > 0.0:
        products = (x * factor for x, factor in zip(offsets, factors, strict=True))
        slope, freedom = math.fsum(products) / offset_square, count - 2
        extra = (mean_came - 1.0) ** 2 / offset_square
    rests = (y - mean_factor - slope * x for x, y in zip(offsets, factors, strict=True))
    variance = math.fsum(rest * rest for rest in rests) / freedom
    mean_factor -= slope * (mean_came - 1.0)
    return mean_factor, math.sqrt(variance * (1.0 / count + extra)) / mean_factor


def _swing_by_load(
    p: Population, arriving: Arriving, time_s: Callable[[float], float], each: float,
    in_progress: tuple[float, float, float],
) -> tuple[float, float, float]:  # fmt: skip
    """(relative variance of an iteration's time by the number of requests in progress; share of it
    that outlasts a pass and is not measured there; an iteration as answers see it over the mean).
    time_s: seconds of an iteration by arrivals, which are `each`; in_progress: mean requests in
    progress, context tokens of one, and the most there may be."""
    decoding, held, slots = in_progress
    growth_s = 0.5 * (time_s(each * (1.0 + NEAR)) - time_s(each * (1.0 - NEAR))) / NEAR
    growth = growth_s / time_s(each)
    iterations, counts = np.unique(np.maximum(arriving.outputs - 1, 1), return_counts=True)
    answers_count = float(arriving.outputs.size)
    lives = [(float(t), float(n) / answers_count) for t, n in zip(iterations, counts, strict=True)]
    mean_life = math.fsum(life * share for life, share in lives)
    variance = relative_variance_in_progress(lives, decoding, arriving.cv)
    lasting_share, seen = variance_share_of_mean(lives, MEASURED * mean_life), 1.0
    if not p.colocated and decoding > NONE_COMES:  # in passes they come by the iteration
        mean, spread = _requests_mean_and_variance(
            partial(_even_decode_s, p, held), decoding, slots
        )
        seen += (mean - 1.0) * min(variance * decoding, 1.0)
        lasting_share = max(lasting_share + spread - 1.0, 0.0)
    return growth**2 * variance, lasting_share, seen


def _requests_mean_and_variance(
    time_s: Callable[[float], float], decoding: float, slots: float
) -> tuple[float, float]:
    """(mean, variance) of the requests in progress, over `decoding` each, where they come by the
    second: a longer iteration brings more of them. By Little's law answers see iterations as much
    longer as the mean is above `decoding`, which it is where requests come by the iteration.
    time_s: seconds of an iteration by requests in progress; slots: the most there may be.

    Requests share an instance by iterations, so that n of them have the probability p(n) = p(n - 1)
    load time_s(n) / n, whatever their lives are (processor sharing is insensitive to them)."""
    around = WINDOW * math.sqrt(decoding) + WINDOW
    first, last = max(int(decoding - around), 0), max(int(min(decoding + around, slots)), 2)
    load, knot, knot_s = decoding / time_s(decoding), first, time_s(float(max(first, 1)))
    weight, count_sum, square_sum, weight_sum = 1.0, 0.0, 0.0, 0.0
    while knot <= last:
        next_knot = max(knot + 1, math.ceil(KNOTS_APART * knot))
        next_s = time_s(float(next_knot))
        for n in range(knot, min(next_knot, last + 1)):
            mean_s = knot_s + (next_s - knot_s) * (n + 1 - knot) / (next_knot - knot)
            if n + 1 > slots:  # more wait for a place, and are none the fewer soon
                weight /= max(1.0 - load * mean_s / n, LEAST_IDLE)
            weight_sum += weight
            count_sum += weight * n
            square_sum += weight * n * n
            weight *= load * mean_s / (n + 1)
        knot, knot_s = next_knot, next_s
    mean = count_sum / weight_sum
    return mean / decoding, (square_sum / weight_sum - mean**2) / decoding


def _even_decode_s(p: Population, held: float, requests: float) -> float:
    """Seconds of an iteration of `requests` on equal ranks, each with `held` context tokens."""
    return _even_mean_s(p, requests, held, 0.0, None)


def _mean_prompt(p: Population) -> tuple[float, float, tuple[float, ...]] | None:
    """(mean tokens of a prompt that are computed, mean query-key pairs of such a token, prompt
    lengths over their mean); None unless prompts are computed in decode's iterations."""
    if not p.colocated:
        return None
    prompt_tokens = p.fresh * float(p.inputs.mean())
    return prompt_tokens, p.pair * mean_square(p.inputs) / prompt_tokens, relative_lengths(p.inputs)


def _even_mean_s(
    p: Population, decoding: float, held: float, each: float,
    prompts: tuple[float, float, tuple[float, ...]] | None,
) -> float:  # fmt: skip
    """Mean seconds of an iteration with equal ranks. decoding: requests of all ranks that decode;
    held: mean context tokens of one; each: mean arrivals; prompts: of `_mean_prompt`."""
    ranks = p.slots.size
    requests = max(decoding, 1.0) / ranks  # none iterates without a request
    if prompts is None:
        return even_iteration_s(p, requests, requests * held, 0.0, 0.0, 0.0, 0.0, 0)
    group = ranks if p.prompt_delay else p.prompt_ranks  # prompts that wait come to all alike
    prompt, pairs, lengths = prompts
    tokens = min(each, ranks * p.chunk_most / max(prompt, 1.0)) * prompt
    loads = prompts_by_rank(tokens, tokens * pairs, prompt, p.chunk_most, ranks, group, lengths)
    mean_s = 0.0
    for share, chunk_tokens, chunk_pairs in loads:
        first, last = ((float(chunk_tokens[k]), float(chunk_pairs[k])) for k in (0, -1))
        mean_s += share * even_iteration_s(
            p, requests, requests * held, *first, *last, min(group, ranks)
        )
    return mean_s


def _arrivals_at_load(
    p: Population, time_s: Callable[[float], float], arriving: Arriving, life: float, places: float,
    near: float,
) -> tuple[float, bool]:  # fmt: skip
    """(arrivals per iteration at the load, whether full slots serve fewer than arrive). time_s: an
    iteration's seconds by arrivals; life: mean iterations of a request; places: all slots; near:
    arrivals of the last pass, from which the search begins; 0: none."""

    def excess_over_limits(each: float) -> float:
        """Relative excess over the nearest of three limits: request rate, number of clients, and
        time of an iteration; negative below all three."""
        iteration_s = time_s(each)
        arrivals_per_s = each / iteration_s
        busy_clients = each * life + arrivals_per_s * arriving.away_s
        return max(
            arrivals_per_s / arriving.rate_req_per_s, busy_clients / arriving.clients,
            iteration_s / arriving.most_iteration_s,
        ) - 1.0  # fmt: skip

    highest = places / (life + arriving.reserved_s / time_s(places / life))
    if p.colocated:
        prompt_tokens = max(p.fresh * float(p.inputs.mean()), 1.0)
        highest = min(highest, p.slots.size * p.chunk_most / prompt_tokens)
    highest_excess = excess_over_limits(highest)
    if highest_excess < 0.0:
        return highest * (1.0 + OVER), True
    lowest, lowest_excess = 0.0, -1.0
    for _ in range(HALVINGS):  # false position; of the end that stays half (Illinois)
        guess = highest - highest_excess * (highest - lowest) / (highest_excess - lowest_excess)
        if lowest < near < highest:
            guess, near = near, 0.0
        excess = excess_over_limits(guess)
        if abs(excess) < 0.01 * CLOSE:
            return guess, False
        if excess < 0.0:
            lowest, lowest_excess, highest_excess = guess, excess, 0.5 * highest_excess
        else:
            highest, highest_excess, lowest_excess = guess, excess, 0.5 * lowest_excess
    return highest, False
