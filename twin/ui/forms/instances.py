"""Where instances are, and how many at which time: seats, schedules, controllers."""

import streamlit as st

from twin.hardware.chip import HardwareError
from twin.hardware.fabric import build_fabric
from twin.lab.controllers import VARIABLE, controllers
from twin.lab.schedulers import default_fields, with_scheduler
from twin.scenario import Scenario, npus_used, pools, read
from twin.scenario import seated as seated_pools
from twin.ui import forms, session, words
from twin.ui.fields import change_line, choice_label, options, sentence, text_of
from twin.ui.forms.tables import draw_rows
from twin.ui.formulas import place_instances

CHOICE = "own-controller"  # session state: the file that was chosen


def draw_seats() -> None:
    """Draw which instances moved off elements, or why one cannot sit, and the table of seats."""
    draft = session.draft()
    try:
        placement, reason = place_instances(draft, build_fabric(draft.supernode, session.facts()))
    except HardwareError as error:
        reason, placement = sentence(str(error)), None
    if reason:
        forms.draw_problem(reason)
    for move in placement.moved if placement else ():
        st.caption(f":material/event_seat: {sentence(move)}")
    if draft.deployment.placement == "by_hand":
        st.caption("One row an instance, or several; those without a row are packed around them.")
        draw_rows("deployment.seats", {"role": [role for role, _, _ in seated_pools(draft)]})


def draw_scheduler_button() -> None:
    """Draw a button that sets what the draft's stack schedules by default, where that differs."""
    draft = session.draft()
    changes = default_fields(draft, session.facts())
    if not changes:
        return
    stack_title = choice_label("deployment.stack", draft.deployment.stack)
    lines = (change_line(p, text_of(read(draft, p), p), text_of(v, p)) for p, v in changes.items())
    st.button(
        f"Schedule as {stack_title.partition(',')[0]} does by default", icon=":material/schedule:",
        help="  \n".join(lines), key="as-stack",
        on_click=session.toast_refusals()(
            lambda: session.set_draft(with_scheduler(session.draft(), session.facts()))
        ),
    )  # fmt: skip


def draw_models() -> None:
    """Draw the table of further models."""
    st.caption(
        "Further models on the same machine, each with its own instances and requests. A file sets "
        "every other field of theirs."
    )
    draw_rows("models", {"deployment.model": options("deployment.model", session.facts()) or []})


def draw_scaling() -> None:
    """Draw the table of a schedule, or the choice of the operator's own controllers."""
    controller = session.value("elastic.controller")
    if controller == "schedule":
        st.caption("How many instances of each pool are wanted, and from when on.")
        draw_rows("elastic.schedule")
        for warning in schedule_warnings(session.draft()):
            st.warning(warning, icon=":material/event_busy:")
    elif controller == "own" and (digest_by_name := controllers()):
        digests = list(digest_by_name.values())
        used_digest = read(session.draft(), "elastic.own.digest")
        st.selectbox(
            "Own controller", list(digest_by_name),
            index=digests.index(used_digest) if used_digest in digests else None,
            key=CHOICE, placeholder="A file of the operator's folder", on_change=_set_controller,
        )  # fmt: skip
    elif controller == "own":
        st.caption(f"The operator of this server has named no folder of controllers ({VARIABLE}).")


def schedule_warnings(draft: Scenario) -> list[str]:
    """Sentences on rows of a schedule that want too many NPUs, or begin after the end."""
    rows, sentences = draft.elastic.schedule, []
    most_npus = max(draft.elastic.npus, npus_used(draft))
    wanted_npus = [
        (sum(row.wanted_instances(role) * npus for role, _, npus in pools(draft)), -k, row.at_s)
        for k, row in enumerate(rows) if row.at_s < draft.horizon_s
    ]  # fmt: skip
    npus, _, at_s = max(wanted_npus, default=(0, 0, 0.0))
    if npus > most_npus:
        sentences.append(
            f"From {words.duration(at_s)} on {npus:,} NPUs are wanted, and instances may take "
            f"{most_npus:,}: those beyond do not start."
        )
    if late_times := [words.duration(row.at_s) for row in rows if row.at_s >= draft.horizon_s]:
        end_text, times = words.duration(draft.horizon_s), ", ".join(late_times)
        sentences.append(f"After the end of the run at {end_text}, so never seen: rows at {times}.")
    return sentences


def _set_controller() -> None:
    """Set the chosen controller in the draft, by its name and digest."""
    name = st.session_state[CHOICE]
    session.propose({"elastic.own.name": name, "elastic.own.digest": controllers()[name]})
