"""Expert-parallel load balancer (EPLB): an own implementation of deepseek-ai/EPLB (commit d52c72d,
MIT), greedy in float32 as the original, all layers side by side. Every sort is stable: where loads
tie, indices may differ from the original's, loads do not."""

import numpy as np
from numpy.typing import NDArray

from twin.experts.popularity import Floats, Ints

Singles = NDArray[np.float32]


def pack(load: Singles, packs: int) -> tuple[Ints, Ints]:
    """Items, heaviest first, to the lightest pack with room (ties: lowest). load f4[layers, n], n
    divisible by packs -> (pack, place within the pack), i8[layers, n]; one a pack: identity."""
    layers, n = load.shape
    room = n // packs
    pack_of = np.tile(np.arange(n), (layers, 1))
    place = np.zeros((layers, n), np.int64)
    if room == 1:
        return pack_of, place
    rows = np.arange(layers)
    total = np.zeros((layers, packs), np.float32)
    items = np.zeros((layers, packs), np.int64)
    for item in np.argsort(-load, axis=1, kind="mergesort").T:
        best = np.where(items < room, total, np.inf).argmin(axis=1)
        pack_of[rows, item] = best
        place[rows, item] = items[rows, best]
        items[rows, best] += 1
        total[rows, best] += load[rows, item]
    return pack_of, place


def replicate(load: Singles, slots: int) -> tuple[Ints, Ints]:
    """Copies of the experts hottest per copy (ties: lowest index), one by one. load f4[layers,
    experts] -> (expert i8[layers, slots], copies i8[layers, experts]); experts in order first."""
    layers, experts = load.shape
    rows = np.arange(layers)
    expert = np.tile(np.arange(slots), (layers, 1))
    copies = np.ones((layers, experts), np.int64)
    share = load.copy()
    for i in range(experts, slots):
        hot = share.argmax(axis=1)
        expert[:, i] = hot
        copies[rows, hot] += 1
        share[rows, hot] = load[rows, hot] / copies[rows, hot].astype(np.float32)
    return expert, copies


def place_eplb(load: Floats, physical: int, groups: int, nodes: int, slots: Ints) -> None:
    """EPLB of load f8[layers, experts]: fills slots i8[layers, dies, slots_per_die], a copy more on
    first nodes if `physical` does not divide, the rest EMPTY. groups = nodes = 1: global."""
    layers, dies, room = slots.shape
    experts = load.shape[1]
    size, experts_of_node, node_dies = experts // groups, experts // nodes, dies // nodes
    rows = np.arange(layers)[:, None]
    weight = load.astype(np.float32)
    by_group = weight.reshape(layers, groups, size)
    node, spot = pack(np.add.accumulate(by_group, axis=2)[:, :, -1], nodes)
    first = (node * (groups // nodes) + spot) * size  # place of each group's first expert
    place = (first[:, :, None] + np.arange(size)).reshape(layers, experts)
    member = np.empty((layers, experts), np.int64)  # the experts node by node
    member[rows, place] = np.arange(experts)
    for n in range(nodes):
        members = member[:, n * experts_of_node : (n + 1) * experts_of_node]
        used = physical // nodes + (1 if n < physical % nodes else 0)
        local = weight[rows, members]
        expert, count = replicate(local, used)
        share = np.zeros((layers, node_dies * room), np.float32)
        share[:, :used] = local[rows, expert] / count[rows, expert].astype(np.float32)
        die, slot = pack(share, node_dies)
        slots[rows, n * node_dies + die[:, :used], slot[:, :used]] = members[rows, expert]
