"""A window of a run, made again: every iteration and batch that touched it, as the engine ran it.

A run is a value, so its beginning can be run once more, to the window's end and with a log of what
its instances do. The log costs nothing in a run that is not watched."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from twin.engine.columns import Log
from twin.engine.setup import set_up_models
from twin.engine.simulate import Running, run_models
from twin.facts import Facts
from twin.metrics.events import Event, Kind
from twin.metrics.operators import DECODE_OPERATORS, PREFILL_OPERATORS
from twin.scenario import Scenario, first_numbers

if TYPE_CHECKING:
    from twin.workload.requests import TraceTable


@dataclass(frozen=True, slots=True)
class Pass:
    """One iteration of a decode or colocated instance, or one batch of a prefill instance."""

    begin_s: float
    end_s: float
    requests: int  # in the batch of an iteration; 0 for a prefill batch
    tokens: float  # emitted by an iteration, computed by a prefill batch
    operators: tuple[tuple[str, float], ...]  # seconds on the critical path, those that ran
    held_s: float = 0.0  # how much longer it read of the memory pool for its fullest server
    hot_node: int = -1  # the node of that server


@dataclass(frozen=True, slots=True)
class Window:
    """Iterations and batches of the instances in a window of time."""

    passes: dict[tuple[str, int], list[Pass]]  # by role and number of the instance, in order
    left_out: int  # passes for which there was no room


def watch(
    scenario: Scenario, facts: Facts, span_s: tuple[float, float], most_passes: int,
    trace: TraceTable | None = None, counts: np.ndarray | None = None,
) -> Window:  # fmt: skip
    """The first `most_passes` passes of each model that overlap a span (begin, end; s) of a run.
    The run is repeated up to the span's end, so they equal those of the run. trace, counts: as in
    `simulate`, which raises the same."""
    setups = set_up_models(scenario, facts, trace, counts)
    most_operators = max(len(DECODE_OPERATORS), len(PREFILL_OPERATORS))
    sizes = {"passes": most_passes, "operators": most_operators}
    logs = [Log(sizes, span_s=np.array(span_s)) for _ in setups]
    models = run_models(setups, facts, None, logs, span_s[1])
    passes: dict[tuple[str, int], list[Pass]] = {}
    for model, log, first_of_role in zip(models, logs, first_numbers(scenario), strict=True):
        for (role, index), model_passes in _passes_of_log(model, log, most_passes).items():
            passes[role, first_of_role[role] + index] = model_passes
    return Window(passes, sum(max(0, int(log.count[0]) - most_passes) for log in logs))


def _passes_of_log(model: Running, log: Log, limit: int) -> dict[tuple[str, int], list[Pass]]:
    """The first `limit` passes in a model's log, by role and number of the instance."""
    prefills = model.machine.world.settings.prefills
    is_colocated = model.machine.world.settings.colocated
    decode_role = "colocated" if is_colocated else "decode"
    passes: dict[tuple[str, int], list[Pass]] = {}
    pass_count, setup = int(log.count[0]), model.machine.setup
    for log_row in range(min(pass_count, limit)):
        column = int(log.instance[log_row])
        is_decode = column >= prefills
        seat = (decode_role, column - prefills) if is_decode else ("prefill", column)
        operator_names: tuple[str, ...] = DECODE_OPERATORS if is_decode else PREFILL_OPERATORS
        named_times_s = zip(operator_names, log.operators[log_row].tolist(), strict=False)
        server_number, prefill_row = int(log.hot[log_row]), column % prefills
        delay_and_node: tuple[float, int] | tuple[()] = ()
        if server_number >= 0:
            nodes = setup.pool_nodes(setup.pool_of[prefill_row])
            delay_and_node = float(log.held_s[log_row]), nodes[server_number]
        passes.setdefault(seat, []).append(
            Pass(
                float(log.begin_s[log_row]), float(log.end_s[log_row]), int(log.requests[log_row]),
                float(log.tokens[log_row]), tuple(entry for entry in named_times_s if entry[1] > 0),
                *delay_and_node,
            )
        )  # fmt: skip
    return {seat: _shorten_passes(seat, uncut, model.events) for seat, uncut in passes.items()}


def _shorten_passes(seat: tuple[str, int], passes: list[Pass], events: list[Event]) -> list[Pass]:
    """Passes of one instance (its role and number), cut where it goes out of service."""
    outage_events = [event for event in events if event.kind == Kind.INSTANCE_DOWN]
    outages_s = [event.t_s for event in outage_events if (event.role, event.instance) == seat]
    if not outages_s:
        return passes
    shortened_passes = []
    for uncut in passes:
        outages_within_s = [t_s for t_s in outages_s if uncut.begin_s <= t_s < uncut.end_s]
        shortened_passes.append(replace(uncut, end_s=min([uncut.end_s, *outages_within_s])))
    return shortened_passes
