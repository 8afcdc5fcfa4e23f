"""A fleet of supernodes behind a front router: its question, and what came out."""

from typing import Any

import streamlit as st

from twin.extras.fleet import answer as answers
from twin.extras.fleet.answer import FleetScenarios, answer_in_words
from twin.extras.fleet.page import form
from twin.extras.fleet.question import Fleet, FleetError, fleet_to_toml
from twin.lab.runs.runner import find_run
from twin.lab.store import RunRow, StoreError
from twin.metrics.measures import numbered
from twin.metrics.registry import METRICS, as_text
from twin.scenario import Scenario, SpecError, scenario_digest
from twin.ui import access, session
from twin.ui.fields import sentence, with_glossary
from twin.ui.pages import PAGES
from twin.ui.runs import draw_compilation
from twin.ui.show import draw_choice, draw_download, is_dark, json_text, plain, plot

LOOK_S = 1.0
BEGUN = "fleet-runs"  # session state: the run of each scenario that was begun here
TILES = ("goodput_req_per_s", "slo_attainment", "ttft_s_p99", "tpot_s_p99", "tokens_per_s_per_npu",
         "npu_hours", "energy_kwh")  # fmt: skip
COLUMNS = ("slo_attainment", "goodput_req_per_s", "ttft_s_p99", "tpot_s_p99",
           "tokens_per_s_per_npu", "requests", "npu_hours", "energy_kwh")  # fmt: skip

st.title(PAGES["fleet"].title, anchor=False)
st.caption(PAGES["fleet"].about)


def run_of(scenario: Scenario) -> RunRow | None:
    """Run of a scenario that was started on this page, else a stored one; None without any."""
    run_id = st.session_state.setdefault(BEGUN, {}).get(scenario_digest(scenario))
    return session.store().runs.get(run_id) if run_id else find_run(session.store(), scenario)


def requests_left(scenario: Scenario) -> int | None:
    """Number of unfinished requests at the end of a scenario's run; None without a run."""
    row = run_of(scenario)
    return int(row.summary["running"]) if row is not None and row.state == "done" else None


def needed_scenarios(fleet: Fleet) -> FleetScenarios:
    """Scenarios of a fleet, and which of them lack a run; raises FleetError, SpecError."""
    return answers.find_scenarios(fleet, form.scenario_of, session.facts(), requests_left)


@st.cache_resource(show_spinner=False)
def fleets_in_progress() -> set[tuple[str, str]]:
    """(visitor, TOML) of each fleet whose further runs start by themselves, shared by all tabs."""
    return set()


def fleet_key(fleet: Fleet) -> tuple[str, str]:
    """Key of a fleet in `fleets_in_progress`: (visitor, TOML)."""
    return access.visitor(), fleet_to_toml(fleet)


def begin_runs(scenarios: FleetScenarios) -> None:
    """Callback: queue the scenarios without a run; those that depend on them follow later."""
    fleets_in_progress().add(fleet_key(scenarios.fleet))
    try:
        for scenario in scenarios.missing:
            row = run_of(scenario)
            if row is None or (row.ended and row.state != "done"):
                st.session_state[BEGUN][scenario_digest(scenario)] = session.start_run(scenario)
    except (StoreError, SpecError) as error:
        fleets_in_progress().discard(fleet_key(scenarios.fleet))
        st.toast(sentence(str(error)), icon=":material/error:")


def stop_runs(scenarios: FleetScenarios) -> None:
    """Callback: stop queued and running scenarios of the fleet."""
    fleets_in_progress().discard(fleet_key(scenarios.fleet))
    for row in map(run_of, scenarios.missing):
        if row is not None and not row.ended:
            session.stop_run(row.id)
    st.session_state[BEGUN] = {}  # what was stopped here did not fail


@st.cache_data(show_spinner="Merging the runs", max_entries=4)
def cached_answer(toml: str, runs: tuple[str, ...], _found: FleetScenarios) -> dict[str, Any]:
    """Answer of a fleet with its scenarios `_found`, cached by its TOML text and its runs' ids."""
    runs_found = {}
    for scenario in _found.scenarios():
        row = run_of(scenario)
        assert row is not None
        runs_found[scenario_digest(scenario)] = answers.stored_run(session.store(), row, scenario)
    return answers.merged_answer(_found, runs_found)


