"""A prediction as tiles, each the arguments of one metric with its unit and its basis."""

from typing import Any

import polars as pl
import streamlit as st

from twin.lab.model_cache import Asked, ModelCache, model_stores, table, takes_for_granted
from twin.metrics.measures import amount, seconds
from twin.model.predict import DecodePrediction, Prediction, PrefillPrediction
from twin.scenario import Scenario, canonical
from twin.ui import formulas, session, theme
from twin.ui.charts.memory import break_even, model_waits
from twin.ui.fields import choice_label, glossed, sentence
from twin.ui.show import against_slo, plot
from twin.workload.offered import Offered

Tile = dict[str, Any]


def capacity(s: Scenario, prediction: Prediction, demand: Offered | str) -> list[Tile]:
    """What the deployment sustains, what limits it, and how that meets load and SLO."""
    rate, room = prediction.requests_per_s, prediction.kv_tokens_per_die
    says = "Requests per second that all pools together keep up with, for ever."
    shown = [
        _tile("Sustained requests", amount(rate, "rate", "req/s"), says),
        _load(prediction, demand),
    ]
    if prediction.decode is not None:
        shown += _decode(s, prediction.decode)
    says = "Tokens whose KV fits into the HBM of one die next to weights and buffers."
    shown.append(_tile("KV room, per die", amount(room, "rate", "tokens"), says))
    if (part := prediction.prefill) is not None:
        says = (
            "Prompt tokens computed per second by one NPU (two dies on a 910C) of the prefill "
            f"pool, hits not counted; a full batch takes {seconds(part.batch_s)} and waits longest "
            f"for {part.resource}."
        )
        each = amount(part.tokens_per_s_per_npu, "rate", "tokens/s")
        shown.append(_tile("Prefill, per NPU", each, says))
    return shown


def _load(prediction: Prediction, demand: Offered | str) -> Tile:
    if isinstance(demand, str) or demand.rate_req_per_s is None:
        return _tile("Limited by", theme.title(prediction.limit), "The pool that is full first.")
    load = demand.rate_req_per_s / prediction.requests_per_s
    text = amount(load, "share")
    says = (
        f"{amount(demand.rate_req_per_s, 'rate', 'req/s')} offered, over what is sustained; the "
        f"{prediction.limit} is full first. Above 100 % queues grow without end."
    )
    return _tile("Offered load", f":red[{text}]" if load > 1 else text, says)


def _decode(s: Scenario, part: DecodePrediction) -> list[Tile]:
    iteration = (
        f"Time per output token. An iteration takes {seconds(part.iteration_s)} and gives each "
        f"request {part.tokens_per_iteration:.3g} tokens; it waits longest for {part.resource} in "
        f"{theme.title(part.longest_operator).lower()}."
    )
    slo = against_slo(part.tpot_s, 1e-3 * s.slo.tpot_ms)
    says = "Output tokens per second of one NPU (two dies on a 910C) of the decode pool."
    limit = f"Requests one NPU decodes at once; limited by {part.limited_by}."
    return [
        _tile("TPOT, slots full", seconds(part.tpot_s), iteration, **slo),
        _tile("Decode, per NPU", amount(part.tokens_per_s_per_npu, "rate", "tokens/s"), says),
        _tile("Batch, per NPU", f"{part.batch_per_npu:,.0f} requests", limit),
    ]


def _tile(label: str, value: str, help_: str, **more: Any) -> Tile:
    return {"label": label, "value": value, "help": glossed(label, help_), **more}


def operators(phase: str, part: DecodePrediction | PrefillPrediction) -> pl.DataFrame:
    """Seconds by operator of one iteration, as the operators table of a run has them."""
    table = pl.DataFrame([*part.operators.items()], ["operator", "per_iteration_s"], orient="row")
    return table.with_columns(phase=pl.lit(phase), total_s="per_iteration_s")


# Whether cached KV is read or computed again, and how slow reads may be until it is computed.


def break_even_section() -> None:
    """Seconds of a thousand cached tokens by where they lie, and where reading them breaks even."""
    reads = formulas.reads(session.draft())
    if not reads:
        return
    st.subheader("Read or compute again", anchor=False)
    if isinstance(reads, str):
        st.caption(sentence(reads))
        return
    plot(break_even(reads), "break-even")
    table = [
        {
            "Read from": read.place,
            "Rate, one instance": amount(read.bytes_per_s, "bytes", "B/s"),
            "Breaks even at": amount(read.pays_above_bytes_per_s, "bytes", "B/s"),
            "Pays from": amount(read.pays_from_tokens, "count", "tokens"),
        }
        for read in reads
    ]
    st.dataframe(table, hide_index=True)
    st.caption(
        "By formula, for the first instance, all memory servers alike. A run reads cached blocks "
        "where that takes no longer than computing them again: at rates above the break-even. Over "
        "UB every die that shares out a prompt's heads reads its blocks, over VPC every node of "
        "such dies; copies into HBM can take longer than the plane, and SSD comes by way of DRAM."
    )


# Several models served: starts, switches and waiting of requests, by where weights are stored.


def model_cache_section() -> None:
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
        question = Asked(
            int(models), int(instances), skew, int(local), int(pooled), 1e9 * bucket,
            each, tuple(names), rate / 3600, idle_s, hours,
        )  # fmt: skip
        answer = _answer(canonical(draft), question, draft)
    except ValueError as refused:
        st.caption(sentence(str(refused)))
        return
    plot(model_waits(answer), "model-waits")
    heads = ("Stored in", *(store.name for store in answer.stores))
    rows = [dict(zip(heads, row, strict=True)) for row in table(answer.stores)]
    st.dataframe(rows, hide_index=True, height="content")
    st.caption(takes_for_granted(draft, facts, question))


@st.cache_data(show_spinner="Serving the models", max_entries=50)
def _answer(key: str, question: Asked, _draft: Scenario) -> ModelCache:
    return model_stores(_draft, session.facts(), question)
