import math

import pytest

from twin.model.costs import accepted_tokens
from twin.model.predict import Held, Traffic, rank_load
from twin.model.shape import ModelError
from twin.scenario import Scenario


def test_figures_of_a_part_agree_with_each_other(ask):
    d = ask().decode
    assert math.fsum(d.operators.values()) == pytest.approx(d.iteration_s)
    assert d.tpot_s * d.tokens_per_iteration == pytest.approx(d.iteration_s)
    assert d.tokens_per_s_per_npu == pytest.approx(d.batch_per_npu / d.tpot_s)
    assert 0.0 < d.cube_utilisation < 1.0
    assert 0.0 < d.hbm_utilisation < 1.0


def test_the_scarcest_part_limits_and_is_named(ask):
    p = ask()
    parts = {"prefill": p.prefill.requests_per_s, "decode": p.decode.requests_per_s,
             "front end": p.front_end_requests_per_s}  # fmt: skip
    assert p.requests_per_s == min(parts.values())
    assert parts[p.limit] == p.requests_per_s
    assert p.limit in p.advice.lower()
    slow = ask(front_end__api_servers=1, front_end__service_ms=100.0)
    assert (slow.limit, slow.requests_per_s) == ("front end", 10.0)


def test_drafts_count_only_after_those_before_them():
    assert accepted_tokens(0, 0.7) == 0.0
    assert accepted_tokens(1, 0.7) == 0.7
    assert accepted_tokens(3, 0.5) == pytest.approx(0.875)


def test_kv_space_bounds_the_batch_and_a_request_too_long_is_refused(ask):
    p = ask(workload__input_tokens=100_000)
    assert p.decode.limited_by == "KV space"
    assert p.decode.batch_per_npu * 100_000 <= 2 * p.costs.decode_role.kv_tokens_per_rank
    with pytest.raises(ModelError, match="does not fit: a die has KV space"):
        ask(deployment__mode="decode_only", workload__input_tokens=900_000)


def test_hits_shorten_prefill_by_less_than_their_share(ask):
    cold = ask().prefill.requests_per_s
    warm = ask(traffic_too={"hit_tokens": 2048}).prefill.requests_per_s
    assert 1.3 < warm / cold < 2.0


def test_the_rank_with_most_context_never_exceeds_full_answers():
    requests, context = rank_load(4, 320, Traffic(100.0, 1000.0))
    assert requests.sum() == 4 * 320
    assert context[1] == 4 * 600.0 < context[0] <= 4 * 1100.0


def test_answers_of_unequal_length_are_met_when_they_are_long(ask):
    half = 0.5 * Scenario().workload.output_tokens

    def holding(mean, deviation):
        return ask(traffic_too={"held": Held(mean, deviation)}).decode

    alike = holding(half, half / math.sqrt(3))
    assert alike.tpot_s == pytest.approx(ask().decode.tpot_s, rel=0.005)
    longer, wider = holding(8 * half, half), holding(half, 40 * half)
    assert min(longer.tpot_s, wider.tpot_s) > 1.02 * alike.tpot_s


def test_the_host_shows_where_the_machine_is_faster(facts, ask):
    fields = {"deployment__mode": "decode_only", "deployment__decode__batch_per_npu": 8}
    base = ask(**fields).decode
    slow = {
        "operators.ascend.graph_launch": 1e3 * base.iteration_s
    }  # two graphs: twice the busy time
    assert ask(facts.replaced(slow), **fields).decode.iteration_s == pytest.approx(
        2 * base.iteration_s, rel=0.01
    )
    streams = 8 * 160
    per_answer = {"operators.ascend.host_answer": 3e6 * base.iteration_s / streams}
    assert ask(facts.replaced(per_answer), **fields).decode.iteration_s == pytest.approx(
        3 * base.iteration_s, rel=0.05
    )
    hidden = {"operators.ascend.host_answer": 1e5 * base.iteration_s / streams}
    assert ask(facts.replaced(hidden), **fields).decode.iteration_s == base.iteration_s


def test_colocation_trades_batch_for_prompts(ask):
    p = ask(deployment__mode="colocated", workload__output_tokens=64)
    assert p.decode.limited_by.startswith("prompt tokens")
    assert p.prefill.requests_per_s == pytest.approx(p.decode.requests_per_s, rel=1e-9)


def test_colocated_use_of_the_cores_counts_prompts_too(ask):
    p = ask(deployment__mode="colocated")
    done = p.decode.cube_utilisation * 2 * 752e12  # FLOP/s of an NPU
    least = 2 * 36e9 * (p.decode.tokens_per_s_per_npu + p.prefill.tokens_per_s_per_npu)
    assert done > least


def fetch_s(ask, **fields):
    p = ask(traffic_too={"hit_tokens": 3_584}, **fields)
    return p.prefill.operators["fetch"] / (p.prefill.batch_tokens / 512)


