"""Pools of instances that compute prompts, as the queue of `model/waiting.py` needs them: from the
prices of a deployment."""

import math
from collections.abc import Callable

import numpy as np

from twin.model import coefficients
from twin.model.batch import LoadCurve, attention_s_per_token, batch_s, fit_batch_s
from twin.model.costs import RoleCosts
from twin.model.layer import collective_s
from twin.model.mixed import first_prompt_wait, mixed_iteration_s
from twin.model.predict import Traffic
from twin.model.prefill import next_piece, prefill_hits_s
from twin.model.prompt_queue import EXACT, LINE, TABLE, BatchPrice
from twin.model.record import dtype_of, numbers
from twin.model.waiting import Pool
from twin.scenario import Scenario
from twin.scenario.deployment import Prefill
from twin.steady import Assembly


def prefill_pool(s: Scenario, parts: Assembly, role: RoleCosts, traffic: Traffic) -> Pool:
    """The prefill pool as the queue of `model/waiting.py` needs it: number of instances, token
    budget and seconds of a batch. role: costs of a prefill instance."""
    prefill, hot = s.deployment.prefill, parts.prefill_imbalance.table
    sink, by_data, cp_dies = role.operator_sink(), prefill.attention == "dp", prefill.cp_dies
    budget_tokens = role.prompt_tokens
    full_s, token_s, pair_s = fit_batch_s(role, budget_tokens, traffic.input_tokens, hot)
    pairs_each = traffic.fresh_pairs / traffic.fresh_tokens  # pairs of a token, mean
    line_s = token_s, pair_s
    token_s += pair_s * pairs_each
    if by_data:
        prices = numbers(role.prefill).view(dtype_of(coefficients.PrefillCosts))
        imbalance = parts.prefill_imbalance
        batch_price = BatchPrice(
            EXACT, prices=prices, hot_tokens=imbalance.tokens, hot_factor=imbalance.factor,
            operators=sink, sharing_dies=cp_dies,
        )  # fmt: skip
    else:  # a batch of mean prompts from a table, what differs from them by its slope
        sizes = [budget_tokens * 2.0**k for k in range(-12, 2)]
        table_s = np.array([batch_s(role, size, size * pairs_each, hot) for size in sizes])
        batch_price = BatchPrice(TABLE, pair_s=pair_s, token_pairs=pairs_each,
                           table_tokens=np.array(sizes), table_s=table_s)  # fmt: skip

    # Of a group of dies that split prompts, as the engine's `note_batch` compares them.
    die_tokens, die_pair_s = budget_tokens / role.stage_dies, role.prefill.core.pair
    die_token_s = attention_s_per_token(role.prefill, die_tokens)
    share_s = math.inf
    if by_data and prefill.dp_balance == "attention":
        share_s = die_tokens * cp_dies * (die_token_s + pairs_each * die_pair_s)
    read_s = 0.0
    if traffic.hit_tokens > 0.0:
        prompts = max(1.0, budget_tokens / traffic.fresh_tokens)  # of a batch
        cached_tokens, servers = prompts * traffic.hit_tokens, parts.costs.servers
        read_s = servers.read_s(role.fetch, prompts * traffic.read_tokens, prompts) / cached_tokens
        read_s += float(prefill_hits_s(role.prefill, cached_tokens, sink)) / cached_tokens
    return Pool(
        prefill.instances, budget_tokens, float(prefill.chunk_tokens),
        batch_price, full_s, token_s, read_s,
        dies=role.stage_dies // cp_dies if by_data else 1,
        delay_s=_later_stages_s(role, prefill, traffic, hot, line_s),
        evening=prefill.chunk_evening, line=line_s, attention=(die_token_s, die_pair_s),
        share_s=share_s, in_turn=s.router.policy == "round_robin", routers=front_routers(s),
        report_s=s.router.front_report_s if s.router.front == "least_loaded" else 0.0,
    )  # fmt: skip


def front_routers(s: Scenario) -> int:
    """Number of routers with instances and queues: one, or one per supernode behind a front one."""
    return 1 if s.router.front == "none" else s.supernode.supernodes


