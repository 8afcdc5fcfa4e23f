"""The traffic: arrivals, lengths, shared prefixes, a recorded trace, and what it asks for."""

import streamlit as st

from twin.hooks import draw_sections
from twin.metrics.measures import amount
from twin.metrics.steadiness import is_stationary
from twin.scenario import npus_used, split_models
from twin.ui import formulas, imports, live, session, words
from twin.ui.fields import sentence
from twin.ui.forms import draw_form
from twin.ui.forms.tables import draw_rows
from twin.ui.toolbar import draw_scenario_head

simulated = draw_scenario_head("workload")
form_column, answer_column = st.columns([3, 2], gap="large")

# 1) The form.
with form_column:
    group = draw_form("workload", {})
    if group == "Clients":
        st.caption("Tenants: who shares the machine. Without a row, all requests are of one.")
        draw_rows("tenants")
    if session.widget_value("workload.arrivals") == "trace":
        imports.draw_trace_upload()

# 2) What it asks of the machine, by a sample of the very requests a run would see.
with answer_column, st.container(border=True):
    st.markdown("**What this asks for**")
    if model_note := words.first_model_note(session.draft()):
        st.caption(model_note)
    if session.refusal():
        st.stop()
    demand = formulas.offered(session.draft())
    if isinstance(demand, str):
        st.caption(sentence(demand))
        st.stop()
    ratio_text = f"{demand.input_per_output:,.3g} : 1"
    with st.grid(2, min_column_width=180):
        st.metric(
            "Prompt : output tokens", ratio_text,
            help="Prompt tokens for each output token. It decides how many NPUs should prefill "
            "and how many should decode.",
        )  # fmt: skip
        st.metric(*words.pool_npus(session.draft()))
        answers = demand.output_tokens_per_s
        if answers is None:
            st.metric("Requests in flight", words.traffic_text(session.draft()))
        else:
            npus = npus_used(split_models(session.draft())[0])
            per_npu = amount(answers / npus, "rate", "tokens/s")
            help_text = f"Output tokens per second for each NPU that serves ({npus:,} in all)."
            st.metric("Requests", amount(demand.rate_req_per_s, "rate", "req/s"))
            st.metric("Prompt tokens", amount(demand.input_tokens_per_s, "rate", "tokens/s"))
            st.metric("Output tokens", amount(answers, "rate", "tokens/s"))
            st.metric("Output tokens per NPU", per_npu, help=help_text)
        help_text = (
            "Share of the prompt tokens that an endless memory pool has seen before, of a run's "
            "requests after its warm-up. It rises with time where sessions come back: a long run "
            "can hit more."
        )
        label = f"Reusable, of {demand.requests:,} requests"
        st.metric(label, amount(demand.reuse, "share"), help=help_text)
    draw_sections("workload.facts", session.draft(), demand)
    about_key = f"workloads.{session.draft().workload.lengths}.about"
    if about_key in session.facts():
        st.caption(session.facts()[about_key].value)
    if demand.input_tokens_p95 > demand.input_tokens_p50:
        st.caption(
            f"Prompts: half are under {demand.input_tokens_p50:,.0f} tokens, 95\u00a0% under "
            f"{demand.input_tokens_p95:,.0f}. Outputs: half under {demand.output_tokens_p50:,.0f}, "
            f"95\u00a0% under {demand.output_tokens_p95:,.0f}. From {demand.requests:,} requests."
        )

    if is_stationary(session.draft()):
        times_s = formulas.times(session.draft())
        times_now_s = session.draft().horizon_s, session.draft().warmup_s
        if not isinstance(times_s, str) and times_s != times_now_s:
            horizon_s, warmup_s = times_s
            if st.button(
                f"Simulate {horizon_s:g} s, {warmup_s:g} s of it warm-up",
                icon=":material/timer:", key="fit-times", type="tertiary",
                help="A warm-up of one life of a request, so that nearly all that were under way "
                "at the start have left, then two lives and 3,000 requests.",
            ):  # fmt: skip
                session.propose({"horizon_s": horizon_s, "warmup_s": warmup_s})
                st.rerun()

# 3) The second answer: the draft simulated.
live.draw_answer(simulated, session.draft())