def test_a_cache_of_its_own_nodes_is_not_read_over_vpc(ask):
    vpc, local = {"memory_pool__plane": "vpc"}, {"memory_pool__scope": "local"}
    assert fetch_s(ask, **local, **vpc) == fetch_s(ask, **local) < 0.7 * fetch_s(ask, **vpc)


def test_one_prefix_for_all_is_sent_by_few_servers(ask):
    hits = {"traffic_too": {"hit_tokens": 3_584}, "workload__prefix": "shared"}
    hits |= {"workload__input_tokens": 4096, "deployment__mode": "prefill_only"}

    def each(groups, instances):
        fields = {"workload__prefix_groups": groups, "deployment__prefill__instances": instances}
        return ask(**hits, **fields).prefill.requests_per_s / instances

    assert each(64, 24) == pytest.approx(each(64, 6))
    assert each(1, 24) < 0.8 * each(1, 6) and each(1, 6) == pytest.approx(each(64, 6))


def test_smaller_blocks_are_more_copies(ask):
    fields = ({"memory_pool__block_tokens": n} for n in (64, 128, 512))
    half, usual, wide = (fetch_s(ask, **each) for each in fields)
    assert half == pytest.approx(2 * usual, rel=0.01)
    assert wide == pytest.approx(usual / 4, rel=0.05)  # no more than the links give
    whole = fetch_s(ask, memory_pool__layout="block")
    assert whole < usual / 4


def test_colocated_prompts_wait_for_their_hits(ask):
    fields = {"traffic_too": {"hit_tokens": 3_584}, "deployment__mode": "colocated"}
    near, far = (ask(memory_pool__plane=plane, **fields) for plane in ("ub", "vpc"))
    assert far.decode.iteration_s > 1.1 * near.decode.iteration_s


@pytest.mark.parametrize(
    ("fact", "part"),
    [
        ("chips.ascend-910c.hbm_bandwidth", "decode"),
        ("chips.ascend-910c.flops.fp16", "decode"),
        ("chips.ascend-910c.flops.int8", "decode"),
        ("fabric.efficiency.write", "decode"),
        ("chips.ascend-910c.flops.fp16", "prefill"),
        ("chips.ascend-910c.flops.int8", "prefill"),
        ("fabric.efficiency.npu_read", "prefill"),
    ],
)
def test_ten_percent_more_of_anything_never_slows_and_of_what_binds_speeds_up(
    facts, ask, fact, part
):
    known = facts.replaced({fact: 1.1 * facts[fact].value})
    fields = {"deployment__decode__microbatch": "off"}
    base, more = getattr(ask(**fields), part), getattr(ask(known, **fields), part)
    gain = more.tokens_per_s_per_npu / base.tokens_per_s_per_npu
    assert 1.0 < gain < 1.1


@pytest.mark.parametrize("name", ["expert_intermediate", "heads", "kv_lora", "vocabulary"])
def test_a_larger_model_is_slower(facts, ask, name):
    key = f"models.deepseek-r1.{name}"
    known = facts.replaced({key: int(1.1 * facts[key].value)})
    fields = {"deployment__decode__microbatch": "off"}
    assert ask(known, **fields).decode.tpot_s > ask(**fields).decode.tpot_s


def test_a_model_without_drafts_says_so(ask):
    with pytest.raises(ModelError, match="no multi-token-prediction module"):
        ask(deployment__model="qwen3-235b")


def test_a_prefill_batch_fits_the_dies_that_hold_all_of_its_kv(ask):
    found = ask(traffic_too={"hit_tokens": 3_584}, deployment__prefill__tokens_per_npu=16_384)
    role = found.costs.prefill_role
    prompts = found.prefill.batch_tokens / (4_096 - 3_584)
    assert prompts * 4_096 == pytest.approx(role.kv_tokens_per_rank)
    with pytest.raises(ModelError, match="a die of a prefill instance has KV space for"):
        ask(deployment__mode="prefill_only", workload__input_tokens=role.kv_tokens_per_rank + 1)


@pytest.mark.parametrize("batch", [1, 3, 96])
def test_a_batch_that_dies_share_unevenly_is_kept_whole(ask, batch):
    d = ask(deployment__decode__batch_per_npu=batch).decode
    assert (d.batch_per_npu, d.limited_by) == (batch, "slots")


def test_dies_without_an_expert_are_named_with_what_fills_them(ask):
    idle = {"deployment__mode": "decode_only", "experts__redundant": 0}
    said = ask(**idle).advice
    assert "28 of 320 dies of a decode instance hold no routed expert" in said
    assert "experts.redundant = 28" in said
    assert "hold no" not in ask(**idle | {"experts__redundant": 28}).advice


@pytest.mark.parametrize("microbatch", [True, False])
def test_prefill_waits_for_the_host_without_fused_operators(ask, microbatch):
    fields = {"deployment__prefill__microbatch": microbatch}
    fused, naive = (
        ask(**fields, deployment__communication__fused=on).prefill.batch_s for on in (True, False)
    )
    assert naive > 1.002 * fused
