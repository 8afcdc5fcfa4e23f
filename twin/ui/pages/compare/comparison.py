"""Runs side by side: choice, cards, differences, files; each by a letter and a colour."""

import html
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict

import streamlit as st

from twin.lab.evidence.near import KnownRatio, known_ratios
from twin.lab.explain.waterfall import SLACK
from twin.lab.runs.runner import find_run
from twin.lab.share import links
from twin.lab.store import RunRow, StoreError
from twin.lab.sweep.compare import (
    SEEDS,
    Comparison,
    InputRow,
    MetricRow,
    change_and_verdict,
    is_number,
    reseed,
    with_pairs,
)
from twin.metrics.measures import NOTHING
from twin.metrics.registry import METRICS, as_text, metric_of, metrics_at
from twin.scenario import Scenario, scenario_digest
from twin.scenario.words import first_few
from twin.ui import record, runs, session, theme, words
from twin.ui.charts.sweep import FAR, Difference
from twin.ui.fields import field_of, sentence, text_of, why_idle
from twin.ui.link import go_to, link_page
from twin.ui.show import csv_text, json_text, plain

LETTERS = "ABCDEF"
BAR_CHARS = 14  # of a change at the end of a bar on a phone
NAME_CHARS = 48  # of a run's name at the head of a column; a legend shortens its middle
OFFERED = 100  # latest finished runs offered for choice
CARDS_A_ROW = {2: 2, 4: 4}  # else three: no card alone in its row
# Words about a scenario change no result; a trace is shown by its name.
WORDS = ("name", "question", "source", "workload.trace.digest")

# What a choice of figures shows: the group of a metric; '': headlines or all.
GROUPS = {"Headlines": "", "Times": "times", "TTFT by part": "ttft parts", "Use": "use", "All": ""}

EQUAL = ("same", "noise")  # verdicts
FEW = 2  # differences in a sentence
CHANGE_CHARS = 26  # of a field's change in a picture
Cells = dict[str, str]
Known = dict[int, dict[str, KnownRatio]]  # by run and metric


def open_runs() -> tuple[list[RunRow], list[str]]:
    """(runs that the page's address names, sentences on why others of them cannot be shown)."""
    # Without the baseline's name: it would move that run, and its colour, to the front.
    query = {key: st.query_params.get(key, "") for key in (links.RUNS, links.QUESTIONS)}
    try:
        rows = links.open_runs(query, session.store())
    except (links.ShareError, StoreError) as error:
        return [], [sentence(str(error))]
    problems = [sentence(row.message) for row in rows if isinstance(row, links.NotHere)]
    return [row for row in rows if isinstance(row, RunRow)], list(dict.fromkeys(problems))


def draw_missing_runs(rows: list[RunRow]) -> None:
    """Draw a button that runs the link's missing runs here, if it has their scenarios."""
    scenarios = runs.linked_scenarios()
    linked_ids = [run for run in st.query_params.get(links.RUNS, "").split(",") if run]
    if len(scenarios) != len(linked_ids):
        return
    here_ids = {run.id for run in rows}
    ids_and_scenarios = list(zip(linked_ids, scenarios, strict=True))
    missing_scenarios = [scenario for run, scenario in ids_and_scenarios if run not in here_ids]
    for scenario in missing_scenarios:
        runs.draw_linked_scenario(scenario)
    text = "it" if len(missing_scenarios) == 1 else f"these {len(missing_scenarios)}"
    if st.button(f"Run {text} here", type="primary", icon=":material/play_arrow:", key="run-here"):
        with session.toast_refusals():
            run_ids = dict.fromkeys(run if run in here_ids else session.start_run(scenario)
                                    for run, scenario in ids_and_scenarios)  # fmt: skip
            go_to("compare", {links.RUNS: ",".join(run_ids)})


def baseline_index(rows: list[RunRow]) -> int:
    """Index of the baseline in `rows`: the run named in the address, or the first finished one."""
    finished_indices = [i for i, run in enumerate(rows) if run.state == "done"]
    named_id = st.query_params.get(links.BASELINE)
    named_indices = [i for i in finished_indices if rows[i].id == named_id]
    return [*named_indices, *finished_indices, 0][0]


