"""What a run takes, memory and time, by rough upper rates from `make bench` (factor of three);
refusals of runs that take too much or name what does not exist."""

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass

from twin.facts import FactError, Facts
from twin.hardware.fabric import build_fabric
from twin.hardware.faults import with_faults
from twin.lab.runs.process import PEAK_BYTES_MAX, total_bytes
from twin.lab.store import Store
from twin.lab.store.errors import StoreError
from twin.metrics.measures import amount
from twin.model.roofline import facts_of_stack
from twin.model.shape import load_shape
from twin.scenario import Scenario, pools_by_role, split_models
from twin.steady import Priced
from twin.workload.generate import mean_lengths
from twin.workload.profile import mean_rate_factor

BASE_BYTES, REQUEST_BYTES = 3.5e8, 420.0  # of a process that has simulated; of a request's columns
REQUEST_S, STEP_S, INSTANCE_STEP_S = 4e-6, 8e-6, 4e-7
SHIFT_S, DECISION_S = 0.03, 0.1  # popularity changes; experts are placed anew
LOOKS = 120  # of a run at a popularity that moves, however long it is
FASTEST_TOKEN_S = 0.01  # of a closed loop, whose clients send again when they are answered
LUCKY = 1.5  # a run's rate may exceed the formula's so many times
SHARE = 0.8  # of the machine's memory for a run
OVER = 2.0  # a run may take so many times its estimated memory
LIMIT, LIMIT_S = "TWIN_RUN_SECONDS", 3600.0  # of one run's processor time, by the operator
QUEUE = 4.0  # as many times the limit of one run may wait in all


class TooLarge(StoreError):
    """A run that needs too much memory or time: one sentence with the number to change."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Estimated memory and time of a run."""

    requests: float
    memory_bytes: float
    seconds: float

    @property
    def text(self) -> str:
        """Time and memory for people; '' for a run of a few seconds.

        >>> Budget(1e4, 4e8, 0.4).text, Budget(2e7, 9e9, 200.0).text
        ('', 'about 3 min, 9 GB')
        """
        if self.seconds < 5.0 and self.memory_bytes < 2e9:
            return ""
        minutes = self.seconds / 60.0
        time_text = f"{self.seconds:.0f} s" if minutes < 2.0 else f"{minutes:,.0f} min"
        return f"about {time_text}, {self.memory_bytes / 1e9:.2g} GB"


def estimate_budget(s: Scenario, facts: Facts, trace_requests: int = 0) -> Budget:
    """Estimated budget of a scenario's run; trace_requests: number of requests in its trace."""
    budgets = [_budget_of_one(model, facts, trace_requests) for model in split_models(s)]
    memory_bytes = BASE_BYTES + sum(budget.memory_bytes - BASE_BYTES for budget in budgets)
    return Budget(
        sum(budget.requests for budget in budgets),
        memory_bytes,
        sum(budget.seconds for budget in budgets),
    )


def _budget_of_one(s: Scenario, facts: Facts, trace_requests: int) -> Budget:
    """Estimated budget of a scenario with one model."""
    workload, deployment, experts = s.workload, s.deployment, s.experts
    if workload.arrivals == "trace":
        trace_requests_used = min(trace_requests, workload.trace.max_requests or trace_requests)
        request_count = float(trace_requests_used * workload.trace.tree_copies)
    elif workload.arrivals == "closed_loop":
        least_answer_s = max(mean_lengths(workload, facts).output_tokens, 1.0) * FASTEST_TOKEN_S
        most_req_per_s = min(
            workload.concurrency / least_answer_s, LUCKY * _sustained_req_per_s(s, facts)
        )
        request_count = workload.concurrency + most_req_per_s * s.horizon_s
    else:
        request_count = (
            workload.rate_req_per_s * s.horizon_s * mean_rate_factor(workload, s.horizon_s, facts)
        )
    if workload.prompts and workload.arrivals != "trace":
        request_count = min(request_count, float(workload.prompts))
    instance_count = deployment.prefill.instances + deployment.decode.instances
    wall_s = request_count * REQUEST_S
    wall_s += s.horizon_s / s.step_s * (STEP_S + instance_count * INSTANCE_STEP_S)
    if experts.drift_s or experts.shift_every_s or experts.topics > 1:
        wall_s += LOOKS * SHIFT_S
    if experts.shift_every_s:
        wall_s += s.horizon_s / experts.shift_every_s * SHIFT_S
    if experts.balancing.policy not in ("none", "oracle"):
        wall_s += s.horizon_s / experts.balancing.interval_s * DECISION_S
    attempts = request_count * (1.0 + s.clients.retries)  # there is room for every attempt
    return Budget(request_count, BASE_BYTES + attempts * REQUEST_BYTES, wall_s)


