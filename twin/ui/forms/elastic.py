"""Extra forms of two controllers: the rows of a schedule, a file of the operator."""

import streamlit as st

from twin.lab.controllers import VARIABLE, controllers
from twin.scenario import Scenario, npus_used, pools, read
from twin.ui import session, words
from twin.ui.forms.tables import rows_table

CHOICE = "own-controller"  # session state: the file that was chosen


def form() -> None:
    """The table of a schedule, or the choice of the operator's own controllers."""
    controller = session.value("elastic.controller")
    if controller == "schedule":
        st.caption("How many instances of each pool are wanted, and from when on.")
        rows_table("elastic.schedule")
        for sentence in out_of_reach(session.draft()):
            st.warning(sentence, icon=":material/event_busy:")
    elif controller == "own" and (known := controllers()):
        digests = list(known.values())
        own = read(session.draft(), "elastic.own.digest")
        st.selectbox(
            "Own controller", list(known), index=digests.index(own) if own in digests else None,
            key=CHOICE, placeholder="A file of the operator's folder", on_change=_take,
        )  # fmt: skip
    elif controller == "own":
        st.caption(f"The operator of this server has named no folder of controllers ({VARIABLE}).")


def out_of_reach(draft: Scenario) -> list[str]:
    """What a schedule asks for and no run can give: NPUs beyond its bound, rows after its end."""
    rows = draft.elastic.schedule
    most = max(draft.elastic.npus, npus_used(draft))
    sentences = []
    wanted = [
        (sum(row.wanted(role) * npus for role, _, npus in pools(draft)), row)
        for row in rows
        if row.at_s < draft.horizon_s
    ]
    if wanted and (worst := max(wanted, key=lambda each: each[0]))[0] > most:
        sentences.append(
            f"From {words.duration(worst[1].at_s)} on {worst[0]:,} NPUs are wanted, and instances "
            f"may take {most:,}: those beyond do not start."
        )
    if late := [words.duration(row.at_s) for row in rows if row.at_s >= draft.horizon_s]:
        end = words.duration(draft.horizon_s)
        rows_late = ", ".join(late)
        sentences.append(f"After the end of the run at {end}, so never seen: rows at {rows_late}.")
    return sentences


def _take() -> None:
    """Name the chosen file in the draft."""
    name = st.session_state[CHOICE]
    session.propose({"elastic.own.name": name, "elastic.own.digest": controllers()[name]})
