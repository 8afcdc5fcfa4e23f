"""KV in host memory: read in every pass, layer by layer; bytes and times by hand."""

from dataclasses import replace
from typing import Any

import pytest

from tests.engine.contention.test_flows import machine
from tests.engine.small import end_of, recorded, run, small
from twin.engine import codes as w
from twin.engine.contention.traffic import apply_changed_flows, mark_active, set_server_loads
from twin.engine.simulate import result_digest, simulate
from twin.engine.swap import begin_kv_streams
from twin.hardware.fabric import build_fabric
from twin.hardware.prices import host_copy_rates
from twin.lab.ask import with_trace
from twin.lab.library import load_facts
from twin.model import layer
from twin.model.costs import build_costs
from twin.model.shape import ModelError
from twin.scenario import with_overrides
from twin.steady import predict_steady

SHARE = "deployment.decode.kv_offload"
ROOM = "deployment.decode.kv_offload_gb_per_die"
HITS = "deployment.decode.kv_offload_hits"
ONE_RANK = {
    "deployment.mode": "decode_only", "deployment.decode.instances": 1,
    "deployment.decode.npus_per_instance": 1, "deployment.decode.tp_dies": 2, "warmup_s": 0.0,
    "horizon_s": 6.0,
}  # fmt: skip
LATENT = (512 + 64) * 2  # bytes of a token and a layer of DeepSeek-V2-Lite, BF16
COPY = 4 * 128 * LATENT / 23.7e-6  # four blocks of a layer in flight, 23.7 us each
# DeepSeek-V3.2, whose tokens attend to 2,048.
SPARSE = {
    "deployment.model": "deepseek-v3-2", "deployment.mode": "decode_only", "supernode.nodes": 8,
    "deployment.decode.instances": 1, "deployment.decode.npus_per_instance": 32,
    "deployment.decode.batch_per_npu": 8, "workload.input_tokens": 30_000,
    "workload.output_tokens": 60, "workload.rate_req_per_s": 60.0, "horizon_s": 4.0,
}  # fmt: skip


def costs_of(settings: dict[str, Any]):
    s = small(settings)
    return build_costs(s, load_facts(), build_fabric(s.supernode, load_facts()))


def one_request(share: float, tokens: int = 1000):
    """A request of so many tokens alone on a rank of two dies, whose answer has 100."""
    trace = recorded([0.001], [tokens], [100])
    s = with_trace(small(ONE_RANK | {SHARE: share}), trace)
    s = with_overrides(s, {"horizon_s": 6.0, "warmup_s": 0.0})
    return simulate(s, load_facts(), trace), end_of(s, load_facts(), trace)


def moved_bytes(made) -> float:
    traffic = made.tables["traffic"]
    return traffic.filter(traffic["traffic"] == "swap")["bytes"].sum()


def waited_s(made) -> float:
    operators = made.tables["operators"]
    return operators.filter(operators["operator"] == "kv_swap")["total_s"].sum()


def test_bytes_are_those_of_every_layer_and_pass():
    made, (setup, _) = one_request(0.25)
    assert made.valid, [check for check in made.checks if not check["ok"]]
    layers, passes = setup.costs.shape.layers, 99
    read = sum(1001 + k for k in range(passes))  # context tokens of each pass
    written = 1001 + passes
    by_hand = 0.25 * LATENT * layers * 2 * (read + written)  # latents are whole on both dies
    assert moved_bytes(made) == pytest.approx(by_hand, rel=1e-6)


def test_reading_ahead_takes_what_the_layers_do_not_hide():
    plain, _ = one_request(0.0, tokens=30_000)
    made, (setup, _) = one_request(0.9, tokens=30_000)
    p, layers = setup.costs.decode, setup.costs.shape.layers
    rate = min(host_copy_rates(setup.fabric, [0, 1], "ub")[1] / 2.0, COPY)
    assert p.sequence.core.ahead == pytest.approx(0.9 * LATENT / rate, rel=1e-3)
    contexts = [30_001 + k for k in range(99)]
    read_s = sum(contexts) * layers * 0.9 * LATENT / rate
    layers_s = sum(
        seconds
        for operator, seconds in zip(
            *(plain.tables["operators"][name] for name in ("operator", "total_s")), strict=True
        )
        if operator not in ("mtp", "lm_head", "sampling", "launch_gaps")
    )
    assert read_s > 1.2 * layers_s
    assert waited_s(made) == pytest.approx(read_s - layers_s, rel=1e-3)


def test_what_layers_hide_costs_nothing():
    plain, _ = one_request(0.0)
    made, _ = one_request(0.1)
    assert waited_s(made) == 0.0 < moved_bytes(made)
    assert made.summary["tpot_s_mean"] == plain.summary["tpot_s_mean"]


