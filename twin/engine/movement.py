"""Tables of what moved and where: traffic by class, its places, links, instances over time."""

from __future__ import annotations

import numpy as np
import polars as pl

from twin.engine import codes as w
from twin.engine.columns import World
from twin.engine.events import Event
from twin.engine.flows import shares_of, storage_shares
from twin.engine.machine import Epoch, Machine
from twin.engine.setup import Setup
from twin.hardware.network import Place, network
from twin.hardware.placement import Instance
from twin.hardware.prices import port_rates

ShareRow = tuple[float, float, str, str, str, int, int, int | None, str, float]
SHARES = {
    "t_s": pl.Float64, "end_s": pl.Float64,
    "plane": pl.String, "traffic": pl.String, "role": pl.String, "instance": pl.Int32,
    "node": pl.Int32, "sub_plane": pl.Int32, "direction": pl.String, "share": pl.Float64,
}  # fmt: skip
SeatRow = tuple[float, float, str, int, int, int]
SEATS = {
    "t_s": pl.Float64, "end_s": pl.Float64, "role": pl.String, "instance": pl.Int32,
    "first_die": pl.Int32, "dies": pl.Int32,
}  # fmt: skip


def columns_of(setup: Setup, prefills: int) -> list[tuple[int, Instance]]:
    """Column of every instance in the record."""
    return [(i.index if i.role == "prefill" else prefills + i.index, i) for i in setup.instances]


def traffic_table(setup: Setup, world: World) -> pl.DataFrame:
    """Bytes by window, plane, class of traffic and instance; what is nothing is left out."""
    book = world.record.traffic[:-1]
    windows = book.shape[0]
    cells = book.reshape(windows, len(w.TRAFFIC), len(w.PLANES), -1)
    width_s = world.settings.horizon_s / windows
    frames = [
        pl.DataFrame(
            schema={"t_s": pl.Float64, "window_s": pl.Float64, "plane": pl.String,
                    "traffic": pl.String, "role": pl.String, "instance": pl.Int32,
                    "bytes": pl.Float64}
        )
    ]  # fmt: skip
    for column, instance in columns_of(setup, world.prefill.running.size):
        for kind, traffic in enumerate(w.TRAFFIC):
            for plane, name in enumerate(w.PLANES):
                moved = cells[:, kind, plane, column]
                at = np.flatnonzero(moved > 0.0)
                if at.size:
                    frames.append(
                        pl.DataFrame(
                            {"t_s": at * width_s, "window_s": np.full(at.size, width_s),
                             "plane": [name] * at.size, "traffic": [traffic] * at.size,
                             "role": [instance.role] * at.size,
                             "instance": np.full(at.size, instance.index, np.int32),
                             "bytes": moved[at]}
                        )
                    )  # fmt: skip
    return pl.concat(frames)


def shares_table(machine: Machine, horizon_s: float) -> pl.DataFrame:
    """Where each class of an instance's bytes leaves and enters, from t_s to end_s.

    One set of rows for every span between two changes of the machine.
    """
    rows: list[ShareRow] = []
    for epoch, end_s in _spans(machine, horizon_s):
        rows += _shares_of(epoch, end_s)
    return pl.DataFrame(rows, schema=SHARES, orient="row")


def seats_table(machine: Machine, horizon_s: float) -> pl.DataFrame:
    """Which dies serve in each instance from t_s to end_s, a row for each unbroken row of dies.

    One set of rows for every span between two changes of the machine: failed dies are in none,
    spares in those after they took a failed one's place.
    """
    rows: list[SeatRow] = []
    for epoch, end_s in _spans(machine, horizon_s):
        for seat in epoch.seats:
            dies = np.array(sorted(seat.dies))
            for part in np.split(dies, np.flatnonzero(np.diff(dies) > 1) + 1):
                if part.size:
                    place = (int(part[0]), part.size)
                    rows.append((epoch.t_s, end_s, seat.role, seat.index, *place))
    return pl.DataFrame(rows, schema=SEATS, orient="row")


