"""Pools of instances that compute prompts, as the queue of `model/waiting.py` needs them: from the
prices of a deployment."""

import math
from collections.abc import Callable
from itertools import accumulate

import numpy as np

from twin.kernels.rng import exponential, stream_key
from twin.model import coefficients
from twin.model.batch import LoadCurve, attention_s_per_token, batch_s, fit_batch_s
from twin.model.costs import RoleCosts
from twin.model.layer import collective_s
from twin.model.mixed import first_prompt_wait, mixed_iteration_s
from twin.model.predict import Traffic
from twin.model.prefill import next_piece, prefill_hits_s
from twin.model.prompt_queue import EXACT, LINE, TABLE, BatchPrice
from twin.model.record import dtype_of, numbers
from twin.model.waiting import Pool, Prompts
from twin.scenario import Scenario
from twin.scenario.deployment import Prefill
from twin.steady import Assembly
from twin.workload.offered import Offered

SAMPLE = 4000  # requests that the queue is followed over
DIGITS = 9  # of times in seconds: the same sample for every rate of a scenario


def prefill_pool(s: Scenario, assembly: Assembly, role: RoleCosts, traffic: Traffic) -> Pool:
    """Describes the prefill instances for the queue of `model/waiting.py`: their number, token
    budget and seconds of a batch. assembly: machine and imbalance; role: costs of an instance."""
    prefill, hot = s.deployment.prefill, assembly.prefill_imbalance.table
    sink, is_dp, cp_dies = role.operator_sink(), prefill.attention == "dp", prefill.cp_dies
    budget_tokens = role.prompt_tokens
    full_s, token_s, pair_s = fit_batch_s(role, budget_tokens, traffic.input_tokens, hot)
    token_pairs = traffic.fresh_pairs / traffic.fresh_tokens  # pairs of a token, mean
    line_s = token_s, pair_s
    token_s += pair_s * token_pairs
    if is_dp:
        prices = numbers(role.prefill).view(dtype_of(coefficients.PrefillCosts))
        imbalance = assembly.prefill_imbalance
        batch_price = BatchPrice(
            EXACT, prices=prices, hot_tokens=imbalance.tokens, hot_factor=imbalance.factor,
            operators=sink, sharing_dies=cp_dies,
        )  # fmt: skip
    else:  # a batch of mean prompts from a table, what differs from them by its slope
        sizes = [budget_tokens * 2.0**k for k in range(-12, 2)]
        table_s = np.array([batch_s(role, size, size * token_pairs, hot) for size in sizes])
        batch_price = BatchPrice(TABLE, pair_s=pair_s, token_pairs=token_pairs,
                           table_tokens=np.array(sizes), table_s=table_s)  # fmt: skip

    # Of a group of dies that split prompts, as the engine's `note_batch` compares them.
    die_tokens, die_pair_s = budget_tokens / role.stage_dies, role.prefill.core.pair
    die_token_s = attention_s_per_token(role.prefill, die_tokens)
    share_s = math.inf
    if is_dp and prefill.dp_balance == "attention":
        share_s = die_tokens * cp_dies * (die_token_s + token_pairs * die_pair_s)
    hit_s = 0.0
    if traffic.hit_tokens > 0.0:
        prompts = max(1.0, budget_tokens / traffic.fresh_tokens)  # of a batch
        cached_tokens, servers = prompts * traffic.hit_tokens, assembly.costs.servers
        hit_s = servers.read_s(role.fetch, prompts * traffic.read_tokens, prompts) / cached_tokens
        hit_s += float(prefill_hits_s(role.prefill, cached_tokens, sink)) / cached_tokens
    return Pool(
        prefill.instances, budget_tokens, float(prefill.chunk_tokens),
        batch_price, full_s, token_s, hit_s,
        dies=role.stage_dies // cp_dies if is_dp else 1,
        delay_s=_later_stages_s(role, prefill, traffic, hot, line_s),
        evening=prefill.chunk_evening, line=line_s, attention=(die_token_s, die_pair_s),
        share_s=share_s, in_turn=s.router.policy == "round_robin", routers=front_routers(s),
        report_s=s.router.front_report_s if s.router.front == "least_loaded" else 0.0,
    )  # fmt: skip


def front_routers(s: Scenario) -> int:
    """Number of routers with instances and queues: one, or one per supernode behind a front one."""
    return 1 if s.router.front == "none" else s.supernode.supernodes


def _later_stages_s(
    role: RoleCosts, prefill: Prefill, traffic: Traffic, hot: LoadCurve, line_s: tuple[float, float]
) -> float:
    """Seconds that the last piece of a prompt spends in the pipeline stages after the first and in
    transfers between stages; 0 with one stage. role, prefill: costs and settings of prefill; hot:
    tokens of the hottest die divided by the mean; line_s: seconds of a batch per token and per
    query-key pair."""
    if prefill.pp_stages == 1:
        return 0.0
    piece_tokens = min(traffic.fresh_tokens, role.prompt_tokens)
    if prefill.chunk_tokens:
        earlier_tokens = max(0.0, traffic.input_tokens - prefill.chunk_tokens)
        chunk, evening = float(prefill.chunk_tokens), prefill.chunk_evening
        piece_tokens = min(piece_tokens, float(next_piece(chunk, evening, *line_s, earlier_tokens)))
    pairs = piece_tokens * (traffic.input_tokens - 0.5 * piece_tokens)
    hop_s = collective_s(role.prefill.hop, piece_tokens / role.stage_dies)
    return (prefill.pp_stages - 1) * (batch_s(role, piece_tokens, pairs, hot) + float(hop_s))


