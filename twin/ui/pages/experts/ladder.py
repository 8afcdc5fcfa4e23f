"""Benchmark versus deployment: the ladder of runs, climbed while someone looks. Rungs are answered
by runs like any other: found again where stored, else started by one click, a few at a time."""

from typing import Any

import streamlit as st

from twin.lab import attribution
from twin.lab.attribution import AttributionError, Part, Rung, Step
from twin.lab.job import load_engine
from twin.lab.runner import find_run
from twin.lab.store import RunRow, StoreError
from twin.metrics.measures import amount, seconds
from twin.model.predict import Prediction
from twin.scenario import Scenario, canonical, scenario_digest
from twin.ui import formulas, session
from twin.ui.charts import experts as charts_experts
from twin.ui.fields import sentence
from twin.ui.show import plot

AT_ONCE = 3  # runs asked for ahead of their answers
LOOKED_BACK = 5  # latest runs of a question that may hold its answer
WHOLES = ("benchmark",)
MEASURED = {attribution.THROUGHPUT: "Throughput", attribution.SLO: "Within the SLO"}
SAID = {
    attribution.THROUGHPUT: "TTFT within its SLO, so that no queue grows, whatever the TPOT",
    attribution.SLO: "TTFT and TPOT within their SLOs",
}


def section(scenario: Scenario) -> None:
    """The waterfall of this deployment, and the button that fills it."""
    st.subheader("Benchmark versus deployment", anchor=False)
    st.caption(
        "What a benchmark of this machine would give (one length, every slot full, even experts), "
        "and what each difference to this deployment takes away, in output tokens per second for "
        "each NPU that decodes. Published: a canary in production reached about 50 % of its "
        "benchmark's throughput, which is put down to expert imbalance; what traffic it had, how "
        "its experts were placed and what SLO it kept is not said."
    )
    measure = _measure()
    try:
        rungs = rungs_of(canonical(scenario), scenario, measure)
    except AttributionError as error:
        st.info(sentence(str(error)), icon=":material/info:")
        return
    going = f"ladder:{measure}:{scenario_digest(scenario)}"
    if st.session_state.get(going):
        _climb(rungs, going)
    else:
        _stand(rungs, going)


@st.cache_data(show_spinner=False, max_entries=50)
def rungs_of(key: str, _scenario: Scenario, measure: str) -> list[Rung]:
    """The ladder of a deployment, and behind it its causes alone."""
    rungs = attribution.ladder_of(_scenario, measure)
    return rungs + attribution.alone(rungs)


def _measure() -> str:
    """Which SLO a rate must keep."""
    measure = st.segmented_control(
        "Measured as", list(MEASURED), default=attribution.THROUGHPUT, key="ladder-measure",
        format_func=MEASURED.__getitem__, required=True,
        help=f"A rung with arrivals is worth what it sustains: the highest rate at which "
        f"{attribution.ATTAINED:.0%} of requests get what the measure asks for.",
    )  # fmt: skip
    st.caption(f"Counts: {SAID[measure]}.")
    return str(measure)


def _stand(rungs: list[Rung], going: str) -> None:
    """What is known, and the button for the rest."""
    steps, trouble = climbed(rungs)
    if not all(step.done for step in steps):
        rest = any(step.done for step in steps)
        st.button(
            "Find the rest" if rest else "Find the parts", type="primary",
            icon=":material/stairs:", key="climb", on_click=_set, args=(going, True),
            help="About fifty runs of this scenario, a few at a time; each is kept and found again."
        )  # fmt: skip
        if trouble:
            st.error(trouble, icon=":material/error:")
    _draw(steps)


def _set(going: str, value: bool) -> None:
    st.session_state[going] = value


@st.fragment(run_every=1.0)
def _climb(rungs: list[Rung], going: str) -> None:
    """Ask for what is wanted next, and show how far it is."""
    steps, trouble = climbed(rungs)
    if trouble or all(step.done for step in steps):
        _set(going, False)
        st.rerun()
    wanted = [step.wanted for step in steps if step.wanted is not None]
    try:
        waiting = [session.run(question) for question in wanted[:AT_ONCE]]
    except StoreError as error:
        _set(going, False)
        st.error(sentence(str(error)), icon=":material/error:")
        return
    rows = [row for row in map(session.store().runs.get, waiting) if row is not None]
    asked = sum(len(step.asked) for step in steps)
    done = sum(step.done for step in steps)
    share = sum(_share(step) for step in steps) / len(steps)
    now = rows[0].name.rsplit(" · ", 1)[-1] if rows else ""
    told = f"{done} of {len(steps)} rungs, {asked} runs answered"
    st.progress(min(1.0, share), f"{told}; now {now}" if now else told)
    st.button("Pause", icon=":material/pause:", key="pause", on_click=_set, args=(going, False))
    _draw(steps)


