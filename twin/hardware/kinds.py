"""Kinds of vertices and of links, each declared once: what builders, files, names and pictures say.

A vertex of a kind that is not here is a switch (an imported machine may have any). Planes are
"ub", "rdma", "vpc", "package" and "host" (see fabric.py)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VertexKind:
    """A kind of vertex."""

    one: str  # words for people
    several: str
    forwards: str  # planes that it passes on, in words, unless its builder says otherwise
    plane: str = ""  # in whose colour it is drawn; "": in none
    named: str = ""  # what its name begins with in a file; "": a file cannot name it
    place: tuple[str, ...] = ()  # what the numbers in its name are
    end: bool = False  # what bytes come from or go to, with its ports; other kinds are switches


@dataclass(frozen=True, slots=True)
class LinkKind:
    """A kind of link; its name is that of its two ends."""

    plane: str  # where its bytes are counted
    hop: str  # latency of one hop: a fact of the machine's `hop` group
    serves: str  # planes whose paths may use it, in words
    write_waits: bool = False  # a write takes `write_extra` longer there
    port: str = ""  # what people call the port it belongs to
    owner: str = ""  # kind of the vertex that has this port


DIE = ("node", "npu", "die")
VERTICES = {
    "die": VertexKind("die", "dies", "host", named="die", place=DIE, end=True),
    "cpu": VertexKind("CPU", "CPUs", "vpc", named="cpu", place=("node", "index"), end=True),
    "port": VertexKind("NPU port", "NPU ports", "ub vpc host", "ub", "port", ("node", "npu")),
    "nic": VertexKind("NIC", "NICs", "rdma host", "rdma", "nic", DIE, end=True),
    "l1": VertexKind(
        "L1 switch chip", "L1 switch chips", "ub vpc host", "ub", "l1", ("node", "sub_plane")
    ),
    "l2": VertexKind("L2 switch chip", "L2 switch chips", "ub", "ub", "l2", ("sub_plane", "index")),
    "l3": VertexKind("L3 switch chip", "L3 switch chips", "ub", "ub"),
    "nvswitch": VertexKind("NVSwitch chip", "NVSwitch chips", "ub", "ub"),
    "lrs": VertexKind("LRS switch", "LRS switches", "ub vpc host", "ub"),
    "hrs": VertexKind("HRS switch", "HRS switches", "ub", "ub"),
    "qingtian": VertexKind(
        "Qingtian DPU", "Qingtian DPUs", "vpc", "vpc", "qingtian", ("node",), end=True
    ),
    "leaf": VertexKind("leaf switch", "leaf switches", "rdma host", "rdma"),
    "spine": VertexKind("spine switch", "spine switches", "rdma host", "rdma"),
    "rdma": VertexKind("RDMA network", "RDMA networks", "rdma host", "rdma", "rdma network"),
    "vpc": VertexKind("VPC network", "VPC networks", "vpc", "vpc", "vpc network"),
    "switch": VertexKind("switch", "switches", "ub"),
}

BETWEEN = {  # plane -> planes that may use a link of no kind below
    "ub": "ub", "rdma": "rdma host", "vpc": "vpc", "package": "package",
}  # fmt: skip
INSIDE = "ub vpc host"  # UB links of a node's ends: also the way to storage and to its NICs
LINKS = {
    "die-die": LinkKind(
        "ub", "cross_die", "package", port="die-die links of NPU {node}.{npu}", owner="die"
    ),
    "die-L1": LinkKind("ub", "die_l1", INSIDE, True, "UB links of die {node}.{npu}.{die}", "die"),
    "die-port": LinkKind("ub", "die_l1", INSIDE, True),
    "die-NVSwitch": LinkKind("ub", "die_l1", "ub"),
    "CPU-L1": LinkKind("ub", "cpu_l1", INSIDE, True, "CPU ports of node {node}", "cpu"),
    "CPU-port": LinkKind("ub", "cpu_l1", INSIDE, True),
    "CPU-die": LinkKind("ub", "cpu_l1", INSIDE, True),
    "CPU-LRS": LinkKind("ub", "cpu_l1", INSIDE, True),
    "port-LRS": LinkKind("ub", "direct", INSIDE),
    "port-port": LinkKind("ub", "direct", "ub"),
    "L1-L1": LinkKind("ub", "l1_l2", "ub"),
    "L1-L2": LinkKind("ub", "l1_l2", "ub", port="L1 uplinks of node {node}", owner="l1"),
    "L2-L3": LinkKind("ub", "l1_l2", "ub"),
    "LRS-LRS": LinkKind("ub", "l1_l2", "ub"),
    "LRS-HRS": LinkKind("ub", "l1_l2", "ub"),
    "die-NIC": LinkKind(
        "rdma", "rdma", "rdma host", port="NIC of die {node}.{npu}.{die}", owner="die"
    ),
    "NIC-RDMA": LinkKind(
        "rdma", "rdma", "rdma host", port="NIC of die {node}.{npu}.{die}", owner="nic"
    ),
    "NIC-leaf": LinkKind("rdma", "rdma", "rdma host"),
    "leaf-spine": LinkKind("rdma", "rdma", "rdma host"),
    "spine-RDMA": LinkKind("rdma", "rdma", "rdma host"),
    "CPU-Qingtian": LinkKind(
        "vpc", "cpu_dpu", "vpc", port="Qingtian DPU of node {node}", owner="qingtian"
    ),
    "Qingtian-VPC": LinkKind(
        "vpc", "dpu_vpc", "vpc", port="Qingtian DPU of node {node}", owner="qingtian"
    ),
}


def is_switch(kind: str) -> bool:
    """Whether vertices of this kind are switch chips, not ends, ports or networks."""
    vertex_kind = VERTICES.get(kind, VERTICES["switch"])
    return not vertex_kind.end and kind not in ("port", "rdma", "vpc")
