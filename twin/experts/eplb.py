"""Expert-parallel load balancer (EPLB): an own implementation of deepseek-ai/EPLB (commit d52c72d,
MIT), greedy in float32 as the original, all layers side by side. Every sort is stable: where loads
tie, indices may differ from the original's, loads do not."""

import numpy as np
from numpy.typing import NDArray

from twin.experts.popularity import Floats, Ints

Singles = NDArray[np.float32]


def packing(load: Singles, packs: int) -> tuple[Ints, Ints]:
    """Put items, heaviest first, into the lightest pack with room (ties: lowest index). load
    f4[layers, items]: weights; packs: number of packs, which divides that of items. Returns (pack,
    place in it) of each item, i8[layers, items]; as many packs as items: item i is in pack i."""
    layers, items = load.shape
    items_per_pack = items // packs
    pack_of = np.tile(np.arange(items), (layers, 1))
    place_in_pack = np.zeros((layers, items), np.int64)
    if items_per_pack == 1:
        return pack_of, place_in_pack
    each_layer = np.arange(layers)
    pack_load = np.zeros((layers, packs), np.float32)
    items_in_pack = np.zeros((layers, packs), np.int64)
    for item_of_layer in np.argsort(-load, axis=1, kind="mergesort").T:
        lightest_pack = np.where(items_in_pack < items_per_pack, pack_load, np.inf).argmin(axis=1)
        pack_of[each_layer, item_of_layer] = lightest_pack
        place_in_pack[each_layer, item_of_layer] = items_in_pack[each_layer, lightest_pack]
        items_in_pack[each_layer, lightest_pack] += 1
        pack_load[each_layer, lightest_pack] += load[each_layer, item_of_layer]
    return pack_of, place_in_pack


def replicate_experts(load: Singles, slots: int) -> tuple[Ints, Ints]:
    """Give each slot beyond one per expert to the expert with the highest load per copy (ties:
    lowest index); the first slots hold the experts in order. load f4[layers, experts]. Returns
    (expert of each slot i8[layers, slots], number of copies i8[layers, experts])."""
    layers, experts = load.shape
    each_layer = np.arange(layers)
    expert_of_slot = np.tile(np.arange(slots), (layers, 1))
    copies = np.ones((layers, experts), np.int64)
    copy_load = load.copy()
    for slot in range(experts, slots):
        expert = copy_load.argmax(axis=1)
        expert_of_slot[:, slot] = expert
        copies[each_layer, expert] += 1
        copy_load[each_layer, expert] = load[each_layer, expert] / copies[
            each_layer, expert
        ].astype(np.float32)
    return expert_of_slot, copies


def place_eplb(load: Floats, copy_count: int, groups: int, nodes: int, slots: Ints) -> None:
    """Place experts by EPLB: fill slots i8[layers, dies, slots_per_die] with the expert of each
    slot. load f8[layers, experts]; copy_count: copies of all experts together, of which the first
    nodes get one more if `nodes` does not divide it; groups: of experts, each placed on one node.
    Unused slots stay EMPTY. groups = nodes = 1 is EPLB's global policy."""
    layers, dies, die_slots = slots.shape
    experts = load.shape[1]
    group_size, experts_of_node, node_dies = experts // groups, experts // nodes, dies // nodes
    each_layer = np.arange(layers)[:, None]
    load_f4 = load.astype(np.float32)
    group_loads = load_f4.reshape(layers, groups, group_size)
    node_of_group, group_in_node = packing(np.add.accumulate(group_loads, axis=2)[:, :, -1], nodes)
    first_place = (node_of_group * (groups // nodes) + group_in_node) * group_size  # of each group
    place_of_expert = (first_place[:, :, None] + np.arange(group_size)).reshape(layers, experts)
    expert_by_place = np.empty((layers, experts), np.int64)  # experts by node
    expert_by_place[each_layer, place_of_expert] = np.arange(experts)
    for node in range(nodes):
        node_experts = expert_by_place[:, node * experts_of_node : (node + 1) * experts_of_node]
        node_slots = copy_count // nodes + (1 if node < copy_count % nodes else 0)
        node_load = load_f4[each_layer, node_experts]
        slot_expert, copies = replicate_experts(node_load, node_slots)
        slot_load = np.zeros((layers, node_dies * die_slots), np.float32)
        slot_copies = copies[each_layer, slot_expert].astype(np.float32)
        slot_load[:, :node_slots] = node_load[each_layer, slot_expert] / slot_copies
        die_in_node, slot_in_die = (
            packed[:, :node_slots] for packed in packing(slot_load, node_dies)
        )
        die_of_slot = node * node_dies + die_in_node
        slots[each_layer, die_of_slot, slot_in_die] = node_experts[each_layer, slot_expert]
