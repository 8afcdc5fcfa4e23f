"""How far the twin is from what was measured: every published row, its error, what it rests on."""

import re
from typing import Any

import streamlit as st

from twin.extras.evidence.made import load_made, ranking_table, skew_sentence
from twin.extras.evidence.page import charts, proof
from twin.lab.evidence.envelope import aspect_ranges, outside_evidence
from twin.lab.evidence.judge import headlines, now_text, score_table
from twin.lab.evidence.rows import KINDS, UNJUDGED, EvidenceError, load_missing, load_published
from twin.lab.share import links, shipped
from twin.ui import session
from twin.ui.fields import choice_label, sentence
from twin.ui.runs import draw_error_bands
from twin.ui.show import draw_download, plain, plot, table_csv

HOW = ("By formula, the closed steady state with every slot taken; benchmarks as clients run them "
       "are simulated.")  # fmt: skip
UNIT = re.compile(r" (?=%|rows)")  # no line is broken there
SEARCHED = ("quantity", "system", "kind", "regime", "source", "note")  # of a row


@st.cache_resource(show_spinner="Working out every row anew, about half a minute", max_entries=2)
def judged_evidence(digest: str) -> dict[str, Any]:
    """The judged rows by regime, and sentences on how many errors lie in bands, by digest of the
    facts; shared, so never changed. Raises EvidenceError."""
    evidence = shipped.current_evidence(session.facts())
    return {**evidence, "rows": proof.sorted_by_regime(evidence["rows"])}


@st.cache_data(show_spinner=False, max_entries=4)
def scenario_links(digest: str) -> dict[str, str]:
    """The address of each row's scenario by the row's id, where it has one that can run."""
    scenario_of = {row.id: proof.closed_loop_scenario(row) for row in load_published()}
    return {
        row_id: links.scenario_link(s, "") for row_id, s in scenario_of.items() if s is not None
    }


def text_columns(**columns: int) -> dict[str, Any]:
    """Column settings by header (`_` stands for a space), with widths in px."""
    text_column = st.column_config.TextColumn
    return {header.replace("_", " "): text_column(width=width) for header, width in columns.items()}


# 1) Gather.
facts = session.facts()
st.title("Evidence", anchor=False)
st.caption("How far the twin is from what was measured and published, and where it stops holding.")
try:
    published = {row.id: row for row in load_published()}
    found = judged_evidence(facts.digest)
except EvidenceError as error:
    st.error(sentence(str(error)), icon=":material/fact_check:")
    st.stop()

answers = found["rows"]
by_id = {row["id"]: row for row in answers}
farthest = proof.farthest_rows(answers)
named = st.query_params.get("row", "") in by_id
if st.session_state.get("row") not in by_id:
    in_first_group = (row for row in farthest if row["group"] == answers[0]["group"])
    worst_row = next(in_first_group, max(answers, key=lambda row: abs(row["error"])))
    st.session_state["row"] = st.query_params["row"] if named else worst_row["id"]


def show_row(row: str = "") -> None:
    """Show a row by its id ("": the selected one), and write it into the address."""
    st.session_state["row"] = row or st.session_state["row"]
    st.query_params["row"] = st.session_state["row"]


# 2) In a few numbers, one picture, and what is worst.
for sentence_of_group in headlines(answers):
    st.markdown(f"**{sentence_of_group}**")
st.caption(now_text(answers))
picture, worst = st.columns([3, 2], gap="large")
with picture:
    plot(charts.error_chart(answers), "evidence-errors")
with worst:
    st.markdown("**Farthest off**")
    st.html("<style>[class*='st-key-worst'] button { text-align: left }</style>")
    for row in farthest[: proof.FARTHEST]:
        st.button(
            f"{100 * row['error']:+.0f} % · {row['quantity']} · {row['system']}",
            key=f"worst:{row['id']}", type="tertiary", wrap=True,
            on_click=show_row, args=(row["id"],),
        )  # fmt: skip
    st.markdown("**Published, and not answered**")
    st.markdown(proof.missing_in_words(load_missing()))
outside = [row for row in answers if row["outside"]]
st.caption(
    f"{len(outside)} of {len(answers)} rows are outside their bar: "
    f"{proof.accepted_errors_text()}. {HOW}"
)

