"""The runs that a comparison's address names: reading them, changing them, and their cards. Letters
and colours follow the order in the address; the baseline is named apart and changes neither."""

import html
import time

import streamlit as st

from twin.lab.explain.waterfall import SLACK
from twin.lab.share import links
from twin.lab.store import RunRow, StoreError
from twin.scenario import Scenario
from twin.ui import progress, record, session, theme, words
from twin.ui.fields import sentence
from twin.ui.link import go_to, page_link
from twin.ui.pages.compare import comparison

OFFERED = 100  # latest finished runs offered for choice
LOOK_S = 2.0  # between two looks at runs that go on
CARDS_A_ROW = {2: 2, 4: 4}  # else three: no card alone in its row


def open_runs() -> tuple[list[RunRow], list[str]]:
    """The runs that the address names, and a sentence for each that cannot be shown."""
    # Without the baseline's name: it would move that run, and its colour, to the front.
    query = {links.RUNS: st.query_params.get(links.RUNS, "")}
    try:
        rows = links.open_runs(query, session.store())
    except (links.ShareError, StoreError) as error:
        return [], [sentence(str(error))]
    absent = [sentence(row.message) for row in rows if isinstance(row, links.NotHere)]
    return [row for row in rows if isinstance(row, RunRow)], absent


def offer_missing(runs: list[RunRow]) -> None:
    """Where the link says what its runs asked: a button that runs here what is not here."""
    asked = progress.asked_in_link()
    ids = [run for run in st.query_params.get(links.RUNS, "").split(",") if run]
    if len(asked) != len(ids):
        return
    known = {run.id for run in runs}
    missing = [scenario for run, scenario in zip(ids, asked, strict=True) if run not in known]
    for scenario in missing:
        progress.offered(scenario)
    count = "it" if len(missing) == 1 else f"these {len(missing)}"
    if st.button(f"Run {count} here", type="primary", icon=":material/play_arrow:", key="run-here"):
        with session.refusals_toasted():
            made = [
                run if run in known else session.run(scenario)
                for run, scenario in zip(ids, asked, strict=True)
            ]
            go_to("compare", {links.RUNS: ",".join(dict.fromkeys(made))})


def baseline(runs: list[RunRow]) -> int:
    """Which run the others are held against: the one named, else the first with a result."""
    usable = [i for i, run in enumerate(runs) if run.state == "done"]
    named = [i for i in usable if runs[i].id == st.query_params.get(links.BASELINE)]
    return (named + usable + [0])[0]


def show(ids: list[str], base: str = "") -> None:
    """Compare these runs: a callback that only writes the address."""
    st.query_params[links.RUNS] = ",".join(ids)
    st.query_params.pop(links.BASELINE, None)
    if base in ids:
        st.query_params[links.BASELINE] = base


@st.fragment(run_every=LOOK_S)
def wait_for(going: list[str]) -> None:
    """Draw the page again as soon as one of the runs that still go on has ended."""
    rows = [session.store().runs.get(run) for run in going]
    if any(row is None or row.ended for row in rows):
        st.rerun()


def publish(runs: list[RunRow]) -> None:
    """Someone is given the link to these runs: from now on those that ended stay."""
    for run in runs:
        if run.ended and run.published_s is None:
            session.store().runs.publish(run.id)


def choose(runs: list[RunRow]) -> None:
    """Pick among the latest finished runs; nothing changes before the button is pressed."""
    latest = session.store().runs.search(states=["done"], limit=OFFERED).rows
    offered = {run.id: run for run in [*runs, *latest]}
    titles = dict(zip(offered, session.titles([*offered.values()]), strict=True))
    if len(offered) < links.COMPARED_MIN:
        st.markdown("A comparison needs two finished runs, and there are not two here yet.")
        page_link("start", "Run a preset", icon=":material/play_arrow:")
        return
    ids = [run.id for run in runs]
    picked = st.multiselect(
        "Two to six runs", list(offered), default=ids or list(offered)[: links.COMPARED_MIN],
        format_func=lambda run: _line(titles[run], offered[run]),
        max_selections=links.COMPARED_MAX, key=f"picked:{','.join(ids)}",
        placeholder="Choose among the latest finished runs",
    )  # fmt: skip
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            "Compare", type="primary", icon=":material/compare_arrows:", key="compare",
            disabled=len(picked) < links.COMPARED_MIN, on_click=show, args=(picked,),
        )  # fmt: skip
        page_link("library", "Choose in the library")


def _line(title: str, run: RunRow) -> str:
    figures = words.headlines(run.summary)[:2] if run.state == "done" else [run.state]
    return " · ".join([title, *figures, words.ago(time.time() - run.queued_s)])


def cards(runs: list[RunRow], scenarios: list[Scenario], base: int) -> None:
    """One card a run: its letter and colour, what it served, and what can be done with it."""
    ids = [run.id for run in runs]
    with st.grid(CARDS_A_ROW.get(len(runs), 3), min_column_width=250, gap="small"):
        for i, title in enumerate(session.titles(runs)):
            with st.container(border=True, height="stretch", gap="xsmall"):
                st.html(
                    f'<span style="color:{theme.SERIES[i]};font-size:1.2em" aria-hidden="true">'
                    f"●</span> <b>{comparison.LETTERS[i]} · {html.escape(title)}</b>"
                )
                _card(runs[i], scenarios[i], i, ids, base)


def _card(run: RunRow, scenario: Scenario, i: int, ids: list[str], base: int) -> None:
    st.caption(f"{words.brief(scenario)} · {words.duration(scenario.horizon_s)} simulated")
    if run.state != "done":
        st.caption(" ".join(words.run_line(run)))
    st.space("stretch")
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if i == base and run.state == "done":
            st.badge("Baseline", icon=":material/flag:")
        elif run.state == "done":
            st.button(
                "Make baseline", icon=":material/flag:", type="tertiary", key=f"base:{run.id}",
                on_click=show, args=(ids, run.id),
            )  # fmt: skip
        st.space("stretch")
        page_link("run", f"Open {comparison.LETTERS[i]}", {"run": run.id}, ":material/open_in_new:")
        st.button(
            "", icon=":material/close:", type="tertiary", key=f"drop:{run.id}",
            help=f"Leave out {comparison.LETTERS[i]}", on_click=show,
            args=([other for other in ids if other != run.id], ids[base]),
        )  # fmt: skip


def decode_operators(run: RunRow, scenario: Scenario) -> dict[str, float]:
    """Seconds that each operator is at work in a mean decode iteration, on whichever stream."""
    spent: dict[str, float] = {}
    for _, operator, seconds in record.iteration(run, scenario, "decode"):
        if operator != SLACK:
            spent[operator] = spent.get(operator, 0.0) + seconds
    return spent
