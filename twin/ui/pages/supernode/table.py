"""Elements and links as one table to edit; a row is worth what leaves it, GB/s, one direction."""

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any
from zlib import crc32

import numpy as np
import polars as pl
import streamlit as st

from twin.hardware.kinds import spelling
from twin.hardware.network import Network
from twin.metrics.measures import numbered
from twin.ui import session
from twin.ui.fabric_message import built, layout
from twin.ui.pages.supernode import editor

LINKS, SELECTED = "link", "selected in the picture"
MOST_ROWS = 2000  # also the most edits that a scenario may hold
NAME, TO, BUILT, NOW, DELAY = "Element", "Linked to", "Built, GB/s", "Now, GB/s", "Latency ×"
Row = dict[str, Any]  # of the table, by the names above
SHARE, RATE, WAIT = "% of built", "GB/s", "× latency"


@lru_cache(maxsize=8)
def names_by_kind(fabric: Network) -> dict[str, list[str]]:
    """Names of the elements of a fabric as built, by kind; those that contain others come first."""
    picture, names_of_kind = layout(fabric), defaultdict(list)
    for name in [*(name for name, _ in picture.elements), *picture.net.vertices]:
        names_of_kind[name.rstrip("0123456789.:").strip() or name].append(name)
    return dict(names_of_kind)


@lru_cache(maxsize=16)
def rows_of(net: Network, kind: str) -> pl.DataFrame:
    """Rows of all elements of a kind: name, and outgoing GB/s as built and now. For LINKS, rows of
    all links: both ends, GB/s as built and now, latency divided by the latency as built."""
    picture = layout(built(net))
    if kind == LINKS:
        link_of_pair, _ = picture.net.pairs
        with np.errstate(invalid="ignore", divide="ignore"):
            latency_factor = net.latency[link_of_pair] / picture.net.latency[link_of_pair]
        end_names = np.array(net.vertices, object)[picture.ends]
        end_columns = {NAME: end_names[:, 0].tolist(), TO: end_names[:, 1].tolist()}
        rates = {BUILT: picture.rates / 1e9, NOW: picture.lower_direction(net.capacity) / 1e9}
        return pl.DataFrame(end_columns | rates | {DELAY: np.nan_to_num(latency_factor, nan=1.0)})
    names = names_by_kind(built(net))[kind]
    element_of = np.full(len(net.vertices), -1)
    for k, name in enumerate(names):
        element_of[net.members(name)] = k
    is_outgoing = (element_of[net.tail] >= 0) & (element_of[net.tail] != element_of[net.head])

    def gb_out(rates: np.ndarray) -> np.ndarray:
        """GB/s that leave each element, f8[elements]; rates: bytes/s of each link."""
        return np.bincount(element_of[net.tail[is_outgoing]], rates[is_outgoing], len(names)) / 1e9

    rates = {BUILT: picture.net.capacity, NOW: net.capacity}
    return pl.DataFrame({NAME: names} | {column: gb_out(rate) for column, rate in rates.items()})


def selection_rows(fabric: Network, names: Sequence[str]) -> pl.DataFrame:
    """Rows of the elements selected in the picture; for a single element, also its links."""
    kind_items = names_by_kind(built(fabric)).items()
    selected_kinds = [kind for kind, members in kind_items if not set(members).isdisjoint(names)]
    frame = pl.concat([rows_of(fabric, kind) for kind in selected_kinds])
    frame = frame.filter(pl.col(NAME).is_in(names))
    if len(names) == 1:
        is_linked = (pl.col(NAME) == names[0]) | (pl.col(TO) == names[0])
        frame = pl.concat([frame, rows_of(fabric, LINKS).filter(is_linked)], how="diagonal")
    return frame


def matching_rows(frame: pl.DataFrame, typed_text: str) -> pl.DataFrame:
    """Rows with a typed name or part of one: "L1 20.3, node 7", "20.*"; all if none is typed."""
    typed_names = [spelling(name) for name in re.split(r"[,;]", typed_text) if spelling(name)]
    if not typed_names:
        return frame
    patterns = (re.escape(name).replace(r"\*", r"[\d ]+") for name in typed_names)
    pattern = "|".join(rf"(?:^|\s){alternative}(?:\s|$)" for alternative in patterns)
    matches = [pl.col(c).str.to_lowercase().str.replace_all(r"[.:\-]", " ").str.contains(pattern)
            for c in (NAME, TO) if c in frame.columns]  # fmt: skip
    return frame.filter(pl.any_horizontal(matches))


