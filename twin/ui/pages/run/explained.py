"""The head of a result: verdict, tiles, causes by re-runs; and why one request was slow."""

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from twin.hooks import draw_sections
from twin.lab.explain.words import changes_text, effect_text
from twin.lab.runs.job import EXPLAIN, load_engine
from twin.lab.runs.runner import find_run
from twin.lab.runs.watched import DECODE, STAGES, Inside, stage_times
from twin.lab.share import links
from twin.lab.store import RunRow
from twin.metrics.measures import amount, numbered, seconds, three_figures
from twin.metrics.registry import metrics_at
from twin.metrics.steadiness import UNSTEADY
from twin.scenario import Scenario, scenario_digest, with_overrides
from twin.scenario.words import path_text
from twin.ui import access, charts, record, runs, session, theme
from twin.ui.fields import sentence, with_glossary
from twin.ui.link import go_to
from twin.ui.pages.run import results
from twin.ui.show import plain, plot

HEAD = [metric.key for metric in metrics_at("head")]  # figures of the tiles
AT_ONCE_S = 3.0  # runs up to this wall time are explained and repeated without a request
FIRST = 3  # causes that are open
NOW = "explain-now"  # session state: digest of the scenario whose run is explained unrequested
HEADROOM = (
    "How many times this traffic keeps the SLO, found by simulations at other loads: in steady "
    "state, or for its own horizon if a run does not begin in one; below 1 the traffic has to "
    "shrink so far."
)
PICKED = "request"  # of the address and of the session: the number of the request
STAGE_COLOURS = dict(zip(STAGES, theme.STAGE.values(), strict=True))
EVENTS = (("preemption", "preemptions"), ("retry", "retries"))  # of a request, and its columns
WAITS = "pool reads and other batches"  # of the time of prefill that no operator accounts for


def can_explain(row: RunRow, scenario: Scenario) -> bool:
    """Whether a run can be explained: done, of one model, by the present engine and facts."""
    if scenario.models:
        return False
    is_same_engine = row.engine_version == load_engine().ENGINE_VERSION
    return row.state == "done" and is_same_engine and row.facts_digest == session.facts().digest


def draw_card(row: RunRow, scenario: Scenario) -> None:
    """Draw a card with verdict and tiles. Its size is the same before and after the explanation."""
    explain_run = _explaining_run(row, scenario)
    done_run = explain_run if explain_run is not None and explain_run.state == "done" else None
    attainment = row.summary.get("slo_attainment")
    if explain_run is not None and not explain_run.ended:
        verdict_text = "Looking for what limits this run …"
    elif done_run:  # without the note on steadiness, which `results.tiles` draws as a warning
        verdict_text = str(done_run.summary["verdict"])
        for note in UNSTEADY.values():
            verdict_text = verdict_text.replace(f" {note}", "")
        verdict_text = plain(verdict_text)
    elif attainment is not None:
        verdict_text = f"{amount(float(attainment), 'share')} of requests met the SLO."
    else:
        verdict_text = "This run is not explained yet."
    with st.container(border=True, key="explained"):
        st.subheader(verdict_text, anchor=False)
        with st.grid(4, min_column_width=135):
            for tile in results.tile_rows(row.summary, scenario, HEAD):
                st.metric(**tile)
            st.metric("Headroom", **_headroom_tile(done_run), help=with_glossary("SLO", HEADROOM))


def draw_explanation(row: RunRow, scenario: Scenario) -> None:
    """Draw what limits a run and what would help, or the progress of finding it."""
    explain_run = _explaining_run(row, scenario)
    if explain_run is None:
        _offer_explanation(row, scenario, "What limits this run, and what would help?")
    elif not explain_run.ended:
        runs.watch_runs([explain_run.id], "Looking for causes by removing one at a time.")
    elif explain_run.state == "done":
        _draw_causes(row, scenario, explain_run)
    else:
        stopped_text = "It was stopped, or made way for a run."
        reason = sentence(explain_run.message) if explain_run.state == "failed" else stopped_text
        _offer_explanation(row, scenario, f"This run is not explained yet. {reason}")


