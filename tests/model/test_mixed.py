from dataclasses import replace

import numpy as np
import pytest

from twin.hardware.fabric import build_fabric
from twin.kernels.compiled import entry
from twin.metrics.operators import DECODE_OPERATORS
from twin.model.costs import build_costs
from twin.model.decode import decode_iteration_s
from twin.model.layer import attention_s
from twin.model.mixed import (
    delayed_prompts_by_rank,
    first_prompt_wait,
    mixed_flops,
    mixed_iteration_s,
    prompt_iterations,
    prompts_by_rank,
)
from twin.model.prefill import prefill_flops
from twin.model.record import row_of
from twin.scenario import Scenario, with_overrides
from twin.workload.lengths import relative_lengths

ONE = np.array([1.0])


@pytest.fixture
def p(facts):
    s = with_overrides(Scenario(), {"deployment.mode": "colocated"})
    return build_costs(s, facts, build_fabric(s.supernode, facts)).decode


def mixed(p, chunk, requests=48, call=mixed_iteration_s):
    """chunk: prompt tokens of all ranks, even; or f8[320] by rank."""
    r, c = np.full(320, requests), np.full(320, requests * 4_000.0)
    ops = np.zeros(len(DECODE_OPERATORS))
    chunks = np.full(320, 1.0 / 320) * chunk if np.ndim(chunk) == 0 else chunk
    took = call(p, r, c, chunks, chunks * 2_048, 0, 320, ONE, ONE, ops)
    assert ops.sum() == pytest.approx(took, rel=1e-12)
    return took


def test_plain_python_and_compiled_code_agree(p):
    compiled = mixed(row_of(p), 65_536.0, call=entry(mixed_iteration_s))
    assert compiled == mixed(p, 65_536.0)


def test_without_a_chunk_it_is_a_decode_iteration(p):
    r, c = np.full(320, 48), np.full(320, 48 * 4_000.0)
    alone = decode_iteration_s(p, r, c, 0, 320, ONE, ONE, np.zeros(len(DECODE_OPERATORS)))
    assert mixed(p, 0.0) == pytest.approx(alone, rel=1e-9)


def test_a_chunk_delays_the_batch_but_shares_the_weights(p):
    together, alone = mixed(p, 65_536.0), mixed(p, 65_536.0, requests=0)
    assert mixed(p, 0.0) < together < mixed(p, 0.0) + alone


def test_prompts_in_passes_of_their_own_take_both_passes(p):
    own = replace(p, chunk=replace(p.chunk, apart=1.0))
    both = mixed(p, 65_536.0, requests=0) + mixed(p, 0.0)
    assert mixed(own, 65_536.0) == pytest.approx(both, rel=1e-9)
    assert mixed(row_of(own), 65_536.0, call=entry(mixed_iteration_s)) == mixed(own, 65_536.0)
    for alone in ({"requests": 0, "chunk": 65_536.0}, {"chunk": 0.0}):
        assert mixed(own, **alone) == mixed(p, **alone)


@pytest.mark.parametrize(
    ("stack", "tp_dies", "delay", "apart"),
    [("sglang-npu", 128, 0, 1.0), ("sglang-npu", 1, 30, 1.0), ("sglang-npu", 1, 0, 0.0),
     ("mindie", 128, 0, 1.0), ("vllm-ascend-0-13", 128, 0, 0.0), ("plain", 128, 0, 0.0)],
)  # fmt: skip
def test_passes_are_apart_where_an_engine_says_so_and_no_rank_decodes_meanwhile(
    facts, stack, tp_dies, delay, apart
):
    fields = {"deployment.mode": "colocated", "deployment.stack": stack,
              "deployment.decode.tp_dies": tp_dies,
              "deployment.colocated.npus_per_instance": 64,
              "deployment.colocated.prompt_delay": delay}  # fmt: skip
    s = with_overrides(Scenario(), fields)
    assert build_costs(s, facts, build_fabric(s.supernode, facts)).decode.chunk.apart == apart


def test_a_chunk_computes_as_many_flops_as_in_prefill_but_for_the_module(facts, p):
    s = with_overrides(Scenario(), {"deployment.mode": "prefill_only",
                                    "deployment.decode.mtp_draft_tokens": 0})  # fmt: skip
    prefill = build_costs(s, facts, build_fabric(s.supernode, facts)).prefill
    alone = mixed_flops(p, 0.0, 0.0, 1_000.0, 5e5)
    assert alone == pytest.approx(prefill_flops(prefill, 1_000.0, 5e5), rel=1e-12)


