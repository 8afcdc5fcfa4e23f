"""Why one request was slow: its time part by part, beside the median request's."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from twin.hooks import drawn
from twin.lab.runs.watched import DECODE, Inside, stages
from twin.lab.store import RunRow
from twin.metrics.measures import seconds, three_figures
from twin.scenario import Scenario
from twin.ui import record, theme
from twin.ui.charts import waterfall
from twin.ui.fields import sentence
from twin.ui.pages.run import explained
from twin.ui.show import plot

AT_ONCE_S = 3.0  # wall time of a run up to which a request's span is run again unasked
PICKED = "request"  # of the address and of the session: the number of the request
COLOURS = {
    "front end": theme.STAGE["front_end"],
    "waiting for admission": theme.STAGE["router"],
    "prefill queue": theme.STAGE["prefill_queue"],
    "prefill": theme.STAGE["prefill"],
    "KV transfer": theme.STAGE["kv_transfer"],
}
WAITS = "pool reads and other batches"  # of the time of prefill that no operator accounts for


def section(row: RunRow, scenario: Scenario) -> None:
    """Pick a request; where its time went to the first token, and how it decoded."""
    picks = record.requests_by(row.id, scenario.warmup_s)
    if not picks:
        st.markdown("No request finished after the warm-up.")
        return
    by, number = _picked(picks, int(row.summary.get("requests") or 1))
    here, median = record.request(row.id, number), record.request(row.id, picks[by][1])
    if here is None or median is None:
        st.warning(f"Request {number} is not in this run.", icon=":material/search_off:")
        return
    both = _watched(row, number, picks[by][1])
    parts, usual = (_to_first_token(r, seen) for r, seen in zip((here, median), both, strict=True))
    st.subheader(_conclusion(number, parts, usual, here, median), anchor=False)
    st.caption(_about(here))
    if both[0] is not None and both[0].hot_reads:
        st.markdown(_hot(both[0]))
    known = COLOURS | {_prefill(name): colour for name, colour in theme.OPERATOR.items()}
    colours = {n: known.get(n, theme.STAGE["prefill_queue"]) for n in {**parts, **usual}}
    plot(waterfall.beside_median(parts, usual, colours), "request")
    st.caption(f"To the first token. Grey: request {picks[by][1]:,}, the median by {by}.")
    drawn("run.request", row, number)
    _decoded((here, median), both)


def _picked(picks: Mapping[str, tuple[int, int]], count: int) -> tuple[str, int]:
    """By what the request is slow, and its number: the slowest unless one is named."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        by = st.segmented_control(
            "Slowest by", list(picks), default=next(iter(picks)), required=True, key="slowest-by",
        )  # fmt: skip
        named = st.query_params.get(PICKED, "")
        number = st.number_input(
            "Or by its number", 0, max(0, count - 1),
            int(named) if named.isdigit() and int(named) < count else None,
            key="request-number", placeholder="any request", width=200,
        )  # fmt: skip
    if number is None:
        st.query_params.pop(PICKED, None)
        return by, picks[by][0]
    st.query_params[PICKED] = str(number)
    return by, int(number)


def _watched(row: RunRow, *numbers: int) -> list[Inside | None]:
    """What ran while these requests were there; None where that is not known."""
    nothing: list[Inside | None] = [None for _ in numbers]
    if not explained.applies(row):
        return nothing
    key, wall_s = f"watch:{row.id}", row.wall_s or 0.0
    if wall_s > AT_ONCE_S and not st.session_state.get(key):
        text = f"Look inside its prefill: about {seconds(2 * wall_s)}"
        if not st.button(text, icon=":material/zoom_in:", key="look-inside"):
            return nothing
        st.session_state[key] = True
    try:
        return [record.inside(row.id, number) for number in numbers]
    except ValueError as error:
        if not type(error).__module__.startswith("twin."):
            raise
        st.warning(sentence(str(error)), icon=":material/error:")
        return nothing


def _to_first_token(row: Mapping[str, Any], seen: Inside | None) -> dict[str, float]:
    """Seconds by part up to the first token; prefill by operator where that is known."""
    known: dict[str, float] = {}
    for name, took in stages(row).items():
        if name == "prefill" and seen is not None and seen.prefill:
            operators = sorted(seen.prefill, key=lambda item: item[0] != "")
            known |= {_prefill(operator): spent for operator, spent in operators}
        elif name != DECODE:
            known[name] = took
    return known


def _prefill(operator: str) -> str:
    return f"prefill: {theme.title(operator).lower() if operator else WAITS}"


def _conclusion(
    number: int, parts: Mapping[str, float], usual: Mapping[str, float],
    here: Mapping[str, Any], median: Mapping[str, Any],
) -> str:  # fmt: skip
    """How slow the request was, and what of it was slow."""
    took, other = sum(parts.values()), sum(usual.values())
    more = {name: spent - usual.get(name, 0.0) for name, spent in parts.items()}
    worst = max(more, key=lambda name: more[name], default="")
    text = f"Request {number:,}: first token after {seconds(took)}"
    if other > 0:
        text += f", {three_figures(took / other)} times the median's"
    if worst and more[worst] > 0.05 * took:
        text += f"; {seconds(more[worst])} of the difference is “{worst}”"
    ran, usually = _per_token(here), _per_token(median)
    if ran and usually:
        text += f". TPOT {seconds(ran)}, the median's {seconds(usually)}"
    return text + "."


def _hot(seen: Inside) -> str:
    """Which memory servers held the read of a request's cached tokens back, and by how much."""
    told = [f"node {node} by {seconds(held_s)}" for node, held_s in seen.hot_reads]
    return (
        f"A hot memory server held the read of its cached tokens back: {', '.join(told)}. Its port "
        "had more to send than those of the others."
    )


def _per_token(row: Mapping[str, Any]) -> float:
    """Seconds from token to token; 0 where that is not known."""
    took = stages(row).get(DECODE, 0.0)
    return took / (row["output_tokens"] - 1) if row["output_tokens"] > 1 else 0.0


def _about(row: Mapping[str, Any]) -> str:
    """What the request asked, and what happened to it."""
    told = [f"arrived at {seconds(row['arrival_s'])}",
            f"{row['input_tokens']:,} prompt tokens, {row['hit_tokens']:,} of them in the pool",
            f"{row['output_tokens']:,} output tokens"]  # fmt: skip
    told += [f"{role} instance {row[f'{role}_instance']}" for role in ("prefill", "decode")
             if row[f"{role}_instance"] is not None]  # fmt: skip
    told += [f"{row[name]} {name}" for name in ("preemptions", "retries") if row.get(name)]
    ended = "" if str(row["status"]) == "finished" else f" It is {row['status']}."
    return sentence(", ".join(told)) + ended


def _decoded(rows: tuple[Mapping[str, Any], ...], both: list[Inside | None]) -> None:
    """How the request decoded: its wait, its iterations, what each gave; and the median's."""
    told = [
        {
            "Decode wait": seconds(seen.decode_wait_s),
            "Iterations": f"{seen.iterations:,}",
            "Mean iteration": seconds(seen.iteration_s),
            "Tokens an iteration": three_figures(row["output_tokens"] / seen.iterations),
        }
        for row, seen in zip(rows, both, strict=True)
        if seen is not None and seen.iterations
    ]
    if len(told) == len(rows):
        one, median = told
        with st.grid(4, min_column_width=165):
            for label, value in one.items():
                usual = f"median {median[label]}"
                st.metric(label, value, usual, delta_color="off", delta_arrow="off")