def draw_results() -> None:
    """Draw the progress of the fleet's runs or, once all are done, its answer."""
    scenarios = needed_scenarios(fleet)
    is_under_way = fleet_key(fleet) in fleets_in_progress()
    if scenarios.missing:
        run_rows = [row for row in map(run_of, scenarios.missing) if row is not None]
        failed_runs = [row for row in run_rows if row.ended and row.state != "done"]
        if failed_runs:
            fleets_in_progress().discard(fleet_key(fleet))
            st.error(
                plain(f"{failed_runs[0].name} {failed_runs[0].state}: {failed_runs[0].message}")
            )
        elif is_under_way:
            if len(run_rows) < len(scenarios.missing):
                begin_runs(scenarios)
            run_count = len(scenarios.scenarios())
            done_count = run_count - len(scenarios.missing)
            done_share = (done_count + sum(row.progress for row in run_rows)) / run_count
            with st.container(horizontal=True, vertical_alignment="center"):
                st.progress(min(1.0, done_share), f"{done_count} of {run_count} simulations done")
                st.button("Stop", icon=":material/stop_circle:", key="fleet-stop",
                          on_click=stop_runs, args=(scenarios,))  # fmt: skip
            if not done_count and not any(row.live for row in run_rows):
                draw_compilation()
        if is_under_way != LOOKING:
            st.rerun()
        return
    fleets_in_progress().discard(fleet_key(fleet))
    if LOOKING:
        st.rerun()
    run_ids = tuple(row.id for row in map(run_of, scenarios.scenarios()) if row is not None)
    draw_answer(cached_answer(fleet_to_toml(fleet), run_ids, scenarios))


def draw_answer(answer: dict[str, Any]) -> None:
    """Draw the fleet's figures, its supernodes over time, and the table of supernodes."""
    without_loss = answer["without_loss"]
    grid = st.grid(4, min_column_width=150, gap="small")
    for key in TILES:
        with grid.cell():
            value_text = as_text(key, answer["summary"][key])
            without_loss_text = (
                f"{as_text(key, without_loss[key])} without a loss" if without_loss else None
            )
            meaning = with_glossary(METRICS[key].label, METRICS[key].help)
            st.metric(
                METRICS[key].label, value_text, without_loss_text, delta_color="off",
                delta_arrow="off", help=meaning,
            )  # fmt: skip
    for answer_line in answer_in_words(answer):
        st.markdown(plain(answer_line))
    key = draw_choice(
        "Over time", form.DRAWN, "fleet-drawn", format_func=lambda k: form.DRAWN[k][0]
    )
    plot(form.over_time_chart(answer, key, dark=is_dark()), "fleet-over-time")
    run_links = {f"Run{' after its return' if number else ''}": number for number in range(2)}
    st.dataframe(
        [
            {"Each of": row["name"], "Supernodes": row["supernodes"],  # a phone shows four columns
             **{key: form.cell_value(METRICS[key], row.get(key)) for key in COLUMNS},
             "Region": row["region"],
             **{name: f"/run?run={row['runs'][number]}" if row["runs"][number:] else None
                for name, number in run_links.items()}}
            for row in answer["rows"]
        ],
        hide_index=True, placeholder="–",
        column_config={
            **{name: st.column_config.LinkColumn(display_text="Open") for name in run_links},
            **{key: st.column_config.NumberColumn(
                form.column_header(METRICS[key]),
                format="percent" if METRICS[key].kind == "share" else "localized")
               for key in COLUMNS},
        },
    )  # fmt: skip
    with st.container(horizontal=True):
        draw_download("JSON", lambda: json_text(answer), "fleet.json", "fleet-json")
        draw_download("This fleet", lambda: fleet_to_toml(fleet), "fleet.toml", "fleet-toml")


try:
    fleet = form.edit_form(form.begin_form())
    ahead = needed_scenarios(fleet)
except (FleetError, SpecError) as error:
    st.warning(form.refusal_text(error), icon=":material/error:")
    st.stop()
todo = len(ahead.missing)
with st.container(horizontal=True, vertical_alignment="center", gap="small"):
    st.button(
        "Simulate this fleet" if todo else "All its runs are there", type="primary",
        icon=":material/play_arrow:", disabled=not todo, key="fleet-run", on_click=begin_runs,
        args=(ahead,),
    )  # fmt: skip
    form.draw_link_button(fleet)
    more = " at least" if fleet.lost and todo else ""
    st.caption(
        f"{numbered(fleet.supernodes, 'supernode')}, "
        f"{numbered(len(ahead.scenarios()), 'different simulation')}{more}: each is "
        "one run, and stays in the library.", width="content",
    )  # fmt: skip
LOOKING = bool(todo) and fleet_key(fleet) in fleets_in_progress()
with session.show_damage():
    st.fragment(draw_results, run_every=LOOK_S if LOOKING else None)()
