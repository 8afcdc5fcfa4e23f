"""Which instances serve and by which policies, with the steady state by formula next to them."""

from typing import Any

import polars as pl
import streamlit as st

from twin.hooks import draw_sections
from twin.lab.explain.waterfall import operator_seconds
from twin.metrics.measures import amount, seconds
from twin.model.predict import DecodePrediction, Prediction
from twin.scenario import Scenario
from twin.ui import formulas, imports, live, session, theme, words
from twin.ui.fields import sentence, with_glossary
from twin.ui.forms import draw_form, faults, tables
from twin.ui.show import draw_pass_times, slo_margin
from twin.ui.toolbar import draw_scenario_head

Tile = dict[str, Any]


def capacity_tiles(
    s: Scenario, prediction: Prediction, rate: float | None, room: float
) -> list[Tile]:
    """Tiles of a deployment's sustained rates, limit and load. rate: offered requests/s, None if
    unknown. room: share of the requests that find KV space; the prediction counts only these."""
    req_per_s, costs = prediction.requests_per_s / room, prediction.costs
    refused_text = f" {amount(1.0 - room, 'share')} of them find no KV space and are refused."
    help_text = (
        "Requests per second that all pools answer with every slot taken, whatever TTFT and TPOT "
        "come to. Ranks fill unevenly, so queues may grow from a little less on; the largest rate "
        f"within the SLO stands in the sentence above.{refused_text if room < 1.0 else ''}"
    )
    tiles = [_tile("Most requests, SLO aside", amount(req_per_s, "rate", "req/s"), help_text),
             _load_tile(prediction.limit, rate, req_per_s)]  # fmt: skip
    if prediction.decode is not None:
        tiles += _decode_tiles(s, prediction.decode)
    decoding_costs = costs.decoding_role
    rank_dies = decoding_costs.pool.rank_dies if decoding_costs else 1
    role_costs = decoding_costs or costs.prefilling_role
    kv_tokens = role_costs.kv_tokens_per_rank if role_costs else 0
    owner, owner_text = (
        ("die", "one die") if rank_dies == 1 else ("rank", f"the {rank_dies} dies of a rank")
    )
    help_text = f"Tokens whose KV fits into the HBM of {owner_text} next to weights and buffers."
    tiles.append(_tile(f"KV room, per {owner}", amount(kv_tokens, "rate", "tokens"), help_text))
    if (prefill := prediction.prefill) is not None:
        help_text = (
            "Prompt tokens computed per second by one NPU (two dies on a 910C) of the prefill "
            f"pool, hits not counted; a full batch takes {seconds(prefill.batch_s)} and waits "
            f"longest for {prefill.resource}."
        )
        rate_text = amount(prefill.tokens_per_s_per_npu, "rate", "tokens/s")
        tiles.append(_tile("Prefill, per NPU", rate_text, help_text))
    return tiles


def _load_tile(limit: str, rate: float | None, capacity: float) -> Tile:
    """Tile of the offered `rate` divided by the capacity, both in requests/s. limit: the pool that
    is full first. If the rate is unknown (None), the tile names only the limit."""
    if rate is None:
        return _tile("Limited by", theme.title(limit), "The pool that is full first.")
    load_text = amount(rate / capacity, "share")
    help_text = (
        f"{amount(rate, 'rate', 'req/s')} offered, over what is sustained; the {limit} is full "
        "first. Above 100 % queues grow without end."
    )
    return _tile("Offered load", f":red[{load_text}]" if rate > capacity else load_text, help_text)


def _decode_tiles(s: Scenario, decode: DecodePrediction) -> list[Tile]:
    """Tiles of decode with all slots taken: TPOT, tokens per second, batch."""
    tpot_help = (
        f"Time per output token. An iteration takes {seconds(decode.iteration_s)} and gives each "
        f"request {decode.tokens_per_iteration:.3g} tokens; it waits longest for {decode.resource} "
        f"in {theme.title(decode.longest_operator).lower()}."
    )
    tpot_margin = slo_margin(decode.tpot_s, 1e-3 * s.slo.tpot_ms)
    meaning = "Output tokens per second of one NPU (two dies on a 910C) of the decode pool."
    batch_help = f"Requests one NPU decodes at once; limited by {decode.limited_by}."
    return [
        _tile("TPOT, slots full", seconds(decode.tpot_s), tpot_help, **tpot_margin),
        _tile("Decode, per NPU", amount(decode.tokens_per_s_per_npu, "rate", "tokens/s"), meaning),
        _tile("Batch, per NPU", f"{decode.batch_per_npu:,.0f} requests", batch_help),
    ]


def _tile(label: str, value: str, help_text: str, **more: Any) -> Tile:
    """Arguments of `st.metric` for a tile. Meanings of the label's terms are added to the help."""
    return {"label": label, "value": value, "help": with_glossary(label, help_text), **more}


simulated = draw_scenario_head("deployment")
form_column, answer_column = st.columns([3, 2], gap="large")

# 1) The form.
with form_column:
    group = draw_form("deployment", {"Faults": faults.draw_form})
    tables.draw_seats()
    tables.draw_scheduler_button()
    if group == "Pools":
        tables.draw_models()
        draw_sections("deployment.pools", session.draft())
    if group == "Experts" and session.widget_value("experts.popularity") == "imported":
        imports.draw_upload(imports.COUNTS)
    if group == "Elasticity":
        tables.draw_scaling()
    if group == "Memory pool" and not session.refusal():
        draw_sections("deployment.memory_pool", session.draft())

# 2) What it sustains when every slot is taken, by the formulas that a run uses too.
with answer_column, st.container(border=True):
    st.markdown("**What this sustains**")
    if model_note := words.first_model_note(session.draft()):
        st.caption(model_note)
    if session.refusal():
        st.stop()
    draft = formulas.without_faults(session.draft())
    prediction = formulas.capacity(draft)
    if isinstance(prediction, str):
        st.markdown(f":red[:material/error: {sentence(prediction)}]")
        st.stop()
    advice = prediction.advice
    for remark in prediction.costs.remarks:
        advice = advice.replace(remark, "")
        st.warning(sentence(remark), icon=":material/event_busy:")
    with st.grid(2, min_column_width=180):
        for tile in capacity_tiles(draft, prediction, *formulas.load_and_room(draft)):
            st.metric(**tile)
    st.caption(
        f"{sentence(advice.strip())} By formula, with every slot taken and the traffic's mean "
        "lengths; a run adds queues, bursts and a memory pool that fills."
    )

# 3) Where the time of one iteration goes.
with answer_column:
    parts = {"Decode": prediction.decode, "Prefill": prediction.prefill}
    phases = {name: part for name, part in parts.items() if part}
    phase = st.segmented_control(
        "Where the time goes, slots full", list(phases), default=next(iter(phases)), required=True,
        key=f"phase:{'+'.join(phases)}",
    )  # fmt: skip
    part, name_of = phases[phase], "iteration" if phase == "Decode" else "batch"
    plan = formulas.layers(draft).get(phase.lower())
    table = pl.DataFrame([*part.operators.items()], ["operator", "per_iteration_s"], orient="row")
    table = table.with_columns(phase=pl.lit(phase.lower()), total_s="per_iteration_s")  # as a run's
    rows = operator_seconds(table, phase.lower(), plan)
    took_s = part.iteration_s if isinstance(part, DecodePrediction) else part.batch_s
    draw_pass_times(plan, rows, took_s, name_of)

# 4) The second answer: the draft simulated under its own load.
live.draw_answer(simulated, session.draft())
