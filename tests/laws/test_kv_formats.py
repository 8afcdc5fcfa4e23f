"""KV in two formats: what prefill wrote travels and is stored, and decode converts what it gets."""

from dataclasses import replace

import polars as pl
import pytest

from tests.engine.small import end_of, facts_with_kv_space, run, small
from tests.engine.test_swap import FULL, SPACE, SWAP
from tests.laws.test_paths import STORED, astray, off_the_paths
from twin.lab.library import load_facts
from twin.model.roofline import load_machine
from twin.scenario import SpecError
from twin.steady import assemble

FACTS = load_facts()
OWN = "deployment.precision.prefill_kv"
KV = "deployment.precision.kv"
BYTES = {"bf16": 2 * (512 + 64), "int8": 512 + 2 * 64}  # of a token and layer
ONE = STORED | {"memory_pool.gb_per_node": 0.1, "memory_pool.ssd_gb_per_node": 0.0}


@pytest.mark.parametrize("kv", ["bf16", "int8"])
def test_equal_formats_are_one_format_to_the_byte(kv):
    one, two = run(ONE | {KV: kv}), run(ONE | {KV: kv, OWN: kv})
    assert two.digest == one.digest
    assert two.summary == one.summary


@pytest.mark.parametrize(("ours", "theirs"), [("bf16", "int8"), ("int8", "bf16")])
def test_each_pool_computes_and_has_room_by_its_own_format(ours, theirs):
    mixed = assemble(small({OWN: ours, KV: theirs}), FACTS).costs
    whole = {kv: assemble(small({KV: kv}), FACTS).costs for kv in (ours, theirs)}
    for role, kv in (("prefill", ours), ("decode", theirs)):
        ours_alone = whole[kv].roles[role]
        assert replace(mixed.roles[role], pool=ours_alone.pool) == ours_alone
    assert mixed.kv_bytes_per_token == whole[ours].kv_bytes_per_token
    assert mixed.held_bytes(500) == whole[ours].held_bytes(500)
    assert mixed.held_kv == BYTES[theirs] / BYTES[ours]


@pytest.mark.parametrize(("ours", "theirs"), [("bf16", "int8"), ("int8", "bf16")])
def test_a_hand_over_takes_its_bytes_on_the_port_and_in_the_kernel_by_hand(ours, theirs):
    """A lone request: latents of a token and layer over a NIC, read and written by a die."""
    lone = {"workload.arrivals": "uniform", "workload.rate_req_per_s": 1.0,
            "workload.prefix": "none", OWN: ours, KV: theirs}  # fmt: skip
    setup, world = end_of(small(lone), FACTS)
    costs, port = setup.costs, 25e9 * FACTS.si("fabric.efficiency.rdma")
    handed = 1000 * costs.shape.layers * BYTES[ours]
    written = handed * BYTES[theirs] / BYTES[ours]
    rate = load_machine(FACTS, costs.roles["decode"].chip).vector_bytes_per_s()
    took_s = handed / port + (handed + written) / rate
    rows = run(lone).tables["requests"].filter(pl.col("transfer_end_s").is_not_null())
    began_s = rows["prefill_end_s"] + world.settings.transfer_latency_s
    assert (rows["transfer_end_s"] - began_s).to_numpy() == pytest.approx(took_s, rel=1e-9)
    moved = run(lone).tables["traffic"].filter(pl.col("traffic") == "kv_hand_off")["bytes"].sum()
    assert moved == pytest.approx(handed * len(rows))


def test_the_memory_pool_stores_what_prefill_wrote():
    tables = {}
    for kv in ("bf16", "int8"):
        made = run(ONE | {OWN: kv, "memory_pool.answers": False})
        assert off_the_paths(made.tables) == []
        assert astray(made.tables) < 1e-9
        tables[kv] = made
    # INT8 blocks take 0.56 of the room: more of them fit.
    assert tables["int8"].summary["hit_token_ratio"] > tables["bf16"].summary["hit_token_ratio"]


def test_swapped_kv_has_the_format_of_decode():
    asked = FULL | {SWAP: 5.0}
    moved = {}
    for ours in ("bf16", "int8"):
        s = small(asked | {OWN: ours})
        setup, world = end_of(s, facts_with_kv_space(s, SPACE))
        assert world.settings.held_kv * setup.costs.kv_bytes_per_token == 27 * 576 * 2
        moved[ours] = world.decode.s_per_host_byte.copy()
    assert (moved["int8"] == moved["bf16"]).all()


def test_offloaded_attention_needs_one_format():
    away = {"deployment.decode.attention_offload": 0.3}
    small(away | {OWN: "bf16"})
    with pytest.raises(SpecError, match="so it has one format"):
        small(away | {OWN: "int8"})
