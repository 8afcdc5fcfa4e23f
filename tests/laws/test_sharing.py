"""Prefill on the NPUs of decode: what shares a die counts once, fits it, and hinders the other.

`python -m tests.laws.test_sharing` writes the comparison of docs/studies/SHARING.md.
"""

import math
import sys
from dataclasses import replace
from typing import Any

import pytest

from tests.engine.small import run, small
from tests.laws.lawful import lawful
from twin.facts import Facts
from twin.hardware.fabric import build_fabric
from twin.hardware.placement import PLACEMENTS, place
from twin.lab.library import load_facts
from twin.outlook import outlook
from twin.scenario import Scenario, SpecError, npus_used, with_overrides
from twin.steady import Priced, assemble, predict_steady

FACTS = load_facts()
ON = {"deployment.prefill.on": "decode_npus"}
# DeepSeek-R1 on as many NPUs as the quick start has: the split of the cores is to be chosen.
WIDE = ON | {
    "deployment.prefill.instances": 16,
    "deployment.prefill.tokens_per_npu": 4096,
    "deployment.decode.npus_per_instance": 256,
}
TRAFFIC = {"workload.input_tokens": 4096, "workload.output_tokens": 1536}
SHARES = (0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6)


def asked(**settings: Any) -> Scenario:
    return with_overrides(Scenario(), WIDE | TRAFFIC | settings)


