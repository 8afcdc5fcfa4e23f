"""Playback: a run is sent to the browser once, where time, zoom and selection live
(`playback*.js`); the view's rest comes back for the address.

The message has bytes by window, plane, class and instance, and shares by node and sub-plane, which
the browser multiplies. Numbers are base64 of little-endian f4, NaN: none."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import streamlit as st

from twin.hardware.fabric import build_fabric
from twin.hardware.network import Network
from twin.hardware.placement import Instance
from twin.lab.share.shipped import Shipped
from twin.lab.store import RunRow
from twin.metrics.events import Kind
from twin.scenario import Scenario
from twin.ui import record, session, theme
from twin.ui.fabric_message import (
    component,
    deflate_json,
    edits_message,
    pack_floats,
    plane_colours,
    plane_columns,
    send_geometry,
)
from twin.ui.formulas import place_instances

TABLES = ("windows", "instances", "traffic", "shares", "events", "links")
MEASURED = ("queue", "running", "busy", "iteration_s", "hot_factor", "contention", "up", "dies")
STRIP = (  # column of `windows`, what it is called, unit, factor from SI
    ("ttft_s_mean", "TTFT, mean", "s", 1.0, "prefill"),
    ("tpot_s_mean", "TPOT, mean", "ms", 1e3, "decode"),
    ("waiting", "Requests waiting", "", 1.0, "router"),
    ("output_tokens_per_s", "Output", "tokens/s", 1.0, "decode"),
)
WAY = (  # columns of `windows` along the way of a request: what it is called, unit, factor, colour
    ("input_tokens_per_s", "Prompts", "tokens/s", 1.0, "front_end"),
    ("waiting", "Waiting", "", 1.0, "router"),
    ("prefill_running", "Prefill", "", 1.0, "prefill"),
    ("transfer_running", "KV transfer", "", 1.0, "memory_pool"),
    ("decode_running", "Decode", "", 1.0, "decode"),
    ("output_tokens_per_s", "Answers", "tokens/s", 1.0, "decode"),
)
WAITING, POOL = ("front_end_queue", "router_queue", "prefill_queue"), "pool_used_fraction"
# An open end means: until the run ends.
LASTING = (Kind.FAULT, Kind.INSTANCE_DOWN, Kind.SHRUNK, Kind.REJOINED)
TRAFFIC = {
    "experts": "Exchange among dies",
    "attention": "Attention exchange",
    "kv_hand_off": "KV transfer",
    "pool_read": "Memory pool, reads",
    "pool_write": "Memory pool, writes",
    "weights": "Weights moved",
    "ssd_read": "SSD tier, reads",
    "ssd_write": "SSD tier, writes",
    "offload": "Offloaded attention",
    "swap": "KV swap",
}

Array = np.ndarray[Any, Any]
AT, SEE = "at", "see"  # query parameters: seconds of simulated time, name of what is selected
KINDS = {
    Kind.FAULT: "Something breaks",
    Kind.DETECTED: "Noticed",
    Kind.INSTANCE_DOWN: "Instance out of service",
    Kind.SHRUNK: "Instance goes on smaller",
    Kind.SPARE: "Spares take over",
    Kind.REJOINED: "Repaired die serves again",
    Kind.REBALANCE: "Experts rebalanced",
    Kind.SHIFT: "Popularity shifts",
    Kind.POOL_LOST: "Memory pool loses blocks",
}


def player_message(
    scenario: Scenario, tables: Mapping[str, pl.DataFrame], instances: Sequence[Instance],
    net: Network,
) -> dict[str, Any]:  # fmt: skip
    """Message of a run for the browser's player. tables: TABLES by name, and "seats" if the run has
    it. net: the fabric of the run."""
    windows = tables["windows"]
    window_count = windows.height
    has_pool = scenario.memory_pool.enabled and POOL in windows.columns
    table_names = [name for name in ("seats", "instances", "traffic", "shares") if name in tables]
    numbered_tables = {name: _with_numbers(tables[name], instances) for name in table_names}
    series_keys, moved_bytes = _bytes_by_series(numbered_tables["traffic"], windows)
    return {
        "nodes": net.nodes,
        "planes": net.sub_planes,
        "windows": window_count,
        "window_s": scenario.horizon_s / window_count if window_count else 0.0,
        "horizon_s": scenario.horizon_s,
        "warmup_s": scenario.warmup_s,
        "instances": [[instance.role, instance.name] for instance in instances],
        "seats": _seat_rows(numbered_tables.get("seats"), instances, windows),
        "measured": _figures_by_window(numbered_tables["instances"], windows, len(instances)),
        "series": series_keys,
        "bytes": pack_floats(moved_bytes),
        "shares": _shares(numbered_tables["shares"], windows, series_keys, net.sub_planes),
        "capacity": pack_floats(_capacities(tables["links"], net.nodes, net.sub_planes)),
        "traffic": TRAFFIC,
        "strip": _curves(windows, STRIP),
        "way": _curves(windows, WAY),
        "pool": pack_floats(_floats(windows[POOL])) if has_pool else "",
        "events": event_rows(tables["events"], scenario.horizon_s),
        "changes": deflate_json(edits_message(net)),
        "colours": plane_colours(net) | theme.ROLE,
    }


def _window_of(frame: pl.DataFrame, windows: pl.DataFrame) -> Array:
    """Number of the window that contains the middle of each row's span of time, i8[rows]."""
    starts_s = windows["t_s"].to_numpy()
    middles_s = frame["t_s"].to_numpy() + 0.5 * frame["window_s"].to_numpy()
    return np.clip(np.searchsorted(starts_s, middles_s, "right") - 1, 0, max(len(starts_s) - 1, 0))


