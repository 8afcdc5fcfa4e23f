"""The machine: what it is made of, and what was changed in it by hand."""

import re
from typing import Literal

from twin.scenario.declaration import (
    Section,
    choice,
    element_name,
    quantity,
    rows,
    text,
    unless,
    when,
)

# Recipes of data/machines whose links between nodes are not switched by L1 chips with uplinks.
MESHES = ("ub-mesh", "torus-3d", "dragonfly", "full-mesh", "atlas-800-a2")
NO_UPLINKS = ("ub-mesh", "gb200-nvl72", "atlas-800-a2")
BEYOND_NODE = when("supernode.scale_up", "supernode")
UPLINKED = (unless("supernode.machine", *NO_UPLINKS), BEYOND_NODE)
L2_SWITCHED = (unless("supernode.machine", *MESHES), BEYOND_NODE)
ROUTINGS = {  # how a plane splits traffic over equal paths
    "adaptive": "Balanced over all traffic (adaptive)",
    "ecmp": "Split by the capacity of the paths (weighted ECMP)",
    "hashed": "Whole flows hashed to paths (ECMP)",
}
CLOS = (unless("supernode.machine", "gb200-nvl72"), *L2_SWITCHED)
NO_CHIP = "none"  # of nodes of CPUs alone


class Edit(Section):
    """One change to the fabric as built: of an element's links, or of the link between two."""

    element: str = element_name("Element")
    """Element as people name it: 'NPU 20.1', 'L2 3.12', 'sub-plane 3', 'node 20'."""
    to: str = element_name("Other end of a single link", needed=False)
    """Other end of a single link; empty: every link at the element."""
    capacity_factor: float = quantity(1.0, "x", "Capacity", (0, 100))
    """Share of the built capacity that is left; 0 takes the links out."""
    latency_factor: float = quantity(1.0, "x", "Latency", (0.01, 1000))
    """Latency of the links over that as built."""
    links_out: int = quantity(0, "links", "Links taken out", (0, 10_000), since=2)
    """Parallel links between the element and the other end that are taken out, whole ones first."""
    add: Literal["nothing", "link", "switch"] = choice("nothing", "Adds", since=2)
    """A link that joins the element with the other end, or one more beside those that do; or a
    switch called like the element, which links that are added can join. What is added is there
    before any other edit."""
    gb_per_s: float = quantity(28.0, "GB/s", "Rate of the link", (0.001, 100_000), since=2)
    """Capacity of an added link, each direction."""
    latency_ns: float = quantity(200.0, "ns", "Latency of the link", (0, 1e9), since=2)
    """Latency of an added link."""
    plane: Literal["ub", "rdma", "vpc"] = choice("ub", "Plane of what is added", since=2)
    """Plane whose bytes may take an added link, or that an added switch passes on."""


class NodeKind(Section):
    """Nodes with another chip: the last ones of every supernode. What is 0 is as in the others."""

    chip: str = choice(
        "ascend-950dt", "Chip of these nodes", files="chips", options={NO_CHIP: "CPUs alone"}
    )
    """Accelerator package of these nodes, a file in data/chips; `none`: they have CPUs and no NPUs.
    [arXiv 2506.12708v2 6.1.3]"""
    nodes: int = quantity(8, "nodes", "Nodes of this kind", (1, 8192))
    """Nodes of a supernode that have it."""
    cpus_per_node: int = quantity(0, "CPUs", "CPUs per node of the kind", (0, 32))
    """CPU sockets in one of these nodes; 0: as many as in the others. DRAM goes with CPUs."""
    ub_link_gb_per_s: float = quantity(0.0, "GB/s", "UB link of a die", (0, 1000))
    """Capacity of one UB link of their dies, one direction; 0: that of the machine."""
    rdma_gb_per_s_per_npu: float = quantity(0.0, "GB/s", "RDMA plane per NPU", (0, 1000))
    """RDMA plane, one of their NPUs, one direction; 0: that of the machine."""
    npu_w: float = quantity(0.0, "W", "Rated power of an NPU", (0, 20_000))
    """Rated power of one of their packages; 0: cost.npu_w, or what data/chips says. Without NPUs:
    watts of a node; 0: by its CPUs and links what stands around the NPUs of another node."""
    price_per_npu_hour: float = quantity(0.0, "per hour", "Price of an NPU-hour", (0, 10_000))
    """What an hour of one of their NPUs costs; 0: cost.price_per_npu_hour. Without NPUs: what an
    hour of a node costs."""

    @property
    def has_npus(self) -> bool:
        """Whether nodes of this kind have NPUs; otherwise they have only CPUs."""
        return self.chip != NO_CHIP