# 3) One row, open where the address names it.
shown_row = by_id[st.session_state["row"]]
with st.expander(f"One row: {shown_row['quantity']} · {shown_row['system']}", expanded=named):
    name = st.selectbox(
        "Row", list(by_id), key="row", on_change=show_row,
        format_func=lambda key: f"{by_id[key]['quantity']} · {by_id[key]['system']}",
    )  # fmt: skip
    row, source = by_id[name], published[name]
    each = proof.unit_suffix(row).replace("/", ", per ")
    with st.grid(3, min_column_width=175):
        st.metric(f"Published{each}", proof.figure_text(row, "published"))
        st.metric(f"Twin{each}", proof.figure_text(row, "twin"), help="By formula.")
        st.metric("Error", f"{100 * row['error']:+.1f} %".replace("-", "−"))
    if row["outside"]:
        st.markdown(f":red[:material/warning: {sentence(proof.reason_text(row))}]")
    elif row["note"]:
        st.markdown(sentence(row["note"]))
    text = "; ".join(proof.setting_texts(source))
    st.caption(f"{sentence(text) if text else ''} Basis: {row['basis']}.")
    st.caption(sentence(proof.kind_in_words(row)))
    if expected := proof.band_in_words(row):
        st.caption(expected)
    if row["others"]:
        st.caption(f"Other simulators on this row: {proof.other_answers_text(row)}.")
    st.caption(f"Source: {row['source']} ({row['mark']}: {proof.MARKS[row['mark']]}).")
    if (link := scenario_links(facts.digest).get(name)) is None:
        st.caption("One operator or one size alone: there is nothing to run.")
    else:
        help_text = "To run it: this row's configuration, with every slot taken."
        st.link_button("Open its scenario", link, icon=":material/open_in_new:", help=help_text)
        for fact, value in source.facts.items():  # what its answer changes in data/
            st.caption(
                f"This answer takes {fact} = {proof.shorten(value)} {facts[fact].unit} in place of "
                f"{proof.shorten(facts[fact].value)}; a run takes the figure in data/ as it is."
            )


# 4) Every row, and what kinds of rows there are.
def take_row() -> None:
    """Show the row that was clicked in the table."""
    picked_rows = [] if session.is_gone(table_key) else st.session_state[table_key].selection.rows
    if picked_rows:
        show_row(shown[picked_rows[0]]["id"])


named_rows = bool({"regime", "missed"} & set(st.query_params))
with st.expander(f"All {len(answers)} rows: search, kinds", expanded=named_rows):
    scores = [
        {name[0].upper() + name[1:]: UNIT.sub("\u00a0", cell)
         for name, cell in line.items() if name not in UNJUDGED}
        for line in score_table(answers)
    ]  # fmt: skip
    st.table(scores, border="horizontal", hide_index=True)
    kinds = " ".join(f"*{kind.capitalize()}*: {text}." for kind, text in KINDS.items())
    st.caption(f"Absolute errors: mean (worst, rows). {kinds}")
    regimes = ["All", *dict.fromkeys(row["regime"] for row in answers)]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        regime = st.segmented_control(
            "Regime", regimes, default="All", required=True, key="regime", bind="query-params",
            format_func=lambda name: name[0].upper() + name[1:], wrap=True,
        )  # fmt: skip
        missed = st.toggle("Only outside their bar", key="missed", bind="query-params")
        looked_for = st.text_input("Search", key="rows-search", placeholder="EP256", width=200)
    shown = [
        row for row in answers
        if regime in ("All", row["regime"]) and (row["outside"] or not missed)
        and looked_for.lower() in " ".join(str(row[field]) for field in SEARCHED).lower()
    ]  # fmt: skip
    table_key = f"rows:{regime}:{missed}:{looked_for}"
    number = st.column_config.NumberColumn
    cells = proof.row_table(shown, scenario_links(facts.digest))
    st.dataframe(
        cells, key=table_key, hide_index=True,
        placeholder="–", height=min(440, 38 + 35 * len(shown)), on_select=take_row,
        selection_mode="single-row",
        column_config={
            "Quantity": st.column_config.TextColumn(width=240, pinned=True),
            "Error, %": number(format="%+.1f", width=70, pinned=True),
            "Published": number(format="localized", width=80),
            "Twin": number(format="localized", width=75),
            "Unit (basis)": st.column_config.TextColumn(width=120),
            "First error, %": number(format="%+.1f", width=95),
            "Band, %": st.column_config.TextColumn(width=110),
            "Scenario": st.column_config.LinkColumn(display_text="open", width=75),
        } | text_columns(Bar=80, Kind=150, Others=180, System=190, Note=340, Source=340, Mark=55),
    )  # fmt: skip
    st.caption(
        f"{HOW} Die and NPU differ by two on a 910C. Band: where four of five errors are "
        "expected, made without the row's system. Others: what other simulators answered, better "
        "or worse. Click a row for more."
    )
    if cells:
        draw_download("CSV", lambda: table_csv(cells), "evidence.csv", "evidence-csv")