def _with_numbers(frame: pl.DataFrame, instances: Sequence[Instance]) -> pl.DataFrame:
    """The table with a new column `number`: index in `instances` of each row's instance, or -1."""
    number_of = {(instance.role, instance.index): k for k, instance in enumerate(instances)}
    roles_and_indices = zip(frame["role"].cast(pl.String), frame["instance"], strict=True)
    numbers = pl.Series(
        [number_of.get(role_and_index, -1) for role_and_index in roles_and_indices], dtype=pl.Int64
    )
    return frame.with_columns(number=numbers)


def _seat_rows(
    seats: pl.DataFrame | None, instances: Sequence[Instance], windows: pl.DataFrame
) -> list[list[int]]:
    """Dies of each instance over time: rows [instance, first die, end die, first window, end
    window], ends exclusive. seats: table of moves; None if instances stay where they are."""
    if seats is None:
        return [[k, first_die, last_die + 1, 0, windows.height]
                for k, instance in enumerate(instances)
                for first_die, last_die in instance.spans()]  # fmt: skip
    starts_s = windows["t_s"].to_numpy()
    seats_of: dict[int, dict[float, list[tuple[int, int]]]] = {}
    for row in seats.iter_rows(named=True):
        seat = (row["first_die"], row["first_die"] + row["dies"])
        seats_of.setdefault(row["number"], {}).setdefault(row["t_s"], []).append(seat)
    seat_rows: list[list[int]] = []
    for instance_number, seats_by_time in seats_of.items():
        window_borders = [int(np.searchsorted(starts_s, t_s - 1e-9)) for t_s in seats_by_time]
        window_borders.append(windows.height)
        windows_and_dies = zip(pairwise(window_borders), seats_by_time.values(), strict=True)
        for (first_window, end_window), die_ranges in windows_and_dies:
            seat_rows += [[instance_number, first_die, end_die, first_window, end_window]
                     for first_die, end_die in die_ranges if first_window < end_window]  # fmt: skip
    return seat_rows


def _figures_by_window(frame: pl.DataFrame, windows: pl.DataFrame, count: int) -> dict[str, str]:
    """Figures of instances (those of MEASURED in `frame`) by name, each as base64 of f4[windows,
    instances]. count: number of instances."""
    window_of, instance_of = _window_of(frame, windows), frame["number"].to_numpy()
    is_placed, packed_figures = instance_of >= 0, {}
    for name in [name for name in MEASURED if name in frame.columns]:
        figures = np.full((windows.height, count), np.nan)
        figures[window_of[is_placed], instance_of[is_placed]] = _floats(frame[name])[is_placed]
        packed_figures[name] = pack_floats(figures)
    return packed_figures


