"""What a stack's scheduler does by default, as fields of a scenario."""

import pytest

from twin.lab.ask import scenario_and_trace, scheduler_defaults, with_scheduler
from twin.lab.library import load_facts
from twin.scenario import Scenario, SpecError, fields, with_overrides
from twin.scenario.fields import value_of

CHUNK = "deployment.colocated.chunk_tokens_per_npu"
BATCH, RANK = "deployment.decode.batch_per_npu", "deployment.decode.rank_choice"
COLOCATED = {"deployment.mode": "colocated", "deployment.colocated.npus_per_instance": 8}
H200 = COLOCATED | {"supernode.chip": "h200", "deployment.stack": "vllm-0-24"}
ASCEND = COLOCATED | {"deployment.stack": "vllm-ascend-0-13"}


def changed(changes):
    return scheduler_defaults(with_overrides(Scenario(), changes), load_facts())


def chunk(changes, path=CHUNK):
    return value_of(with_scheduler(with_overrides(Scenario(), changes), load_facts()), path)


def test_a_budget_of_ranks_is_counted_per_npu_and_by_the_memory_of_a_device():
    assert changed(H200) == {CHUNK: 8192, BATCH: 1024, RANK: "requests"}
    # Two dies are two ranks of 64 GB each, below the 70 GiB of a large device.
    assert changed(ASCEND) == {CHUNK: 2 * 2048, BATCH: 2 * 256, RANK: "requests"}
    two_dies = changed(ASCEND | {"deployment.decode.tp_dies": 2})
    assert two_dies == {CHUNK: 2048, BATCH: 256, RANK: "requests"}


def test_sglang_divides_one_budget_over_the_ranks_of_an_instance():
    stack = {"deployment.stack": "sglang-0-5"}
    assert chunk(H200 | stack) == 8192 // 8
    assert chunk(H200 | stack | {"supernode.chip": "b200"}) == 16384 // 8
    assert chunk(ASCEND | {"deployment.stack": "sglang-npu"}) == 32768 // 8


def test_a_prefill_pool_takes_one_budget_a_rank_and_pieces_no_longer_than_it():
    for attention, ranks in (("dp", 32), ("tp", 4), ("sp_tp_sp", 1)):
        pool = {"deployment.prefill.attention": attention, "deployment.prefill.tp_dies": 8}
        pool |= {"deployment.stack": "mindie"}
        assert chunk(pool, "deployment.prefill.tokens_per_npu") == 8192 * ranks // 16
        assert chunk(pool, "deployment.prefill.chunk_tokens") == 8192
    split = pool | {"deployment.prefill.attention": "tp", "deployment.prefill.cp_dies": 2}
    assert chunk(split, "deployment.prefill.tokens_per_npu") == 8192 * 2 // 16
    staged = split | {"deployment.prefill.pp_stages": 2}
    assert chunk(staged, "deployment.prefill.tokens_per_npu") == 8192 // 16


def test_stages_of_mixed_serving_have_a_budget_a_pass():
    """One engine of 16 dies: an iteration is a pass of each of two groups, of 2,048 tokens each."""
    whole = ASCEND | {"deployment.decode.tp_dies": 8, "deployment.decode.mtp_draft_tokens": 0}
    one, two = (changed(whole | {"deployment.decode.pp_stages": n}) for n in (1, 2))
    assert two[CHUNK] == one[CHUNK] and two[BATCH] == one[BATCH] // 2


def test_a_scheduled_scenario_has_nothing_left_to_set():
    facts = load_facts()
    for stack in facts.names("schedulers"):
        assert stack in facts.names("stacks")
        for chip in ("ascend-910c", "h200"):
            once = with_scheduler(
                with_overrides(
                    Scenario(), H200 | {"supernode.chip": chip, "deployment.stack": stack}
                ),
                facts,
            )
            assert scheduler_defaults(once, facts) == {}
    assert changed({}) == {}  # no stack
    changes = changed(ASCEND | {"deployment.decode.tp_dies": 16})
    assert all(fields()[path].low <= value for path, value in changes.items() if path != RANK)


def test_a_person_asks_for_it_by_one_setting_and_others_come_after():
    asked = ["deployment.stack=vllm-ascend-0-13", "scheduler=stack", f"{BATCH}=32"]
    scenario, _ = scenario_and_trace("colocated-contrast", asked)
    assert (value_of(scenario, RANK), value_of(scenario, BATCH)) == ("requests", 32)
    groups = 256 // scenario.deployment.colocated.prompt_dies  # engines of an instance
    assert value_of(scenario, CHUNK) == 2048 * groups // 128
    with pytest.raises(SpecError, match="scheduler is stack or not set, not 'fifo'"):
        scenario_and_trace("colocated-contrast", ["scheduler=fifo"])
