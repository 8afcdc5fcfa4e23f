"""The section of a run whose rate follows a day."""

import pytest

from tests.ui.stored_runs import done, scenario
from tests.ui.test_faults_results import sections_of
from tests.ui.test_run import Runner, opened, words
from twin.ui import session

DAY = {  # 20 hours
    "workload__profile__shape": "day", "workload__profile__period_s": 144.0, "horizon_s": 120.0,
}  # fmt: skip


@pytest.fixture(autouse=True)
def runner(store, monkeypatch):
    monkeypatch.setattr(session, "runner", lambda: Runner(store))


def test_a_run_of_minutes_has_no_day(app, store):
    assert "Day" not in sections_of(opened(app, done(store, scenario())))


def test_a_day_is_told_hour_by_hour(app, store):
    at = opened(app, done(store, scenario(**DAY)), "Day")
    assert not at.exception
    assert "NPU-hours" in words(at) and "busiest hour" in words(at)
    [table] = [d.value for d in at.dataframe if "Hour" in d.value.columns]
    assert table["Hour"].to_list() == list(range(20))
    assert {"Prefill NPUs", "Decode NPUs", "NPU-hours", "Without work", "Energy, kWh",
            "Hit ratio, %", "Requests"} <= set(table.columns)  # fmt: skip
    assert "Starting or draining" not in table.columns  # nobody moves