def set_compared_runs(ids: list[str], base: str = "") -> None:
    """Callback: write ids of compared runs, and `base` if it is one of them, to the address."""
    st.query_params[links.RUNS] = ",".join(ids)
    st.query_params.pop(links.BASELINE, None)
    if base in ids:
        st.query_params[links.BASELINE] = base


def publish_ended(rows: list[RunRow]) -> None:
    """Protect the runs that have ended from deletion, because a link to all of them was copied."""
    for run in rows:
        if run.ended and run.published_s is None:
            session.store().runs.publish(run.id)


def draw_choice(rows: list[RunRow]) -> None:
    """Draw the choice among the latest finished runs, and the button that compares them."""
    label_of = runs.choice_labels([*rows, *runs.latest_runs(OFFERED, "done")], figures=2)
    if len(label_of) < links.COMPARED_MIN:
        st.markdown("A comparison needs two finished runs, and there are not two here yet.")
        link_page("start", "Run a preset", icon=":material/play_arrow:")
        return
    ids = [run.id for run in rows]
    picks = st.multiselect(
        "Two to six runs", list(label_of), default=ids or list(label_of)[: links.COMPARED_MIN],
        format_func=lambda run: label_of[run], max_selections=links.COMPARED_MAX,
        key=f"picked:{','.join(ids)}", placeholder="Choose among the latest finished runs",
    )  # fmt: skip
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            "Compare", type="primary", icon=":material/compare_arrows:", key="compare",
            disabled=len(picks) < links.COMPARED_MIN, on_click=set_compared_runs, args=(picks,),
        )  # fmt: skip
        link_page("library", "Choose in the library")


def draw_cards(rows: list[RunRow], scenarios: list[Scenario], base: int) -> None:
    """Draw one card per run: its letter and colour, what it served, and buttons."""
    run_ids = [run.id for run in rows]
    with st.grid(CARDS_A_ROW.get(len(rows), 3), min_column_width=250, gap="small"):
        for i, title in enumerate(runs.titles(rows)):
            with st.container(border=True, height="stretch", gap="xsmall"):
                st.html(
                    f'<span style="color:{theme.SERIES[i]};font-size:1.2em" aria-hidden="true">'
                    f"●</span> <b>{LETTERS[i]} · {html.escape(title)}</b>"
                )
                _draw_card(rows[i], scenarios[i], i, run_ids, base)


def _draw_card(run: RunRow, scenario: Scenario, run_number: int, ids: list[str], base: int) -> None:
    """Draw what a run served, and its buttons. run_number: index of the run among the compared
    runs. ids: of all compared runs. base: index of the baseline."""
    st.caption(f"{words.card_line(scenario)} · {words.duration_text(scenario.horizon_s)} simulated")
    if run.state != "done":
        st.caption(" ".join(runs.list_line(run)))
    st.space("stretch")
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if run_number == base and run.state == "done":
            st.badge("Baseline", icon=":material/flag:")
        elif run.state == "done":
            st.button(
                "Make baseline", icon=":material/flag:", type="tertiary", key=f"base:{run.id}",
                on_click=set_compared_runs, args=(ids, run.id),
            )  # fmt: skip
        st.space("stretch")
        link_page("run", f"Open {LETTERS[run_number]}", {"run": run.id}, ":material/open_in_new:")
        st.button("", icon=":material/close:", type="tertiary", key=f"drop:{run.id}",
                  help=f"Leave out {LETTERS[run_number]}", on_click=set_compared_runs,
                  args=([run_id for run_id in ids if run_id != run.id], ids[base]))  # fmt: skip


def decode_busy_s(run: RunRow, scenario: Scenario) -> dict[str, float]:
    """Busy seconds by operator in a mean decode iteration, summed over its streams."""
    busy_s: defaultdict[str, float] = defaultdict(float)
    for _, operator, operator_s in record.iteration_rows(run, scenario, "decode"):
        if operator != SLACK:
            busy_s[operator] += operator_s
    return busy_s


def letter_names(names: Sequence[str]) -> list[str]:
    """Name of each run on the page: its letter and a shortened name. names: of the scenarios."""
    return [f"{letter} · {words.truncated(name, NAME_CHARS)}"
            for letter, name in zip(LETTERS, names, strict=False)]  # fmt: skip


