"""Who sits where: the dies of every instance, rank by rank.

An instance takes whole NPUs, alone but where prefill shares those of decode. Where it gets them is
the scenario's choice (`PLACEMENTS`): a function of the instances and of the NPUs of the graph, with
their nodes, racks and planes. What is switched off serves nothing: `place` moves instances away
from it and says so. It prices nothing, and knows nothing of faults that come later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from twin.hardware.chip import HardwareError
from twin.hardware.faults import dies_unfit
from twin.hardware.network import Network
from twin.hardware.walks import BOOLS, INTS
from twin.scenario import (
    Scenario,
    first_numbers,
    pools,
    pools_by_role,
    seated_pools,
    sharing_pool,
    split_models,
    supernodes_apart,
)
from twin.scenario.words import first_few, numbered


@dataclass(frozen=True, slots=True)
class Instance:
    """One serving instance and the die of each of its ranks."""

    role: str  # "prefill", "decode" or "colocated"
    index: int  # within its role
    die_of_rank: tuple[int, ...]

    @property
    def dies(self) -> int:
        """Number of dies, one per rank."""
        return len(self.die_of_rank)

    @property
    def name(self) -> str:
        """Name for people: 'prefill 3'."""
        return f"{self.role} {self.index}"

    def spans(self) -> list[tuple[int, int]]:
        """(first, last) die of each unbroken sequence of the instance's dies, ascending."""
        dies = np.unique(self.die_of_rank)
        sequences = np.split(dies, np.flatnonzero(np.diff(dies) > 1) + 1)
        return [(int(sequence[0]), int(sequence[-1])) for sequence in sequences]


@dataclass(frozen=True, slots=True)
class Placement:
    """All instances, prefill first, and a sentence for each that had to move."""

    instances: tuple[Instance, ...]
    moved: tuple[str, ...]

    @classmethod
    def of(cls, parts: Sequence[Placement]) -> Placement:
        """One placement with the instances and sentences of several placements, in their order."""
        instances = tuple(instance for part in parts for instance in part.instances)
        return cls(instances, tuple(sentence for part in parts for sentence in part.moved))


@dataclass(frozen=True, slots=True)
class Npus:
    """The NPUs of a machine, in the order of their dies."""

    net: Network
    node: INTS
    rack: INTS  # -1: in none
    domain: INTS  # the scale-up plane
    on: BOOLS  # whether every die can serve
    chips: Sequence[str]
    fits: BOOLS  # whether its chip is the one that is needed
    place: INTS  # of each in its supernode, behind a front router, else in the machine
    first: int = 0  # instances sit on those from this place on
    chip: str = ""  # that is needed

    @property
    def count(self) -> int:
        """Number of NPUs, on or off."""
        return int(self.node.size)

    @property
    def free(self) -> list[int]:
        """Numbers of the NPUs with the needed chip from place `first` on, whether on or off."""
        return [npu for npu in np.flatnonzero(self.fits).tolist() if self.place[npu] >= self.first]

    @property
    def usable(self) -> list[int]:
        """Numbers of the `free` NPUs that are on."""
        return [npu for npu in self.free if self.on[npu]]

    def name(self, npu: int) -> str:
        """Name of an NPU for people."""
        first_die = self.net.vertex_data[self.net.first_dies[npu]]
        return f"NPU {first_die['node']}.{first_die['npu']}"

    def dies_of(self, npus: Sequence[int]) -> list[int]:
        """Numbers of the dies of some NPUs, in their order."""
        dies: list[int] = self.net.dies_of_npu.at(np.array(npus, np.int64))[0].tolist()
        return dies

    def npus_of(self, element: str) -> list[int]:
        """Numbers of an element's NPUs with the needed chip; raises HardwareError without any."""
        dies = np.flatnonzero(np.isin(self.net.dies, self.net.members(element)))
        npus = np.unique(self.net.npu[dies])
        npus = npus[self.fits[npus]]
        if not npus.size:
            chip_text = "" if self.fits.all() else f" of {self.chip}"
            raise HardwareError(
                f"{element} has no NPU{chip_text} that an instance could sit on: name a node"
            )
        return npus.tolist()


