"""The same chips and deployment on other wires: what each fabric makes of one decode iteration."""

from __future__ import annotations

from typing import Any

import streamlit as st

from twin.hardware.chip import HardwareError
from twin.hardware.placement import place_instances
from twin.hardware.prices import all_to_all
from twin.hardware.recipes import as_sold
from twin.metrics.measures import amount, seconds
from twin.model.predict import Prediction
from twin.scenario import Scenario, SpecError, with_overrides
from twin.ui import charts, formulas, session, theme
from twin.ui.fields import choice_label, sentence
from twin.ui.pages.supernode.editor import fabric_of
from twin.ui.show import plain, plot

# Wirings that hold as many NPUs of any chip as the paper's; each as it is sold, but for its chip.
WIRINGS = ("cloudmatrix384", "cloudmatrix-unified", "full-mesh", "dragonfly", "torus-3d")


def other_wires(draft: Scenario) -> None:
    """One iteration by operator on each wiring, and what the exchange of experts gets there."""
    st.caption(
        "The draft's chips, deployment and traffic, every slot taken, on machines that are wired "
        "otherwise; by formula, without edits and faults. What differs is dispatch and combine."
    )
    iterations: dict[str, tuple[str, dict[str, float]]] = {}
    rows: list[dict[str, Any]] = []
    refused = []
    for i, machine in enumerate(WIRINGS):
        title = choice_label("supernode.machine", machine, session.facts())
        try:
            asked = on(draft, machine)
            found = formulas.capacity(asked)
            if isinstance(found, str):
                raise SpecError(found)
            rows.append({"Wiring": plain(title), **_row(asked, found)})
        except (HardwareError, SpecError) as error:
            refused.append(f"{plain(title)}: {sentence(str(error))}")
            continue
        if found.decode is not None:
            iterations[title] = (theme.SERIES[i], dict(found.decode.operators))
    if rows:
        plot(charts.operators_beside(iterations), "wires")
        st.table(rows, border="horizontal", hide_index=True)
    for why in refused:
        st.caption(f":material/info: {why}")


def on(draft: Scenario, machine: str) -> Scenario:
    """The draft on another wiring of the same chips, whole and with its instances packed."""
    fields = as_sold(machine, session.facts()) | {
        "supernode.chip": draft.supernode.chip,
        "supernode.edits": [],
        "faults": [],
        "deployment.placement": "packed",
    }
    return with_overrides(draft, fields)


def _row(asked: Scenario, found: Prediction) -> dict[str, str]:
    """What one wiring gives the deployment, in words."""
    fabric = fabric_of(asked.supernode)
    exchanging = [i for i in place_instances(asked, fabric) if i.role != "prefill" and i.dies > 1]
    rate, full = "", ""
    if exchanging:
        price = all_to_all(fabric, exchanging[0].die_of_rank)
        rate, full = amount(price.bytes_per_s, "bytes", "B/s"), plain(price.bottleneck)
    tpot = seconds(found.decode.tpot_s) if found.decode else ""
    return {
        "TPOT, slots full": tpot,
        "Sustained": amount(found.requests_per_s, "rate", "req/s"),
        "All-to-all, decode die": rate,
        "Full first": full,
    }