def draw_parts_table(fabric: Network, selection: Sequence[str]) -> None:
    """Draw the table of a kind of elements, or of those in `selection`, and tools to edit them."""
    by_kind = names_by_kind(built(fabric))
    selected_names = [name for name in selection if any(name in k for k in by_kind.values())]
    options = [*([SELECTED] if selected_names else []), *by_kind, LINKS]
    left_column, right_column = st.columns([1, 2])
    kind = left_column.selectbox("Show", options, key=f"parts-kind:{bool(selected_names)}")
    typed_text = right_column.text_input(
        "Find", key="parts-find", placeholder="20.3, L2 3.*, node 7",
        help="Names or parts of names, several with commas; * stands for any number.",
    )  # fmt: skip
    frame = selection_rows(fabric, selected_names) if kind == SELECTED else rows_of(fabric, kind)
    frame = matching_rows(frame, typed_text)
    top_rows = frame.head(MOST_ROWS)
    tools = st.container(horizontal=True, vertical_alignment="bottom", gap="small")
    # The table's name says which rows it has, not their values: so it keeps its place and what is
    # picked when an edit changes these.
    table_key = crc32(repr((top_rows[NAME].to_list(), kind)).encode())
    number_column = st.column_config.NumberColumn(format="%,.5g")
    event = st.dataframe(
        top_rows, key=f"parts:{table_key}", on_select="rerun", selection_mode="multi-row",
        hide_index=True, placeholder="–", height=min(36 * top_rows.height + 40, 430),
        column_config=dict.fromkeys((BUILT, NOW, DELAY), number_column),
    )  # fmt: skip
    picked_rows = [top_rows.row(k, named=True) for k in event.selection.rows if k < top_rows.height]
    with tools:
        draw_button = partial(st.button, disabled=not picked_rows)
        draw_button("Take out", "parts-off", on_click=set_parts, args=(picked_rows, 0.0))
        draw_button("Restore", "parts-restore", on_click=restore_parts, args=(picked_rows,))
        new_amount = st.number_input("Set to", 0.0, 1e6, 50.0, key="parts-amount", width=130)
        unit = st.selectbox("Unit", [SHARE, RATE, WAIT], key="parts-unit", width=140)
        label = f"Set {numbered(len(picked_rows), 'row')}" if picked_rows else "Set"
        draw_button(label, "parts-set", on_click=set_parts, args=(picked_rows, new_amount, unit))
    count_text = numbered(top_rows.height, "row")
    of_all = f", of {frame.height:,}: search to narrow" if frame.height > MOST_ROWS else ""
    st.caption(
        f"{count_text}{of_all}. What leaves an element over all its links, or what a link carries, "
        "one direction."
    )


def set_parts(picked_rows: Sequence[Row], amount: float, unit: str = SHARE) -> None:
    """Edit the picked rows so that each has this amount: % of its capacity as built (SHARE), GB/s
    (RATE), or multiple of its latency (WAIT)."""
    edit_by_ends = {(edit.element, edit.to): edit for edit in session.draft().supernode.edits}
    elements_by_factor: dict[float, list[editor.Element]] = defaultdict(list)
    for row in picked_rows:
        element = _element_of(row)
        edit = edit_by_ends.get((element, "") if isinstance(element, str) else element)
        factor = amount / 100
        if unit == RATE:
            old_factor = edit.capacity_factor if edit else 1.0
            factor = amount / row[NOW] * old_factor if row[NOW] else amount / row[BUILT]
        elif unit == WAIT:
            factor = amount / (row.get(DELAY) or 1.0) * (edit.latency_factor if edit else 1.0)
        elements_by_factor[round(factor, 9)].append(element)
    field = "latency" if unit == WAIT else "capacity"
    editor.set_factors([(names, {field: factor}) for factor, names in elements_by_factor.items()])


def restore_parts(picked_rows: Sequence[Row]) -> None:
    """Remove the edits of the picked rows."""
    editor.restore_elements([_element_of(row) for row in picked_rows])


def _element_of(row: Row) -> editor.Element:
    """Element of a row; of a link, the names of its two ends."""
    return (str(row[NAME]), str(row[TO])) if row.get(TO) else str(row[NAME])