def colocated_pool_by_load(
    assembly: Assembly, role: RoleCosts, traffic: Traffic, routers: int
) -> Callable[[float, float], Pool]:
    """Returns a function of (requests/s, seconds of an iteration) that describes the colocated
    instances for the queue of `model/waiting.py`. Iterations continue without prompts, and prompts
    prolong them. A prompt is computed by one group of ranks; the group with most tokens and pairs
    sets the pace. role: costs of a colocated instance; routers: result of `front_routers`."""
    pool, budget_tokens, hot = role.pool, role.prompt_tokens, assembly.decode_imbalance.table
    group_ranks = min(pool.prompt_ranks, role.ranks)
    groups = math.ceil(role.ranks / group_ranks)
    chunk = budget_tokens / groups  # tokens of a group in an iteration, at most
    token_pairs = traffic.fresh_pairs / traffic.fresh_tokens  # of a token

    def group_s(tokens: float, pairs: float) -> float:
        """Seconds of an iteration in which one group of ranks computes `tokens` of prompts with
        `pairs` query-key pairs, and nothing decodes."""
        tokens_of_rank, pairs_of_rank = np.zeros(role.ranks), np.zeros(role.ranks)
        tokens_of_rank[:group_ranks] = tokens / group_ranks
        pairs_of_rank[:group_ranks] = pairs / group_ranks
        no_decode = np.zeros(role.ranks, np.int64), np.zeros(role.ranks)
        return float(mixed_iteration_s(
            role.decode, *no_decode, tokens_of_rank, pairs_of_rank, 0, role.ranks, *hot,
            role.operator_sink(),
        ))  # fmt: skip

    one_group_s, one_token_s = group_s(chunk, chunk * token_pairs), group_s(1.0, token_pairs)
    all_groups_s = batch_s(role, budget_tokens, budget_tokens * token_pairs, hot)
    fullest_s = (one_group_s - one_token_s) / chunk  # that a token of the fullest group adds
    token_s = (all_groups_s - one_group_s) / max(budget_tokens - chunk, 1.0)
    pair_s = (group_s(chunk, 2.0 * chunk * token_pairs) - one_group_s) / (chunk * token_pairs)

    def pool_at(rate: float, iteration_s: float) -> Pool:
        """The pool of colocated instances at this rate (requests/s) and iteration time (s)."""
        prompts = rate / pool.instances * iteration_s  # prompts, in an iteration
        tokens = min(prompts * traffic.fresh_tokens, budget_tokens)
        fullest_tokens = min(tokens, chunk * -math.expm1(-tokens / chunk))  # random turns
        added_s = fullest_s * fullest_tokens + token_s * (tokens - fullest_tokens)
        decode_s = max(iteration_s - added_s, 0.1 * iteration_s)
        return Pool(
            pool.instances, budget_tokens, chunk,
            BatchPrice(LINE, decode_s, fullest_s, token_s, pair_s, token_pairs),
            decode_s, (all_groups_s - one_token_s) / budget_tokens, 0.0, decode_s, dies=groups,
            delay_s=iteration_s * first_prompt_wait(prompts, groups, pool.prompt_delay),
            attention=(1.0, 0.0), share_s=chunk, is_dealt=True, routers=routers,
        )  # fmt: skip

    return pool_at


def first_prompts(
    s: Scenario, sample: Offered, seen_tokens: np.ndarray, hit_share: float
) -> Prompts:
    """First prompts of a sample, with gaps of one second on average; arrival times are drawn if the
    sample has none (closed loop). hit_share: mean share of prompt tokens that are hits; the hits of
    a prompt are in proportion to its `seen_tokens` f8[requests]."""
    arrivals_s = [float(arrival_s) for arrival_s in sample.arrivals[:SAMPLE]]
    if not arrivals_s or math.isinf(arrivals_s[-1]) or arrivals_s[-1] <= arrivals_s[0]:
        stream, numbers = stream_key(s.seed, "arrivals"), range(min(SAMPLE, sample.prompts.size))
        arrivals_s = list(accumulate(float(exponential(stream, i)) for i in numbers))
    # One alone has no gap.
    gap_s = (arrivals_s[-1] - arrivals_s[0]) / (len(arrivals_s) - 1) if len(arrivals_s) > 1 else 1.0
    count, seen_sum = len(arrivals_s), float(seen_tokens.sum())
    hits_per_seen = hit_share * float(sample.prompts.sum()) / seen_sum if seen_sum > 0.0 else 0.0
    tokens = sample.prompts[:count].astype(np.float64)
    hit_tokens = np.minimum(hits_per_seen * seen_tokens[:count], tokens - 1.0)
    offsets = [round((arrival_s - arrivals_s[0]) / gap_s, DIGITS) for arrival_s in arrivals_s]
    return Prompts(np.array(offsets), tokens - hit_tokens, hit_tokens)
