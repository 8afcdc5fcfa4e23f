"""The machine: what it is made of, and what was changed in it by hand."""

from __future__ import annotations

from typing import Literal

from twin.scenario.declaration import PAPER, Section, choice, element_name, quantity, rows


class Edit(Section):
    """One change to the fabric as built: of an element's links, or of the link between two."""

    element: str = element_name(
        "Element as people name it: 'NPU 20.1', 'L2 3.12', 'sub-plane 3', 'node 20'."
    )
    to: str = element_name(
        "Other end of a single link; empty: every link at the element.", needed=False
    )
    capacity_factor: float = quantity(
        1.0,
        "x",
        "Share of the built capacity that is left; 0 takes the links out.",
        low=0,
        high=100,
    )
    latency_factor: float = quantity(
        1.0, "x", "Latency of the links over that as built.", low=0.01, high=1000
    )


class Supernode(Section):
    """The machine: nodes, chips and the three network planes."""

    chip: str = choice(
        "ascend-910c", "Accelerator package, a file in data/chips.", source=f"{PAPER} 3.3.1"
    )
    supernodes: int = quantity(
        1,
        "supernodes",
        "Supernodes of this kind, joined over the RDMA and VPC planes; UB ends at each.",
        low=1,
        high=8,
    )
    nodes: int = quantity(
        48, "nodes", "Compute nodes in a supernode.", low=1, high=384, source=f"{PAPER} 3.3.3"
    )
    npus_per_node: int = quantity(
        8, "NPUs", "NPU packages in a node.", low=1, high=72, source=f"{PAPER} 3.3.2"
    )
    cpus_per_node: int = quantity(
        4, "CPUs", "CPU sockets in a node.", low=1, high=8, source=f"{PAPER} 3.3.2"
    )
    scale_up: Literal["supernode", "node"] = choice(
        "supernode",
        "How far the scale-up (UB) plane reaches: the whole supernode through L2 switch chips, "
        "or only the node, so that traffic between nodes takes the RDMA plane.",
        source=f"{PAPER} 3.2",
    )
    sub_planes: int = quantity(
        7,
        "sub-planes",
        "UB sub-planes: one L1 switch chip a node and one link a die each.",
        low=1,
        high=32,
        source=f"{PAPER} 3.3.3",
    )
    ub_link_gb_per_s: float = quantity(
        28.0,
        "GB/s",
        "Capacity of one UB link, one direction (224 Gbps).",
        low=0.1,
        high=1000,
        source=f"{PAPER} 3.3.1",
    )
    l1_uplinks: int = quantity(
        16,
        "links",
        "Links from an L1 switch chip up to the L2 chips of its sub-plane; "
        "16 match the 16 dies of a node, fewer oversubscribe.",
        low=1,
        high=144,
        source=f"{PAPER} 3.3.3",
    )
    l2_ports_per_chip: int = quantity(
        48, "ports", "Ports of an L2 switch chip.", low=2, high=512, source=f"{PAPER} 3.3.3"
    )
    rdma_gb_per_s_per_npu: float = quantity(
        50.0,
        "GB/s",
        "RDMA plane, one NPU, one direction (400 Gbps).",
        low=0.1,
        high=1000,
        source=f"{PAPER} 3.3.2",
    )
    vpc_gb_per_s_per_node: float = quantity(
        50.0,
        "GB/s",
        "VPC plane, one node's Qingtian card, one direction (400 Gbps).",
        low=0.1,
        high=1000,
        source=f"{PAPER} 3.3.2",
    )

    edits: tuple[Edit, ...] = rows(
        "Changes to the fabric as built, in order: links taken out, slowed or made faster.",
        most=2000,
    )

    @property
    def all_nodes(self) -> int:
        """Compute nodes of all supernodes."""
        return self.supernodes * self.nodes

    @property
    def npus(self) -> int:
        """NPU packages of all supernodes."""
        return self.all_nodes * self.npus_per_node