class Supernode(Section):
    """The machine: nodes, chips and the three network planes."""

    machine: str = choice(
        "cloudmatrix384", "Wiring", files="machines", group="Machine", since=2,
        also="topology, torus, mesh, dragonfly, fat tree",
        options={"ub-mesh": "UB-Mesh", "torus-3d": "3-D torus", "full-mesh": "Full mesh",
                 "dragonfly": "Dragonfly", "atlas-800-a2": "Atlas 800 A2"},
    )  # fmt: skip
    """How the machine is wired: a recipe in data/machines, or the digest of an imported machine.
    [arXiv 2506.12708v2 3.3.3]"""
    chip: str = choice("ascend-910c", "Chip", files="chips", group="Machine")
    """Accelerator package, a file in data/chips. [arXiv 2506.12708v2 3.3.1]"""
    supernodes: int = quantity(1, "supernodes", "Supernodes", (1, 32), group="Machine")
    """Supernodes of this kind, joined over the RDMA and VPC planes; UB ends at each."""
    nodes: int = quantity(48, "nodes", "Nodes", (1, 8192), group="Machine")
    """Compute nodes in a supernode, of all kinds. [arXiv 2506.12708v2 3.3.3]"""
    kinds: tuple[NodeKind, ...] = rows("Further kinds of nodes", most=4, since=4)
    """Nodes with another chip than `supernode.chip`, which the others have: the last nodes of every
    supernode, in the order of the rows. A pool names the chip of its NPUs
    (`deployment.prefill.chip`, `deployment.decode.chip`, `deployment.colocated.chip`). Nodes of
    CPUs alone lend DRAM."""
    npus_per_node: int = quantity(8, "NPUs", "NPUs per node", (1, 72), group="Machine")
    """NPU packages in a node. [arXiv 2506.12708v2 3.3.2]"""
    cpus_per_node: int = quantity(4, "CPUs", "CPUs per node", (1, 8), group="Machine")
    """CPU sockets in a node. [arXiv 2506.12708v2 3.3.2]"""
    scale_up: Literal["supernode", "node"] = choice(
        "supernode", "Scale-up (UB) domain",
        options={"supernode": "The whole supernode", "node": "One node"},
    )  # fmt: skip
    """How far the scale-up (UB) plane reaches: the whole supernode through L2 switch chips, or only
    the node, so that traffic between nodes takes the RDMA plane. [arXiv 2506.12708v2 3.2]"""
    sub_planes: int = quantity(7, "sub-planes", "UB sub-planes", (1, 32))
    """UB sub-planes: one L1 switch chip a node and one link a die each. [arXiv 2506.12708v2
    3.3.3]"""
    ub_link_gb_per_s: float = quantity(28.0, "GB/s", "UB link", (0.1, 1000))
    """Capacity of one UB link, one direction (224 Gbps). [arXiv 2506.12708v2 3.3.1]"""
    l1_uplinks: int = quantity(
        16, "links", "Uplinks of an L1 switch", (1, 144), applies=UPLINKED,
        also="oversubscription, taper",
    )  # fmt: skip
    """Links from an L1 switch chip up to the L2 chips of its sub-plane, or to its neighbours; 16
    match the 16 dies of a node, fewer oversubscribe. [arXiv 2506.12708v2 3.3.3]"""
    l2_ports_per_chip: int = quantity(
        48, "ports", "Ports of an L2 switch", (2, 512), applies=L2_SWITCHED
    )
    """Ports of an L2 switch chip. [arXiv 2506.12708v2 3.3.3]"""
    l2_levels: int = quantity(1, "levels", "Levels of L2 switches", (1, 2), applies=CLOS, since=2)
    """Two: nodes form groups of half as many as an L2 chip has ports, joined by L3 switches."""
    dimensions: str = text(
        "", "Dimensions", pattern=r"^([1-9]\d{0,3}(x[1-9]\d{0,3}){0,4})?$", most=24,
        applies=when("supernode.machine", *MESHES), since=2,
    )  # fmt: skip
    """Size of a mesh or torus by dimension, innermost first ("8x8"), or routers of a group x groups
    of a dragonfly; empty: as sold."""
    rdma_gb_per_s_per_npu: float = quantity(50.0, "GB/s", "RDMA plane per NPU", (0.1, 1000))
    """RDMA plane, one NPU, one direction (400 Gbps). [arXiv 2506.12708v2 3.3.2]"""
    vpc_gb_per_s_per_node: float = quantity(50.0, "GB/s", "VPC plane per node", (0.1, 1000))
    """VPC plane, one node's Qingtian NIC, one direction (400 Gbps). [arXiv 2506.12708v2 3.3.2]"""
    ub_routing: Literal["as_built", "adaptive", "ecmp", "hashed"] = choice(
        "as_built", "Routing of the UB plane", options={"as_built": "As built"} | ROUTINGS, since=4,
        also="ECMP, hash, collision, load balancing, packet spray, multipath",
    )  # fmt: skip
    """How the UB plane splits traffic over equal paths; all recipes are built adaptive. Hashed:
    each flow stays on one path, and some paths get more flows than others."""
    rdma_routing: Literal["as_built", "adaptive", "ecmp", "hashed"] = choice(
        "as_built", "Routing of the RDMA plane", options={"as_built": "As built"} | ROUTINGS,
        since=4, also="RoCE, ECMP, hash, collision, load balancing, adaptive routing",
    )  # fmt: skip
    """The same of the RDMA plane. It matters where NICs meet at several switches; most recipes
    have one network without paths of its own there."""
    edits: tuple[Edit, ...] = rows("Fabric edits", most=2000)
    """Changes to the fabric as built, in order: links taken out, slowed or made faster."""

    @property
    def imported(self) -> bool:
        """Whether `machine` is the digest of an imported machine, which has its own counts."""
        return re.fullmatch(r"[0-9a-f]{64}", self.machine) is not None

    @property
    def chips(self) -> tuple[str, ...]:
        """Names of the chips of its nodes without repetition; the first nodes' chip comes first."""
        kind_chips = (kind.chip for kind in self.kinds if kind.has_npus)
        return tuple(dict.fromkeys((self.chip, *kind_chips)))

    @property
    def cpu_nodes(self) -> int:
        """Number of nodes with CPUs but without NPUs in each supernode."""
        return sum(kind.nodes for kind in self.kinds if not kind.has_npus)

    def kind_of(self, node: int) -> int:
        """Kind of a node by its number: 0 for the first kind, k for the k-th row of `kinds`."""
        nodes_to_end = node % self.nodes - self.nodes
        for kind_number in range(len(self.kinds), 0, -1):
            nodes_to_end += self.kinds[kind_number - 1].nodes
            if nodes_to_end >= 0:
                return kind_number
        return 0

    def kind_with(self, chip: str) -> NodeKind | None:
        """The row of `kinds` whose nodes have a given chip; None if no row has it."""
        return next((kind for kind in self.kinds if kind.chip == chip), None)

    def npus_with(self, chip: str) -> int:
        """Number of NPU packages with a given chip of the machine, in all supernodes."""
        kind = self.kind_with(chip)
        nodes = kind.nodes if kind else self.nodes - sum(kind_row.nodes for kind_row in self.kinds)
        return self.supernodes * nodes * self.npus_per_node

    @property
    def all_nodes(self) -> int:
        """Number of compute nodes of all supernodes."""
        return self.supernodes * self.nodes

    @property
    def npus(self) -> int:
        """Number of NPU packages of all supernodes."""
        return (self.all_nodes - self.supernodes * self.cpu_nodes) * self.npus_per_node

    @property
    def cpu_nodes_per_npu(self) -> list[tuple[NodeKind, float]]:
        """For each kind of nodes that have CPUs only: (the kind, number of its nodes divided by the
        number of NPUs of the machine)."""
        supernodes_per_npu = self.supernodes / max(self.npus, 1)
        return [(kind, kind.nodes * supernodes_per_npu) for kind in self.kinds if not kind.has_npus]