@dataclass(frozen=True, slots=True)
class Needed:
    """An instance to be placed."""

    role: str
    index: int
    npus: int
    chip: str

    @property
    def name(self) -> str:
        """Name for people: 'prefill 3'."""
        return f"{self.role} {self.index}"


Policy = Callable[[Sequence[Needed], Npus, Scenario], list[list[int]]]


def place(s: Scenario, net: Network) -> Placement:
    """The deployment's instances on the dies of a machine. Raises HardwareError with one sentence
    when NPUs do not suffice or rows of `deployment.seats` are impossible."""
    deployment, prefill = s.deployment, s.deployment.prefill
    chips = {role: pool.chip for role, pool in pools_by_role(s).items()}
    pool_dies = tuple((pool.layer_dies, pool.rank_dies) for pool in pools_by_role(s).values())
    to_be_placed = [
        Needed(role, i, npus, chips[role]) for role, n, npus in seated_pools(s) for i in range(n)
    ]
    prefill_on_decode = sharing_pool(s) and (prefill.instances, prefill.npus_per_instance)
    placement_key = (
        "placement", tuple(to_be_placed), pool_dies, prefill_on_decode, deployment.placement,
        deployment.when_off, deployment.seats, deployment.first_npu, deployment.kv_transfer_plane,
        supernodes_apart(s),
    )  # fmt: skip

    def place_by_chip() -> Placement:
        """The instances placed chip by chip, then prefill on decode's NPUs."""
        npus = _npus(s, net)
        placements = []
        for chip in dict.fromkeys(instance.chip for instance in to_be_placed):
            has_chip = np.array([npu_chip == chip for npu_chip in npus.chips], bool)
            needed = [instance for instance in to_be_placed if instance.chip == chip]
            placements.append(_place_on_chip(s, replace(npus, fits=has_chip, chip=chip), needed))
        instances = Placement.of(placements)
        return _with_prefill_on_decode(s, instances) if prefill_on_decode else instances

    return net.once(placement_key, place_by_chip)


def usable_npu_count(s: Scenario, net: Network) -> int:
    """Number of the machine's NPUs that can serve in the scenario's deployment, in use or not."""
    return int(_npus(s, net).on.sum())