def _explaining_run(row: RunRow, scenario: Scenario) -> RunRow | None:
    """Return the run that explains a run; None if there is none. It is started here if the run is
    short or the visitor wants it explained."""
    state_key = f"explained:{row.id}"
    if run_id := st.session_state.get(state_key):
        return session.store().runs.get(run_id)
    stored_run = find_run(session.store(), scenario, engine=EXPLAIN)
    is_quick = (row.wall_s or 0.0) <= AT_ONCE_S
    is_wanted = is_quick or st.session_state.get(NOW) == scenario_digest(scenario)
    is_wanted = is_wanted and access.mode() != access.READ_ONLY
    if stored_run is None and is_wanted and _request_explanation(row, scenario):
        stored_run = session.store().runs.get(st.session_state[state_key])
    return stored_run


def _request_explanation(row: RunRow, scenario: Scenario) -> bool:
    """Start the explanation of a run; returns whether it was accepted. A refusal is a toast."""
    with session.toast_refusals():
        st.session_state[f"explained:{row.id}"] = session.start_run(scenario, EXPLAIN)
        return True
    return False


def _offer_explanation(row: RunRow, scenario: Scenario, why: str) -> None:
    """Draw the sentence `why`, and a button that starts the explanation of a run."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(plain(why))
        is_clicked = st.button("Explain this run", icon=":material/troubleshoot:", key="explain")
        if is_clicked and _request_explanation(row, scenario):
            st.rerun()


def _headroom_tile(explain_run: RunRow | None) -> dict[str, Any]:
    """Arguments of the tile of headroom: largest load within the SLO, divided by the run's load.
    explain_run: None before the run is explained."""
    if explain_run is None:
        return {"value": "not known yet"}
    summary = explain_run.summary
    if not summary["headroom_factor"]:
        return {"value": "none"}
    load_text = f"up to {three_figures(summary['capacity_low'])} {summary['capacity_unit']}"
    if (failing_load := summary["capacity_high"]) is not None:
        load_text += f", missed from {three_figures(failing_load)}"
    return {"value": f"{three_figures(summary['headroom_factor'])} x traffic",
            "delta": load_text, "delta_color": "off", "delta_arrow": "off"}  # fmt: skip


def _draw_causes(row: RunRow, scenario: Scenario, explain_run: RunRow) -> None:
    """Draw the causes that `explain_run` found for a run, the first ones open."""
    causes = record.stored_explanation(explain_run.id, explain_run)["causes"]
    if not causes:
        st.markdown("No cause was found whose removal changes these figures on every seed.")
        return
    st.markdown(
        "**Causes**, first those whose remedy brings most; each is removed in re-runs on seeds of "
        "their own, so figures differ a little from those above"
    )
    container = st.container()
    for number, cause in enumerate(causes):
        if number == FIRST:
            container = st.expander(f"{len(causes) - FIRST} more whose remedies bring less")
        with container:
            _draw_cause(row, scenario, cause, number)


def _draw_cause(row: RunRow, scenario: Scenario, cause: dict[str, Any], number: int) -> None:
    """Draw what removing a cause gains, and a button that runs with its remedy and compares."""
    name_text = f": {plain(cause['named'])}" if cause["named"] else ""
    with st.container(border=True, key=f"cause-{number}"):
        left_column, right_column = st.columns([2, 3], gap="medium")
        with left_column:
            st.markdown(f"**{number + 1} · {plain(cause['label'])}**{name_text}")
            st.markdown(f"Without it: {plain(effect_text(cause['removal']))}")
        suggestion = cause.get("suggestion")
        with right_column:
            if suggestion is None:
                st.markdown("None of the changes that were tried helps on every seed.")
                return
            st.markdown(
                f"{plain(cause['advice'])} {plain(changes_text(suggestion['settings'], scenario))}"
            )
            st.markdown(f":green[:material/trending_up:] {plain(effect_text(suggestion))}")
            if st.button("Apply and compare", icon=":material/science:", key=f"apply-{number}"):
                name = f"{scenario.name[:100]} · suggestion {number + 1}"
                with session.toast_refusals():
                    variant = with_overrides(scenario, {**suggestion["settings"], "name": name})
                    variant_run = session.start_run(variant)
                    go_to(links.COMPARE_PAGE, {links.RUNS: f"{row.id},{variant_run}"})


def draw_one_request(row: RunRow, scenario: Scenario) -> None:
    """Draw the choice of a request, then its time to the first token and how it decoded."""
    choices = record.slow_requests(row.id, scenario.warmup_s)
    if not choices:
        st.markdown("No request finished after the warm-up.")
        return
    criterion, request_number = _draw_request_choice(choices, int(row.summary.get("requests") or 1))
    median_number = choices[criterion][1]
    request = record.request_row(row.id, request_number)
    median = record.request_row(row.id, median_number)
    if request is None or median is None:
        st.warning(f"Request {request_number} is not in this run.", icon=":material/search_off:")
        return
    passes_of_both = _passes_of(row, scenario, request_number, median_number)
    times_s, median_times_s = map(_seconds_to_first_token, (request, median), passes_of_both)
    st.subheader(
        _request_sentence(request_number, times_s, median_times_s, request, median), anchor=False
    )
    st.caption(_description_of(request))
    if passes_of_both[0] is not None and (hot_reads := passes_of_both[0].hot_reads):
        nodes_text = ", ".join(f"node {node} by {seconds(held_s)}" for node, held_s in hot_reads)
        st.markdown(
            f"A hot memory server held the read of its cached tokens back: {nodes_text}. "
            "Its port had more to send than those of the others."
        )
    colour_of = STAGE_COLOURS | {_part_name(o): colour for o, colour in theme.OPERATOR.items()}
    colours = {
        part: colour_of.get(part, theme.STAGE["prefill_queue"])
        for part in {**times_s, **median_times_s}
    }
    caption = "Stages of this request next to the median of all."
    plot(charts.waterfall(times_s, caption, colours=colours, median=median_times_s), "request")
    st.caption(f"To the first token. Grey: request {median_number:,}, the median by {criterion}.")
    draw_sections("run.request", row, request_number)
    _draw_decoding((request, median), passes_of_both)


def _draw_request_choice(picks: Mapping[str, tuple[int, int]], count: int) -> tuple[str, int]:
    """Draw the choice of a request; returns (criterion, number of the request), at first the
    slowest. picks: (slowest, median) request by criterion; count: requests of the run."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        criterion = st.segmented_control(
            "Slowest by", list(picks), default=next(iter(picks)), required=True, key="slowest-by",
        )  # fmt: skip
        picked_text = st.query_params.get(PICKED, "")
        is_valid = picked_text.isdecimal() and len(picked_text) < 10 and int(picked_text) < count
        request_number = st.number_input(
            "Or by its number", 0, max(0, count - 1), int(picked_text) if is_valid else None,
            key="request-number", placeholder="any request", width=200,
        )  # fmt: skip
    if request_number is None:
        if picked_text and not is_valid:
            link_text = f"The link names request {path_text(picked_text)}; this run has 0 to "
            st.warning(plain(f"{link_text}{count - 1:,}."), icon=":material/link_off:")
        st.query_params.pop(PICKED, None)
        return criterion, picks[criterion][0]
    st.query_params[PICKED] = str(request_number)
    return criterion, int(request_number)