@pytest.mark.parametrize("policy", sorted(set(PLACEMENTS) - {"by_hand"}))
def test_prefill_lies_over_decode_as_much_on_each_and_an_npu_counts_once(policy):
    s = small(ON | {"deployment.placement": policy, "deployment.decode.npus_per_instance": 8,
                    "deployment.prefill.instances": 4})  # fmt: skip
    placed = place(s, build_fabric(s.supernode, FACTS)).instances
    prefill = [i for i in placed if i.role == "prefill"]
    decode = [set(i.die_of_rank) for i in placed if i.role == "decode"]
    assert npus_used(s) == 16 == len(set.union(*decode)) / 2
    for k, one in enumerate(prefill):
        assert one.dies == 8 and set(one.die_of_rank) <= decode[k // 2]
    assert len({die for i in prefill for die in i.die_of_rank}) == 4 * 8


def test_a_run_counts_npus_hours_and_watts_of_a_shared_npu_once():
    own, shared = run().summary, run(ON).summary
    assert (own["npus"], shared["npus"]) == (16, 8)
    assert (shared["npus_prefill"], shared["npus_decode"]) == (8, 8)
    assert shared["npu_hours"] == own["npu_hours"] / 2
    tokens = shared["output_tokens_per_s"]
    assert shared["tokens_per_s_per_npu"] == pytest.approx(tokens / 8)
    answer = run(ON)
    windows, horizon_s = answer.tables["windows"], answer.scenario.horizon_s
    joules = float((windows["power_w"] * windows["window_s"]).sum())
    whole = run(ON | {"warmup_s": 0.0}).summary
    assert whole["energy_kwh"] * 3.6e6 == pytest.approx(joules, rel=1e-6)
    idle_kw = run(ON | {"workload.rate_req_per_s": 0.5}).summary["power_kw"]
    assert idle_kw < shared["power_kw"] < own["power_kw"]
    busy = [shared[f"{role}_utilisation"] for role in ("prefill", "decode")]
    idle = 8 * (1.0 - 0.5 * sum(busy)) * (horizon_s - 1.0) / 3600
    assert shared["npu_hours_idle"] == pytest.approx(idle)


def test_a_capped_die_has_one_clock_for_both():
    shared = assemble(asked(**{"cost.cap_w": 300.0}), FACTS).costs.deployed.clocks
    apart = assemble(asked(**{"cost.cap_w": 300.0, "deployment.prefill.on": "own_npus",
                              "deployment.decode.npus_per_instance": 128}), FACTS)  # fmt: skip
    clocks = apart.costs.deployed.clocks
    assert clocks["prefill"] < shared["prefill"] == shared["decode"] < clocks["decode"] == 1.0


@pytest.mark.parametrize("attention", ["sp_tp_sp", "dp"])
@pytest.mark.parametrize("npus", [16, 256])
def test_the_hbm_of_a_die_holds_both_and_no_more(attention, npus):
    tokens = 4096 if npus == 16 else 512
    s = asked(**{"deployment.prefill.npus_per_instance": npus,
                 "deployment.prefill.instances": 256 // npus,
                 "deployment.prefill.tokens_per_npu": tokens,
                 "deployment.prefill.attention": attention})  # fmt: skip
    costs = assemble(s, FACTS).costs
    alone = assemble(with_overrides(s, {"deployment.prefill.on": "own_npus",
                                        "supernode.nodes": 64, "supernode.l2_ports_per_chip": 64,
                                        }), FACTS).costs  # fmt: skip
    p, d = costs.prefill_role, costs.decode_role
    batch = tokens * (npus if attention == "sp_tp_sp" else 0.5)
    assert p.kv_tokens_per_rank == math.floor(batch + 1e-6)
    experts = alone.prefill_role.memory.weights * (npus != 256)
    held = p.memory.kv + p.memory.buffers + d.memory.kv + d.memory.buffers + d.memory.reserve
    left = d.memory.hbm - held - d.memory.weights  # what only prefill's experts can take
    assert -1.0 <= left < experts + 1.0 and (left < 1.0) == (npus == 256)
    assert d.kv_tokens_per_rank < alone.decode_role.kv_tokens_per_rank


def test_what_does_not_fit_is_refused_with_the_number_that_does():
    wide = {"deployment.prefill.tokens_per_npu": 16_384}
    with pytest.raises(ValueError, match=r"does not fit: .* take .*tokens_per_npu = (\d+) or less"):
        assemble(asked(**wide), FACTS)
    try:
        assemble(asked(**wide), FACTS)
    except ValueError as refusal:
        most = int(str(refusal).split(" = ")[-1].split()[0])
    assert predict_steady(asked(**{"deployment.prefill.tokens_per_npu": most}), FACTS)
    with pytest.raises(ValueError, match="does not fit"):
        assemble(asked(**{"deployment.prefill.tokens_per_npu": most + 1}), FACTS)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"deployment.prefill.instances": 3}, "take a multiple of 2 prefill instances"),
        ({"deployment.prefill.instances": 6}, "take at most 1 NPU a prefill instance"),
        ({"deployment.decode.expert_npus": 2}, "needs deployment.decode.expert_npus = 0"),
        ({"elastic.controller": "queue"}, "needs elastic.controller = fixed"),
        ({"faults": [{"at_s": 0.6, "element": "node 0"}]}, "needs no faults"),
        ({"deployment.placement": "by_hand",
          "deployment.seats": [{"role": "prefill", "index": 0, "element": "node 1"}]},
         "needs seats of decode instances alone"),
    ],
)  # fmt: skip
def test_what_cannot_share_is_refused_in_a_sentence(settings, sentence):
    with pytest.raises(SpecError, match=sentence):
        small(ON | settings)


def test_more_cores_for_prefill_never_slow_prefill_nor_speed_decode():
    full = [predict_steady(asked(**{"deployment.prefill.core_share": c}), FACTS) for c in SHARES]
    batches, iterations = [f.prefill.batch_s for f in full], [f.decode.iteration_s for f in full]
    assert batches == sorted(batches, reverse=True) and batches[-1] < 0.5 * batches[0]
    assert iterations == sorted(iterations) and iterations[-1] > 1.5 * iterations[0]
    alone = predict_steady(asked(**{"deployment.prefill.on": "own_npus",
                            "deployment.prefill.instances": 8}), FACTS)  # fmt: skip
    assert alone.prefill.batch_s < batches[-1]
    assert alone.decode.tpot_s / alone.decode.batch_per_npu < min(
        f.decode.tpot_s / f.decode.batch_per_npu for f in full
    )


