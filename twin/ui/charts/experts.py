"""Charts of expert load: die by layer, layer by layer, over time, node to node, and a waterfall.

Same template and colours as `charts`; loads are drawn on one fixed scale, so that two moments and
two runs can be held against each other. Knows nothing about streamlit, runs or stores.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
import polars as pl

from twin.metrics.measures import amount, seconds
from twin.ui import theme
from twin.ui.charts import timeline
from twin.ui.charts.base import Chart, bars, bytes_unit, empty, figure, heat, line_at, time_axis

LOAD_TOP = 4.0  # end of the load scale, times the mean; hotter dies are drawn in its last colour
MARKS_MOST = 4000  # replicas that are marked one by one
BEFORE, AFTER = theme.SERIES[1], theme.SERIES[0]
LOST, GAINED, WHOLE = theme.SERIES[1], theme.SERIES[0], theme.OTHER
KIND = {"rebalance": theme.SERIES[2], "shift": theme.SERIES[3]}


def die_map(
    layers: np.ndarray, load: np.ndarray, replicas: np.ndarray, *, dark: bool = False
) -> Chart:
    """Load of each die (across) in each layer (down), redundant copies marked by a dot.

    layers i8[n]; load f8[n, dies] of the layer's mean die; replicas i8[n, dies] copies there.
    """
    if not load.size:
        return empty("No expert load was recorded")
    fig = figure(height=120 + 7 * layers.size, margin={"t": 48, "b": 40}, showlegend=False)
    heat(
        fig, np.round(load, 3), dark=dark, y=layers, customdata=replicas, zmax=LOAD_TOP,
        hovertemplate="die %{x}, layer %{y}<br>%{z:.2f} × mean, "
        "%{customdata} redundant<extra></extra>",
        colorbar={
            "orientation": "h", "y": 1.01, "yanchor": "bottom", "x": 0, "xanchor": "left",
            "len": 0.6, "tickvals": [0, 1, 2, 3, 4],
            "ticktext": ["0", "1 × mean", "2 ×", "3 ×", "≥ 4 ×"],
        },
    )  # fmt: skip
    row, die = np.nonzero(replicas)
    if 0 < row.size <= MARKS_MOST:
        fig.add_scatter(
            x=die, y=layers[row], mode="markers", name="holds a redundant copy", hoverinfo="skip",
            marker={"color": theme.SERIES[1], "size": 3, "symbol": "circle"},
        )  # fmt: skip
    fig.update_xaxes(title_text="die of the instance", range=[-0.5, load.shape[1] - 0.5])
    fig.update_yaxes(
        title_text="layer", nticks=8, showgrid=False,
        range=[layers.max() + 0.5, layers.min() - 0.5],
    )  # fmt: skip
    hot = np.unravel_index(int(load.argmax()), load.shape)
    return Chart(
        fig,
        f"Load of {load.shape[1]} dies in {layers.size} layers. The hottest die over the mean is "
        f"{load.max(axis=1).mean():.2f} on average over layers; the highest load is "
        f"{load.max():.2f} times the mean, on die {hot[1]} in layer {layers[hot[0]]}. "
        f"{int(replicas.sum()):,} redundant copies.",
    )


def by_layer(layers: np.ndarray, before: np.ndarray, after: np.ndarray | None) -> Chart:
    """Hottest die over the mean by layer, at one moment or on the two sides of a rebalance."""
    if not layers.size:
        return empty("No expert load was recorded")
    fig = figure(height=320)
    sentences = []
    pairs = [("before", before, BEFORE, "circle"), ("after", after, AFTER, "diamond")]
    if after is None:
        pairs = [("hottest die", before, AFTER, "circle")]
    for name, values, colour, symbol in pairs:
        assert values is not None
        fig.add_scatter(
            x=layers, y=values, mode="lines+markers", name=name, line={"color": colour, "width": 2},
            marker={"symbol": symbol, "size": 6}, hovertemplate="%{y:.2f} × mean",
        )  # fmt: skip
        sentences.append(
            f"{name}: {values.mean():.2f} on average, worst {values.max():.2f} in layer "
            f"{layers[int(values.argmax())]}"
        )
    top = max(float(v.max()) for _, v, *_ in pairs if v is not None)
    line_at(fig, "even", "bottom right", y=1.0)
    fig.update_layout(showlegend=after is not None)
    fig.update_xaxes(title_text="layer")
    fig.update_yaxes(title_text="hottest die, × mean", range=[0, max(2.0, 1.08 * top)])
    return Chart(fig, "Hottest die over the mean by layer. " + "; ".join(sentences) + ".")


def hottest_over_time(hottest: pl.DataFrame, events: pl.DataFrame, horizon_s: float) -> Chart:
    """Hottest die over the mean at each measurement: mean, median and worst layer."""
    if not hottest.height:
        return empty("No measurement was made in this run")
    by_time = (
        hottest.group_by("t_s")
        .agg(
            mean=pl.col("hottest").mean(),
            median=pl.col("hottest").median(),
            worst=pl.col("hottest").max(),
        )
        .sort("t_s")
    )
    factor, unit = time_axis(horizon_s)
    fig = figure(height=300)
    sentences = []
    for column, label, colour in (
        ("worst", "worst layer", theme.SERIES[3]),
        ("mean", "mean of layers", theme.SERIES[0]),
        ("median", "median layer", theme.SERIES[4]),
    ):
        values = by_time[column].to_numpy()
        fig.add_scatter(
            x=by_time["t_s"].to_numpy() * factor, y=values, name=label, mode="lines+markers",
            line={"color": colour, "width": 2}, marker={"size": 5},
            hovertemplate="%{y:.2f} × mean",
        )  # fmt: skip
        sentences.append(f"{label} {values.min():.2f} to {values.max():.2f}")
    line_at(fig, "even", "bottom right", y=1.0)
    top = float(by_time["worst"].max() or 1.0)  # type: ignore[arg-type]
    _mark(fig, events, factor, 1.08 * top)
    fig.update_xaxes(title_text=f"simulated time ({unit})", range=[0, horizon_s * factor])
    fig.update_yaxes(title_text="hottest die, × mean", range=[0, max(2.0, 1.16 * top)])
    return Chart(fig, "Hottest die over the mean over time. " + "; ".join(sentences) + ".")


def tpot(windows: pl.DataFrame, events: pl.DataFrame, slo_s: float, warmup_s: float) -> Chart:
    """Mean TPOT (ms) by window with each rebalance and shift marked, and the SLO as a line."""
    if not windows.height or not windows["tpot_s_mean"].cast(pl.Float64).max():
        return empty("No answer ended in this run")
    chart = timeline(
        windows, {"tpot_s_mean": ("TPOT mean", theme.ROLE["decode"])}, "TPOT, ms", scale=1e3,
        warmup_s=warmup_s,
    )  # fmt: skip
    horizon_s = float(windows["t_s"].max() or 0.0) + float(windows["window_s"][0])  # type: ignore[arg-type]
    top = 1e3 * float(windows["tpot_s_mean"].max() or 0.0)  # type: ignore[arg-type]
    fig = chart.figure
    if 1e3 * slo_s < 2.0 * top:
        top = max(top, 1e3 * slo_s)
        line_at(fig, f"SLO {seconds(slo_s)}", "bottom left", y=1e3 * slo_s)
    count = _mark(fig, events, time_axis(horizon_s)[0], 1.06 * top)
    fig.update_yaxes(range=[0, 1.14 * top])
    fig.update_layout(hovermode="closest", height=320, showlegend=True)
    return Chart(
        fig,
        f"{chart.alt} {count['rebalance']} rebalances and {count['shift']} shifts of popularity "
        "are marked.",
    )


def _mark(fig: go.Figure, events: pl.DataFrame, factor: float, height: float) -> dict[str, int]:
    """Signs at the top for rebalances and shifts, a band while weights move; counts by kind."""
    counts = {}
    for kind, symbol in (("rebalance", "triangle-down"), ("shift", "x")):
        rows = events.filter(pl.col("kind") == kind).sort("t_s")
        counts[kind] = rows.height
        if not rows.height:
            continue
        t = rows["t_s"].to_numpy() * factor
        fig.add_scatter(
            x=t, y=np.full(t.size, height), mode="markers", name=kind,
            marker={"symbol": symbol, "size": 9, "color": KIND[kind]},
            customdata=[d or "" for d in rows["detail"]],
            hovertemplate=f"{kind} at %{{x:.4g}}<br>%{{customdata}}<extra></extra>",
        )  # fmt: skip
        for row in rows.iter_rows(named=True):
            ends = row["end_s"] if row["end_s"] is not None else row["t_s"]
            fig.add_vrect(
                x0=row["t_s"] * factor, x1=ends * factor, fillcolor=KIND[kind], opacity=0.25,
                line={"color": KIND[kind], "width": 1}, layer="below",
            )  # fmt: skip
    return counts


def node_matrix(nodes: np.ndarray, moved: np.ndarray, window: str, *, dark: bool = False) -> Chart:
    """Bytes of expert exchange from node (down) to node (across)."""
    if not moved.size or not moved.max():
        return empty("No expert exchange was recorded")
    scale, unit = bytes_unit(float(moved.max()))
    names = [str(n) for n in nodes]
    fig = figure(height=max(260, min(640, 130 + 28 * nodes.size)), margin={"t": 16, "b": 40})
    heat(
        fig, moved * scale, dark=dark, x=names, y=names, zmax=float(moved.max()) * scale,
        xgap=1, ygap=1, texttemplate="%{z:.3~g}" if nodes.size <= 12 else None,
        hovertemplate=f"node %{{y}} → node %{{x}}<br>%{{z:,.3~g}} {unit}<extra></extra>",
        colorbar={"title": {"text": unit, "side": "top"}},
    )  # fmt: skip
    fig.update_xaxes(title_text="to node", type="category")
    fig.update_yaxes(title_text="from node", type="category", autorange="reversed")
    stays = float(np.trace(moved)) / float(moved.sum())
    busiest = int(moved.sum(axis=0).argmax())
    return Chart(
        fig,
        f"Expert exchange between {nodes.size} nodes {window}: "
        f"{amount(float(moved.sum()), 'bytes')} in all, {amount(stays, 'share')} within a node; "
        f"node {nodes[busiest]} receives most.",
    )


def waterfall(parts: Sequence[tuple[str, float, float, bool]], unit: str) -> Chart:
    """What each cause takes or gives back: (label, value after it, change, is a whole)."""
    if not parts:
        return empty("Nothing has been answered yet")
    fig = figure(height=80 + 44 * len(parts))
    first = parts[0][1]
    names, base, width, colours, text = [], [], [], [], []
    for label, value, change, whole in parts:
        names.append(label)
        base.append(0.0 if whole else min(value, value - change))
        width.append(value if whole else abs(change))
        colours.append(WHOLE if whole else (GAINED if change > 0 else LOST))
        sign = "+" if change > 0 else "−"
        share = f"{100 * abs(change) / first:.0f} %" if first else ""
        text.append(
            f"{value:,.0f}" if whole else f"{sign}{abs(change):,.0f} ({sign}{share}) → {value:,.0f}"
        )
    top = max(b + w for b, w in zip(base, width, strict=True))
    inside = [b + w > 0.62 * top for b, w in zip(base, width, strict=True)]
    bars(
        fig, names, width, colours, base=base, customdata=text,
        hover="%{y}: %{customdata}<extra></extra>",
    )  # fmt: skip
    for name, b, w, caption, left in zip(names, base, width, text, inside, strict=True):
        wide = left and b < 0.3 * top  # a bar from the axis on: its figure stands inside
        fig.add_annotation(
            x=0.01 * top if wide else (b if left else b + w), y=name, text=caption, showarrow=False,
            xanchor="left" if wide or not left else "right", xshift=0 if wide else 5 - 10 * left,
            font={"size": 13, "color": "#FFFFFF" if wide else theme.OTHER},
        )  # fmt: skip
    fig.update_layout(hovermode="closest", showlegend=False, bargap=0.3, margin={"t": 8})
    fig.update_xaxes(title_text=unit, range=[0, 1.02 * top])
    caption = "; ".join(f"{n} {t}" for n, t in zip(names, text, strict=True))
    return Chart(fig, f"{unit}: {caption}.")
