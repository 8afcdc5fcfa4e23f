"""Faults in force: what they do to a fabric, and which dies and servers they leave.

Pure questions about a fabric and a list of faults; when faults begin and end, who notices and what
the serving stack does then is the engine's. A failed element keeps its name and number and loses
its links. A slow die keeps its links: it computes slowly."""

from collections.abc import Sequence

import numpy as np

from twin.hardware.chip import HardwareError
from twin.hardware.demands import lending_nodes
from twin.hardware.fabric import with_edits
from twin.hardware.flows import Plane
from twin.hardware.network import Network, cached_by_network
from twin.hardware.walks import BOOLS
from twin.scenario import KINDS, Deployment, Edit, Fault


def with_faults(net: Network, faults: Sequence[Fault]) -> Network:
    """The fabric with these faults in force; the same object if no fault touches a link. The
    factors of several faults of one link multiply. Raises HardwareError for an unknown element."""
    edits: list[Edit] = []
    for fault in faults:
        fault_kind = KINDS[fault.kind]
        if fault_kind.needs_to and not fault.to:
            raise HardwareError(
                f"{fault.element}: this kind of fault ({fault.kind}) is of the links between two "
                "ends: name the other one with `to`, such as L1 20.3 and sub-plane 3"
            )
        if fault_kind.speed is not None:
            dies_slowed(net, fault)
        edits += fault_kind.edits(fault)
    return with_edits(net, edits)


def dies_slowed(net: Network, fault: Fault) -> list[int]:
    """Numbers of the dies that a fault slows; raises HardwareError for an element without dies."""
    if fault.to:
        raise HardwareError(
            f"the link of {fault.element} and {fault.to} does not compute, so it cannot be slow: "
            "name dies alone, or take kind = derate"
        )
    dies = np.flatnonzero(np.isin(net.dies, net.members(fault.element))).tolist()
    if not dies:
        raise HardwareError(
            f"{fault.element} has no dies that could compute slowly: name a die, an NPU, a node "
            "or a supernode"
        )
    return dies


def speed_by_die(net: Network, faults: Sequence[Fault]) -> dict[int, float]:
    """Remaining share of computing speed, by number of each slowed die; faults of a die
    multiply."""
    speed_of_die: dict[int, float] = {}
    for fault in faults:
        speed_share_of = KINDS[fault.kind].speed
        if speed_share_of is not None:
            for die in dies_slowed(net, fault):
                speed_of_die[die] = speed_of_die.get(die, 1.0) * speed_share_of(fault)
    return speed_of_die


@cached_by_network
def unusable_dies(net: Network) -> frozenset[int]:
    """Dies that cannot serve in an instance over several nodes: without a UB link, or unable to
    reach another node although their UB plane spans nodes."""
    is_unfit = _cut_off_dies(net, "ub") if net.spans_nodes else net.rates_out("ub")[net.dies] <= 0.0
    return frozenset(np.flatnonzero(is_unfit).tolist())


@cached_by_network
def dies_without_path(net: Network, plane: Plane) -> frozenset[int]:
    """Dies that cannot send to another node on a plane; on other planes than UB they use NICs."""
    used_plane = "rdma" if plane == "ub" and not net.spans_nodes else plane
    return frozenset(np.flatnonzero(_cut_off_dies(net, used_plane)).tolist())


def dies_unfit(net: Network, deployment: Deployment) -> frozenset[int]:
    """Dies that cannot serve in a deployment: without a usable UB plane, or without a path for KV
    while other dies have one. If no die has a path for KV, all wait until it is repaired."""
    if deployment.mode != "disaggregated":
        return unusable_dies(net)
    cut_off_dies = dies_without_path(net, deployment.kv_transfer_plane)
    return unusable_dies(net) | (cut_off_dies if len(cut_off_dies) < net.dies.size else frozenset())


def nodes_without_dram(net: Network) -> frozenset[int]:
    """Nodes whose DRAM is lost, since none of their CPUs has a UB link left."""
    return frozenset(set(net.node[net.of_kind("cpu")].tolist()) - set(lending_nodes(net)))


def _cut_off_dies(net: Network, plane: str) -> BOOLS:
    """Whether each die reaches no other node (or, on a single node, has no link), bool[dies]."""
    is_cut_off = net.rates_out(plane)[net.dies] <= 0.0
    node_of_die = net.node[net.dies]
    if np.unique(node_of_die).size > 1:
        for is_in_part in net.linked_parts(plane):
            if np.unique(node_of_die[is_in_part]).size == 1:
                is_cut_off |= is_in_part
    return is_cut_off
