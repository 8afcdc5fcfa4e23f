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
    pack_of_item = np.tile(np.arange(items), (layers, 1))
    place_in_pack = np.zeros((layers, items), np.int64)
    if items_per_pack == 1:
        return pack_of_item, place_in_pack
    layer_indices = np.arange(layers)
    pack_load = np.zeros((layers, packs), np.float32)
    items_in_pack = np.zeros((layers, packs), np.int64)
    for item_of_layer in np.argsort(-load, axis=1, kind="mergesort").T:
        lightest_pack = np.where(items_in_pack < items_per_pack, pack_load, np.inf).argmin(axis=1)
        pack_of_item[layer_indices, item_of_layer] = lightest_pack
        place_in_pack[layer_indices, item_of_layer] = items_in_pack[layer_indices, lightest_pack]
        items_in_pack[layer_indices, lightest_pack] += 1
        pack_load[layer_indices, lightest_pack] += load[layer_indices, item_of_layer]
    return pack_of_item, place_in_pack


def replicate_experts(load: Singles, slots: int) -> tuple[Ints, Ints]:
    """Give each slot beyond one per expert to the expert with the highest load per copy (ties:
    lowest index); the first slots hold the experts in order. load f4[layers, experts]. Returns
    (expert of each slot i8[layers, slots], number of copies i8[layers, experts])."""
    layers, experts = load.shape
    layer_indices = np.arange(layers)
    expert_of_slot = np.tile(np.arange(slots), (layers, 1))
    copies_of_expert = np.ones((layers, experts), np.int64)
    copy_load = load.copy()
    for slot in range(experts, slots):
        expert = copy_load.argmax(axis=1)
        expert_of_slot[:, slot] = expert
        copies_of_expert[layer_indices, expert] += 1
        copy_load[layer_indices, expert] = load[layer_indices, expert] / copies_of_expert[
            layer_indices, expert
        ].astype(np.float32)
    return expert_of_slot, copies_of_expert


def place_eplb(load: Floats, copy_count: int, groups: int, nodes: int, slots: Ints) -> None:
    """Place experts by EPLB: fill slots i8[layers, dies, slots_per_die] with the expert of each
    slot. load f8[layers, experts]; copy_count: copies of all experts together, of which the first
    nodes get one more if `nodes` does not divide it; groups: of experts, each placed on one node.
    Unused slots stay EMPTY. groups = nodes = 1 is EPLB's global policy."""
    layers, dies, slots_per_die = slots.shape
    experts = load.shape[1]
    group_size, experts_of_node, dies_per_node = experts // groups, experts // nodes, dies // nodes
    layer_column = np.arange(layers)[:, None]
    float32_load = load.astype(np.float32)
    group_loads = float32_load.reshape(layers, groups, group_size)
    node_of_group, group_in_node = packing(np.add.accumulate(group_loads, axis=2)[:, :, -1], nodes)
    group_begin = (node_of_group * (groups // nodes) + group_in_node) * group_size  # of each group
    place_of_expert = (group_begin[:, :, None] + np.arange(group_size)).reshape(layers, experts)
    expert_by_place = np.empty((layers, experts), np.int64)  # experts by node
    expert_by_place[layer_column, place_of_expert] = np.arange(experts)
    for node in range(nodes):
        node_experts = expert_by_place[:, node * experts_of_node : (node + 1) * experts_of_node]
        node_slot_count = copy_count // nodes + (1 if node < copy_count % nodes else 0)
        node_load = float32_load[layer_column, node_experts]
        expert_of_slot, copies_of_expert = replicate_experts(node_load, node_slot_count)
        slot_load = np.zeros((layers, dies_per_node * slots_per_die), np.float32)
        slot_copies = copies_of_expert[layer_column, expert_of_slot].astype(np.float32)
        slot_load[:, :node_slot_count] = node_load[layer_column, expert_of_slot] / slot_copies
        die_in_node, slot_in_die = (
            packed[:, :node_slot_count] for packed in packing(slot_load, dies_per_node)
        )
        die_of_slot = node * dies_per_node + die_in_node
        slots[layer_column, die_of_slot, slot_in_die] = node_experts[layer_column, expert_of_slot]