def test_exchanges_on_the_same_ports_hold_each_other_by_the_time_they_are_on_the_wire():
    """In full on one port both would take twice as long; each is there for a part of the time."""
    busy = {"workload.rate_req_per_s": 300.0, "memory_pool.enabled": False}
    answer, own = run(ON | busy), run(busy)
    lawful(answer)
    for role in ("prefill", "decode"):
        held, free = (
            found.tables["instances"].filter(role=role)["contention"] for found in (answer, own)
        )
        assert 1.0 < held.mean() < held.max() < 1.9 and free.max() == 1.0


@pytest.mark.parametrize(
    "settings",
    [{}, {"workload.rate_req_per_s": 400.0}, {"deployment.kv_transfer_plane": "ub"},
     {"workload.prefix": "shared", "memory_pool.scope": "local"}],
)  # fmt: skip
def test_every_law_holds_where_dies_are_shared(settings):
    lawful(run(ON | settings))


def best(tpot_ms: float, facts: Facts, choices: list[dict[str, Any]]) -> float:
    """The most requests/s within an SLO that one of some deployments sustains, by formula."""
    rates = [0.0]
    for choice in choices:
        s = asked(**{"slo.tpot_ms": tpot_ms, "slo.ttft_s": 5.0} | choice)
        try:
            rates.append(outlook(Priced(s, facts)).slo_req_per_s)
        except ValueError:  # that does not fit
            continue
    return max(rates)


def ways(npus: int, step: int = 1) -> dict[str, list[dict[str, Any]]]:
    """Every `step`-th of the deployments of so many NPUs that are compared, by name."""
    own = {"deployment.prefill.on": "own_npus", "deployment.prefill.tokens_per_npu": 16_384}
    apart = [own | {"deployment.prefill.instances": k, "deployment.decode.instances": d,
                    "deployment.decode.npus_per_instance": (npus - 16 * k) // d}
             for d in (1, 2) for k in range(1, min(13, npus // 16))]  # fmt: skip
    mixed = [own | {"deployment.mode": "colocated", "deployment.colocated.instances": npus // n,
                    "deployment.colocated.npus_per_instance": n}
             for n in (16, 32, 64, 128, 256) if n <= npus]  # fmt: skip
    shared = [{"deployment.prefill.core_share": c, "deployment.prefill.npus_per_instance": n,
               "deployment.prefill.instances": npus // n, "deployment.decode.instances": d,
               "deployment.decode.npus_per_instance": npus // d}
              for d in (1, 2) for n in (16, 32) if n * d <= npus for c in SHARES[:-1]]  # fmt: skip
    return {"disaggregated": apart[::step], "shared": shared[::step], "colocated": mixed}


def with_cores_that_draw(factor: float) -> Facts:
    name = "chips.ascend-910c.core_cycle_bytes"
    fact = FACTS[name]
    return FACTS.replaced({name: replace(fact, value=factor * fact.value)})


# (NPUs, output tokens, TPOT): rows of docs/studies/SHARING.md.
ROWS = ((256, 1536, 20), (256, 1536, 30), (256, 1536, 50), (256, 512, 20), (256, 512, 50),
        (32, 1536, 20), (32, 1536, 30), (32, 1536, 50))  # fmt: skip


@pytest.mark.long
def test_sharing_beats_mixing_at_a_tight_tpot_and_own_pools_on_a_small_machine():
    """What docs/studies/SHARING.md says, of a third of the deployments there."""
    rates = {name: best(20.0, FACTS, few) for name, few in ways(256, 3).items()}
    assert rates["colocated"] < rates["shared"] < rates["disaggregated"]
    rates = {name: best(30.0, FACTS, few) for name, few in ways(32, 3).items()}
    assert rates["disaggregated"] < rates["shared"]


def main() -> None:
    for npus, tokens, tpot_ms in ROWS:
        TRAFFIC["workload.output_tokens"] = tokens
        rates = [best(tpot_ms, FACTS, few) for few in ways(npus).values()]
        rates.append(best(tpot_ms, with_cores_that_draw(2.0), ways(npus)["shared"]))
        sys.stdout.write(f"| {npus} | {tokens:,} | {tpot_ms} ms | ")
        sys.stdout.write(" | ".join(f"{rate:,.3g}" for rate in rates) + " |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