def _spans(machine: Machine, horizon_s: float) -> list[tuple[Epoch, float]]:
    """Every span between two changes of the machine, and when it ends."""
    epochs = [e for e in machine.epochs if e.t_s < horizon_s]
    ends = [*(e.t_s for e in epochs[1:]), horizon_s]
    return list(zip(epochs, ends, strict=True))


def _shares_of(epoch: Epoch, end_s: float) -> list[ShareRow]:
    rows: list[ShareRow] = []

    def add(traffic: str, role: str, instance: int, places: list[tuple[Place, float]]) -> None:
        rows.extend(
            (epoch.t_s, end_s, p.plane, traffic, role, instance, p.node, p.sub_plane, p.direction,
             share)
            for p, share in places
        )  # fmt: skip

    for flow in epoch.flows:
        places = shares_of(epoch.fabric, flow.load)
        add(flow.traffic, flow.role, flow.instance, places)
        if flow.traffic == "experts" and flow.role == "prefill":
            add("attention", flow.role, flow.instance, places)
    for seat, places in storage_shares(epoch.fabric, epoch.seats):
        add("ssd_read", seat.role, seat.index, places)
    return rows


def links_table(setup: Setup, world: World, where: pl.DataFrame) -> pl.DataFrame:
    """Traffic of every node by plane and UB sub-plane: bytes, mean and peak utilisation.

    Sums run in a fixed order: the same question has the same bytes.
    """
    node = setup.scenario.supernode
    horizon_s = setup.scenario.horizon_s
    planes = {"ub": node.sub_planes, "rdma": 1, "vpc": 1}
    limit = _limits(setup)
    moved = _placed_bytes(setup, world, where)
    book = world.record.traffic[:-1]
    over_time = book.reshape(book.shape[0], len(w.TRAFFIC), len(w.PLANES), -1).sum(axis=(1, 3))
    frames = []
    for p, (plane, count) in enumerate(planes.items()):
        mean = float(over_time[:, p].mean())
        peak = float(over_time[:, p].max()) / mean if mean > 0.0 else 0.0
        for way in ("out", "in"):
            for k in range(count):
                bytes_ = moved[plane, way][:, k]
                most = limit[plane][:, k]
                used = np.divide(
                    bytes_, most * horizon_s, out=np.zeros_like(bytes_), where=most > 0.0
                )
                sub_plane = [k if plane == "ub" else None] * node.all_nodes
                frames.append(
                    pl.DataFrame(
                        {
                            "plane": [plane] * node.all_nodes,
                            "node": np.arange(node.all_nodes, dtype=np.int32),
                            "sub_plane": pl.Series(sub_plane, dtype=pl.Int32),
                            "direction": [way] * node.all_nodes,
                            "bytes": bytes_,
                            "capacity_bytes_per_s": most,
                            "utilisation_mean": used,
                            "utilisation_peak": used * peak,
                        }
                    )
                )
    return pl.concat(frames)


def _limits(setup: Setup) -> dict[str, np.ndarray]:
    """Bytes/s of a node on each plane as its fabric is built, f8[nodes, sub-planes or 1]."""
    node, net = setup.scenario.supernode, network(setup.fabric)
    ub = np.zeros((node.all_nodes, node.sub_planes))
    leaves = (net.serves & net.bit("ub") > 0) & np.isin(net.tail, net.dies)
    np.add.at(ub, (net.node[net.tail[leaves]], net.sub_plane[leaves]), net.capacity[leaves])
    rdma = port_rates(net, "rdma").reshape(node.all_nodes, -1).sum(axis=1)
    return {"ub": ub, "rdma": rdma[:, None], "vpc": port_rates(net, "vpc")[:, None]}


