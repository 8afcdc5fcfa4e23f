"""What stands around the picture of the fabric: prices, what came of a change, differences."""

from functools import lru_cache, partial
from itertools import groupby

import streamlit as st

from twin.hardware.chip import HardwareError
from twin.hardware.fabric import Fabric
from twin.hardware.validation import problems
from twin.scenario import Edit, Scenario, Supernode
from twin.ui import session
from twin.ui.fields import sentence, show, told_change
from twin.ui.pages.supernode import editor
from twin.ui.pages.supernode.edits import effect
from twin.ui.pages.supernode.prices import Headline, headlines

SHOWN = 30  # differences listed one by one


def prices(draft: Scenario, fabric: Fabric) -> None:
    """What the deployment gets from this fabric, and what it got from the preset's."""
    base = session.preset().supernode
    try:
        before = headlines(draft.model_copy(update={"supernode": base}), editor.fabric_of(base))
    except HardwareError:
        before = []
    was = {price.label: price.bytes_per_s for price in before}
    with st.grid(3, min_column_width=150, gap="small"):
        for price in headlines(draft, fabric):
            _price(price, was.get(price.label))


def _price(price: Headline, before: float | None) -> None:
    # Always a line below the figure: the picture must not move when the first edit is priced.
    delta, moved, text, says = "now", False, "cut off", sentence(price.where)
    if price.bytes_per_s is None:
        delta = f"was {_rate(before)}" if before else delta
    else:
        change = price.bytes_per_s / before - 1 if before else 0.0
        if moved := abs(change) >= 5e-5:
            delta = f"{100 * change:+.3g} % of {_rate(before or 0.0)}"
        elif before:
            delta = "as in the preset"
        wait = f" Latency {1e6 * price.latency_s:.3g} µs." if price.latency_s else ""
        text = _rate(price.bytes_per_s)
        says = (
            f"A {price.per} gets this, one direction, nobody else on the way; the slowest one. "
            f"Full first: {price.where}.{wait} The change is against the preset's machine."
        )
    st.metric(
        price.label, text, delta, delta_color="normal" if moved else "off",
        delta_arrow="auto" if moved else "off", help=says,
    )  # fmt: skip


def _rate(bytes_per_s: float) -> str:
    """Bytes/s for people.

    >>> _rate(2.15e10), _rate(5.24e12)
    ('21.5 GB/s', '5.24 TB/s')
    """
    if bytes_per_s >= 1e12:
        return f"{bytes_per_s / 1e12:,.4g} TB/s"
    return f"{bytes_per_s / 1e9:,.4g} GB/s"


@lru_cache(maxsize=16)
def _problems(supernode: Supernode) -> list[str]:
    return problems(supernode, session.facts())


def cannot_work(draft: Scenario) -> None:
    """A sentence for everything about the machine that cannot work; nothing when all can."""
    if impossible := _problems(draft.supernode):
        st.warning("  \n".join(impossible[:8]), icon=":material/report:")


def outcome() -> None:
    """What came of the last change, where there is something to say."""
    text, refused = editor.outcome()
    if text:
        colour, icon = ("red", "error") if refused else ("green", "check")
        st.markdown(f":small[:{colour}[:material/{icon}: {text}]]")


def changes() -> None:
    """Everything in which the machine differs from the preset's, each to be taken back."""
    draft, preset = session.draft(), session.preset()
    rows = [
        (told_change(path, show(old, path), show(new, path)), partial(editor.take_back, path))
        for path, (old, new) in session.changes().items()
        if path.startswith("supernode.") and path != "supernode.edits"
    ]
    # Edits that stand together and do the same to the same kind of thing are one row.
    for _, group in groupby(_changed_edits(draft, preset), lambda e: (
        e.element.split()[0], e.to.split(" ")[0], e.capacity_factor, e.latency_factor
    )):  # fmt: skip
        edits = list(group)
        rows.append((_told(edits), partial(editor.take_back_edits, edits)))
    if not rows:
        st.info(
            "This is the preset's machine. Change a number, or select something in the picture "
            "and disable or slow it: the difference will stand here.",
            icon=":material/difference:",
        )
        return
    with st.container(gap="xsmall"):
        for place, (text, take_back) in enumerate(rows[:SHOWN]):
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                st.markdown(text, width="stretch")
                st.button(
                    "", icon=":material/settings_backup_restore:", type="tertiary",
                    key=f"take-back-{place}", help="Back to the preset", on_click=take_back,
                )  # fmt: skip
        if rows[SHOWN:]:
            st.caption(f"And {len(rows) - SHOWN:,} more.")
    st.button(
        "Take all of it back", icon=":material/restart_alt:", key="take-all-back",
        on_click=editor.take_back_all,
    )  # fmt: skip


def _changed_edits(draft: Scenario, preset: Scenario) -> list[Edit]:
    """Edits that the preset has not, and the preset's that are gone (as built now)."""
    ours, theirs = draft.supernode.edits, preset.supernode.edits
    new = [e for e in ours if e not in theirs]
    kept = {(e.element, e.to) for e in ours}
    gone = [e for e in theirs if (e.element, e.to) not in kept]
    return new + [Edit(element=e.element, to=e.to) for e in gone]


def _told(group: list[Edit]) -> str:
    """Edits that are alike as one line: the elements, and what was done to them."""
    names = [f"{e.element} – {e.to}" if e.to else e.element for e in group]
    what = ", ".join(names) if len(names) < 4 else f"{names[0]} to {names[-1]}, {len(names)} in all"
    return f"{what}: **{effect(group[0].capacity_factor, group[0].latency_factor)}**"
