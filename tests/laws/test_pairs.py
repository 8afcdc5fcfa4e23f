"""Mechanisms compose: each pair of what-ifs runs on random small scenarios and keeps every law.

The suite takes a sixth of the pairs, in which every mechanism has two others; `make long` all.
"""

import random
from functools import cache
from itertools import combinations

import pytest

from tests.draws import some
from tests.engine.small import facts_with, small
from tests.laws.lawful import lawful
from twin.engine import balancing
from twin.engine.simulate import simulate
from twin.hardware.fabric import build_fabric
from twin.hardware.imported import make_available
from twin.hardware.machine_file import fabric_text, read_machine
from twin.lab.library import load_facts
from twin.scenario import with_overrides

QUICK = facts_with({"startup.process": 0.2, "startup.compile": 0.3, "startup.regroup": 0.1})
HORIZON_S = 2.5
BUSY = {
    "horizon_s": HORIZON_S, "warmup_s": 0.5, "workload.rate_req_per_s": 80.0,
    "workload.output_tokens": 60,
}  # fmt: skip


def faults(d):
    def broken():
        node, npu = d.randrange(4), d.randrange(8)
        places = (f"node {node}", f"NPU {node}.{npu}", f"die {node}.{npu}.1", "L1 0.0", "UB plane")
        lasts_s = d.choice((0.0, d.uniform(0.1, 1.0)))
        return {"element": d.choice(places), "at_s": d.uniform(0.2, 2.0), "duration_s": lasts_s}

    return {
        "faults": [broken() for _ in range(d.randint(1, 3))],
        "recovery.policy": d.choice(("restart", "in_place", "shrink")),
        "recovery.spares": d.random() < 0.5, "recovery.detection_s": 0.1,
        "recovery.restart_s": 0.4, "recovery.in_place_s": 0.2,
    }  # fmt: skip


def elasticity(d):
    rows = [{"at_s": at_s, "prefill": d.randint(1, 3), "decode": d.randint(1, 4)}
            for at_s in (0.3, 1.2)]  # fmt: skip
    return {
        "elastic.controller": d.choice(("schedule", "queue", "slo", "kv", "rebalance")),
        "elastic.schedule": rows, "elastic.npus": d.choice((0, 24, 32)),
        "elastic.interval_s": 1.0, "elastic.metrics_age_s": 0.1, "elastic.cool_down_s": 0.2,
        "elastic.shrink_after_s": 0.2, "elastic.high": d.choice((0.2, 0.8)), "elastic.low": 0.1,
        "elastic.drain": d.choice(("finish", "hand_on")),
    }  # fmt: skip


def colocated(d):
    return {"deployment.mode": "colocated", "deployment.colocated.instances": d.randint(2, 3)}


def domains(d):
    return {
        "deployment.decode.expert_npus": d.randint(1, 2),
        "deployment.decode.domains": d.randint(1, 2),
    }


def tenants(d):
    return {
        "tenants": [{"name": "a", "share": 0.7, "rate_req_per_s": d.choice((0.0, 30.0))},
                    {"name": "b", "share": 0.3, "weight": 2.0, "priority": 1}],
        "admission.order": d.choice(("fifo", "priority", "fair")),
        "memory_pool.namespaces": d.random() < 0.5,
    }  # fmt: skip


def supernodes(_):
    return {"supernode.supernodes": 2, "supernode.nodes": 2}


def front(d):
    """Behind it each supernode has an equal part of the instances."""
    return supernodes(d) | {
        "router.front": d.choice(("round_robin", "least_loaded")),
        "router.front_report_s": d.choice((0.0, 0.3)), "deployment.colocated.instances": 2,
    }  # fmt: skip


def several(d):
    """A second model, with NPUs of its own besides those that the first may take."""
    own = {f"deployment.{role}.npus_per_instance": 2 for role in ("prefill", "decode")}
    own |= {"deployment.mode": d.choice(("disaggregated", "colocated", "decode_only"))}
    deployment = small(own | {"deployment.colocated.npus_per_instance": d.randint(1, 4)}).deployment
    workload = {
        "rate_req_per_s": d.uniform(10.0, 60.0), "input_tokens": 800, "output_tokens": 40,
        "prefix": d.choice(("none", "shared")),
    }  # fmt: skip
    row = {"name": "second", "workload": workload, "pool_share": d.choice((0.0, 0.3))}
    row |= {"deployment": deployment.model_dump(mode="json")}
    return {"models": [row], "supernode.nodes": 6}


def retries(d):
    return {
        "clients.timeout_s": d.uniform(0.02, 0.3), "clients.answer_timeout_s": d.uniform(0.2, 1.0),
        "clients.retries": d.randint(1, 3), "clients.backoff_s": 0.1,
    }  # fmt: skip


def two_formats(d):
    return {
        "deployment.precision.prefill_weights": d.choice(("bf16", "int8")),
        "deployment.precision.prefill_kv": d.choice(("bf16", "int8")),
    }


def cpu_nodes(d):
    row = {"chip": "none", "nodes": d.choice((1, 2)), "cpus_per_node": d.choice((0, 1, 8))}
    return {"supernode.kinds": [row], "supernode.nodes": d.choice((8, 9)),
            "memory_pool.plane": d.choice(("ub", "vpc")), "workload.prefix": "shared"}  # fmt: skip


def drift(d):
    return {
        "experts.drift_s": d.choice((0.0, 1.0)), "experts.shift_every_s": 0.5,
        "experts.balancing.policy": d.choice(("periodic", "threshold")),
        "experts.balancing.interval_s": 0.3, "experts.balancing.window_s": 0.2,
        "experts.balancing.swap": d.choice(("background", "stall")),
    }  # fmt: skip


