"""Reports as downloads of the Plan and the Run page."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import streamlit as st

from twin.engine.simulate import Run
from twin.extras.report.reports import TABLES, plan_report, run_report
from twin.lab.plan.question import Plan
from twin.lab.store import RunRow, Store
from twin.scenario import Scenario
from twin.ui.show import draw_download, file_name


def draw_run_download(store: Store, row: RunRow, scenario: Scenario) -> None:
    """Draw a button that downloads the run as one HTML file."""
    st.caption("One HTML file with figures and charts, which opens without the twin and a network.")
    html_name = f"{file_name(scenario.name, fallback='report')[:60]}.html"
    draw_download(
        "HTML", partial(stored_report, store, row, scenario), html_name, "download-report"
    )


def stored_report(store: Store, row: RunRow, scenario: Scenario) -> bytes:
    """A stored run as the bytes of one HTML file."""
    tables = {table_name: store.runs.table(row.id, table_name)
              for table_name in TABLES if table_name in store.runs.tables(row.id)}  # fmt: skip
    run = Run(scenario, row.facts_digest, row.engine_version, row.result_digest, row.summary,
              tables, row.checks, row.notes, row.valid)  # fmt: skip
    return run_report(run).encode()


def draw_plan_download(plan: Plan, answer: Mapping[str, Any]) -> None:
    """Draw a button that downloads the plan's answer as one HTML file."""
    html_name = f"plan-{file_name(plan.scenario.name, fallback='report')[:60]}.html"
    draw_download(
        "Report (HTML)", lambda: plan_report(plan, answer).encode(), html_name, "plan-report"
    )