def _floats(column: pl.Series) -> Array:
    """A column as f8, null as NaN."""
    return column.cast(pl.Float64).fill_null(np.nan).to_numpy()


def _bytes_by_series(traffic: pl.DataFrame, windows: pl.DataFrame) -> tuple[list[list[Any]], Array]:
    """Series [plane, class of traffic, instance number] of the table `traffic`, and their bytes
    f8[series, windows]."""
    planes, classes = traffic["plane"].cast(pl.String), traffic["traffic"].cast(pl.String)
    row_keys = list(zip(planes, classes, traffic["number"], strict=True))
    series_index = {key: k for k, key in enumerate(dict.fromkeys(row_keys))}
    moved_bytes = np.zeros((len(series_index), windows.height))
    series_of_row = np.array([series_index[key] for key in row_keys], np.int64)
    series_and_windows = series_of_row, _window_of(traffic, windows)
    np.add.at(moved_bytes, series_and_windows, traffic["bytes"].to_numpy())
    return [list(key) for key in series_index], moved_bytes


def _shares(
    shares: pl.DataFrame, windows: pl.DataFrame, series: Sequence[Sequence[Any]], planes: int
) -> dict[str, str]:
    """Share of each series' bytes on each node and plane, as packed arrays: number of the series,
    node, plane (UB sub-planes, RDMA, VPC), direction (0 out, 1 in), share, first and end window.
    shares, windows: tables of the run; series: (plane, traffic, number) of each; planes: number of
    UB sub-planes."""
    starts_s = windows["t_s"].to_numpy()
    series_index = {tuple(key): k for k, key in enumerate(series)}
    share_rows: list[tuple[float, ...]] = []
    for row in shares.iter_rows(named=True):
        series_number = series_index.get((row["plane"], row["traffic"], row["number"]))
        if series_number is None or row["node"] is None:
            continue
        is_inward = float(row["direction"] == "in")
        column_numbers = plane_columns(row["plane"], row["sub_plane"], planes)
        first_window, end_window = int(np.searchsorted(starts_s, row["t_s"] - 1e-9)), len(starts_s)
        if row["end_s"] is not None:
            end_window = int(np.searchsorted(starts_s, row["end_s"] - 1e-9))
        share = row["share"] / len(column_numbers)
        share_rows += [
            (series_number, row["node"], column, is_inward, share, first_window, end_window)
            for column in column_numbers
        ]
    column_names = ("series", "node", "column", "direction", "share", "from", "until")
    share_table = np.array(share_rows, float).reshape(-1, len(column_names))
    return {name: pack_floats(share_table[:, k]) for k, name in enumerate(column_names)}


def _capacities(links: pl.DataFrame, nodes: int, planes: int) -> Array:
    """Bytes/s in one direction by node and plane (UB sub-planes, RDMA, VPC), f8[nodes, planes + 2];
    NaN where there is no link. planes: number of UB sub-planes."""
    capacities = np.full((nodes, planes + 2), np.nan)
    for row in links.iter_rows(named=True):
        if row["node"] is not None and row["capacity_bytes_per_s"]:
            columns = plane_columns(row["plane"], row["sub_plane"], planes)
            capacities[row["node"], columns] = row["capacity_bytes_per_s"] / len(columns)
    return capacities


def _curves(
    windows: pl.DataFrame, curves: Sequence[tuple[str, str, str, float, str]]
) -> list[dict[str, Any]]:
    """Messages of curves: title, unit, colour, packed values. Left out are curves without values.
    curves: (column of `windows`, title, unit, factor from SI, key of its colour in theme.ROLE)."""
    queues = [name for name in WAITING if name in windows.columns]
    frame = windows.with_columns(waiting=pl.sum_horizontal(*queues) if queues else pl.lit(None))
    return [
        {"title": title, "unit": unit, "colour": theme.ROLE[colour],
         "values": pack_floats(_floats(frame[name]) * factor)}
        for name, title, unit, factor, colour in curves
        if name in frame.columns and frame[name].null_count() < frame.height
    ]  # fmt: skip


