"""What two controllers need beside their fields: the rows of a schedule, a file of the operator."""

import streamlit as st

from twin.lab.controllers import VARIABLE, controllers
from twin.scenario import read
from twin.ui import session
from twin.ui.forms.tables import rows_table

GROUP = "Elasticity"
CHOICE = "own-controller"  # session state: the file that was chosen


def form() -> None:
    """The table of a schedule, or the choice of the operator's own controllers."""
    controller = session.value("elastic.controller")
    if controller == "schedule":
        st.caption("How many instances of each pool are wanted, and from when on.")
        rows_table("elastic.schedule")
    elif controller == "own" and (known := controllers()):
        digests = list(known.values())
        own = read(session.draft(), "elastic.own.digest")
        st.selectbox(
            "Own controller", list(known), index=digests.index(own) if own in digests else None,
            key=CHOICE, placeholder="A file of the operator's folder", on_change=_take,
        )  # fmt: skip
    elif controller == "own":
        st.caption(f"The operator of this server has named no folder of controllers ({VARIABLE}).")


def _take() -> None:
    """Name the chosen file in the draft."""
    name = st.session_state[CHOICE]
    session.propose({"elastic.own.name": name, "elastic.own.digest": controllers()[name]})
