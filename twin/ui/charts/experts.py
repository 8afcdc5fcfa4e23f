"""Charts of expert load, all on one fixed scale, so that moments and runs can be compared."""

import numpy as np
import plotly.graph_objects as go
import polars as pl

from twin.metrics.events import Kind
from twin.metrics.measures import numbered, seconds
from twin.ui import theme
from twin.ui.charts import base, timeline

HOVER = "%{y:.2f} × mean"
LOAD_TOP = 4.0  # end of the load scale, times the mean; hotter dies are drawn in its last colour
MARKS_MOST = 4000  # replicas that are marked one by one
KIND: dict[str, tuple[str, str]] = {
    Kind.REBALANCE: ("triangle-down", theme.SERIES[2]),
    Kind.SHIFT: ("x", theme.SERIES[3]),
}


def die_map(
    layers: np.ndarray, load: np.ndarray, replicas: np.ndarray, *, dark: bool = False
) -> base.Chart:
    """Map of the load of each die in each layer. layers i8[layers]: their numbers. load f8[layers,
    dies]: divided by the layer's mean. replicas i8[layers, dies]: redundant experts, drawn as
    dots."""
    if not load.size:
        return base.empty_chart("No expert load was recorded")
    fig = base.figure(height=120 + 7 * layers.size)
    base.add_heat_map(
        fig, np.round(load, 3), dark=dark, y=layers, customdata=replicas, zmax=LOAD_TOP,
        hovertemplate="die %{x}, layer %{y}<br>%{z:.2f} × mean, "
        "%{customdata} redundant<extra></extra>",
        colorbar={
            "orientation": "h", "y": 1.01, "yanchor": "bottom", "x": 0, "xanchor": "left",
            "len": 0.6, "tickvals": [0, 1, 2, 3, 4],
            "ticktext": ["0", "1 × mean", "2 ×", "3 ×", "≥ 4 ×"],
        },
    )  # fmt: skip
    layer_indices, die_indices = np.nonzero(replicas)
    if 0 < die_indices.size <= MARKS_MOST:
        fig.add_scatter(
            x=die_indices, y=layers[layer_indices], mode="markers", name="holds a redundant copy",
            marker={"color": theme.SERIES[1], "size": 3, "symbol": "circle"}, hoverinfo="skip",
        )  # fmt: skip
    hottest_layer, hottest_die = np.unravel_index(int(load.argmax()), load.shape)
    return base.chart(
        fig, f"Load of {numbered(load.shape[1], 'die')} in {layers.size} layers. The hottest die "
        f"over the mean is {load.max(axis=1).mean():.2f} on average over layers; the highest load "
        f"is {load.max():.2f} times the mean, on die {hottest_die} in layer "
        f"{layers[hottest_layer]}. "
        f"{int(replicas.sum()):,} redundant copies.",
        "A die that holds popular experts is hotter than its layer's mean, and every die waits "
        "for the hottest; EPLB adds copies of experts (dots) to even them out.",
        x={"title_text": "die of the instance", "range": [-0.5, load.shape[1] - 0.5]},
        y={"title_text": "layer", "nticks": 8, "showgrid": False,
           "range": [layers.max() + 0.5, layers.min() - 0.5]},
        columns={"z": "load, × mean"}, margin={"t": 48, "b": 40}, showlegend=False,
    )  # fmt: skip


