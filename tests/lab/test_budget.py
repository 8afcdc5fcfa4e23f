"""What a run will take is said before it is queued, and too much is refused with a number."""

import pytest

from tests.lab import budgets
from twin.lab.library import load_facts, preset, presets
from twin.lab.runs import budget
from twin.lab.runs.budget import Budget, TooLarge, estimate_budget, require_fits
from twin.scenario import with_overrides

QUICK = presets()[0].scenario


def asked(**fields):
    return with_overrides(QUICK, {k.replace("__", "."): v for k, v in fields.items()})


@pytest.mark.parametrize("preset", presets(), ids=lambda p: p.key)
def test_every_preset_fits_an_ordinary_machine(preset, monkeypatch):
    monkeypatch.setattr(budget, "total_bytes", lambda: 8e9)
    require_fits(estimate_budget(preset.scenario, load_facts(), 50_000))


@pytest.mark.long
@pytest.mark.parametrize("name", budgets.RUNS)
def test_a_run_takes_the_memory_and_hardly_more_time_than_was_said(name):
    memory, seconds = budgets.ratios(name)
    assert 0.5 < memory < 1.5
    assert seconds < 3.0


def test_more_traffic_time_shifts_and_decisions_cost_more():
    plain = estimate_budget(QUICK, load_facts())
    for more in (
        asked(workload__rate_req_per_s=1000.0),
        asked(horizon_s=3600.0),
        asked(experts__shift_every_s=0.1),
        asked(experts__balancing__policy="periodic", experts__balancing__interval_s=0.1),
        asked(workload__arrivals="closed_loop", workload__concurrency=100_000),
    ):
        assert estimate_budget(more, load_facts()).seconds > 2 * plain.seconds


@pytest.mark.parametrize("key", ["paper-prefill-default", "memory-pool-reuse"])
def test_clients_of_a_closed_loop_send_no_more_than_the_deployment_answers(key):
    """16,000 and 23,000 requests; a hundredth of a second each would be millions, and gigabytes."""
    said = estimate_budget(preset(key), load_facts())
    assert said.requests < 40_000 and said.memory_bytes < 0.5e9


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"workload__rate_req_per_s": 5000.0, "horizon_s": 50_000.0},
            "[GT]B of memory, .* at most",
        ),
        ({"experts__shift_every_s": 1e-9}, r"minutes is longer than the 60 .* less often"),
    ],
)
def test_too_much_is_refused_with_the_number_to_change(fields, said, monkeypatch):
    monkeypatch.setattr(budget, "total_bytes", lambda: 24e9)
    with pytest.raises(TooLarge, match=said):
        require_fits(estimate_budget(asked(**fields), load_facts()))


def test_the_queue_has_a_limit_and_the_operator_sets_it(monkeypatch):
    one = Budget(1e6, 1e9, 600.0)
    require_fits(one, [one] * 20)
    with pytest.raises(TooLarge, match="minutes are waiting already"):
        require_fits(one, [one] * 24)
    monkeypatch.setenv(budget.LIMIT, "500")
    with pytest.raises(TooLarge, match=budget.LIMIT):
        require_fits(one)
