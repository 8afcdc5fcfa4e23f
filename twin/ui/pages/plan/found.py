"""What a plan has found: the ranking, the front, what each choice does, and what to do with one."""

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from twin.hooks import draw_sections
from twin.lab.plan.answer import (
    answer_sentences,
    brief_text,
    equality_note,
    loss_text,
    relaxation_rows,
)
from twin.lab.plan.question import LOSSES, Loss, Plan, plan_sentence
from twin.lab.share import links
from twin.lab.sweep.sweep import published_points
from twin.scenario import Scenario, SpecError, with_overrides
from twin.ui import runs, session, words
from twin.ui.charts import sweep as charts
from twin.ui.fields import field_of, sentence, text_of
from twin.ui.link import go_to
from twin.ui.show import draw_download, json_text, plain, plot
from twin.ui.toolbar import open_run

TIMES = ("horizon_s", "warmup_s")
PRICE = "Costs appear with a price of an NPU-hour, under Power and price on Workload."
LIMITED = {"prefill": "prefill", "decode": "decode", "colocated": "its instances"}


def draw_progress(status: Mapping[str, Any]) -> None:
    """Draw the state of a plan's search: best deployments, relaxed limits, Pareto front."""
    if rows := status.get("so_far"):
        st.markdown("**Best so far**, with one seed")
        st.dataframe([_row_cells(k + 1, row, ()) for k, row in enumerate(rows)], hide_index=True)
    _draw_relaxations(status.get("relaxations", ()))
    if front_points := status.get("front"):  # without: nothing is simulated yet
        plot(charts.plan_front(front_points, {}, published_points()), "plan-front")


def draw_answer(plan: Plan, found: Mapping[str, Any]) -> None:
    """Draw a plan's answer (as in plan.json): conclusion, ranking, front, effects, downloads."""
    scenario = plan.scenario
    # Relaxations are a table of their own.
    first_sentence, *other_sentences = answer_sentences({**found, "relaxations": []})
    st.subheader(plain(first_sentence), anchor=False)
    traffic = words.traffic_text(scenario), words.lengths_text(scenario), words.reuse_text(scenario)
    listing = " · ".join(filter(None, (*traffic, plan_sentence(plan))))
    st.caption(plain(f"{scenario.name}: {listing}"))
    st.markdown(plain(" ".join(other_sentences)))
    rows = found["ranked"]
    if rows:
        _draw_ranking(plan, rows)
        runs.draw_error_bands({"the first": scenario_of(plan, rows[0])})
    else:
        _draw_relaxations(found["relaxations"])
    ranks = {row["key"]: row["rank"] for row in rows}
    plot(charts.plan_front(found["front"], ranks, published_points()), "plan-front")
    if found["tornado"]:
        with st.expander("What each choice alone does to the first"):
            st.dataframe(
                [{"Choice": field_of(row["path"]).title,
                  "Value": text_of(row["value"], row["path"]),
                  "Score of the first": row["score_ratio"] if row["fits"] else None}
                 for row in found["tornado"]],
                hide_index=True, placeholder="breaks a limit",
                column_config={
                    "Score of the first": st.column_config.NumberColumn(format="percent")
                },
            )  # fmt: skip
    with st.container(horizontal=True, gap="small"):
        draw_download("plan.json", lambda: json_text(dict(found)), "plan.json", "plan-json")
        draw_sections("plan.download", plan, found)
    notes = f"{equality_note(rows)}. What is ranked was simulated with five seeds. " if rows else ""
    if rows and rows[0]["summary"]["cost_per_million_tokens"] is None:
        notes += f"{PRICE} "
    st.caption(
        f"2 x 16 prefill: two instances of 16 NPUs. {notes}plan.json has every deployment with its "
        "bound by formula, status, reason, seed and digest."
    )