def further_instances(s: Scenario, net: Network) -> list[Instance]:
    """Instances that may start later. Those of each pool lie on the NPUs of other pools' instances,
    and on as many free NPUs as `elastic.npus` adds; only one instance at a time uses an NPU. Behind
    a front router each lies in one supernode, and supernodes have equally many free NPUs."""
    npus = _npus(s, net)
    seated_instances = place(s, net).instances
    npus_of_role: dict[str, list[int]] = {role: [] for role, _, _ in pools(s)}
    for instance in seated_instances:
        npus_of_role[instance.role] += dict.fromkeys(net.npu[list(instance.die_of_rank)].tolist())
    used_npus = {npu for npu_list in npus_of_role.values() for npu in npu_list}
    free_npus = [npu for npu in npus.usable if npu not in used_npus]
    later_instances, supernodes = list[Instance](), supernodes_apart(s) or 1
    supernode = npus.node // s.supernode.nodes if supernodes > 1 else np.zeros(npus.count, np.int64)
    free_per_supernode = max(0, s.elastic.npus - len(used_npus)) // supernodes
    by_supernode = _group_by(free_npus, supernode)
    free_npus = [
        npu for g in range(supernodes) for npu in by_supernode.get(g, [])[:free_per_supernode]
    ]
    for role, _, npus_per_instance in pools(s):
        chip = pools_by_role(s)[role].chip
        candidate_npus = [
            npu for other, npu_list in npus_of_role.items() if other != role for npu in npu_list
        ] + free_npus
        candidate_npus = [npu for npu in candidate_npus if npus.chips[npu] == chip]
        next_index = sum(instance.role == role for instance in seated_instances)
        for role_npus in _group_by(candidate_npus, supernode).values():
            for i in range(len(role_npus) // npus_per_instance):
                dies = npus.dies_of(role_npus[i * npus_per_instance : (i + 1) * npus_per_instance])
                later_instances.append(Instance(role, next_index, dies_by_rank(dies, s, role)))
                next_index += 1
    return later_instances


def place_models(s: Scenario, net: Network) -> Placement:
    """The instances of all models of a scenario, numbered through from the first model on."""
    placements = [place(model_scenario, net) for model_scenario in split_models(s)]
    instances = tuple(
        replace(instance, index=first_index[instance.role] + instance.index)
        for placement, first_index in zip(placements, first_numbers(s), strict=True)
        for instance in placement.instances
    )
    return replace(Placement.of(placements), instances=instances)


def _place_on_chip(s: Scenario, npus: Npus, needed: Sequence[Needed]) -> Placement:
    """Places the needed instances of a chip on its NPUs by the scenario's policy, then moves them
    off NPUs that are off if `deployment.when_off` is "move". HardwareError if NPUs do not
    suffice."""
    npus_needed, free_count = sum(instance.npus for instance in needed), len(npus.free)
    chip_text = "" if npus.fits.all() else f" of {npus.chip}"
    if npus_needed > free_count:
        first_text = f" from number {npus.first} on" if npus.first else ""
        raise HardwareError(
            f"the deployment needs {numbered(npus_needed, 'NPU')}{chip_text} but the machine has "
            f"{free_count:,}{first_text}: take fewer or smaller instances"
        )
    moves_off = s.deployment.when_off == "move"
    placement = s.deployment.placement
    if npus_needed > len(npus.usable) and (moves_off or placement not in MAY_SIT_ON_WHAT_IS_OFF):
        off_text = first_few(_off_names(np.flatnonzero(npus.fits & ~npus.on).tolist(), npus))
        edit_text = "take back an edit of the supernode, or " if s.supernode.edits else ""
        raise HardwareError(
            f"the deployment needs {numbered(npus_needed, 'NPU')}{chip_text} but only "
            f"{len(npus.usable):,} of {free_count:,} are on ({off_text} off): {edit_text}take "
            "fewer or smaller instances"
        )
    npus_by_instance = PLACEMENTS[placement](needed, npus, s)
    instance_names = [instance.name for instance in needed]
    sentences = _move_off(npus_by_instance, instance_names, npus) if moves_off else []
    return Placement(
        tuple(
            Instance(need.role, need.index, dies_by_rank(npus.dies_of(instance_npus), s, need.role))
            for need, instance_npus in zip(needed, npus_by_instance, strict=True)
        ),
        tuple(sentences),
    )


def dies_by_rank(dies: Sequence[int], s: Scenario, role: str) -> tuple[int, ...]:
    """Dies of an instance of a role in order of ranks: for each rank first its dies of the first
    pipeline stage, then of the next stages. A stage of all ranks is an unbroken part of `dies`."""
    pool = pools_by_role(s)[role]
    layer_dies, stages = pool.layer_dies, pool.rank_dies // pool.layer_dies
    stage_size = len(dies) // stages
    if stages == 1 or len(dies) % pool.rank_dies:  # the latter is refused by those who price it
        return tuple(dies)
    starts = (
        stage * stage_size + offset
        for offset in range(0, stage_size, layer_dies)
        for stage in range(stages)
    )
    return tuple(die for part_start in starts for die in dies[part_start : part_start + layer_dies])


def _with_prefill_on_decode(s: Scenario, decode: Placement) -> Placement:
    """Placement of decode's instances, and of prefill's on their first NPUs; each decode instance
    shares its NPUs with equally many prefill instances."""
    prefill = s.deployment.prefill
    prefill_per_decode = prefill.instances // len(decode.instances)
    decode_npus = s.deployment.decode.npus_per_instance
    dies = prefill.npus_per_instance * decode.instances[0].dies // decode_npus
    prefill_instances = [
        Instance("prefill", i, decode_instance.die_of_rank[i % prefill_per_decode * dies :][:dies])
        for i in range(prefill.instances)
        for decode_instance in [decode.instances[i // prefill_per_decode]]
    ]
    return replace(decode, instances=(*prefill_instances, *decode.instances))


def _npus(s: Scenario, net: Network) -> Npus:
    """Returns the NPUs of a machine: their dies, node, rack, plane, and whether they are on."""
    dies = net.first_dies
    unfit_dies = np.fromiter(dies_unfit(net, s.deployment), np.int64)
    is_on, fits = np.ones((2, dies.size), bool)
    is_on[net.npu[unfit_dies]] = False
    racks = [net.vertex_data[vertex].get("rack", "") for vertex in dies.tolist()]
    rack_number = {name: number if name else -1 for number, name in enumerate(dict.fromkeys(racks))}
    rack = np.array([rack_number[name] for name in racks], np.int64)
    first_npu, place = s.deployment.first_npu, np.arange(dies.size)
    if supernodes := supernodes_apart(s):  # each has an equal part of what is left free
        supernode = net.node[dies] // s.supernode.nodes
        first_npu, place = first_npu // supernodes, place - np.searchsorted(supernode, supernode)
    chips = net.chips(s.supernode.chip)
    return Npus(net, net.node[dies], rack, net.domain[dies], is_on, chips, fits, place, first_npu)


def _place_in_order(
    needed: Sequence[Needed], npus: Npus, free_npus: Sequence[int], s: Scenario
) -> list[list[int]]:
    """NPUs of each needed instance, in the order of `free_npus`. Behind a front router an instance
    takes them in its own supernode; raises HardwareError if these do not suffice."""
    npu_lists = [list(free_npus)]
    if supernodes_apart(s):
        npu_lists = list(_group_by(free_npus, npus.node // s.supernode.nodes).values())
    count_of_role = Counter(instance.role for instance in needed)
    placed_npus = []
    for instance in needed:
        npus_left = npu_lists[instance.index * len(npu_lists) // count_of_role[instance.role]]
        if len(npus_left) < instance.npus:
            raise HardwareError(
                f"{instance.name} has no room in its supernode, where {len(npus_left)} of the "
                f"{instance.npus} NPUs that it needs are left: add nodes or take fewer or smaller "
                "instances"
            )
        placed_npus.append(npus_left[: instance.npus])
        del npus_left[: instance.npus]
    return placed_npus


def place_spread(needed: Sequence[Needed], npus: Npus, _s: Scenario) -> list[list[int]]:
    """NPUs of each needed instance, over as many nodes as possible, emptiest nodes first."""
    by_node = _group_by(npus.usable, npus.node)
    placed_npus = []
    for instance in needed:
        seat_npus: list[int] = []
        while len(seat_npus) < instance.npus:
            roomiest = sorted((n for n in by_node if by_node[n]), key=lambda n: -len(by_node[n]))
            seat_npus += [by_node[n].pop(0) for n in roomiest[: instance.npus - len(seat_npus)]]
        placed_npus.append(sorted(seat_npus))
    return placed_npus


def place_by_rack(needed: Sequence[Needed], npus: Npus, _s: Scenario) -> list[list[int]]:
    """NPUs of each needed instance, in the first rack with room, else in the emptiest racks."""
    if (npus.rack < 0).any():
        raise HardwareError("not every node of this machine is in a rack: take another placement")
    by_rack = _group_by(npus.usable, npus.rack)
    placed_npus = []
    for instance in needed:
        instance_npus: list[int] = []
        while len(instance_npus) < instance.npus:
            npus_missing = instance.npus - len(instance_npus)
            emptiest_rack = max(by_rack, key=lambda rack: len(by_rack[rack]))
            rack = next((r for r in by_rack if len(by_rack[r]) >= npus_missing), emptiest_rack)
            instance_npus += by_rack[rack][:npus_missing]
            by_rack[rack] = by_rack[rack][npus_missing:]
        placed_npus.append(sorted(instance_npus))
    return placed_npus


def place_by_hand(needed: Sequence[Needed], npus: Npus, s: Scenario) -> list[list[int]]:
    """NPUs of each needed instance by the rows of `deployment.seats`; those without a row take free
    NPUs. An instance whose rows name fewer NPUs than it needs continues on the following ones."""
    index_of = {(instance.role, instance.index): index for index, instance in enumerate(needed)}
    allowed_npus = {*npus.free}
    placed: list[list[int]] = [[] for _ in needed]
    owner_of_npu: dict[int, int] = {}
    for seat in s.deployment.seats:
        if seat.role in pools_by_role(s) and pools_by_role(s)[seat.role].chip != npus.chip:
            continue  # placed with those of its chip
        if (seat.role, seat.index) not in index_of:
            raise HardwareError(
                f"deployment.seats has a row for {seat.role} {seat.index}, and there is no such "
                "instance: take the row out or add instances"
            )
        index = index_of[seat.role, seat.index]
        free_npus = [npu for npu in npus.npus_of(seat.element) if npu not in placed[index]]
        for npu in free_npus[: needed[index].npus - len(placed[index])]:
            if owner_of_npu.setdefault(npu, index) != index:
                raise HardwareError(
                    f"deployment.seats gives {npus.name(npu)} to {needed[owner_of_npu[npu]].name} "
                    f"and to {needed[index].name}: name another element"
                )
            placed[index].append(npu)
    named_instances = [index for index, placed_npus in enumerate(placed) if placed_npus]
    unnamed_instances = [index for index, placed_npus in enumerate(placed) if not placed_npus]
    for index in [*named_instances, *unnamed_instances]:
        next_npu = placed[index][-1] + 1 if placed[index] else 0
        npus_in_order = [npu % npus.count for npu in range(next_npu, next_npu + npus.count)]
        free = [npu for npu in npus_in_order if npu not in owner_of_npu and npu in allowed_npus]
        free.sort(key=lambda n: not npus.on[n])  # what is off last, and only where nothing moves
        seat_npus = free[: needed[index].npus - len(placed[index])]
        owner_of_npu.update(dict.fromkeys(seat_npus, index))
        placed[index] += seat_npus
    return placed


PLACEMENTS: dict[str, Policy] = {
    # One after the other from the first NPU that may be taken on.
    "packed": lambda needed, npus, s: _place_in_order(needed, npus, npus.free, s),
    "spread": place_spread,
    "racks": place_by_rack,
    # One after the other over the NPUs that are on.
    "around_off": lambda needed, npus, s: _place_in_order(needed, npus, npus.usable, s),
    "by_hand": place_by_hand,
}
MAY_SIT_ON_WHAT_IS_OFF = ("packed", "by_hand")


def _move_off(seats: list[list[int]], names: Sequence[str], npus: Npus) -> list[str]:
    """Replace, in place, the NPUs in `seats` (NPUs by instance) that are off by free ones; returns
    a sentence for each moved instance. NPUs of one node stay together if possible, and NPUs of the
    same scale-up domain are taken first. names: of the instances."""
    used_npus = {npu for seat_npus in seats for npu in seat_npus}
    free_npus = [npu for npu in npus.usable if npu not in used_npus]
    sentences = []
    for seat, name in zip(seats, names, strict=True):
        npus_off = [npu for npu in seat if not npus.on[npu]]
        new_npus: list[int] = []
        for node_npus in _group_by(npus_off, npus.node).values():
            # The nearest ones, in one node if possible.
            old_domain, count = npus.domain[node_npus[0]], len(node_npus)
            nearest_npus = sorted(free_npus, key=lambda npu: (npus.domain[npu] != old_domain, npu))
            by_node = _group_by(nearest_npus, npus.node).values()
            new_places = next((list(r) for r in by_node if len(r) >= count), nearest_npus)[:count]
            free_npus = [npu for npu in free_npus if npu not in new_places]
            new_npus += new_places
            for old_npu, new_npu in zip(node_npus, new_places, strict=True):
                seat[seat.index(old_npu)] = new_npu
        if npus_off:
            nodes = first_few([f"node {n}" for n in dict.fromkeys(npus.node[new_npus].tolist())])
            sentences.append(f"{name} moved off {first_few(_off_names(npus_off, npus))} to {nodes}")
    return sentences


def _group_by(numbers: Iterable[int], key_of: INTS) -> dict[int, list[int]]:
    """Numbers grouped by `key_of[number]`; keys and numbers stay in the given order."""
    numbers_by_key: dict[int, list[int]] = {}
    for number in numbers:
        numbers_by_key.setdefault(int(key_of[number]), []).append(number)
    return numbers_by_key


def _off_names(off: Sequence[int], npus: Npus) -> list[str]:
    """Names for people of the NPUs `off`; the name of a node if all its NPUs are off."""
    names = []
    for node, node_npus in _group_by(off, npus.node).items():
        is_whole_node = not npus.on[npus.node == node].any()
        names += [f"node {node}"] if is_whole_node else [npus.name(npu) for npu in node_npus]
    return names
