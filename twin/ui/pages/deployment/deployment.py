"""Which instances serve and by which policies, with the steady state by formula next to them."""

import streamlit as st

from twin.hooks import drawn
from twin.lab.explain.waterfall import iteration_of
from twin.model.predict import DecodePrediction
from twin.ui import formulas, imports, live, session, words
from twin.ui.fields import sentence
from twin.ui.forms import faults, instances, whole
from twin.ui.pages.deployment import answers
from twin.ui.show import passes
from twin.ui.toolbar import workspace

simulated = workspace("deployment")
form, facts = st.columns([3, 2], gap="large")

# 1) The form.
with form:
    group = whole("deployment", {"Faults": faults.form})
    instances.seats()
    instances.scheduler()
    if group == "Pools":
        instances.models()
        drawn("deployment.pools", session.draft())
    if group == "Experts" and session.value("experts.popularity") == "imported":
        imports.upload(imports.COUNTS)
    if group == "Elasticity":
        instances.scaling()
    if group == "Memory pool" and not session.refusal():
        drawn("deployment.memory_pool", session.draft())

# 2) What it sustains when every slot is taken, by the formulas that a run uses too.
with facts, st.container(border=True):
    st.markdown("**What this sustains**")
    if first := words.of_first(session.draft()):
        st.caption(first)
    if session.refusal():
        st.stop()
    draft = formulas.whole(session.draft())
    prediction, demand = formulas.capacity(draft), formulas.offered(draft)
    if isinstance(prediction, str):
        st.markdown(f":red[:material/error: {sentence(prediction)}]")
        st.stop()
    advice = prediction.advice
    for remark in prediction.costs.remarks:
        advice = advice.replace(remark, "")
        st.warning(sentence(remark), icon=":material/event_busy:")
    with st.grid(2, min_column_width=180):
        for tile in answers.capacity(draft, prediction, demand):
            st.metric(**tile)
    st.caption(
        f"{sentence(advice.strip())} By formula, with every slot taken and the traffic's mean "
        "lengths; a run adds queues, bursts and a memory pool that fills."
    )

# 3) Where the time of one iteration goes.
with facts:
    parts = {"Decode": prediction.decode, "Prefill": prediction.prefill}
    phases = {name: part for name, part in parts.items() if part}
    phase = st.segmented_control(
        "Where the time goes, slots full", list(phases), default=next(iter(phases)), required=True,
        key=f"phase:{'+'.join(phases)}",
    )  # fmt: skip
    part, name_of = phases[phase], "iteration" if phase == "Decode" else "batch"
    plan = formulas.layers(draft).get(phase.lower())
    rows = iteration_of(answers.operators(phase.lower(), part), phase.lower(), plan)
    took_s = part.iteration_s if isinstance(part, DecodePrediction) else part.batch_s
    passes(plan, rows, took_s, name_of)

# 4) The second answer: the draft simulated under its own load.
live.answer(simulated, session.draft())