# 5) What stands behind the rows.
with st.expander("What stands behind them: where it stops holding, fitted figures, every fact"):
    holding, order, chosen, beyond_tab, machines, every_fact = st.tabs([
        "Where it stops holding", "Order of layouts", "Fitted and chosen figures",
        "Beyond the twin", "NVL72 and CloudMatrix", "Every fact",
    ])  # fmt: skip
with order:
    st.caption(
        "Whether the twin puts layouts of one machine in the published order: Kendall's tau of "
        "every published sweep with three points or more. +1 is the same order, 0 none, −1 the "
        "reverse. Points that follow from other points are left out."
    )
    st.table(ranking_table(answers), border="horizontal", hide_index=True)
with chosen:
    made = load_made()
    if made.is_stale(facts):
        st.caption(
            ":material/history: Worked out with other facts or rows than these: "
            "`python -m twin calibrate --cross-validate --write` makes it anew."
        )
    for title, rows_of in made.tables().items():
        st.markdown(f"**{title}**")
        st.dataframe(rows_of, hide_index=True, height=min(320, 38 + 35 * len(rows_of)))
    st.caption(f":material/balance: {skew_sentence(facts)} {made.default_skew_text}")

with holding:
    st.markdown("**How far off an answer may be**")
    st.caption(
        "A band is pooled over quantity, machine, stack with its release, serving mode and batch "
        "range: its spread is that of first errors, of other systems where a stack has few rows of "
        "its own, and its centre is where the twin stands today. On rows left out:"
    )
    for text in found["held"]:
        st.markdown(f"- {text}")
    draw_error_bands({session.draft().name: session.draft()})
    draft = session.draft()
    left, right = st.columns([3, 2], gap="large")
    with left:
        chips = [str(v) for r in aspect_ranges(facts) if r.aspect.name == "chip" for v in r.values]
        chip = st.segmented_control(
            "Published rows on", ["All chips", *chips], required=True, key="chip", wrap=True,
            format_func=lambda c: choice_label("supernode.chip", c, facts) if c in chips else c,
            default=draft.supernode.chip if draft.supernode.chip in chips else "All chips",
        )  # fmt: skip
        reached = [
            {"Respect": r.aspect.title, "Published rows have": r.text(facts), "Rows": r.rows}
            for r in aspect_ranges(facts, chip="" if chip == "All chips" else chip)
        ]  # fmt: skip
        st.table(reached, border="horizontal", hide_index=True)
    with right, st.container(border=True):
        st.markdown(f"**Your scenario: {plain(draft.name)}**")
        inside = ":material/check: Inside the range of the published rows in every respect."
        beyond = [f":material/explore_off: {remark}" for remark in outside_evidence(draft, facts)]
        for text in beyond or [inside]:
            st.markdown(text)

with beyond_tab:
    st.caption("Published results that no scenario can express yet, and what is missing for each.")
    rows = [
        {"System": b["system"], "What": b["quantity"], "Published": b["figure"],
         "Missing": b["missing"], "Source": b["source"]}
        for b in load_missing()
    ]  # fmt: skip
    st.dataframe(rows, hide_index=True, height=420, key="beyond")

with machines:
    st.table(proof.slide_table(facts), border="horizontal", hide_index=True)
    st.caption(
        "The slides' table, and the same figures from data/chips and data/machines. Its 2.8 TB/s "
        "of one CloudMatrix accelerator does not fit its own 269 TB/s in all, which is 0.7 TB/s "
        "each: read as terabits a second, one direction."
    )

with every_fact:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        words = st.text_input("Search", key="facts-search", placeholder="910c hbm", width=280)
        marks = st.pills(
            "Marks", list(proof.mark_counts(facts)), selection_mode="multi", wrap=True,
            format_func=lambda mark: f"{mark} · {proof.mark_counts(facts)[mark]}", key="marks",
        )  # fmt: skip
    found_facts = proof.fact_table(facts, words, marks)
    st.dataframe(
        found_facts, hide_index=True, height=min(420, 38 + 35 * max(1, len(found_facts))),
        key="facts", column_config={"Fact": st.column_config.TextColumn(width=300, pinned=True)}
        | text_columns(Value=150, Unit=80, Mark=55, Source=420, Note=420),
    )  # fmt: skip
    meanings = "; ".join(f"**{mark}** {proof.MARKS[mark]}" for mark in proof.mark_counts(facts))
    st.caption(f"{len(found_facts):,} of {len(facts):,} facts. Marks: {meanings}.")
