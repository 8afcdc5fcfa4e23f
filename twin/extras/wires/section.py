"""The same chips and deployment on other wires, a tab of the Supernode page."""

from typing import Any

import streamlit as st

from twin.hardware.chip import HardwareError
from twin.hardware.placement import place_instances
from twin.hardware.prices import all_to_all
from twin.hardware.recipes import as_sold
from twin.model.predict import Prediction
from twin.scenario import Scenario, SpecError, with_overrides
from twin.ui import formulas, session
from twin.ui.fields import choice_label, sentence
from twin.ui.pages.supernode.editor import fabric_of
from twin.ui.show import plain

# Wirings that hold as many NPUs of any chip as the paper's; each as it is sold, but for its chip.
WIRINGS = ("cloudmatrix384", "cloudmatrix-unified", "full-mesh", "dragonfly", "torus-3d", "ub-mesh")
TPOT, RATE = "TPOT, slots full", "All-to-all, decode die"


def other_wires(draft: Scenario) -> None:
    """Draw the steady state on each wiring, with the rate of the experts' exchange there."""
    st.caption(
        "The draft's chips, deployment and traffic, every slot taken, on machines that are wired "
        "otherwise; by formula, without edits and faults."
    )
    rows: list[dict[str, Any]] = []
    table = st.empty()
    for machine in WIRINGS:
        title = choice_label("supernode.machine", machine, session.facts())
        try:
            rewired = on(draft, machine)
            prediction = formulas.capacity(rewired)
            if isinstance(prediction, str):
                raise SpecError(prediction)
            rows.append({"Wiring": title, **_row(rewired, prediction)})
        except (HardwareError, SpecError) as error:
            st.caption(f":material/info: {plain(title)}: {sentence(str(error))}")
    if rows:
        table.dataframe(rows, hide_index=True, column_config=_columns(rows))


def _columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Bars of compared figures, each relative to the largest; every unit is in the cell."""

    def bar(name: str, format: str) -> Any:
        most = max((row[name] or 0.0 for row in rows), default=0.0)
        return st.column_config.ProgressColumn(
            name, format=format, min_value=0.0, max_value=most or 1.0, width="medium"
        )

    return {
        TPOT: bar(TPOT, "%.1f ms"),
        "Sustained": st.column_config.NumberColumn("Sustained", format="%.0f req/s"),
        RATE: bar(RATE, "%.0f GB/s"),
        "Full first": st.column_config.TextColumn("Full first", width="large"),
    }


def on(draft: Scenario, machine: str) -> Scenario:
    """The draft on another wiring of the same chips, undamaged and with packed instances."""
    changes = {"supernode.chip": draft.supernode.chip, "supernode.edits": [], "faults": [],
           "deployment.placement": "packed"}  # fmt: skip
    return with_overrides(draft, as_sold(machine, session.facts()) | changes)


def _row(rewired: Scenario, prediction: Prediction) -> dict[str, Any]:
    """Figures of a deployment on one wiring: ms, req/s, GB/s, and the links that limit it."""
    fabric = fabric_of(rewired.supernode)
    exchanging = [i for i in place_instances(rewired, fabric) if i.role != "prefill" and i.dies > 1]
    price = all_to_all(fabric, exchanging[0].die_of_rank) if exchanging else None
    return {
        TPOT: 1e3 * prediction.decode.tpot_s if prediction.decode else None,
        "Sustained": float(prediction.requests_per_s),
        RATE: 1e-9 * price.bytes_per_s if price else None,
        "Full first": price.bottleneck if price else "",
    }