def test_all_ranks_wait_for_the_one_that_computes_a_whole_prompt(p):
    one = np.zeros(320)
    one[7] = 4_096.0
    even = mixed(p, 4_096.0)
    whole = mixed(p, one)
    m, rows, decode = p.sequence, 48.0 * p.query_tokens, m_core(p, 48 * 4_000.0)
    pairs = p.chunk.pair * 4_096.0 * 2_048
    layers = p.moe_layers + p.dense_layers
    more = attention_s(m, rows + 4_096.0, decode + pairs)
    more -= attention_s(m, rows + 4_096.0 / 320, decode + pairs / 320)
    # Attention by closed form; the rank also sends its tokens alone, and its dense layers grow.
    assert whole - even > more * layers
    assert mixed(p, 320 * one.max()) > whole  # as much on every rank: experts have more to do


def m_core(p, context):
    return p.sequence.core.context * context


def test_the_rank_of_a_prompt_does_not_matter_where_all_decode_alike(p):
    first, last = np.zeros(320), np.zeros(320)
    first[0] = last[-1] = 2_048.0
    assert mixed(p, first) == mixed(p, last)


def test_the_order_of_ranks_does_not_matter(p):
    rng = np.random.default_rng(3)
    requests, chunk = rng.integers(0, 60, 320), rng.choice([0.0, 512.0, 2_048.0], 320)
    loads = requests, requests * rng.uniform(1e3, 9e3, 320), chunk, chunk * rng.uniform(1, 4e3, 320)

    def took(order):
        ops = np.zeros(len(DECODE_OPERATORS))
        return mixed_iteration_s(p, *(x[order] for x in loads), 0, 320, ONE, ONE, ops)

    here = np.arange(320)
    by_core = np.argsort(loads[3])
    assert took(here[::-1]) == pytest.approx(took(here), rel=1e-12)
    assert took(by_core) == pytest.approx(took(by_core[::-1]), rel=1e-12) == took(here)


def mean_prompts(tokens, pairs, *args, **more):
    """Tokens and pairs of each rank in the mean iteration, f8[R]."""
    loads = prompts_by_rank(tokens, pairs, *args, **more)
    return sum(w * t for w, t, _ in loads), sum(w * q for w, _, q in loads)


def served(work, room):
    """Largest tokens of a rank in each iteration; a rank computes at most `room` in one.

    work f8[T, R]: prompt tokens that come to each rank in an iteration.
    """
    waiting, most = np.zeros(work.shape[1]), []
    for coming in work:
        waiting += coming
        computed = np.minimum(waiting, room)
        waiting -= computed
        most.append(computed.max())
    return np.array(most)


@pytest.mark.parametrize(
    ("rate", "room", "spread"),
    [(0.02, 4.0, 1.0), (0.4, 4.0, 1.0), (0.1, 2.0, 2.0), (0.05, 0.5, 1.0), (0.05, 0.3, 3.0)],
)
def test_prompts_of_the_fullest_rank_are_those_of_poisson_arrivals_at_ranks(rate, room, spread):
    rng, sigma = np.random.default_rng(1), np.sqrt(np.log(spread))
    count = rng.poisson(rate, (20_000, 8))
    lengths = np.exp(sigma * rng.standard_normal((count.max(), 20_000, 8)) - 0.5 * sigma**2)
    work = 1_000.0 * (lengths * (np.arange(count.max())[:, None, None] < count)).sum(axis=0)
    drawn = served(work, 1_000.0 * room)
    lengths = relative_lengths(np.exp(sigma * rng.standard_normal(100_000)))
    args = rate * 8_000.0, 5e5, 1_000.0, room * 1_000.0, 8
    tokens, pairs = mean_prompts(*args, lengths=lengths)
    assert tokens[-1] == pytest.approx(drawn.mean(), rel=0.03)
    assert (tokens.sum(), pairs.sum()) == pytest.approx((rate * 8_000.0, 5e5))


def test_iterations_without_a_prompt_stand_apart():
    (idle, none, _), *loads = prompts_by_rank(400.0, 1.0, 2_000.0, 4_000.0, 8)
    assert idle == pytest.approx(np.exp(-0.2), rel=1e-4) and not none.any()
    largest = [tokens[-1] for _, tokens, _ in loads]
    assert largest == sorted(largest) and largest[0] == pytest.approx(2_000.0)
    assert len({tokens[0] for _, tokens, _ in loads}) == 1
    assert sum(share for share, *_ in loads) == pytest.approx(1.0 - idle)