def _different_fields(compared: Comparison) -> list[tuple[str, InputRow]]:
    """(label, row) of every field that differs between the runs and may change a result."""
    return [("Trace" if row.path == "workload.trace.name" else field_of(row.path).title, row)
            for row in compared.inputs if row.path not in WORDS]  # fmt: skip


def input_table(compared: Comparison, scenarios: Sequence[Scenario]) -> list[Cells]:
    """A row for each field that differs between the runs and has an effect in one of them. Values
    that differ from the baseline's are bold."""
    table_rows = []
    for field_label, row in _different_fields(compared):
        idle_flags = [bool(why_idle(row.path, scenario)) for scenario in scenarios]
        if all(idle_flags):
            continue
        base_value, cells = row.values[compared.baseline], {"Field": field_label}
        for run_name, value, is_idle in zip(compared.names, row.values, idle_flags, strict=True):
            cell = NOTHING if is_idle else plain(text_of(value, row.path))
            cells[plain(run_name)] = cell if value == base_value or is_idle else f"**{cell}**"
        table_rows.append(cells)
    return table_rows


def settings_that_differ(compared: Comparison, scenarios: Sequence[Scenario]) -> list[Difference]:
    """Differences in settings from the baseline, by field and run; only fields with an effect."""
    setting_rows = []
    for label, row in _different_fields(compared):
        base_value = row.values[compared.baseline]
        for bar_run, run_index in enumerate(_other_runs(compared)):
            value = row.values[run_index]
            is_idle = all(why_idle(row.path, scenarios[k]) for k in (run_index, compared.baseline))
            if value == base_value or is_idle:
                continue
            is_ratio = is_number(value) and is_number(base_value) and base_value
            relative_change = value / base_value - 1.0 if is_ratio else 0.0
            full_text = f"{text_of(base_value, row.path)} → {text_of(value, row.path)}"
            short_text = words.truncated(full_text, CHANGE_CHARS)
            setting_rows.append(Difference(label, bar_run, relative_change, short_text, full_text))
    return setting_rows


def results_that_differ(compared: Comparison) -> list[Difference]:
    """Differences in headline figures from the baseline, by figure and run."""
    bars = []
    for row in figures_of(compared.metrics, "Headlines"):
        base_value, metric = row.values[compared.baseline], metric_of(row.name)
        for bar_run, run_index in enumerate(_other_runs(compared)):
            value = row.values[run_index]
            if value is None or base_value is None or row.verdicts[run_index] in EQUAL:
                continue
            divisor = 1.0 if metric.kind == "share" else base_value
            change = (value - base_value) / divisor if divisor else math.copysign(FAR, value)
            short_text = (
                row.paired_text(run_index) or change_and_verdict(row.name, value, base_value)[0]
            )
            if len(short_text) > BAR_CHARS:  # the table and the label say the unit
                short_text = short_text.partition(" ")[0]
            pair_text = f"{as_text(row.name, base_value)} → {as_text(row.name, value)}"
            bars.append(
                Difference(
                    metric.label, bar_run, change, short_text, pair_text, row.verdicts[run_index]
                )
            )
    return bars


def conclusion(compared: Comparison, scenarios: Sequence[Scenario]) -> str:
    """Sentence on two compared runs: what was changed, what is better and what is worse. For more
    runs: which run is best in which figure."""
    results, other_runs = results_that_differ(compared), _other_runs(compared)
    if len(other_runs) > 1:
        return _best_runs_sentence(compared)
    edits = [f"{row.label} {row.whole}" for row in settings_that_differ(compared, scenarios)]
    edits_text = " and ".join(edits) if len(edits) <= FEW else f"{len(edits)} changes"
    clauses = []
    # A lower attainment of the SLO comes before whatever is gained.
    slo_label = METRICS["slo_attainment"].label
    is_slo_worse = any(row.label == slo_label and row.standing == "worse" for row in results)
    label_order = [slo_label, *(metric.label for metric in metrics_at("leading"))]
    results.sort(key=lambda row: ((*label_order, row.label).index(row.label), -abs(row.change)))
    for standing in ("worse", "better") if is_slo_worse else ("better", "worse"):
        standing_rows = [row for row in results if row.standing == standing]
        rows_text = first_few([f"{row.label} {row.text}" for row in standing_rows], FEW)
        clauses.append(f"{standing} in {rows_text or 'nothing'}")
    letter, clauses_text = LETTERS[other_runs[0]], "; ".join(clauses)
    return f"With {edits_text or 'the same question'}, {letter} is {clauses_text}."