def test_an_indexer_reads_what_it_selects_and_a_die_lacks():
    costs = costs_of(SPARSE | {SHARE: 0.8, HITS: 0.6})
    p, shape = costs.decode, costs.shape
    latent = shape.core_bytes_per_token_layer("int8")
    assert costs.deployed.pools["decode"].precision.kv == "bf16"
    latent = 2.0 * (shape.kv_lora + shape.rope_dim)
    core, fabric = p.sequence.core, costs.deployed.net
    rate = host_copy_rates(fabric, range(16), "ub")[1] / 16.0  # of a die, with all of its node
    assert core.fetch == pytest.approx(0.4 * latent / rate, rel=1e-3)
    # Two requests: of each 2,048 tokens are selected, whatever their context.
    for context in (50_000.0, 250_000.0):
        expected_s = core.fetch_start + 2 * 2048 * 0.4 * latent / rate
        assert layer.fetch_wait_s(core, 2.0, context) == pytest.approx(expected_s, rel=1e-3)
    none = replace(core, fetch=0.0, fetch_start=0.0)
    more = layer.local_core_s(core, 2.0, 5e4) - layer.local_core_s(none, 2.0, 5e4)
    assert more == pytest.approx(layer.fetch_wait_s(core, 2.0, 5e4), rel=1e-9)
    # Where little lies in host memory no more is lacking than lies there.
    assert costs_of(SPARSE | {SHARE: 0.1}).decode.sequence.core.fetch == pytest.approx(
        0.1 * latent / rate, rel=1e-3
    )
    assert costs_of(SPARSE | {SHARE: 0.8, HITS: 1.0}).decode.sequence.core.fetch == 0.0


def test_space_of_dies_and_of_host_memory():
    plain, half = costs_of({}), costs_of({SHARE: 0.5})
    assert plain.decode_role and half.decode_role
    layers = plain.shape.layers
    per_token = LATENT * layers
    # Two layers' parts have room on the die: the one attended to, and the one that arrives.
    on_die = per_token - 0.5 * (layers - 2) * LATENT
    room = plain.decode_role.memory.kv
    assert plain.decode_role.kv_tokens_per_rank == int(room / per_token)
    assert half.decode_role.kv_tokens_per_rank == min(int(room / on_die), int(32e9 / per_token * 2))
    little = costs_of({SHARE: 0.5, ROOM: 1.0}).decode_role
    assert little and little.kv_tokens_per_rank == int(1e9 / (0.5 * per_token))
    with pytest.raises(ModelError, match="raise deployment.decode.kv_offload_gb_per_die"):
        costs_of({SHARE: 0.5, ROOM: 0.01})
    # An indexer's keys stay on the die.
    sparse = costs_of(SPARSE | {SHARE: 0.5}).decode_role
    assert sparse and sparse.kv_spared == sparse.kv_in_host == 0.5 * 61 * 1152


def test_without_a_share_nothing_changes():
    plain = run()
    for field, value in ((ROOM, 1.0), (HITS, 0.9)):
        assert result_digest(run({field: value}).tables) == result_digest(plain.tables)


FULL = {"workload.arrivals": "closed_loop", "start": "steady", "horizon_s": 20.0}
LOADS = {
    "all": FULL | {SHARE: 0.3, "workload.input_tokens": 20_000, "workload.concurrency": 128,
                   "workload.output_tokens": 100, "deployment.mode": "decode_only"},
    "mixed": FULL | {SHARE: 0.9, "workload.input_tokens": 2000, "workload.concurrency": 128,
                     "workload.output_tokens": 200, "deployment.mode": "colocated"},
    "selected": SPARSE | FULL | {SHARE: 0.8, "workload.concurrency": 256},
}  # fmt: skip


@pytest.mark.parametrize("load", LOADS)
def test_formula_and_run_agree(load):
    s = small(LOADS[load])
    made, said = simulate(s, load_facts()), predict_steady(s, load_facts()).serving
    assert made.valid, [check for check in made.checks if not check["ok"]]
    assert said and said.operators["kv_swap"] > 0.1 * said.iteration_s
    assert made.summary["tpot_s_mean"] == pytest.approx(said.tpot_s, rel=0.02)


def test_faster_links_never_hurt():
    """Of CPUs that have a tenth, half, all and twice of their links."""
    for load in ("all", "selected"):
        took_s = []
        for factor in (0.1, 0.5, 1.0):
            edits = [{"element": f"CPU {n}.{c}", "capacity_factor": factor}
                     for n in range(8 if load == "selected" else 4) for c in range(4)]  # fmt: skip
            s = small(LOADS[load] | {"supernode.edits": edits})
            took_s.append(predict_steady(s, load_facts()).decode.iteration_s)
        assert took_s[0] > took_s[1] >= took_s[2]


def test_reads_share_links_with_other_traffic():
    """With a prompt's cached KV, which comes from the same CPUs, whose links are slow now."""
    faults = [{"element": f"CPU 1.{c}", "kind": "derate", "factor": 0.05} for c in range(4)]
    found = machine(
        {SHARE: 0.5, "deployment.prefill.instances": 1, "deployment.prefill.npus_per_instance": 8,
         "deployment.decode.npus_per_instance": 8, "deployment.kv_transfer_plane": "ub"}, faults,
    )  # fmt: skip
    world, flows = found.world, found.world.traffic
    world.decode.requests[:16], world.decode.context[:16] = 2, 5000.0
    alone_s = float(world.costs.decode[0].sequence.core.ahead)

    def slowed(now_s: float) -> float:
        """Time of a pass's reads over that with all links as built."""
        mark_active(world, now_s)
        apply_changed_flows(world)
        begin_kv_streams(world, 0, now_s)
        return float(world.costs.decode[0].sequence.core.ahead) / alone_s

    rate = host_copy_rates(found.fabric, found.serving_dies(1), "ub")[1] / 16.0
    quiet = slowed(0.0)
    assert quiet == pytest.approx(COPY / rate, rel=0.011)
    flows.active[flows.first[w.POOL_READ]] = 1
    world.streams.requested[0, 1] = 7
    set_server_loads(world, 0)
    assert slowed(10.0) > 1.1 * quiet
