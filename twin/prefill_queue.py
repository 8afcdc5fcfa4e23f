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
    prefill, imbalance_table = s.deployment.prefill, assembly.prefill_imbalance.table
    operator_s, is_dp, cp_dies = role.operator_sink(), prefill.attention == "dp", prefill.cp_dies
    budget_tokens = role.prompt_tokens
    full_batch_s, s_per_token, s_per_pair = fit_batch_s(
        role, budget_tokens, traffic.input_tokens, imbalance_table
    )
    pairs_per_token = traffic.fresh_pairs / traffic.fresh_tokens  # pairs of a token, mean
    slopes_s = s_per_token, s_per_pair
    s_per_token += s_per_pair * pairs_per_token
    if is_dp:
        prices = numbers(role.prefill).view(dtype_of(coefficients.PrefillCosts))
        imbalance = assembly.prefill_imbalance
        batch_price = BatchPrice(
            EXACT, prices=prices, hot_tokens=imbalance.tokens, hot_factor=imbalance.factor,
            operators=operator_s, sharing_dies=cp_dies,
        )  # fmt: skip
    else:  # a batch of mean prompts from a table, what differs from them by its slope
        batch_tokens = [budget_tokens * 2.0**k for k in range(-12, 2)]
        table_s = np.array(
            [
                batch_s(role, tokens, tokens * pairs_per_token, imbalance_table)
                for tokens in batch_tokens
            ]
        )
        batch_price = BatchPrice(TABLE, pair_s=s_per_pair, token_pairs=pairs_per_token,
                           table_tokens=np.array(batch_tokens), table_s=table_s)  # fmt: skip

    # Of a group of dies that split prompts, as the engine's `note_batch` compares them.
    die_tokens, die_s_per_pair = budget_tokens / role.stage_dies, role.prefill.core.pair
    die_s_per_token = attention_s_per_token(role.prefill, die_tokens)
    die_share_s = math.inf
    if is_dp and prefill.dp_balance == "attention":
        die_share_s = die_tokens * cp_dies * (die_s_per_token + pairs_per_token * die_s_per_pair)
    s_per_hit = 0.0
    if traffic.hit_tokens > 0.0:
        batch_prompts = max(1.0, budget_tokens / traffic.fresh_tokens)  # of a batch
        cached_tokens, servers = batch_prompts * traffic.hit_tokens, assembly.costs.servers
        read_s = servers.read_s(role.fetch, batch_prompts * traffic.read_tokens, batch_prompts)
        s_per_hit = read_s / cached_tokens
        s_per_hit += float(prefill_hits_s(role.prefill, cached_tokens, operator_s)) / cached_tokens
    return Pool(
        prefill.instances, budget_tokens, float(prefill.chunk_tokens),
        batch_price, full_batch_s, s_per_token, s_per_hit,
        dies=role.stage_dies // cp_dies if is_dp else 1,
        delay_s=_later_stages_s(role, prefill, traffic, imbalance_table, slopes_s),
        evening=prefill.chunk_evening, line=slopes_s, attention=(die_s_per_token, die_s_per_pair),
        share_s=die_share_s, in_turn=s.router.policy == "round_robin", routers=front_routers(s),
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
        chunk_tokens, evening = float(prefill.chunk_tokens), prefill.chunk_evening
        piece_tokens = min(
            piece_tokens, float(next_piece(chunk_tokens, evening, *line_s, earlier_tokens))
        )
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
    pool, budget_tokens = role.pool, role.prompt_tokens
    imbalance_table = assembly.decode_imbalance.table
    group_ranks = min(pool.prompt_ranks, role.ranks)
    groups = math.ceil(role.ranks / group_ranks)
    chunk_tokens = budget_tokens / groups  # tokens of a group in an iteration, at most
    pairs_per_token = traffic.fresh_pairs / traffic.fresh_tokens

    def group_s(tokens: float, pairs: float) -> float:
        """Seconds of an iteration in which one group of ranks computes `tokens` of prompts with
        `pairs` query-key pairs, and nothing decodes."""
        tokens_of_rank, pairs_of_rank = np.zeros(role.ranks), np.zeros(role.ranks)
        tokens_of_rank[:group_ranks] = tokens / group_ranks
        pairs_of_rank[:group_ranks] = pairs / group_ranks
        no_decode = np.zeros(role.ranks, np.int64), np.zeros(role.ranks)
        return float(mixed_iteration_s(
            role.decode, *no_decode, tokens_of_rank, pairs_of_rank, 0, role.ranks, *imbalance_table,
            role.operator_sink(),
        ))  # fmt: skip

    one_group_s = group_s(chunk_tokens, chunk_tokens * pairs_per_token)
    one_token_s = group_s(1.0, pairs_per_token)
    all_groups_s = batch_s(role, budget_tokens, budget_tokens * pairs_per_token, imbalance_table)
    # What a token of the fullest group adds, and one of another group.
    fullest_s_per_token = (one_group_s - one_token_s) / chunk_tokens
    s_per_token = (all_groups_s - one_group_s) / max(budget_tokens - chunk_tokens, 1.0)
    s_per_pair = (group_s(chunk_tokens, 2.0 * chunk_tokens * pairs_per_token) - one_group_s) / (
        chunk_tokens * pairs_per_token
    )

    def pool_at(rate: float, iteration_s: float) -> Pool:
        """The pool of colocated instances at this rate (requests/s) and iteration time (s)."""
        iteration_prompts = rate / pool.instances * iteration_s  # prompts, in an iteration
        tokens = min(iteration_prompts * traffic.fresh_tokens, budget_tokens)
        # By random turns.
        fullest_tokens = min(tokens, chunk_tokens * -math.expm1(-tokens / chunk_tokens))
        added_s = fullest_s_per_token * fullest_tokens + s_per_token * (tokens - fullest_tokens)
        decode_s = max(iteration_s - added_s, 0.1 * iteration_s)
        return Pool(
            pool.instances, budget_tokens, chunk_tokens,
            BatchPrice(
                LINE, decode_s, fullest_s_per_token, s_per_token, s_per_pair, pairs_per_token
            ),
            decode_s, (all_groups_s - one_token_s) / budget_tokens, 0.0, decode_s, dies=groups,
            delay_s=iteration_s * first_prompt_wait(iteration_prompts, groups, pool.prompt_delay),
            attention=(1.0, 0.0), share_s=chunk_tokens, is_dealt=True, routers=routers,
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
        arrival_stream = stream_key(s.seed, "arrivals")
        indices = range(min(SAMPLE, sample.prompts.size))
        arrivals_s = list(accumulate(float(exponential(arrival_stream, i)) for i in indices))
    # One alone has no gap.
    mean_gap_s = (
        (arrivals_s[-1] - arrivals_s[0]) / (len(arrivals_s) - 1) if len(arrivals_s) > 1 else 1.0
    )
    prompt_count, seen_sum = len(arrivals_s), float(seen_tokens.sum())
    hits_per_seen = hit_share * float(sample.prompts.sum()) / seen_sum if seen_sum > 0.0 else 0.0
    prompt_tokens = sample.prompts[:prompt_count].astype(np.float64)
    hit_tokens = np.minimum(hits_per_seen * seen_tokens[:prompt_count], prompt_tokens - 1.0)
    scaled_arrivals = [
        round((arrival_s - arrivals_s[0]) / mean_gap_s, DIGITS) for arrival_s in arrivals_s
    ]
    return Prompts(np.array(scaled_arrivals), prompt_tokens - hit_tokens, hit_tokens)