def _sustained_req_per_s(s: Scenario, facts: Facts) -> float:
    """Requests/s that the deployment sustains by formula; infinite where there is no answer."""
    try:
        return Priced(s, facts).prediction.requests_per_s
    except (ValueError, FactError):
        return math.inf


def budget_of(store: Store, scenario: Scenario, facts: Facts) -> Budget:
    """Estimated budget of a scenario's run, with its stored trace."""
    trace_reference = store.traces.kind.named(scenario)
    trace_row = store.traces.get(trace_reference.digest) if trace_reference else None
    return estimate_budget(scenario, facts, trace_row.rows if trace_row is not None else 0)


def limit_bytes(budget: Budget) -> float:
    """Memory in bytes at which a background run is ended; no less than an idle process may use."""
    return min(max(PEAK_BYTES_MAX, OVER * budget.memory_bytes), SHARE * total_bytes())


def require_known_names(s: Scenario, facts: Facts) -> None:
    """Raise HardwareError, ModelError or FactError if a scenario names what does not exist: a
    model, chip, stack or distribution of lengths, or an element that its machine lacks."""
    fabric = build_fabric(s.supernode, facts)
    for model_scenario in split_models(s):
        load_shape(facts, model_scenario.deployment.model)
        for pool in pools_by_role(model_scenario).values():
            facts_of_stack(facts, model_scenario.deployment.stack, pool.chip)
        if model_scenario.workload.arrivals != "trace":
            mean_lengths(model_scenario.workload, facts)
    for fault in s.faults:
        with_faults(fabric, [fault])


def require_fits(budget: Budget, waiting: Iterable[Budget] = ()) -> None:
    """Raise TooLarge for a run that needs more memory or time than this machine allows; waiting:
    budgets of runs that are queued before it."""
    allowed_bytes, allowed_s = SHARE * total_bytes(), float(os.environ.get(LIMIT, LIMIT_S))
    if budget.memory_bytes > allowed_bytes:
        fitting_requests = (allowed_bytes - BASE_BYTES) / REQUEST_BYTES
        raise TooLarge(
            f"a run of some {budget.requests:,.0f} requests takes about "
            f"{amount(budget.memory_bytes, 'bytes')} of memory, and this machine has "
            f"{amount(allowed_bytes, 'bytes')} for it: shorten horizon_s or lower the rate, for at "
            f"most {fitting_requests:,.0f} requests"
        )
    if budget.seconds > allowed_s:
        raise TooLarge(
            f"a run of about {budget.seconds / 60.0:,.0f} minutes is longer than the "
            f"{allowed_s / 60.0:,.0f} that are allowed here ({LIMIT}): shorten horizon_s, or let "
            "experts shift or be balanced less often"
        )
    queued_s = sum(waiting_budget.seconds for waiting_budget in waiting)
    if queued_s + budget.seconds > QUEUE * allowed_s:
        raise TooLarge(
            f"runs of about {queued_s / 60.0:,.0f} minutes are waiting already: let some finish, "
            "or stop some"
        )
