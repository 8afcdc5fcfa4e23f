"""What is wrong with a supernode, in sentences for people.

A machine may be odd on purpose (that is what faults are studied with), so most of these are
warnings of what cannot work; only what `build_fabric` refuses cannot be built at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import networkx as nx
import numpy as np

from twin.facts import Facts
from twin.hardware.chip import HardwareError
from twin.hardware.fabric import build_fabric, edited, links_between
from twin.hardware.names import Fabric
from twin.hardware.tables import tables
from twin.scenario import Supernode

SHOWN = 4  # elements named in one sentence


def problems(supernode: Supernode, facts: Facts) -> list[str]:
    """A sentence for everything about this machine that cannot work; empty: nothing found.

    Too few ports (every node needs one on every L2 chip, of the paper's 48: arXiv 2506.12708v2
    section 3.3.3), edits that name nothing, and NPUs or servers that their planes do not reach.
    """
    try:
        bare = build_fabric(supernode.model_copy(update={"edits": ()}), facts)
    except HardwareError as error:
        return [_sentence(str(error))]
    found = []
    kept = []
    for i, edit in enumerate(supernode.edits):
        try:
            links_between(bare, edit.element, edit.to)
            kept.append(edit)
        except HardwareError as error:
            found.append(_sentence(f"edit {i + 1} changes nothing: {error}"))
    try:
        fabric = edited(bare, edits=kept) if kept else bare
    except HardwareError as error:
        return [*found, _sentence(f"the edits together cannot be: {error}")]
    return found + unreachable(fabric)


def unreachable(fabric: Fabric) -> list[str]:
    """A sentence for each kind of element that a plane does not reach."""
    t = tables(fabric)
    dies = t.wiring.dies_per_npu
    ub = (t.die_links.sum(axis=1) <= 0.0).reshape(-1, dies).any(axis=1)
    rdma = (t.nics <= 0.0).reshape(-1, dies).any(axis=1)
    found = _each(_npus(fabric, ub), "has a die without a UB link", "it cannot serve")
    found += _each(_npus(fabric, rdma), "has a die off the RDMA plane", "it cannot hand off there")
    apart = _apart(fabric)
    found += _each(apart, "cannot reach the rest of its UB plane", "restore uplinks to L2 chips")
    none = np.flatnonzero(t.cpu_links.sum(axis=1) <= 0.0).tolist()
    found += _each([f"Node {n}" for n in none], "has no CPU on the UB plane", "its DRAM is lost")
    none = np.flatnonzero(t.dpus <= 0.0).tolist()
    found += _each([f"Node {n}" for n in none], "is off the VPC plane", "it reads no storage")
    return found


def _apart(fabric: Fabric) -> list[str]:
    """Nodes whose dies UB does not join with those of most nodes of their supernode."""
    t = tables(fabric)
    if not t.wiring.chips:
        return []
    kinds: Any = fabric.nodes
    switches = nx.Graph()
    for (a, b), made, rate in zip(
        t.wiring.edges, t.wiring.data, t.capacity[:-1].tolist(), strict=True
    ):
        if rate > 0.0 and made["kind"] in {"L1-L2", "die-L1"}:
            switches.add_edge(a, b)
    largest: dict[int, set[int]] = {}
    linked: dict[int, set[int]] = {}
    for part in nx.connected_components(switches):
        homes = {kinds[v]["node"] for v in part if kinds[v]["kind"] == "die"}
        if not homes:
            continue
        supernode = min(homes) // t.wiring.supernode.nodes
        linked.setdefault(supernode, set()).update(homes)
        if len(homes) > len(largest.get(supernode, set())):
            largest[supernode] = homes
    lost = sorted(n for g, homes in linked.items() for n in homes - largest[g])
    return [f"Node {n}" for n in lost]


def _npus(fabric: Fabric, mask: Any) -> list[str]:
    per_node = fabric.graph["supernode"].npus_per_node
    return [f"NPU {n // per_node}.{n % per_node}" for n in np.flatnonzero(mask).tolist()]


def _each(names: Sequence[str], has: str, so: str) -> list[str]:
    """One sentence for all of them: the first few by name."""
    if not names:
        return []
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    if len(names) == 1:
        return [f"{names[0]} {has}: {so}."]
    return [f"{', '.join(names[:SHOWN])}{more}: each {has}, so {so}."]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