def _passes_of(row: RunRow, scenario: Scenario, *numbers: int) -> list[Inside | None]:
    """For each of the request numbers, the iterations and prefill batches of its instances during
    its stay; None if unknown. A re-run that takes long waits for a click."""
    no_passes: list[Inside | None] = [None] * len(numbers)
    if not can_explain(row, scenario):
        return no_passes
    state_key, wall_s = f"watch:{row.id}", row.wall_s or 0.0
    if wall_s > AT_ONCE_S and not st.session_state.get(state_key):
        button_text = f"Look inside its prefill: about {seconds(2 * wall_s)}"
        if not st.button(button_text, icon=":material/zoom_in:", key="look-inside"):
            return no_passes
        st.session_state[state_key] = True
    try:
        return [record.passes_of_request(row.id, number) for number in numbers]
    except ValueError as error:
        if not type(error).__module__.startswith("twin."):
            raise
        st.warning(sentence(str(error)), icon=":material/error:")
        return no_passes


def _seconds_to_first_token(row: Mapping[str, Any], passes: Inside | None) -> dict[str, float]:
    """Seconds to a request's first token, by stage; prefill is divided by operator if `passes` is
    known. row: the request in the table of requests."""
    parts_s: dict[str, float] = {}
    for name, stage_s in stage_times(row).items():
        if name == "prefill" and passes is not None and passes.prefill:
            operator_times = sorted(passes.prefill, key=lambda item: item[0] != "")
            parts_s |= {_part_name(operator): time_s for operator, time_s in operator_times}
        elif name != DECODE:
            parts_s[name] = stage_s
    return parts_s


