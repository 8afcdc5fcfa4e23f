"""Several served models by where weights are stored: starts, switches and waiting."""

import streamlit as st

from twin.extras.model_cache import study
from twin.metrics.measures import amount
from twin.scenario import Scenario, canonical
from twin.ui import session, theme
from twin.ui.charts.base import Chart, chart, figure, reads
from twin.ui.fields import choice_label, sentence
from twin.ui.show import plot


def section(draft: Scenario) -> None:
    """Draw the inputs, waiting by model, and a column for each store."""
    st.subheader("Model cache and switching", anchor=False)
    facts = session.facts()
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
        question = study.Question(
            int(models), int(instances), skew, int(local), int(pooled), 1e9 * bucket,
            each, tuple(names), rate / 3600, idle_s, hours,
        )  # fmt: skip
        answer = _answer(canonical(draft), question, draft)
    except ValueError as refused:
        st.caption(sentence(str(refused)))
        return
    plot(model_waits(answer), "model-waits")
    heads = ("Stored in", *(store.name for store in answer.stores))
    rows = [dict(zip(heads, row, strict=True)) for row in study.table(answer.stores)]
    st.dataframe(rows, hide_index=True, height="content")
    st.caption(study.takes_for_granted(draft, facts, question))


@st.cache_data(show_spinner="Serving the models", max_entries=50)
def _answer(key: str, question: study.Question, _draft: Scenario) -> study.ModelCache:
    return study.model_stores(_draft, session.facts(), question)


@reads("Each row is a model; its requests wait while processes start and weights load.")
def model_waits(answer: study.ModelCache) -> Chart:
    """Chart of mean waiting by model, with a mark for each store of weights."""
    fig = figure(height=90 + 30 * len(answer.models))
    looks = zip(
        answer.stores, (theme.OTHER, theme.PLANE["vpc"], theme.ROLE["memory_pool"]),
        (("circle", 12), ("diamond-open", 16), ("square", 9)), strict=True,
    )  # fmt: skip
    for store, colour, (symbol, size) in looks:
        fig.add_scatter(
            x=store.wait_s_by_model, y=answer.models, mode="markers", name=store.name,
            marker={"color": colour, "size": size, "symbol": symbol},
            customdata=[amount(wait_s, "time") for wait_s in store.wait_s_by_model],
            hovertemplate=f"%{{y}}, {store.name}: %{{customdata}}<extra></extra>",
        )  # fmt: skip
    wait_times = [wait_s for store in answer.stores for wait_s in store.wait_s_by_model]
    listing = ", ".join(f"{s.name} {amount(s.wait_s_mean, 'time')}" for s in answer.stores)
    scale = "linear" if 0.0 in wait_times else "log"
    return chart(
        fig, f"Mean waiting of requests by model; of all: {listing}.",
        x={"type": scale, "title_text": "mean waiting of requests (s)", "showgrid": True},
        y={"autorange": "reversed", "dtick": 1, "showgrid": True},
        hovermode="closest", showlegend=True,
    )  # fmt: skip