def _draw_relaxations(rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw the smallest relaxation of each limit with which a deployment fits, if there is one."""
    if rows:
        run_time = words.duration_text(max(row["run_s"] for row in rows))
        st.markdown(
            f"Each of these changes alone makes a deployment fit, in runs of {run_time} at most. "
            "Near a limit a longer run may still miss it."
        )
        st.dataframe(relaxation_rows(rows), hide_index=True)


def _draw_ranking(plan: Plan, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw the ranked deployments as a table, and buttons to run, compare or edit selected ones."""
    ranks = [f"{row['rank']}{' =' if row['equal_to_first'] else ''}" for row in rows]
    table = [_row_cells(rank, row, plan.survives) for rank, row in zip(ranks, rows, strict=True)]
    event = st.dataframe(table, hide_index=True, placeholder="–", on_select="rerun",
                         selection_mode="multi-row", key="plan-ranking")  # fmt: skip
    picked_rows = [rows[k] for k in event["selection"]["rows"] if k < len(rows)] or [rows[0]]
    first_row = picked_rows[0]
    if first_row["next_step"] and first_row["rank"] > 1:  # that of the first is said above
        st.markdown(f"Next step of {first_row['rank']}: {plain(first_row['next_step'])}")
    with st.container(horizontal=True, gap="small"):
        if st.button(
            "Run it", icon=":material/play_arrow:", key="plan-run",
            help="Simulates the first of the marked ones: Playback and Why follow.",
        ):  # fmt: skip
            open_run(scenario_of(plan, first_row))
        if st.button("Take it into the draft", icon=":material/edit:", key="plan-take"):
            # Without load and times, which are those of the short run.
            new_fields = {path: value for path, value in first_row["settings"].items()
                      if path not in TIMES and not path.startswith("workload.")}  # fmt: skip
            if reason := session.propose(new_fields):
                st.toast(sentence(reason), icon=":material/error:")
            else:
                go_to("deployment")
        compared_rows = (picked_rows if len(picked_rows) > 1 else rows)[: links.COMPARED_MAX]
        compare_text, icon = f"Compare {len(compared_rows)}", ":material/compare_arrows:"
        if len(compared_rows) > 1 and st.button(compare_text, icon=icon, key="plan-compare"):
            with session.toast_refusals():
                run_ids = [session.start_run(scenario_of(plan, row)) for row in compared_rows]
                go_to(links.COMPARE_PAGE, {links.RUNS: ",".join(run_ids)})


def scenario_of(plan: Plan, row: Mapping[str, Any]) -> Scenario:
    """The scenario of a ranked deployment; its name and question say which one it is."""
    plan_scenario, settings = plan.scenario, dict(row["settings"])
    run_name = words.truncated(f"{plan_scenario.name} · plan {row['rank']}", words.NAME_MOST)
    question = (
        f"Deployment {row['rank']} of a plan for {plan_scenario.name}: {brief_text(settings)}."
    )
    question = words.truncated(question, words.QUESTION_MOST)
    try:
        return with_overrides(plan_scenario, {**settings, "name": run_name, "question": question})
    except SpecError:
        return plan_scenario


def _row_cells(rank: int | str, row: Mapping[str, Any], survives: Sequence[Loss]) -> dict[str, Any]:
    """Cells of a ranked deployment, by column. survives: losses of hardware, a column for each."""
    summary = row["summary"]
    margins = row.get("margins", {})
    cells = {
        "": str(rank), "NPUs": row["npus"], "Deployment": brief_text(dict(row["settings"])),
        "Tokens/s per NPU": _rounded(summary["tokens_per_s_per_npu"], 1),
        "TPOT (ms)": _rounded(summary["tpot_s_mean"], 1e3),
        "TTFT p99 (s)": _rounded(summary["ttft_s_p99"], 1.0),
    }  # fmt: skip
    if margins:
        cells |= {
            "Headroom (%)": _rounded(margins.get("headroom"), 100, 2),
            "Then misses": margins.get("breaks_first") or None,
            "Power (kW)": _rounded(summary["power_kw"], 1.0),
            "Held back by": LIMITED.get(row["held_back_by"], row["held_back_by"]),
        }
        if summary["cost_per_million_tokens"] is not None:
            cells["Cost (/ M tokens)"] = _rounded(summary["cost_per_million_tokens"], 1.0)
    for loss in survives:
        cells[f"After: {LOSSES[loss].lower()}"] = loss_text(row["losses"].get(loss, {}))
    return cells


def _rounded(value: float | None, factor: float, figures: int = 4) -> float | None:
    """A value times `factor`, rounded to some significant figures; None stays None."""
    return None if value is None else float(f"{factor * value:.{figures}g}")