def _later_stages_s(
    role: RoleCosts, d: Prefill, traffic: Traffic, hot: LoadCurve, line_s: tuple[float, float]
) -> float:
    """Seconds of a prompt's last piece in the pipeline stages after the first, with transfers
    between stages; 0 with one stage. role, d: costs and settings of prefill; hot: tokens of the
    hottest die divided by the mean; line_s: seconds of a batch per token and per query-key pair."""
    if d.pp_stages == 1:
        return 0.0
    piece_tokens = min(traffic.fresh_tokens, role.prompt_tokens)
    if d.chunk_tokens:
        earlier_tokens = max(0.0, traffic.input_tokens - d.chunk_tokens)
        piece = next_piece(float(d.chunk_tokens), d.chunk_evening, *line_s, earlier_tokens)
        piece_tokens = min(piece_tokens, float(piece))
    pairs = piece_tokens * (traffic.input_tokens - 0.5 * piece_tokens)
    hop_s = collective_s(role.prefill.hop, piece_tokens / role.stage_dies)
    return (d.pp_stages - 1) * (batch_s(role, piece_tokens, pairs, hot) + float(hop_s))


def colocated_pool_by_load(
    parts: Assembly, role: RoleCosts, traffic: Traffic, routers: int
) -> Callable[[float, float], Pool]:
    """Returns a function of (requests/s, seconds of an iteration) that describes the colocated
    instances for the queue of `model/waiting.py`. Iterations continue without prompts, and prompts
    prolong them. A prompt is computed by one group of ranks; the group with most tokens and pairs
    sets the pace. role: costs of a colocated instance; routers: of `front_routers`."""
    pool, budget_tokens, hot = role.pool, role.prompt_tokens, parts.decode_imbalance.table
    group = min(pool.prompt_ranks, role.ranks)
    groups = math.ceil(role.ranks / group)
    chunk = budget_tokens / groups  # tokens of a group in an iteration, at most
    mean_pairs = traffic.fresh_pairs / traffic.fresh_tokens  # of a token

    def group_s(tokens: float, pairs: float) -> float:
        """Seconds of an iteration in which one group of ranks computes `tokens` of prompts with
        `pairs` query-key pairs, and nothing decodes."""
        tokens_of_rank, pairs_of_rank = np.zeros(role.ranks), np.zeros(role.ranks)
        tokens_of_rank[:group], pairs_of_rank[:group] = tokens / group, pairs / group
        sink, idle = role.operator_sink(), (np.zeros(role.ranks, np.int64), np.zeros(role.ranks))
        return float(mixed_iteration_s(
            role.decode, *idle, tokens_of_rank, pairs_of_rank, 0, role.ranks, *hot, sink
        ))  # fmt: skip

    one_group_s, one_token_s = group_s(chunk, chunk * mean_pairs), group_s(1.0, mean_pairs)
    all_groups_s = batch_s(role, budget_tokens, budget_tokens * mean_pairs, hot)
    fullest_s = (one_group_s - one_token_s) / chunk  # that a token of the fullest group adds
    token_s = (all_groups_s - one_group_s) / max(budget_tokens - chunk, 1.0)
    pair_s = (group_s(chunk, 2.0 * chunk * mean_pairs) - one_group_s) / (chunk * mean_pairs)

    def pool_at(rate: float, iteration_s: float) -> Pool:
        """The pool of colocated instances at this rate (requests/s) and iteration time (s)."""
        prompts = rate / pool.instances * iteration_s  # prompts, in an iteration
        tokens = min(prompts * traffic.fresh_tokens, budget_tokens)
        fullest = min(tokens, chunk * -math.expm1(-tokens / chunk))  # groups take turns at random
        added_s = fullest_s * fullest + token_s * (tokens - fullest)  # to an iteration
        plain_s = max(iteration_s - added_s, 0.1 * iteration_s)
        return Pool(
            pool.instances, budget_tokens, chunk,
            BatchPrice(LINE, plain_s, fullest_s, token_s, pair_s, mean_pairs),
            plain_s, (all_groups_s - one_token_s) / budget_tokens, 0.0, plain_s, dies=groups,
            delay_s=iteration_s * first_prompt_wait(prompts, groups, pool.prompt_delay),
            attention=(1.0, 0.0), share_s=chunk, is_dealt=True, routers=routers,
        )  # fmt: skip

    return pool_at