def _best_runs_sentence(compared: Comparison) -> str:
    """Sentence that names the best run for each leading figure."""
    labels_by_letter: defaultdict[str, list[str]] = defaultdict(list)
    for row in compared.metrics:
        pairs = [(value, i) for i, value in enumerate(row.values) if value is not None]
        if "leading" not in metric_of(row.name).places or len({value for value, _ in pairs}) < 2:
            continue
        best_pair = max(pairs) if row.better == "higher" else min(pairs)
        if all(
            verdict in EQUAL for i, verdict in enumerate(row.verdicts) if i != compared.baseline
        ):
            continue
        labels_by_letter[LETTERS[best_pair[1]]].append(metric_of(row.name).label)
    if not labels_by_letter:
        return "These runs come to the same."
    clauses = [f"{letter} in {' and '.join(labels)}"
               for letter, labels in sorted(labels_by_letter.items())]  # fmt: skip
    return f"Best: {'; '.join(clauses)}."


def _other_runs(compared: Comparison) -> list[int]:
    """Indices of all runs except the baseline."""
    return [i for i in range(len(compared.runs)) if i != compared.baseline]


def ratio_errors(rows: Sequence[RunRow], scenarios: Sequence[Scenario], base: int) -> Known:
    """By index of a run and by metric: error band of the ratio of the run's figure to that of the
    baseline, and whether both may be equal within it. base: index of the baseline."""
    base_question = (scenarios[base], rows[base].summary)
    return {
        i: {
            ratio.figure.metric: ratio
            for ratio in known_ratios((scenarios[i], run.summary), base_question)
        }
        for i, run in enumerate(rows)
        if i != base
    }


def equality_sentences(known: Known) -> list[str]:
    """Sentences on runs whose figures may equal the baseline's. known: see `ratio_errors`."""
    sentences = []
    for run_index, ratios in known.items():
        equal = [f"{ratio.figure.name} ({ratio.band})" for ratio in ratios.values() if ratio.equal]
        begin_text = (
            f"{LETTERS[run_index]} may equal the baseline in {' and '.join(equal)}: four of five"
        )
        sentences += [f"{begin_text} published ratios are met within that."] if equal else []
    return sentences


def metric_table(compared: Comparison, group: str, known: Known | None = None) -> list[Cells]:
    """A row for each figure of a group: value in each run, change from the baseline, and error band
    of their ratio from `known` (see `ratio_errors`)."""
    table_rows = []
    for row in figures_of(compared.metrics, group):
        base_value, cells = row.values[compared.baseline], {"Figure": metric_of(row.name).label}
        for run_index, value in enumerate(row.values):
            cell_text = as_text(row.name, value)
            if run_index != compared.baseline and value is not None and base_value is not None:
                change_text = worded_change(row.name, value, base_value, row.verdicts[run_index],
                                            row.paired_text(run_index))  # fmt: skip
                cell_text = f"{cell_text}  \n{change_text}"
                if row.name in (ratios := (known or {}).get(run_index, {})):
                    cell_text += f"  \n:gray[{ratios[row.name].text}]"
            cells[plain(compared.names[run_index])] = cell_text
        table_rows.append(cells)
    return table_rows


def meanings_text(compared: Comparison, group: str) -> str:
    """What the figures of a group mean, as a list in Markdown; each meaning once."""
    labels_by_help: dict[str, list[str]] = {}
    for row in figures_of(compared.metrics, group):
        metric = metric_of(row.name)
        if metric.help:
            labels_by_help.setdefault(metric.help, []).append(metric.label)
    return "\n".join(f"- **{', '.join(names)}**: {help}" for help, names in labels_by_help.items())