def test_a_prompt_longer_than_a_rank_computes_comes_in_pieces():
    tokens, _ = mean_prompts(400.0, 1.0, 8_000.0, 1_000.0, 8)
    assert tokens[-1] == pytest.approx(1_000.0 * (1.0 - 0.95**8))  # any of 8 ranks has a piece
    assert prompt_iterations(8_000.0, 1_000.0) == 8.0
    assert prompt_iterations(900.0, 1_000.0) == 1.0


def test_one_rank_has_all_prompts():
    tokens, pairs = mean_prompts(700.0, 9.0, 200.0, 1_000.0, 1)
    assert (tokens[0], pairs[0]) == pytest.approx((700.0, 9.0))


def test_dies_that_split_a_prompt_share_what_one_would_have():
    whole, _ = mean_prompts(400.0, 1.0, 2_000.0, 4_000.0, 8)
    split, _ = mean_prompts(400.0, 1.0, 2_000.0, 4_000.0, 8, 4)
    assert (split.sum(), whole.sum()) == pytest.approx((400.0, 400.0))
    assert (split[4:] == split[-1]).all()
    # Of two groups each has a Poisson count with mean 0.1: the expected maximum of the two.
    drawn = np.random.default_rng(1).poisson(0.1, (200_000, 2)).max(axis=1).mean()
    assert split[-1] == pytest.approx(2_000.0 / 4 * drawn, rel=0.02)
    assert split[-1] < 0.3 * whole[-1]


def test_the_piece_that_others_wait_for_is_late_in_a_long_prompt():
    # Ten ranks of which each has one of 20 pieces at any time: the largest position of ten.
    loads = prompts_by_rank(9_000.0, 9_000.0 * 1e4, 20_000.0, 1_000.0, 10)
    pairs = sum(share * pairs[-1] for share, _, pairs in loads)
    drawn = 1_000.0 * np.random.default_rng(1).uniform(0.0, 2e4, (10_000, 9)).max(axis=1).mean()
    assert pairs == pytest.approx(drawn, rel=0.03)
    assert sum(share * pairs.sum() for share, _, pairs in loads) == pytest.approx(9e7)


@pytest.mark.parametrize("rate", [0.2, 1.0, 4.0, 16.0])
@pytest.mark.parametrize("group", [1, 4])
def test_prompts_that_wait_are_computed_whole_in_fewer_iterations(rate, group):
    asked = (rate * 1_000.0, rate * 4e5, 1_000.0, 2_048.0, 16, group)
    busy, waits = [1.0 - prompts_by_rank(*asked)[0][0]], [0.0]
    for delay in (1, 10, 100):
        loads, wait = delayed_prompts_by_rank(*asked, delay=delay)
        busy.append(1.0 - loads[0][0])
        waits.append(wait)
        tokens, pairs = (sum(x[0] * x[k].sum() for x in loads) for k in (1, 2))
        assert (tokens, pairs) == pytest.approx(asked[:2], rel=1e-9)
        assert all(chunk.max() <= 2_048.0 * (1.0 + 1e-9) for _, chunk, _ in loads)
        assert wait <= first_prompt_wait(rate, 16 // group, delay)
    assert busy[1:] == sorted(busy[1:], reverse=True) and busy[-1] < busy[0]
    assert waits == sorted(waits)


def test_a_lone_group_of_ranks_waits_for_nobody():
    asked = (4_000.0, 1.6e6, 1_000.0, 2_048.0, 16, 16)
    assert delayed_prompts_by_rank(*asked, delay=100)[1] == 0.0


def test_prompts_so_many_that_every_group_has_one_wait_for_no_other():
    asked = (16 * 40 * 8.0, 16 * 40 * 8.0 * 4.0, 8.0, 2_048.0, 16)  # 40 of 8 tokens for each rank
    loads, wait = delayed_prompts_by_rank(*asked, delay=10)
    assert wait == 0.0
    for delayed, at_once in zip(loads, prompts_by_rank(*asked), strict=True):
        assert delayed[0] == at_once[0] and (delayed[1] == at_once[1]).all()


def test_the_first_prompt_waits_as_the_coupon_collector_says():
    """Of 2,000 draws the mean number of prompts until each of eight groups has one."""
    draw, counts = np.random.default_rng(5), []
    for _ in range(2_000):
        seen, count = set(), 0
        while len(seen) < 8:
            seen.add(int(draw.integers(8)))
            count += 1
        counts.append(count)
    assert first_prompt_wait(0.5, 8, 1_000) == pytest.approx(np.mean(counts) / 0.5, rel=0.03)
    assert first_prompt_wait(0.5, 8, 10) == 10.0 == first_prompt_wait(0.0, 8, 10)