def event_rows(events: pl.DataFrame, horizon_s: float) -> list[dict[str, Any]]:
    """Events for the player, by time: begin and end in s, kind, element, instance, text."""
    return [
        {
            "t": row["t_s"],
            "end": horizon_s if row["end_s"] is None and row["kind"] in LASTING else row["end_s"],
            "kind": row["kind"],
            "element": row["element"] or "",
            "instance": f"{row['role']} {row['instance']}" if row["role"] else "",
            "detail": (row["detail"] or "").replace("->", "→"),
        }
        for row in events.sort("t_s").iter_rows(named=True)
    ]


_PARTS = ("playback_frames", "playback_strip", "playback_tools", "playback")
_player = component("playback", Path(__file__).parent, "playback", _PARTS)


def missing_tables(run: str) -> list[str]:
    """Names of tables that playback needs but this run does not have (runs of earlier engines)."""
    stored_tables = session.store().runs.tables(run)
    return [name for name in TABLES if name not in stored_tables]


@st.cache_resource(show_spinner="Reading the run", max_entries=20)
def film_of_run(run: str, _row: RunRow, _scenario: Scenario) -> dict[str, Any]:
    """Message of a stored run for the player; cached, so never changed. Raises StoreError."""
    fabric = record.fabric(_row, _scenario)
    table_names = [*TABLES, *({"seats"} & session.store().runs.tables(run).keys())]
    tables = {name: record.table(run, name) for name in table_names}
    instances, _ = place_instances(_scenario, fabric)
    return player_message(_scenario, tables, instances.instances, fabric)


@st.fragment
def draw_player(row: RunRow, scenario: Scenario) -> None:
    """Draw the player of a run. Whenever the visitor stops moving the view, it is written to the
    address and only this fragment of the page is redrawn."""
    address_view, key = _address_view(), f"playback:{row.id}"
    # It starts with the view of the opened address, not with its own later ones.
    if address_view not in st.session_state.get(key, {}).values():
        st.session_state[key] = {"start": address_view}
    start_view = st.session_state[key]["start"]
    player_data = {"run": row.id, "film": film_of_run(row.id, row, scenario), "start": start_view}
    if view := _draw_film(player_data, record.fabric(row, scenario), "playback"):
        st.query_params[AT] = f"{float(view.get('at', 0.0)):.6g}"
        if view.get("see"):
            st.query_params[SEE] = str(view["see"])
        else:
            st.query_params.pop(SEE, None)
        st.session_state[key]["now"] = _address_view()


def _draw_film(data: dict[str, Any], fabric: Network, key: str) -> dict[str, Any]:
    """Draw the player with its message (`data`) on a machine. Returns the view on which the visitor
    stopped: time `at` in s and selected element `see`; {} before."""
    with st.container(gap=None):
        data |= {"machine": send_geometry(fabric, key)}
        return dict(_player(data=data, key=key, on_view_change=lambda: None).view or {})


@st.cache_resource(show_spinner=False, max_entries=8)
def shipped_film(_scenario: Scenario, _run: Shipped, digest: str) -> dict[str, Any]:
    """Message of a shipped or live run for the player, cached by `digest` and shared, so never
    changed."""
    fabric = build_fabric(_scenario.supernode, session.facts())
    instances, _ = place_instances(_scenario, fabric)
    return player_message(_scenario, _run.tables, instances.instances, fabric)


def draw_without_controls(name: str, film: dict[str, Any], fabric: Network) -> None:
    """Draw a run on its machine without controls. film: its player message; name: id of the run."""
    _draw_film({"run": name, "film": film, "start": {}, "brief": True}, fabric, "playback-brief")


def _address_view() -> dict[str, Any]:
    """View that the address names: `at`, simulated time in s, and `see`, the selected element."""
    query = st.query_params
    try:
        at_s = max(0.0, float(query.get(AT, "0")))
    except ValueError:
        at_s = 0.0
    return {"at": at_s if at_s < float("inf") else 0.0, "see": query.get(SEE, "")[:60]}
