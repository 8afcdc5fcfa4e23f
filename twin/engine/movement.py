"""Tables of what moved and where: traffic by class, its places, links, instances over time."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import polars as pl

from twin.engine import codes as w
from twin.engine.balancing import Balance
from twin.engine.columns import World
from twin.engine.contention.flows import shares_by_place
from twin.engine.lifecycle.machine import Epoch, Machine
from twin.engine.setup import Setup
from twin.engine.tabling import schema, stack_pieces
from twin.hardware.network import Network
from twin.hardware.placement import Instance
from twin.hardware.prices import port_rates
from twin.metrics.events import Event, Kind

Uneven = tuple[np.ndarray, np.ndarray]  # of what enters, of what leaves
Piece = dict[str, Any]  # rows of a table, see `stack_pieces`
WAYS = [(plane, direction) for plane in w.PLANES for direction in ("out", "in")]

SHARES = schema("t_s,end_s,plane,traffic,role,instance,node,sub_plane,direction,share")
SEATS = schema("t_s,end_s,role,instance,first_die,dies")
TRAFFIC = schema("t_s,window_s,plane,traffic,role,instance,bytes")
LINKS = schema(
    "plane,node,sub_plane,direction,bytes,capacity_bytes_per_s,utilisation_mean,utilisation_peak"
)
INSTANCES = schema(
    "t_s,window_s,role,instance,queue,running,busy,iteration_s,hot_factor,contention,up,dies"
)


def indexed_instances(setup: Setup, prefills: int) -> list[tuple[int, Instance]]:
    """(index in the record, instance) of all: prefill from 0 on, others from `prefills` on."""
    return [(i.index if i.role == "prefill" else prefills + i.index, i) for i in setup.instances]


def recorded_traffic(world: World) -> np.ndarray:
    """Recorded bytes, f8[windows + 1, classes, planes, columns]; the last row: the steady state."""
    traffic_bytes = world.record.traffic
    return traffic_bytes.reshape(traffic_bytes.shape[0], len(w.TRAFFIC), len(w.PLANES), -1)


def traffic_table(setup: Setup, world: World) -> pl.DataFrame:
    """Bytes by window, plane, class of traffic and instance; rows without bytes are left out."""
    traffic_bytes = recorded_traffic(world)[:-1]
    width_s = world.settings.horizon_s / len(traffic_bytes)
    table_pieces = []
    for column, instance in indexed_instances(setup, world.settings.prefills):
        for class_index, class_name in enumerate(w.TRAFFIC):
            for plane_code, plane_name in enumerate(w.PLANES):
                moved_bytes = traffic_bytes[:, class_index, plane_code, column]
                window_rows = np.flatnonzero(moved_bytes > 0.0)
                if window_rows.size:
                    table_pieces.append(
                        {"t_s": window_rows * width_s, "window_s": width_s, "plane": plane_name,
                         "traffic": class_name, "role": instance.role, "instance": instance.index,
                         "bytes": moved_bytes[window_rows]}
                    )  # fmt: skip
    return stack_pieces(TRAFFIC, table_pieces)


def shares_of_classes(machine: Machine, balance: Balance, horizon_s: float) -> list[Piece]:
    """Share of an instance's bytes that leaves or enters each place (node, or its sub-plane), as
    rows for every class of traffic, instance and span (t_s to end_s) between two changes of the
    machine. Bytes of experts follow the tokens that dies received, averaged over the run."""
    return [
        class_share
        for epoch, end_s in _epochs_with_ends(machine, horizon_s)
        for class_share in _class_shares(epoch, end_s, _unevenness(epoch, machine, balance))
    ]


def shares_table(setup: Setup, pieces: Sequence[Piece]) -> pl.DataFrame:
    """Table of shares of bytes by node (or sub-plane); pieces: from `shares_of_classes`."""
    places = pl.Series(_pieces_and_places(setup, pieces)[1].astype(np.uint32))
    place_columns = {column.name: column[places] for column in _place_columns(setup.fabric)}
    other_names = [name for name in SHARES if name not in place_columns]
    other_columns = stack_pieces({name: SHARES[name] for name in other_names}, pieces)
    columns = place_columns | {name: other_columns[name] for name in other_names}
    return pl.DataFrame([columns[name] for name in SHARES])


def _pieces_and_places(setup: Setup, pieces: Sequence[Piece]) -> tuple[np.ndarray, np.ndarray]:
    """(number of the piece, number of the place) of each row, both i8[rows]. Where one network has
    the ports of the RDMA and VPC planes, each place has a second number, which classes of the VPC
    plane use."""
    net, s = setup.fabric, setup.scenario
    piece_of_row = np.repeat(np.arange(len(pieces)), [piece["place"].size for piece in pieces])
    places = np.concatenate([piece["place"] for piece in pieces]) if pieces else piece_of_row
    if net.storage_ports == "nic":
        pool_plane, kv_plane = s.memory_pool.read_plane, s.deployment.kv_transfer_plane
        plane_of_class = {w.SSD_READ: "vpc", w.SSD_WRITE: "vpc", w.POOL_READ: pool_plane,
                          w.POOL_WRITE: pool_plane, w.KV_HAND_OFF: kv_plane}  # fmt: skip
        vpc_classes = [w.TRAFFIC[code] for code, plane in plane_of_class.items() if plane == "vpc"]
        is_vpc_piece = np.array([piece["traffic"] in vpc_classes for piece in pieces], bool)
        is_vpc_row = is_vpc_piece[piece_of_row]
        places = np.where(is_vpc_row, places + len(net.places), places)
    return piece_of_row, places


def _place_columns(net: Network) -> list[pl.Series]:
    """Columns plane, node, sub_plane and direction: a row for each place, then each place again
    with plane "vpc" for "rdma", for machines whose RDMA and VPC planes are one network."""

    def column(name: str) -> pl.Series:
        """Series of an attribute of all places, then again with plane "vpc" for "rdma"."""
        place_values = [getattr(place, name) for place in net.places]
        vpc_values = ["vpc" if value == "rdma" else value for value in place_values]
        return pl.Series(name, [*place_values, *vpc_values], SHARES[name])

    column_names = ("plane", "node", "sub_plane", "direction")
    return net.once("columns of places", lambda: [*map(column, column_names)])


def _place_codes(net: Network) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """By row of `_place_columns`: index in WAYS, node, sub-plane (0: none), i8 each."""
    planes, nodes, sub_planes, directions = (column.to_list() for column in _place_columns(net))
    way_codes = [WAYS.index(way) for way in zip(planes, directions, strict=True)]
    return np.array(way_codes), np.array(nodes), np.array([number or 0 for number in sub_planes])


def seats_table(machine: Machine, horizon_s: float) -> pl.DataFrame:
    """Serving dies of each instance from t_s to end_s, between two changes of the machine: a row
    for each sequence of consecutive dies. Failed dies have no row, spares one once in service."""
    seat_rows: list[tuple[float, float, str, int, int, int]] = []
    for epoch, end_s in _epochs_with_ends(machine, horizon_s):
        for seat in epoch.seats:
            dies = np.array(sorted(seat.dies))
            for run_of_dies in np.split(dies, np.flatnonzero(np.diff(dies) > 1) + 1):
                if run_of_dies.size:
                    first_and_count = (int(run_of_dies[0]), run_of_dies.size)
                    seat_rows.append((epoch.t_s, end_s, seat.role, seat.index, *first_and_count))
    return pl.DataFrame(seat_rows, schema=SEATS, orient="row")


def _epochs_with_ends(machine: Machine, horizon_s: float) -> list[tuple[Epoch, float]]:
    """Epochs (without changes of the machine) before the horizon, each with its end (s)."""
    epochs = [epoch for epoch in machine.epochs if epoch.t_s < horizon_s]
    ends_s = [*(epoch.t_s for epoch in epochs[1:]), horizon_s]
    return list(zip(epochs, ends_s, strict=True))


def _unevenness(epoch: Epoch, machine: Machine, balance: Balance) -> dict[tuple[str, int], Uneven]:
    """Ratios of `relative_bytes` by (role, number) for instances whose dies received uneven numbers
    of tokens, except for instances that had another number of dies in this epoch."""
    uneven_by_instance: dict[tuple[str, int], Uneven] = {}
    dies_by_seat = {(seat.role, seat.index): seat.dies for seat in epoch.seats}
    for k, instance in enumerate(machine.setup.instances):
        dies_of_instance = dies_by_seat.get((instance.role, instance.index), ())
        tokens_taken, dispatch_share = balance.tokens_of_dies(k), machine.roles[k].dispatched
        if tokens_taken is None or dispatch_share is None:
            continue
        if tokens_taken.size == len(dies_of_instance):
            node_of_die = epoch.fabric.node[epoch.fabric.dies[list(dies_of_instance)]]
            node_args = node_of_die, epoch.fabric.nodes, tokens_taken, dispatch_share
            node_factors = relative_bytes(*node_args)
            uneven_by_instance[instance.role, instance.index] = node_factors
    return uneven_by_instance


def relative_bytes(node: np.ndarray, nodes: int, tokens: np.ndarray, dispatched: float) -> Uneven:
    """(bytes that enter each of `nodes` nodes, bytes that leave it), f8[nodes] each, divided by the
    bytes of an even exchange.

    node i8[dies]: node of each die; tokens f8[dies]: tokens of each die's experts, in any unit.
    Every die sends an equal number of tokens, none to itself. Dispatch moves the share `dispatched`
    of the bytes; combine moves the other bytes in the opposite direction. A byte is split over
    links as in an even exchange."""
    other_tokens = tokens.sum() - tokens
    dies_of_node = np.maximum(np.bincount(node, minlength=nodes), 1)
    received_ratio, sent_ratio = (
        np.bincount(node, amounts / amounts.mean(), nodes) / dies_of_node
        for amounts in (tokens, other_tokens)
    )
    into_node, out_of_node = (
        received_share * received_ratio + (1.0 - received_share) * sent_ratio
        for received_share in (dispatched, 1.0 - dispatched)
    )
    return into_node, out_of_node


def _class_shares(
    epoch: Epoch, end_s: float, uneven: dict[tuple[str, int], Uneven]
) -> Iterator[dict[str, Any]]:
    """Yield the shares of bytes at places, a piece for each class of traffic and instance of an
    epoch. uneven: factors of nodes from `_unevenness`."""
    for flow in epoch.flows:
        even_shares = shares_by_place(epoch.fabric, flow.load)
        shares_of_class = {flow.traffic: even_shares}
        if flow.kind == w.EXPERTS:
            if flow.role == "prefill":
                shares_of_class["attention"] = even_shares
            if node_factors := uneven.get((flow.role, flow.instance)):
                node, is_entering = (array[flow.load.places] for array in epoch.fabric.place_ends)
                place_factors = np.where(is_entering, node_factors[0][node], node_factors[1][node])
                shares_of_class["experts"] = shares_by_place(epoch.fabric, flow.load, place_factors)
        for name, place_shares in shares_of_class.items():
            yield {
                "t_s": epoch.t_s, "end_s": end_s, "traffic": name, "role": flow.role,
                "instance": flow.instance, "place": flow.load.places, "share": place_shares,
            }  # fmt: skip


def links_table(setup: Setup, world: World, share_pieces: Sequence[Piece]) -> pl.DataFrame:
    """Traffic of each node by plane, direction and UB sub-plane: bytes, utilisation; in a fixed
    order. share_pieces: pieces of `shares_of_classes`."""
    horizon_s, net = setup.scenario.horizon_s, setup.fabric
    node_bytes_per_s = net.once("limits of nodes", lambda: _node_bytes_per_s(net))
    bytes_by_way = _placed_bytes(setup, world, share_pieces)
    window_bytes = recorded_traffic(world)[:-1].sum(axis=(1, 3))
    table_pieces = []
    for plane_code, plane in enumerate(w.PLANES):
        mean_bytes = float(window_bytes[:, plane_code].mean())
        peak_bytes = float(window_bytes[:, plane_code].max())
        peak_ratio = peak_bytes / mean_bytes if mean_bytes > 0.0 else 0.0
        for direction in ("out", "in"):
            for sub_plane, bytes_per_s in enumerate(node_bytes_per_s[plane].T):
                node_bytes = bytes_by_way[plane, direction][:, sub_plane]
                capacity_bytes = bytes_per_s * horizon_s
                is_linked, no_use = capacity_bytes > 0.0, np.zeros_like(node_bytes)
                mean_use = np.divide(node_bytes, capacity_bytes, out=no_use, where=is_linked)
                # A batch that lasts for several windows is recorded in one: no link carries more
                # than its capacity, so no window is fuller than full.
                peak_use = np.minimum(mean_use * peak_ratio, np.maximum(mean_use, 1.0))
                table_pieces.append(
                    {"plane": plane, "node": np.arange(bytes_per_s.size), "direction": direction,
                     "sub_plane": sub_plane if plane == "ub" else None, "bytes": node_bytes,
                     "capacity_bytes_per_s": bytes_per_s, "utilisation_mean": mean_use,
                     "utilisation_peak": peak_use}
                )  # fmt: skip
    return stack_pieces(LINKS, table_pieces)


def _node_bytes_per_s(net: Network) -> dict[str, np.ndarray]:
    """Bytes/s of a node on each plane of the undamaged fabric, f8[nodes, sub-planes or 1]."""
    ub_rates = np.zeros((net.nodes, net.sub_planes))
    is_leaving = net.links_of("ub") & np.isin(net.tail, net.dies)
    node_and_sub_plane = net.node[net.tail[is_leaving]], np.maximum(net.sub_plane[is_leaving], 0)
    np.add.at(ub_rates, node_and_sub_plane, net.capacity[is_leaving])
    bytes_per_s: dict[str, np.ndarray] = {"ub": ub_rates}
    ports: tuple[tuple[Literal["rdma", "vpc"], str], ...] = (
        ("rdma", "nic"), ("vpc", net.storage_ports),
    )  # fmt: skip
    for plane, port_kind in ports:
        node_of_port = net.node[net.of_kind(port_kind)]
        bytes_per_s[plane] = np.bincount(node_of_port, port_rates(net, plane), net.nodes)[:, None]
    return bytes_per_s


def _placed_bytes(
    setup: Setup, world: World, where: Sequence[Piece]
) -> dict[tuple[str, str], np.ndarray]:
    """Bytes of the run at each node by (plane, direction), f8[nodes, sub-planes or 1]. where: the
    pieces of `shares_of_classes`, by which the recorded bytes are divided among nodes."""
    net, traffic_bytes = setup.fabric, recorded_traffic(world)[:-1]
    instances = indexed_instances(setup, world.settings.prefills)
    column_of_instance = {(instance.role, instance.index): column for column, instance in instances}
    window_count = len(traffic_bytes)
    window_middle_s = (np.arange(window_count) + 0.5) * setup.scenario.horizon_s / window_count
    # What a plane carries of a class is known; its shares there are brought back to a whole.
    piece_of_row, places = _pieces_and_places(setup, where)
    way_of_row, nodes, sub_planes = (
        values_of_place[places] for values_of_place in _place_codes(net)
    )
    share_of_row = np.concatenate([piece["share"] for piece in where]) if where else np.zeros(0)
    class_of_row = piece_of_row * len(WAYS) + way_of_row
    share_sums = np.bincount(class_of_row, share_of_row)
    bytes_of_class, codes_of_class = np.zeros(share_sums.size), dict[tuple[Any, ...], list[int]]()
    for class_code in np.unique(class_of_row).tolist():
        plane, direction = WAYS[class_code % len(WAYS)]
        piece = where[class_code // len(WAYS)]
        class_key = plane, piece["traffic"], piece["role"], piece["instance"], direction
        is_in_epoch = (window_middle_s >= piece["t_s"]) & (window_middle_s < piece["end_s"])
        bytes_by_window = _recorded_bytes(traffic_bytes, column_of_instance, class_key)
        bytes_of_class[class_code] = bytes_by_window[is_in_epoch].sum() / share_sums[class_code]
        codes_of_class.setdefault(class_key, []).append(class_code)
    # What was recorded in a window whose middle found the class without a way had one at its ends.
    for class_key, class_codes in codes_of_class.items():
        placed_bytes = float((bytes_of_class[class_codes] * share_sums[class_codes]).sum())
        recorded_bytes = float(_recorded_bytes(traffic_bytes, column_of_instance, class_key).sum())
        if recorded_bytes > placed_bytes == 0.0:  # in spans that hold no window's middle
            bytes_of_class[class_codes] = recorded_bytes / share_sums[class_codes].sum()
        elif recorded_bytes > placed_bytes * (1.0 + 1e-12):
            bytes_of_class[class_codes] *= recorded_bytes / placed_bytes
    row_bytes = bytes_of_class[class_of_row] * share_of_row
    bytes_by_way = {}
    for way_index, (plane, direction) in enumerate(WAYS):
        way_rows = np.flatnonzero(way_of_row == way_index)
        node_bytes = np.zeros((net.nodes, net.sub_planes if plane == "ub" else 1))
        np.add.at(node_bytes, (nodes[way_rows], sub_planes[way_rows]), row_bytes[way_rows])
        bytes_by_way[plane, direction] = node_bytes
    return bytes_by_way


def _recorded_bytes(
    cells: np.ndarray, column: dict[tuple[str, int], int], key: Sequence[Any]
) -> np.ndarray:
    """Bytes in each window of (plane, class, role, instance), the first four items of `key`,
    f8[windows]. cells: as of `recorded_traffic`; column: index in the record by (role,
    instance)."""
    plane, class_name, role, instance = key[:4]
    cell_index = w.TRAFFIC.index(class_name), w.PLANES.index(plane), column[role, instance]
    return np.asarray(cells[:, cell_index[0], cell_index[1], cell_index[2]])


def instances_table(setup: Setup, machine: Machine, log: list[Event]) -> pl.DataFrame:
    """A row per window and instance: queue, batch, iteration time, imbalance, slowdown, uptime."""
    world = machine.world
    window_sums = world.record.instances[:-1]
    window_count = window_sums.shape[0]
    width_s = world.settings.horizon_s / window_count
    begin_s = np.arange(window_count) * width_s
    epochs = machine.epochs
    epoch_starts_s = [epoch.t_s for epoch in epochs]
    epoch_row = np.searchsorted(epoch_starts_s, begin_s + width_s) - 1  # at a window's end
    die_counts = np.array([[len(seat.dies) for seat in epoch.seats] for epoch in epochs], np.int32)
    table_pieces = []
    for k, (column, instance) in enumerate(indexed_instances(setup, world.settings.prefills)):
        instance_sums = window_sums[:, column * w.AT_FIELDS : (column + 1) * w.AT_FIELDS]
        sample_count = np.maximum(instance_sums[:, w.AT_SAMPLES], 1.0)
        is_sampled = instance_sums[:, w.AT_SAMPLES] > 0
        down_s = np.zeros(window_count)
        for event in log:
            is_of_instance = (event.role, event.instance) == (instance.role, instance.index)
            if event.kind == Kind.INSTANCE_DOWN and is_of_instance:
                assert event.end_s is not None  # infinite while it lasts
                out_s = np.minimum(event.end_s, begin_s + width_s) - np.maximum(event.t_s, begin_s)
                down_s += np.maximum(out_s, 0.0)
        queue = instance_sums[:, w.AT_QUEUE] / sample_count
        running = instance_sums[:, w.AT_RUNNING] / sample_count
        if instance.role == "colocated":  # what waits for it waits in its prompt queue
            queue = queue + window_sums[:, instance.index * w.AT_FIELDS + w.AT_QUEUE] / sample_count
        passes = instance_sums[:, w.AT_ITERATIONS]
        iteration_s = np.full(window_count, np.nan)
        np.divide(instance_sums[:, w.AT_ITERATION_S], passes, out=iteration_s, where=passes > 1e-9)
        table_pieces.append({
            "t_s": begin_s, "window_s": width_s, "role": instance.role, "instance": instance.index,
            "queue": queue, "running": running, "iteration_s": iteration_s,
            "busy": np.clip(instance_sums[:, w.AT_BUSY_S] / width_s, 0.0, 1.0),
            "hot_factor": np.where(is_sampled, instance_sums[:, w.AT_HOT] / sample_count, np.nan),
            "contention": np.where(is_sampled, instance_sums[:, w.AT_CROWDED] / sample_count, 1.0),
            "up": np.clip(1.0 - down_s / width_s, 0.0, 1.0), "dies": die_counts[epoch_row, k],
        })  # fmt: skip
    return stack_pieces(INSTANCES, table_pieces, gaps=True)


def servers_table(setup: Setup, machine: Machine) -> dict[str, pl.DataFrame]:
    """Bytes read from each memory server by window, seconds of delay of reads; {} without reads."""
    settings, record = machine.world.settings, machine.world.record
    if not record.servers.any():
        return {}
    window_count, pool_count = record.windows.shape[0] - 1, setup.memory_pools
    width_s = settings.horizon_s / window_count
    table_pieces = []
    for pool_number in range(pool_count):
        nodes = np.array(machine.setup.pool_nodes(pool_number), np.int32)
        read_blocks, delay_s = (
            column[:-1].reshape(window_count, pool_count, -1)[:, pool_number, : nodes.size]
            for column in (record.servers, record.held)
        )
        server_columns = {
            "t_s": np.repeat(np.arange(window_count) * width_s, nodes.size),
            "window_s": np.full(read_blocks.size, width_s), "node": np.tile(nodes, window_count),
            "read_bytes": read_blocks.reshape(-1) * settings.block_bytes,
            "held_s": delay_s.reshape(-1),
        }  # fmt: skip
        table_pieces.append(pl.DataFrame(server_columns))
    if pool_count == 1:
        return {"servers": table_pieces[0]}
    key_columns = ["t_s", "window_s", "node"]
    return {"servers": pl.concat(table_pieces).group_by(key_columns, maintain_order=True).sum()}