def _part_name(operator: str) -> str:
    """Name of the part of prefill that an operator takes; operator '' stands for waiting."""
    return f"prefill: {theme.title(operator).lower() if operator else WAITS}"


def _request_sentence(
    number: int, times_s: Mapping[str, float], median_times_s: Mapping[str, float],
    request: Mapping[str, Any], median: Mapping[str, Any],
) -> str:  # fmt: skip
    """Sentence that compares a request with the median request, by their seconds to the first token
    by part, and by TPOT. request, median: their rows of the table of requests."""
    total_s, median_total_s = sum(times_s.values()), sum(median_times_s.values())
    excess_s = {name: part_s - median_times_s.get(name, 0.0) for name, part_s in times_s.items()}
    worst_part = max(excess_s, key=lambda name: excess_s[name], default="")
    sentence_text = f"Request {number:,}: first token after {seconds(total_s)}"
    if total_s == 0.0:  # a resident of the start
        sentence_text = f"Request {number:,} had its first token before this run began"
    elif median_total_s > 0:
        sentence_text += f", {three_figures(total_s / median_total_s)} times the median's"
    if worst_part and excess_s[worst_part] > 0.05 * total_s:
        sentence_text += f"; {seconds(excess_s[worst_part])} of the difference is “{worst_part}”"
    request_tpot_s, median_tpot_s = _tpot_s(request), _tpot_s(median)
    if request_tpot_s and median_tpot_s:
        sentence_text += f". TPOT {seconds(request_tpot_s)}, the median's {seconds(median_tpot_s)}"
    return sentence_text + "."


def _tpot_s(row: Mapping[str, Any]) -> float:
    """Seconds per output token after the first of a request (its row); 0 if it has one token."""
    decode_s = stage_times(row).get(DECODE, 0.0)
    return decode_s / (row["output_tokens"] - 1) if row["output_tokens"] > 1 else 0.0


def _description_of(row: Mapping[str, Any]) -> str:
    """Sentence on a request (its row): arrival, tokens, instances, preemptions and retries."""
    clauses = [f"arrived at {seconds(row['arrival_s'])}",
            f"{numbered(row['input_tokens'], 'prompt token')}, "
             f"{row['hit_tokens']:,} of them in the pool",
            numbered(row["output_tokens"], "output token")]  # fmt: skip
    clauses += [f"{role} instance {row[f'{role}_instance']}" for role in ("prefill", "decode")
             if row[f"{role}_instance"] is not None]  # fmt: skip
    clauses += [f"{count} {singular if count == 1 else plural}" for singular, plural in EVENTS
                if (count := row.get(plural))]  # fmt: skip
    status_text = "" if str(row["status"]) == "finished" else f" It is {row['status']}."
    return sentence(", ".join(clauses)) + status_text


def _draw_decoding(rows: Sequence[Mapping[str, Any]], passes_of: Sequence[Inside | None]) -> None:
    """Draw how a request decoded next to the median request: wait, iterations, tokens. rows: both
    in the table of requests. passes_of: their passes; nothing is drawn if these are unknown."""
    figures_of_both = [
        {
            "Decode wait": seconds(passes.decode_wait_s),
            "Iterations": f"{passes.iterations:,}",
            "Mean iteration": seconds(passes.iteration_s),
            "Tokens an iteration": three_figures(row["output_tokens"] / passes.iterations),
        }
        for row, passes in zip(rows, passes_of, strict=True)
        if passes is not None and passes.iterations
    ]
    if len(figures_of_both) == len(rows):
        request_figures, median_figures = figures_of_both
        with st.grid(4, min_column_width=165):
            for label, value in request_figures.items():
                median_text = f"median {median_figures[label]}"
                st.metric(label, value, median_text, delta_color="off", delta_arrow="off")
