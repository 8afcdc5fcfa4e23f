"""Several models served: starts, switches and waiting of requests, by where weights are kept."""

import streamlit as st

from twin.lab.model_cache import Asked, ModelCache, model_stores, table, takes_for_granted
from twin.scenario import Scenario, canonical
from twin.ui import session
from twin.ui.charts.memory import model_waits
from twin.ui.fields import choice_label, sentence
from twin.ui.show import plot

GROUP = "Memory pool"


def section() -> None:
    """Numbers to set, how long requests wait for each model, and a column for each store."""
    st.subheader("Model cache and switching", anchor=False)
    draft, facts = session.draft(), session.facts()
    with st.grid(3, min_column_width=150):
        models = st.number_input("Models served", 1, 64, 8, key="cache-models")
        instances = st.number_input(
            "NPU slots", 1, 512, 8, key="cache-instances",
            help="Each takes the NPUs of this deployment and holds one model at a time.",
        )  # fmt: skip
        skew = st.number_input(
            "Popularity exponent", 0.0, 5.0, 0.0, 0.1, key="cache-skew",
            help="Popularity of a model falls with its rank to this power; 0: all alike.",
        )  # fmt: skip
        rate = st.number_input("Requests per hour", 1, 1_000_000, 180, key="cache-rate")
        hours = st.number_input("Hours", 1, 240, 24, key="cache-hours")
        idle_s = st.number_input(
            "Idle time before zero (s)", 0, 86_400, 60, 30, key="cache-idle",
            help="A model without requests for so long gives its NPUs back: it scales to zero.",
        )  # fmt: skip
        local = st.number_input("Models in local DRAM", 0, 64, 1, key="cache-local")
        pooled = st.number_input("Models in the memory pool", 0, 64, 16, key="cache-pooled")
        bucket = st.number_input("Object storage (GB/s)", 0.01, 1000.0, 2.5, key="cache-bucket")
    names = st.multiselect(
        "Which models, in turn", facts.names("models"), key="cache-names",
        format_func=lambda name: choice_label("deployment.model", name, facts),
        placeholder=choice_label("deployment.model", draft.deployment.model, facts),
    )  # fmt: skip
    shares = st.text_input(
        "Shares of the requests", key="cache-shares", placeholder="by rank",
        help="A number for each model, as 50 30 20, in place of the exponent.",
    )  # fmt: skip
    try:
        each = tuple(map(float, shares.replace(",", " ").split()))
    except ValueError:
        st.caption("Shares are numbers, as 50 30 20.")
        return
    try:
        asked = Asked(
            int(models), int(instances), skew, int(local), int(pooled), 1e9 * bucket,
            each, tuple(names), rate / 3600, idle_s, hours,
        )  # fmt: skip
        answer = _answer(canonical(draft), asked, draft)
    except ValueError as refused:
        st.caption(sentence(str(refused)))
        return
    plot(model_waits(answer), "model-waits")
    heads = ("Kept in", *(store.name for store in answer.stores))
    rows = [dict(zip(heads, row, strict=True)) for row in table(answer.stores)]
    st.dataframe(rows, hide_index=True, height="content")
    st.caption(takes_for_granted(draft, facts, asked))


@st.cache_data(show_spinner="Serving the models", max_entries=50)
def _answer(key: str, asked: Asked, _draft: Scenario) -> ModelCache:
    return model_stores(_draft, session.facts(), asked)
