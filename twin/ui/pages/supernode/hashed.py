"""Collisions of whole flows that are hashed to paths, and their effect on TPOT and KV."""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import streamlit as st

from twin.hardware import demands
from twin.hardware.chip import HardwareError
from twin.hardware.collisions import Collision
from twin.hardware.fabric import Fabric
from twin.hardware.flows import Load
from twin.hardware.network import network
from twin.hardware.placement import place_instances
from twin.outlook import Outlook
from twin.scenario import Scenario, with_overrides
from twin.ui import formulas
from twin.ui.pages.supernode.prices import PLANES, Alike

FIELDS = {"ub": "supernode.ub_routing", "rdma": "supernode.rdma_routing"}
WAY = {"ub": "ub", "rdma": "rdma", "host": "rdma"}  # plane of a demand -> plane that it takes


class Row(NamedTuple):
    """Collisions of one kind of traffic on one plane."""

    traffic: str
    plane: str  # of FIELDS
    found: Collision


def hashed_planes(fabric: Fabric) -> list[str]:
    """Planes of a machine that hash whole flows."""
    return [plane for plane in FIELDS if network(fabric).routing(plane) == "hashed"]


@lru_cache(maxsize=16)
def collisions(s: Scenario, fabric: Fabric) -> list[Row]:
    """The collision factors of the deployment: by traffic and plane those of the worst instance."""
    worst: dict[tuple[str, str], Collision] = {}
    for traffic, load in _loads(s, fabric):
        for plane, collision in load.collisions:
            key = traffic, WAY.get(plane, plane)
            worst[key] = max(
                worst.get(key, Collision()), collision, key=lambda c: (c.mean, c.flows)
            )
    return [Row(traffic, plane, collision) for (traffic, plane), collision in worst.items()]


def _loads(s: Scenario, fabric: Fabric) -> Iterator[tuple[str, Load]]:
    """Loads of every kind of traffic, for one of all equivalent instances."""
    net, likeness = network(fabric), Alike(fabric)
    instances = place_instances(s, fabric)
    one_each = list({(i.role, likeness.of(i)): i for i in reversed(instances)}.values())[::-1]
    among = [die for i in instances if i.role == "decode" for die in i.die_of_rank]
    for i in one_each:
        if i.dies > 1:
            yield f"Exchange, {i.role}", demands.exchange(net, i.die_of_rank)
        if i.role == "prefill" and among:
            plane = s.deployment.kv_transfer_plane
            yield "KV transfers", demands.hand_off(net, i.die_of_rank, among, plane)
        if i.role != "decode" and s.memory_pool.enabled:
            pool_load = demands.pool(net, i.die_of_rank, s.memory_pool.plane)
            if pool_load is not None:
                yield "Pool reads", pool_load[0]


def hashed_flows(draft: Scenario, fabric: Fabric) -> None:
    """Draw collisions of flows and their cost; nothing if no plane hashes flows."""
    planes = hashed_planes(fabric)
    if not planes:
        return
    st.subheader("Hashed flows", anchor=False)
    try:
        rows = collisions(draft, fabric)
    except HardwareError:
        return  # the page has said above why instances cannot be placed
    st.caption(
        "Time over that of an even split, as each flow stays on one of its equal paths. An "
        "exchange or a read waits for its fullest path, a KV transfer for its own; p99 is over "
        "where the hash puts them. Prices take the mean."
    )
    if not rows:
        st.markdown("No traffic of this deployment takes a plane that hashes flows.")
        return
    st.dataframe(
        [
            {
                "Traffic": row.traffic,
                "Plane": PLANES[row.plane],
                "Mean": f"{row.found.mean:.2f} ×",
                "p99": f"{row.found.p99:.2f} ×",
                "Flows at once": f"{row.found.flows:,}",
            }
            for row in rows
        ],
        hide_index=True,
    )
    st.markdown(_costs(draft, planes, rows))


def _costs(draft: Scenario, planes: list[str], rows: list[Row]) -> str:
    """One sentence on TPOT and KV transfers."""
    even = with_overrides(draft, {FIELDS[plane]: "ecmp" for plane in planes})
    now, split = formulas.outlook(draft), formulas.outlook(even)
    lines = []
    if isinstance(now, Outlook) and isinstance(split, Outlook) and now.tpot_s and split.tpot_s:
        lines.append(
            f"TPOT is {1e3 * now.tpot_s:.3g} ms by formula, and {1e3 * split.tpot_s:.3g} ms with "
            "an even split"
        )
    slowest = max((row.found.mean for row in rows if row.traffic == "KV transfers"), default=0.0)
    if slowest:
        lines.append(
            "KV transfers meet no other on their paths" if slowest < 1.005 else
            f"a KV transfer takes {slowest:.2f} times as long"
        )  # fmt: skip
    text = "; ".join(lines) or "no die decodes, and no KV moves"
    return f"{text[0].upper()}{text[1:]}."