def capped(d):
    return {"cost.cap_w": d.uniform(250.0, 700.0)}


def offload(d):
    return {
        "deployment.decode.attention_offload": d.uniform(0.05, 0.6),
        "deployment.prefill.lent_cores": d.uniform(0.1, 0.8),
    }


def sharing(d):
    return {
        "deployment.prefill.on": "decode_npus",
        "deployment.prefill.core_share": d.uniform(0.1, 0.8),
    }


def imported(_):
    return {}  # the machine of the scenario comes from its own file: see `drawn`


def prefix_cache(d):
    return {
        "memory_pool.in_hbm": True, "memory_pool.namespaces": False,
        "memory_pool.enabled": d.random() < 0.5, "workload.turn_gap_s": 0.2,
        "workload.prefix": d.choice(("shared", "sessions")),
        "router.policy": d.choice(("predicted_ttft", "least_loaded")),
    }  # fmt: skip


def in_host(d):
    return {
        "deployment.decode.kv_offload": d.uniform(0.05, 0.6),
        "deployment.decode.kv_offload_gb_per_die": d.choice((0.5, 32.0)),
        "deployment.decode.swap_gb_per_die": d.choice((0.0, 2.0)),
    }


MECHANISMS = (
    faults, elasticity, colocated, domains, tenants, supernodes, retries, drift, imported,
    capped, offload, sharing, prefix_cache, front, several,
    in_host,
)  # fmt: skip
REFUSED = {
    (faults, offload): "attention_offload beside faults",
    (elasticity, offload): "attention_offload beside elastic.controller",
    (offload, sharing): "set deployment.prefill.on = own_npus",
    (faults, sharing): "needs no faults",
    (elasticity, sharing): "needs elastic.controller = fixed",
    (domains, sharing): "needs deployment.decode.expert_npus = 0",
    (imported, front): "needs a machine of a recipe",
    (tenants, several): "tenants next to several models",
    (sharing, several): "decode_npus next to several models",
}
PAIRS = [pair for pair in combinations(MECHANISMS, 2) if pair not in REFUSED]
TWICE = ((elasticity, front), (front, several))  # in the suite with two seeds
SEVERAL = 20
APART = (5,)  # places in the list, around its end: of the suite's pairs


def in_suite(pair):
    """Whether the suite takes a pair."""
    places = MECHANISMS.index(pair[1]) - MECHANISMS.index(pair[0])
    return pair in TWICE or places in APART or len(MECHANISMS) - places in APART


@cache
def from_file(supernode):
    machine = read_machine(fabric_text(build_fabric(supernode, load_facts()), "csv"), "file")
    make_available(machine)
    return machine  # kept: found for as long as somebody holds it


def drawn(pair, seed):
    """A random small scenario in which both mechanisms of a pair are at work."""
    d = random.Random(f"{pair[0].__name__} {pair[1].__name__} {seed}")
    asked = BUSY | {"seed": seed, "start": d.choice(("empty", "steady"))}
    for mechanism in pair:
        asked |= mechanism(d)
    scenario = small(asked)
    if imported in pair:
        machine = from_file(scenario.supernode)
        scenario = with_overrides(scenario, {"supernode.machine": machine.digest})
    return scenario


@pytest.fixture(autouse=True)
def few_looks(monkeypatch):
    """Popularity that moves is looked at a dozen times a run, a tenth as often as else."""
    monkeypatch.setattr(balancing, "REFRESHES", 12)


def named(pair):
    return " x ".join(mechanism.__name__ for mechanism in pair)


CASES = [(pair, seed) for pair in PAIRS for seed in range(SEVERAL)]
FEW = [(pair, seed) for pair, seed in CASES if in_suite(pair) and seed <= (pair in TWICE)]


@pytest.mark.parametrize(
    "case",
    some(FEW, *(case for case in CASES if case not in FEW)),
    ids=lambda case: f"{named(case[0])}-{case[1]}",
)
def test_a_pair_runs_and_keeps_every_law(case):
    pair, seed = case
    scenario = drawn(pair, seed)
    found = simulate(scenario, QUICK)
    lawful(found)
    # Clients may all run out of patience with a pool of a few cores, and no answer ends where the
    # plane fails for good before the first could.
    dark = any(
        f.element == "UB plane" and not f.duration_s and f.at_s < 1.0 for f in scenario.faults
    )
    assert found.summary["finished"] > 0 or retries in pair or dark


@pytest.mark.parametrize("pair", REFUSED, ids=named)
def test_a_pair_that_is_not_modelled_is_refused_in_one_sentence(pair):
    with pytest.raises(ValueError, match=REFUSED[pair]) as refusal:
        drawn(pair, 0)
    assert "\n" not in str(refusal.value).strip()


@pytest.mark.parametrize("seed", some([0, 1], *range(2, SEVERAL)))
def test_prefill_with_formats_of_its_own_comes_and_goes(seed):
    lawful(simulate(drawn((elasticity, two_formats), seed), QUICK))


@pytest.mark.parametrize("seed", some([0], *range(1, SEVERAL)))
@pytest.mark.parametrize("other", [faults, elasticity], ids=lambda other: other.__name__)
def test_nodes_of_cpus_alone_go_with_what_fails_and_what_comes(other, seed):
    lawful(simulate(drawn((other, cpu_nodes), seed), QUICK))


def test_who_was_behind_a_client_that_left_begins_no_earlier_than_that():
    """An idle decode instance began an iteration in the past when the head of its line left."""
    lawful(simulate(drawn((retries, sharing), 15), QUICK))
