"""Charts of clients: what each tenant asked for and got, and why requests came to nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twin.metrics.measures import amount
from twin.ui import theme
from twin.ui.charts.base import Chart, bars, empty, figure

TOP = 8  # reasons


def tenants(rows: Sequence[Mapping[str, Any]]) -> Chart:
    """A pair of bars a tenant: requests per second asked, and those that met their SLO."""
    fig = figure(height=110 + 44 * len(rows))
    names = [str(row["tenant"]) for row in rows]
    told = []
    for key, name, colour in (
        ("asked_req_per_s", "Asked", theme.OTHER),
        ("goodput_req_per_s", "Met their SLO", theme.ROLE["decode"]),
    ):
        values = [float(row[key]) for row in rows]
        text = [amount(value, "rate", "req/s") for value in values]
        bars(fig, names, values, colour, name=name, text=text, textposition="outside")
        told += [f"{who}: {name.lower()} {said}" for who, said in zip(names, text, strict=True)]
    fig.update_layout(barmode="group", showlegend=True, hovermode="closest")
    most = max((float(row["asked_req_per_s"]) for row in rows), default=0.0)
    fig.update_xaxes(title="req/s", range=[0, 1.35 * most or 1])  # room for the words
    return Chart(fig, "; ".join(told) + ".")


def reasons(counts: Mapping[str, int]) -> Chart:
    """How many requests ended without an answer, by reason."""
    if not counts:
        return empty("Every request that ended was answered")
    some = dict(list(counts.items())[:TOP])
    fig = figure(height=90 + 34 * len(some))
    text = [f"{count:,}" for count in some.values()]
    bars(fig, list(some), list(some.values()), theme.ROLE["prefill"], text=text,
         textposition="outside")  # fmt: skip
    fig.update_layout(hovermode="closest")
    return Chart(fig, "; ".join(f"{why}: {count:,}" for why, count in some.items()) + ".")
