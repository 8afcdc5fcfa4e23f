"""From a recipe to a machine: which builder wires what.

A scale-up network is one entry of SCALE_UP, a scale-out network one of SCALE_OUT: each is a
function of a `Draft`. A new topology is a function, an entry here and a file in data/machines."""

import math
from collections.abc import Callable, Mapping
from itertools import product

from twin.hardware.clos import draw_clos, draw_one_hop
from twin.hardware.draft import MOST_LINKS, Draft, too_large_error
from twin.hardware.meshes import draw_mesh
from twin.hardware.network import Plan
from twin.hardware.recipes import Recipe
from twin.scenario import Supernode


def plan_of_recipe(s: Supernode, recipe: Recipe) -> Plan:
    """Plan of the machine of a recipe; raises HardwareError if it cannot be wired."""
    links_per_die = max(s.sub_planes, sum(recipe.links or (0,)))
    most_dies = max(kind_recipe.dies_per_npu for kind_recipe in (recipe, *recipe.further))
    links_at_least = s.npus * most_dies * (links_per_die + 2)
    if links_at_least > MOST_LINKS:
        raise too_large_error(links_at_least)
    draft = Draft(s, recipe)
    SCALE_UP[recipe.scale_up](draft)
    SCALE_OUT[recipe.scale_out](draft)
    draft.link_storage()
    return Plan(draft.about, draft.vertices, draft.links)


def draw_one_switch(draft: Draft) -> None:
    """Draws the RDMA network as one non-blocking switch, to which every NIC is linked."""
    draft.link_nics(lambda n, die: ("RDMA network", "NIC-RDMA"))


def draw_unified(draft: Draft) -> None:
    """Draws RDMA and VPC as one network: NICs reach storage (arXiv 2506.12708v2 section 6.1.1)."""
    del draft.vertices["RDMA network"], draft.vertices["VPC network"]
    draft.storage = "RDMA and VPC network"
    draft.about["counted"] = {"host": "rdma", "vpc": "rdma"}
    draft.add(draft.storage, "vpc", "rdma host vpc")
    draft.link_nics(lambda n, die: (draft.storage, "NIC-RDMA"))


def draw_rails(draft: Draft) -> None:
    """Draws a rail-optimised fat tree: NIC i of a pod's nodes on leaf i, leaves on all spines."""
    supernode, recipe = draft.s, draft.recipe
    most_dies = max(kind_recipe.dies_per_npu for kind_recipe in (recipe, *recipe.further))
    nics = supernode.npus_per_node * most_dies
    pods = math.ceil(supernode.all_nodes / recipe.nodes_per_pod)
    for pod in range(pods):
        for nic in range(nics):
            draft.add(f"leaf {pod}.{nic}", "leaf", index=nic)
        for k in range(recipe.spines):
            draft.add(f"spine {pod}.{k}", "spine", index=k)
    draft.link_nics(lambda n, die: (f"leaf {n // recipe.nodes_per_pod}.{die}", "NIC-leaf"))
    # Non-blocking: a leaf's uplinks carry what the nodes of a whole pod send into it.
    nic_bytes_per_s = supernode.rdma_gb_per_s_per_npu * 1e9 / most_dies
    up_rate = recipe.nodes_per_pod * nic_bytes_per_s / recipe.spines
    cables = max(1, recipe.nodes_per_pod // recipe.spines)
    for pod, k in product(range(pods), range(recipe.spines)):
        for nic in range(nics):
            draft.link(f"leaf {pod}.{nic}", f"spine {pod}.{k}", "leaf-spine", up_rate, links=cables)
        draft.link(
            f"spine {pod}.{k}", "RDMA network", "spine-RDMA", nics * up_rate, links=nics * cables
        )


SCALE_UP: Mapping[str, Callable[[Draft], None]] = {
    "clos": draw_clos,
    "one_hop": draw_one_hop,
    "full_mesh": draw_mesh,
    "torus": draw_mesh,
    "dragonfly": draw_mesh,
}

SCALE_OUT: Mapping[str, Callable[[Draft], None]] = {
    "one_switch": draw_one_switch,
    "unified": draw_unified,
    "rails": draw_rails,
}