def figures_of(rows: Sequence[MetricRow], group: str) -> list[MetricRow]:
    """Rows of the figures in a group of GROUPS, in the order of their declaration."""
    metric_order = list(METRICS)
    sorted_rows = sorted(rows, key=lambda row: (*metric_order, row.name).index(row.name))
    if group == "Headlines":
        return [row for row in sorted_rows if "comparison" in metric_of(row.name).places]
    return [row for row in sorted_rows if GROUPS[group] in ("", metric_of(row.name).group)]


def worded_change(name: str, value: float, base: float, verdict: str = "", pairs: str = "") -> str:
    """Text on the change of a figure from the baseline's value `base`, coloured in Markdown. name:
    key of the metric. verdict: of its row; "different" is grey. pairs: text on pairs of runs with
    equal seeds, which replaces the change; '' without.

    >>> worded_change("ttft_s_p50", 0.9, 1.0), worded_change("slo_attainment", 0.8, 0.9)
    (':green[−10.0 %, better]', ':red[−10.0 points, worse]')
    """
    change_text, judgement = change_and_verdict(name, value, base)
    if pairs:
        change_text, judgement = pairs, verdict if verdict in ("better", "worse") else ""
    judgement = "" if verdict == "different" else judgement
    colour = {"better": "green", "worse": "red"}.get(judgement, "gray")
    return f":{colour}[{change_text}{f', {judgement}' if judgement not in ('', 'same') else ''}]"


def with_seeds(
    compared: Comparison, rows: list[RunRow], scenarios: list[Scenario]
) -> tuple[Comparison, list[Scenario]]:
    """(the comparison with the stored runs of other seeds, scenarios of seeds without a run). The
    list is empty while a compared run has no result."""
    if any(run.state != "done" for run in rows):
        return compared, []
    scenarios_by_run, store = reseed(scenarios, compared.baseline), session.store()
    scenario_runs = [[(s, find_run(store, s)) for s in seeded] for seeded in scenarios_by_run]
    missing_scenarios = [s for seeded in scenario_runs for s, run in seeded if run is None]
    summaries = [
        [None if run is None else run.summary for _, run in seeded] for seeded in scenario_runs
    ]
    return with_pairs(compared, summaries), missing_scenarios


def draw_seeds_button(compared: Comparison, missing: list[Scenario]) -> None:
    """Draw what intervals over seeds mean, or a button that runs the `missing` scenarios."""
    if any(any(row.paired) for row in compared.metrics):
        st.caption(
            f"Over up to {SEEDS} seeds, in pairs with the same requests; ± is the 95 % interval of "
            "the mean difference: of 20 figures about one differs by chance alone."
        )
    state_key = f"seeds:{','.join(compared.runs)}"
    unfinished = runs.unfinished_runs() if missing else {}
    begun_ids = [unfinished[d].id for d in map(scenario_digest, missing) if d in unfinished]
    ids = st.session_state.get(state_key, begun_ids)
    seed_runs = [session.store().runs.get(run) for run in ids]
    open_ids = [run.id for run in seed_runs if run is not None and not run.ended]
    if open_ids:
        st.caption(f"{len(ids) - len(open_ids)} of {len(ids)} runs with other seeds are done.")
        runs.watch_runs(open_ids)
    elif missing and st.button(
        f"Is it chance? Run {len(missing)} with other seeds", icon=":material/casino:",
        help="Whether a difference is more than chance is said over pairs of runs with the same "
        "requests.",
    ):  # fmt: skip
        with session.toast_refusals():
            st.session_state[state_key] = [session.start_run(scenario) for scenario in missing]
            st.rerun()


def as_csv(compared: Comparison) -> str:
    """CSV of inputs that differ and all figures: a row for each, a column per run; SI units."""
    input_rows = [("input", row.path, row.unit, *row.values) for row in compared.inputs]
    figure_rows = []
    for row in compared.metrics:
        metric = metric_of(row.name)
        unit = "of 1" if metric.kind == "share" else metric.unit
        figure_rows.append(("figure", row.name, unit, *row.values))
    head_rows = [("kind", "name", "unit", *compared.names), ("run", "id", "", *compared.runs)]
    return csv_text([*head_rows, *input_rows, *figure_rows])


def as_json(compared: Comparison) -> str:
    """The comparison as one object, as `compare --json` prints it; SI units, shares of one."""
    return json_text(asdict(compared))
