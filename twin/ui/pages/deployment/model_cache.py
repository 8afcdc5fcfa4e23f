"""Model caching: cold starts and switches of several models, by where they are kept."""

import streamlit as st

from twin.lab.model_cache import Asked, beside_the_paper, model_stores
from twin.metrics.measures import amount
from twin.ui import session
from twin.ui.fields import sentence

GROUP = "Memory pool"


def section() -> None:
    """Numbers to set and a row for each place that keeps models."""
    st.subheader("Model cache and switching", anchor=False)
    with st.grid(3, min_column_width=150):
        models = st.number_input("Models served", 1, 64, 8, key="cache-models")
        instances = st.number_input("Instances that load", 1, 512, 8, key="cache-instances")
        skew = st.number_input(
            "Popularity exponent", 0.0, 5.0, 0.0, 0.1, key="cache-skew",
            help="Popularity of a model falls with its rank to this power; 0: all alike.",
        )  # fmt: skip
        local = st.number_input("Models in local DRAM", 0, 64, 1, key="cache-local")
        pooled = st.number_input("Models in the memory pool", 0, 64, 16, key="cache-pooled")
        bucket = st.number_input("Object storage (GB/s)", 0.01, 1000.0, 2.5, key="cache-bucket")
    asked = Asked(int(models), int(instances), skew, int(local), int(pooled), 1e9 * bucket)
    try:
        stores = model_stores(session.draft(), session.facts(), asked)
    except ValueError as refused:
        st.caption(sentence(str(refused)))
        return
    rows = [
        {
            "Kept in": store.name,
            "Cold start": amount(store.cold_s, "time"),
            "DRAM to NPU": amount(store.warm_s, "time"),
            "Hit ratio": amount(store.hit_ratio, "share"),
            "Mean switch": amount(store.switch_s, "time"),
            "DRAM, models": f"{store.dram_models:g} x",
        }
        for store in stores
    ]
    st.dataframe(rows, hide_index=True)
    st.caption(
        "From bytes and rates: instances share a bucket of object storage, and read DRAM over the "
        "machine's links all at once. Containers, graphs and warm-up are not counted. "
        + beside_the_paper(session.facts())
    )