def _share(step: Step) -> float:
    if step.done:
        return 1.0
    return len(step.asked) / attribution.PROBES if step.rung.searched else 0.0


def climbed(rungs: list[Rung]) -> tuple[list[Step], str]:
    """Every rung as far as the store answers it, and why it can go no further, if so."""
    steps: list[Step] = []
    trouble = ""
    for rung in rungs:
        most = 0.0
        if rung.searched:
            prediction = formulas.capacity(rung.scenario)
            if not isinstance(prediction, Prediction):
                return steps, sentence(str(prediction))
            most = prediction.requests_per_s
        step = attribution.climb(rung, answer, most)
        if step.wanted is not None and (ended := _ended_badly(step.wanted)):
            trouble = ended
        steps.append(step)
    return steps, trouble


def answer(question: Scenario) -> dict[str, Any] | None:
    """The summary of a stored run of a question by today's engine and facts."""
    kept, digest = st.session_state.setdefault("ladder-answers", {}), scenario_digest(question)
    if digest not in kept and (row := find_run(session.store(), question)):
        kept[digest] = row.summary
    return kept.get(digest)


def _ended_badly(question: Scenario) -> str:
    """Why the latest run of a question has no answer, '' when it has or may yet."""
    digest, version = scenario_digest(question), load_engine().version
    rows = session.store().runs.search(scenario=digest, limit=LOOKED_BACK).rows
    latest: RunRow | None = next((r for r in rows if r.engine_version == version), None)
    if latest is None or latest.state != "failed":
        return ""
    return f"{latest.name} failed: {sentence(latest.message)}"


def _draw(steps: list[Step]) -> None:
    """Waterfall, the headline ratios, and what each rung came to as a table."""
    parts = attribution.parts(steps)
    if not parts:
        return
    _headline(parts)
    bars = [(p.label, p.tokens_per_s_per_npu, p.change, p.key in WHOLES) for p in parts]
    plot(charts_experts.waterfall(bars, f"answer {attribution.UNIT}"), "waterfall")
    with st.expander("Rung by rung"):
        known = {part.key: part for part in parts}
        rows = [_line(s, known[s.rung.key]) for s in steps if s.done and s.rung.key in known]
        st.dataframe(rows, hide_index=True)
        st.caption(
            "Every rung is the one before it with one cause more, in this order: a cause is "
            "charged what it takes of what those before it have left, so late ones look smaller. "
            "Alone is what it takes of the benchmark with mean lengths, slots full. Longer "
            "contexts: all requests alike, with as many tokens to read as production's mean "
            "answer token. Uneven lengths: what waiting for the die with the most to read costs "
            "beyond that. The runs are in the library."
        )


def _headline(parts: list[Part]) -> None:
    whole = parts[0].tokens_per_s_per_npu
    by_key = {p.key: p for p in parts}
    shown = (
        ("Without balancing", "experts", "Experts in order, one copy each."),
        ("Placed once", "static", "Experts copied and packed by the load measured before (EPLB)."),
        ("Balanced in the loop", "balancing", "Moved again whenever the policy says so."),
    )
    says = "Output tokens per second for each NPU that decodes."
    with st.grid(4, min_column_width=180):
        st.metric("Benchmark", amount(whole, "rate", "tokens/s"), help=says)
        for label, key, help_ in shown:
            if key in by_key and whole:
                left = by_key[key].tokens_per_s_per_npu
                rate = f"{amount(left, 'rate', 'tokens/s')} per decode NPU"
                st.metric(
                    label, amount(left / whole, "share"), rate, delta_color="off",
                    delta_arrow="off", help=f"Of the benchmark. {help_}",
                )  # fmt: skip


def _line(step: Step, part: Part) -> dict[str, Any]:
    s = step.summary or {}
    rate = step.rate_req_per_s
    return {
        "Rung": step.rung.label,
        "Tokens/s per decode NPU": round(step.tokens_per_s_per_npu or 0.0),
        "Change": "" if step.rung.key in WHOLES else f"{100 * part.share_of_benchmark:+.1f} %",
        "Alone": "" if part.alone is None else f"{100 * part.alone:+.1f} %",
        "Rate": "slots full" if rate is None else amount(rate, "rate", "req/s"),
        "TPOT mean": seconds(s["tpot_s_mean"]) if s.get("tpot_s_mean") else "–",
        "TTFT p99": seconds(s["ttft_s_p99"]) if s.get("ttft_s_p99") else "–",
        "Runs": len(step.asked),
    }