def _placed_bytes(
    setup: Setup, world: World, where: pl.DataFrame
) -> dict[tuple[str, str], np.ndarray]:
    """Bytes of the whole run by (plane, direction), each f8[nodes, sub-planes or 1]."""
    node = setup.scenario.supernode
    found = {
        (plane, way): np.zeros((node.all_nodes, node.sub_planes if plane == "ub" else 1))
        for plane in w.PLANES
        for way in ("out", "in")
    }
    book = world.record.traffic[:-1]
    cells = book.reshape(book.shape[0], len(w.TRAFFIC), len(w.PLANES), -1)
    column = {(i.role, i.index): c for c, i in columns_of(setup, world.prefill.running.size)}
    middle = (np.arange(book.shape[0]) + 0.5) * setup.scenario.horizon_s / book.shape[0]
    rows: list[ShareRow] = where.rows()
    # What a plane carries of a class is known; its shares there are brought back to a whole.
    whole: dict[tuple[float, str, str, str, int, str], float] = {}
    for t_s, _, plane, traffic, role, instance, _, _, way, share in rows:
        key = (t_s, plane, traffic, role, instance, way)
        whole[key] = whole.get(key, 0.0) + share
    spans = {t_s: (middle >= t_s) & (middle < end_s) for t_s, end_s, *_ in rows}
    per_share = {}
    for key, total in whole.items():
        t_s, plane, traffic, role, instance, _ = key
        cell = cells[:, w.TRAFFIC.index(traffic), w.PLANES.index(plane), column[role, instance]]
        per_share[key] = float(cell[spans[t_s]].sum()) / total
    for t_s, _, plane, traffic, role, instance, n, sub_plane, way, share in rows:
        at = per_share[t_s, plane, traffic, role, instance, way]
        found[plane, way][n, sub_plane or 0] += at * share
    return found


def instances_table(setup: Setup, machine: Machine, log: list[Event]) -> pl.DataFrame:
    """One row per window and instance: queue, batch, iteration time, how hot, how crowded."""
    world = machine.world
    book = world.record.instances[:-1]
    windows = book.shape[0]
    width_s = world.settings.horizon_s / windows
    begin = np.arange(windows) * width_s
    epochs = machine.epochs
    latest = np.searchsorted([e.t_s for e in epochs], begin + width_s) - 1  # at a window's end
    in_service = np.array([[len(seat.dies) for seat in e.seats] for e in epochs], np.int32)
    frames = []
    for k, (column, i) in enumerate(columns_of(setup, world.prefill.running.size)):
        at = book[:, column * w.AT_FIELDS : (column + 1) * w.AT_FIELDS]
        looks = np.maximum(at[:, w.AT_SAMPLES], 1.0)
        seen = at[:, w.AT_SAMPLES] > 0
        down = np.zeros(windows)
        for e in log:
            if e.kind == "instance_down" and (e.role, e.instance) == (i.role, i.index):
                assert e.end_s is not None  # infinite while it lasts
                down += np.clip(
                    np.minimum(e.end_s, begin + width_s) - np.maximum(e.t_s, begin), 0, None
                )
        queue, running = at[:, w.AT_QUEUE] / looks, at[:, w.AT_RUNNING] / looks
        if i.role == "colocated":  # what waits for it waits in its prompt queue
            waits = book[:, i.index * w.AT_FIELDS + w.AT_QUEUE] / looks
            queue = queue + waits
        iterations = at[:, w.AT_ITERATIONS]
        frames.append(
            pl.DataFrame(
                {
                    "t_s": begin,
                    "window_s": np.full(windows, width_s),
                    "role": [i.role] * windows,
                    "instance": np.full(windows, i.index, np.int32),
                    "queue": queue,
                    "running": running,
                    "busy": np.clip(at[:, w.AT_BUSY_S] / width_s, 0.0, 1.0),
                    "iteration_s": np.divide(
                        at[:, w.AT_ITERATION_S], iterations,
                        out=np.full(windows, np.nan), where=iterations > 1e-9,
                    ),
                    "hot_factor": np.where(seen, at[:, w.AT_HOT] / looks, np.nan),
                    "contention": np.where(seen, at[:, w.AT_CROWDED] / looks, 1.0),
                    "up": np.clip(1.0 - down / width_s, 0.0, 1.0),
                    "dies": in_service[latest, k],
                }
            ).with_columns(pl.col("iteration_s", "hot_factor").fill_nan(None))
        )  # fmt: skip
    return pl.concat(frames)
