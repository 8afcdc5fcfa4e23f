"""What is wrong with a supernode, in sentences for people.

A machine may be odd on purpose (that is what faults are studied with), so most of these are
warnings of what cannot work; only what `build_fabric` refuses cannot be built at all."""

from collections.abc import Sequence

import numpy as np

from twin.facts import Facts
from twin.hardware.chip import HardwareError
from twin.hardware.fabric import additions, build_fabric, with_edits
from twin.hardware.faults import nodes_without_dram
from twin.hardware.network import Network
from twin.hardware.prices import port_rates
from twin.hardware.walks import BOOLS
from twin.scenario import Supernode
from twin.scenario.words import first_few


def problems(supernode: Supernode, facts: Facts) -> list[str]:
    """A sentence for everything about this machine that cannot work; empty: nothing found. Too few
    ports (every node needs one on every L2 chip, which has 48 in arXiv 2506.12708v2 section
    3.3.3), edits with unknown names, and NPUs or servers that their planes do not reach."""
    try:
        as_built = supernode.model_copy(update={"edits": additions(supernode.edits)})
        built_network = build_fabric(as_built, facts)
    except HardwareError as error:
        return [_as_sentence(str(error))]
    sentences = []
    changing_edits = []
    for number, edit in enumerate(supernode.edits):
        if edit.add != "nothing":
            continue
        try:
            built_network.links_at(edit.element, edit.to)
            changing_edits.append(edit)
        except HardwareError as error:
            sentences.append(_as_sentence(f"edit {number + 1} changes nothing: {error}"))
    try:
        edited_network = with_edits(built_network, changing_edits)
    except HardwareError as error:
        return [*sentences, _as_sentence(f"the edits together cannot be: {error}")]
    return sentences + unreachable_sentences(edited_network)


def unreachable_sentences(net: Network) -> list[str]:
    """Sentences about elements that a plane does not reach: one for each kind of element."""
    die_data = [net.vertex_data[vertex] for vertex in net.dies.tolist()]

    def npus(lost: BOOLS) -> list[str]:
        """Names of the NPUs with at least one die for which `lost`, bool[dies], is true."""
        lost_data = (die_data[die] for die in np.flatnonzero(lost).tolist())
        npu_names = (f"NPU {data['node']}.{data['npu']}" for data in lost_data)
        return list(dict.fromkeys(npu_names))

    is_off_ub = net.rates_out("ub")[net.dies] <= 0.0
    is_off_rdma = port_rates(net, "rdma") <= 0.0
    cut_off_nodes = _nodes_cut_off(net) if net.spans_nodes else []
    nodes_without_server = [f"Node {node}" for node in sorted(nodes_without_dram(net))]
    port_vertices = net.of_kind(net.storage_ports)
    nodes_off_vpc = np.unique(net.node[port_vertices[port_rates(net, "vpc") <= 0.0]]).tolist()
    names_fault_effect = (
        (npus(is_off_ub), "has a die without a UB link", "it cannot serve"),
        (npus(is_off_rdma), "has a die off the RDMA plane", "it cannot transfer KV there"),
        (cut_off_nodes, "cannot reach the rest of its UB plane", "restore uplinks to L2 chips"),
        (nodes_without_server, "has no CPU on the UB plane", "its DRAM is lost"),
        ([f"Node {node}" for node in nodes_off_vpc], "is off the VPC plane", "it reads no storage"),
    )
    return [sentence for texts in names_fault_effect for sentence in _sentences_on(*texts)]


def _nodes_cut_off(net: Network) -> list[str]:
    """Names of nodes whose dies UB does not join with most nodes of their UB plane."""
    node_of_die, domain = net.node[net.dies], net.domain[net.dies]
    parts_of_plane, cut_off_nodes = list(net.linked_parts("ub")), set[int]()
    for domain_id in np.unique(domain).tolist():
        nodes = [set(node_of_die[part & (domain == domain_id)].tolist()) for part in parts_of_plane]
        cut_off_nodes |= set().union(*nodes) - max(nodes, key=len, default=set())
    return [f"Node {node}" for node in sorted(cut_off_nodes)]


def _sentences_on(names: Sequence[str], fault: str, effect: str) -> list[str]:
    """[a sentence with the first few names, their fault and its effect]; [] without names."""
    if not names:
        return []
    if len(names) == 1:
        return [f"{names[0]} {fault}: {effect}."]
    return [f"{first_few(names, 4)}: each {fault}, so {effect}."]


def _as_sentence(text: str) -> str:
    """The text with a capital at the start and a full stop at the end."""
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
