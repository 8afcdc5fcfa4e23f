"""Prices of the graph beside the closed forms of one wiring that they took the place of.

tests/frozen/prices.json.gz holds what these said of the machines of all presets and of 500 random
edits. They left three things out, and nothing else may differ by more than a hundredth: the way
beyond the node is paid at CPUs' ports too, bytes that stay in a node may use a switch whose
uplinks are gone, and latencies are those of the longest path between any two ends.
"""

import gzip
import json
from pathlib import Path

import pytest

from tests.draws import FACTOR, some
from tests.hardware.wired import network
from twin.hardware import demands
from twin.hardware.chip import HardwareError
from twin.hardware.fabric import build_fabric, with_edits
from twin.hardware.faults import dies_without_path
from twin.hardware.prices import all_to_all, nic, pool_read, price_between
from twin.lab.library import load_facts
from twin.scenario import Edit, Supernode

FACTS = load_facts()
PATH = Path(__file__).parents[1] / "frozen" / "prices.json.gz"
FROZEN = json.loads(gzip.decompress(PATH.read_bytes()))
FULL = network(build_fabric(Supernode(), FACTS))
EVERY = 12  # of the edits in a suite's run
BEYOND = FACTS.si("fabric.efficiency.beyond_node")


def rate_of(net, asked):
    """Bytes/s of a frozen question now, and the name of what is full first; 0: cut off."""
    dies = [die for die in range(*asked["dies"])] if "dies" in asked else []
    nodes = range(*asked["nodes"]) if asked.get("nodes") else None
    kind = asked["ask"]
    if kind in {"all_to_all", "exchange"}:
        price = all_to_all(net, dies, asked.get("plane", "ub"), asked["operation"])
    elif kind == "between":
        price = price_between(net, asked["from"], asked["to"], asked["operation"], asked["plane"])
    elif kind == "nic":
        price = nic(net, asked["die"], asked["plane"], asked["operation"])
    elif kind == "pool_read":
        price = pool_read(net, dies, asked["plane"], nodes)
    else:
        load = load_of(net, kind, asked, dies, nodes)
        rate, full = load.rate_alone(net)
        return rate, net.label(full)
    return price.bytes_per_s, price.bottleneck


def load_of(net, kind, asked, dies, nodes):
    if kind == "pool_write":
        return demands.pool_load(net, dies, asked["plane"], nodes, "write")[0]
    if kind == "weights":
        return demands.exchange_load(net, dies)
    if kind == "hand_off":  # the engine asks for dies whose way is open
        no_way = dies_without_path(net, asked["plane"])
        ends = ([d for d in some if d not in no_way] for some in (dies, range(*asked["to"])))
        return demands.kv_load(net, *ends, asked["plane"])
    if kind == "storage_read":
        no_way = dies_without_path(net, "vpc")
        return demands.storage_read(net, [die for die in dies if die not in no_way])
    return demands.storage_write(net)


def differences(net, answers):
    """(question, ratio) of every answer that moved by more than a hundredth, unexplained."""
    for asked in answers:
        before = asked.get("bytes_per_s", 0.0)
        try:
            now, full = rate_of(net, asked)
        except HardwareError:
            now, full = 0.0, ""
        if before == 0.0 or now == 0.0:
            # The DPU of a die without UB links had a price; a hand-off among dead dies had none.
            explained = asked["ask"] == "hand_off" or (
                asked["ask"] == "nic" and asked["plane"] == "vpc"
            )
            if before != now and not explained:
                yield asked, now
            continue
        ratio = now / before
        low = BEYOND * 0.995 if "pool" in asked["ask"] and full.startswith("CPU") else 0.99
        exchange = asked["ask"] in {"all_to_all", "exchange", "weights"}
        own_links = asked["ask"] == "nic" and full.startswith("UB links")
        if not (low <= ratio <= (1.2 if exchange else 1.01) or own_links):
            yield asked, ratio


@pytest.mark.parametrize("machine", FROZEN["machines"], ids=lambda m: m["presets"][0])
def test_the_machines_of_the_presets_are_priced_as_before(machine):
    net = network(build_fabric(Supernode(**machine["supernode"]), FACTS))
    assert not list(differences(net, machine["answers"][:: EVERY * 2 if FACTOR == 1 else 8]))


@pytest.mark.parametrize("first", some([0], 1, 2, 3))
def test_random_edits_are_priced_as_before(first):
    higher = asked = 0
    for row in FROZEN["edits"][first * 3 : 500 : EVERY * 4]:
        if "answers" not in row:
            continue
        net = with_edits(FULL, [Edit(**edit) for edit in row["edits"]])
        assert not list(differences(net, row["answers"])), row["edits"]
        for answer in row["answers"]:
            if answer["ask"] == "all_to_all" and answer.get("bytes_per_s"):
                asked += 1
                higher += rate_of(net, answer)[0] > 1.01 * answer["bytes_per_s"]
    assert asked and higher <= 0.1 * asked