def hottest_over_time(hottest: pl.DataFrame, events: pl.DataFrame, horizon_s: float) -> base.Chart:
    """Chart over time of the hottest die's load divided by the mean die's: worst, mean and median
    layer. hottest: table with this ratio (`hottest`) by time and layer."""
    if not hottest.height:
        return base.empty_chart("No measurement was made in this run")
    units_per_s, unit = base.time_axis(horizon_s)
    fig, sentences, top_ratio = base.figure(), [], 0.0
    ratio_column = pl.col("hottest")
    ratios_by_time = hottest.group_by("t_s").agg(
        ratio_column.max().alias("worst layer"), ratio_column.mean().alias("mean of layers"),
        ratio_column.median().alias("median layer"),
    ).sort("t_s")  # fmt: skip
    colours = (theme.SERIES[index] for index in (3, 0, 4))
    for label, colour in zip(ratios_by_time.columns[1:], colours, strict=True):
        load_ratios = ratios_by_time[label].to_numpy()
        base.add_line(fig, ratios_by_time["t_s"].to_numpy() * units_per_s, load_ratios, colour,
             HOVER, name=label, mode="lines+markers", marker={"size": 5})  # fmt: skip
        sentences.append(f"{label} {load_ratios.min():.2f} to {load_ratios.max():.2f}")
        top_ratio = max(top_ratio, float(load_ratios.max()))
    base.mark_at(fig, "even", "bottom right", y=1.0)
    _mark_events(fig, events, units_per_s, 1.08 * top_ratio)
    return base.chart(
        fig, "Hottest die over the mean over time. " + "; ".join(sentences) + ".",
        "Popularity drifts and ranks become uneven; EPLB moves and copies experts to even them "
        "out.",
        x={"title_text": f"simulated time ({unit})", "range": [0, horizon_s * units_per_s]},
        y={"title_text": "hottest die, × mean", "range": [0, max(2.0, 1.16 * top_ratio)]},
    )  # fmt: skip


def tpot(windows: pl.DataFrame, events: pl.DataFrame, slo_s: float, warmup_s: float) -> base.Chart:
    """Chart of mean TPOT (ms) by window, rebalances and shifts marked, the SLO as a line."""
    if not windows.height or not windows["tpot_s_mean"].cast(pl.Float64).max():
        return base.empty_chart("No answer ended in this run")
    curve = {"tpot_s_mean": ("TPOT mean", theme.ROLE["decode"])}
    caption = "A rebalance costs the time to move weights, and gives back even dies."
    time_chart = timeline(windows, curve, "TPOT, ms", scale=1e3, warmup_s=warmup_s, reads=caption)
    horizon_s = float(windows["t_s"].max() or 0.0) + float(windows["window_s"][0])  # type: ignore[arg-type]
    top_ms = 1e3 * float(windows["tpot_s_mean"].max() or 0.0)  # type: ignore[arg-type]
    fig = time_chart.figure
    if 1e3 * slo_s < 2.0 * top_ms:
        top_ms = max(top_ms, 1e3 * slo_s)
        base.mark_at(fig, f"SLO {seconds(slo_s)}", "bottom left", y=1e3 * slo_s)
    event_counts = _mark_events(fig, events, base.time_axis(horizon_s)[0], 1.06 * top_ms)
    return base.chart(
        fig, f"{time_chart.alt} Marked: {numbered(event_counts['rebalance'], 'rebalance')} and "
        f"{numbered(event_counts['shift'], 'shift')} of popularity.", caption,
        y={"range": [0, 1.14 * top_ms]}, hovermode="closest", height=320, showlegend=True,
    )  # fmt: skip


def _mark_events(
    fig: go.Figure, events: pl.DataFrame, per_s: float, height: float
) -> dict[str, int]:
    """Mark rebalances and shifts of popularity at y = `height`, and shade the time of each. Returns
    the number of events by kind. per_s: units of the x axis per second."""
    event_counts = {}
    for kind, (symbol, colour) in KIND.items():
        marked = events.filter(pl.col("kind") == kind).sort("t_s")
        event_counts[kind] = marked.height
        if not marked.height:
            continue
        fig.add_scatter(
            x=marked["t_s"].to_numpy() * per_s, y=np.full(marked.height, height), mode="markers",
            name=kind, marker={"symbol": symbol, "size": 9, "color": colour},
            customdata=[detail or "" for detail in marked["detail"]],
            hovertemplate=f"{kind} at %{{x:.4g}}<br>%{{customdata}}<extra></extra>",
        )  # fmt: skip
        for t_s, end_s in marked.select("t_s", pl.col("end_s").fill_null(pl.col("t_s"))).rows():
            outline = {"color": colour, "width": 1}
            base.shade(fig, t_s * per_s, end_s * per_s, colour, 0.25, line=outline)
    return event_counts
