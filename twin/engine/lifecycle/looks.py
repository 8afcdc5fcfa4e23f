"""What a controller is shown of the pools: work in hand, use, latency, and instances needed.

Read between two steps from counters and columns of the phases. What is needed is a forecast: the
load that comes, over what one instance does within the SLO, when one started now would serve."""

import math
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from twin.engine import codes as w
from twin.engine.lifecycle.machine import Machine
from twin.model.decode import decode_iteration_s
from twin.policies.batching import tokens_per_iteration

# Requests waiting, work in hand, busy share, latency over its SLO, instances needed: the end of a
# PoolSeen.
Measured = tuple[int, float, float, float, float]
BACK = (
    w.BACK_FROM_QUEUE, w.BACK_FROM_PREFILL, w.BACK_FROM_TRANSFER, w.BACK_FROM_DECODE, w.PREEMPTED,
)  # fmt: skip
NEAR_SLO = 0.95  # of the SLO: mean TPOT above it leaves too many requests beyond
REMEMBERED_S = 3600.0  # how long an error of a forecast counts
LEAST = 0.05  # instances: of less, no share says anything
STEPS = 4  # towards the load that keeps the SLO


def _combine_measured(prefill: Measured, decode: Measured) -> Measured:
    """Measurements of colocated instances: waiting requests and needed instances are sums, as an
    iteration computes prompts, then answers; of the others the larger value counts."""
    return (
        prefill[0] + decode[0], max(prefill[1], decode[1]), max(prefill[2], decode[2]),
        max(prefill[3], decode[3]), prefill[4] + decode[4],
    )  # fmt: skip


class Forecast:
    """Forecast of a load lead_s ahead, with a margin learnt from forecasts that were too low."""

    def __init__(self, lead_s: float) -> None:
        """Begin without a forecast; lead_s: seconds from a forecast to the predicted load."""
        self._lead_s = lead_s
        self._made: deque[tuple[float, float]] = deque()
        self._looked_s = 0.0
        self._squares, self._weight = 0.0, 0.0

    def forecast(self, t_s: float, present_load: float, predicted: float) -> float:
        """The load `predicted` for lead_s after t_s, plus one deviation of past underestimates.
        That is learnt by comparing present_load (at t_s) with the forecast made lead_s ago."""
        past_forecast = None
        while self._made and self._made[0][0] <= t_s - self._lead_s:
            past_forecast = self._made.popleft()[1]
        self._made.append((t_s, predicted))
        if past_forecast is not None:
            memory_decay = math.exp((self._looked_s - t_s) / REMEMBERED_S)
            actual_to_forecast = present_load / past_forecast if past_forecast > LEAST else 0.0
            relative_excess = max(0.0, actual_to_forecast - 1.0)
            # Of errors that are as often too little as too much, half are counted.
            self._squares = memory_decay * self._squares + 2.0 * relative_excess**2
            self._weight = memory_decay * self._weight + 1.0
        self._looked_s = t_s
        return predicted * (1.0 + math.sqrt(self._squares / max(self._weight, 1.0)))


class PoolMeter:
    """Measurement of the pools over the time since the last one. lead_s: time from a decision until
    a new instance serves; forecasts average over about as long. Without `forecasts`, whose formula
    takes milliseconds, the needed instances are NaN."""

    def __init__(self, machine: Machine, lead_s: float, forecasts: bool = True) -> None:
        """Begin at the run's start. lead_s: seconds until a new instance serves; forecasts: whether
        to forecast the needed instances."""
        self.machine, self.world, self._lead_s = machine, machine.world, lead_s
        self._foresees, scenario = forecasts, machine.setup.scenario
        self._ttft_s, self._tpot_s = scenario.slo.ttft_s, 1e-3 * scenario.slo.tpot_ms
        draft_tokens, costs = scenario.deployment.decode.mtp_draft_tokens, machine.setup.costs
        self._per_iteration = tokens_per_iteration(draft_tokens, costs.mtp_acceptance)
        self._forecasts = Forecast(lead_s), Forecast(lead_s)
        instances = machine.setup.instances
        self._place = {i.index: number for number, i in enumerate(instances) if i.role != "prefill"}
        self._looked_s = 0.0
        self._oldest = 0  # request without a first token at the look before
        self._counted: dict[str, float] = {}
        self._rate: dict[str, float] = {}  # per second since the look before
        self._mean: dict[str, float] = {}  # the same, over about a lead
        self._arrived = 0
        self._reached = 1.0  # of predicted tokens/s of prefill, by batches that were half full
        self.arrivals_per_s = 0.0

    def measure(
        self, instances: Mapping[str, Sequence[int]], starting: Mapping[str, int], t_s: float
    ) -> dict[str, Measured]:
        """Measurement of each pool, by role, over its serving instances. instances: their rows by
        role; starting: number of instances of each role that will serve within the lead time."""
        span_s = max(t_s - self._looked_s, 1e-9)
        self._looked_s = t_s
        self._update_rates(span_s)
        handed_on_req_per_s, by_role = math.inf, {}
        for role, role_rows in instances.items():
            instance_rows, by_phase = np.array(role_rows, np.int64), []
            if role != "decode":
                prefill_and_rate = self._measure_prefill(instance_rows, starting[role], t_s, span_s)
                handed_on_req_per_s = prefill_and_rate[1]
                by_phase.append(prefill_and_rate[0])
            if role != "prefill":
                by_phase.append(self._measure_decode(instance_rows, handed_on_req_per_s, t_s))
            by_role[role] = by_phase[0] if len(by_phase) == 1 else _combine_measured(*by_phase)
        return by_role

    def _update_rates(self, span_s: float) -> None:
        """Set rates (1/s) of arrived, computed, departed work in span_s, and means over a lead."""
        request, record, decode = self.world.request, self.world.record, self.world.decode
        windows, counters, last_totals = record.windows[:-1], record.counters, self._counted
        self._arrived, first_new_row = int(counters[w.ARRIVED]), self._arrived
        prompt_tokens = request.input_tokens[first_new_row : self._arrived].astype(np.float64)
        decoding_requests = float(decode.in_batch.sum())
        totals = {
            "requests": float(self._arrived),
            "tokens": last_totals.get("tokens", 0.0) + float(prompt_tokens.sum()),
            "squares": last_totals.get("squares", 0.0) + float((prompt_tokens**2).sum()),
            "begun": float(windows[:, w.PROMPT_TOKENS].sum()),
            "hits": float(windows[:, w.HIT_TOKENS].sum()),
            "computed": float(windows[:, w.PREFILL_TOKENS].sum()),
            "full_s": float(self.world.prefill.full_s.sum()),
            "full_line_s": float(self.world.prefill.full_line_s.sum()),
            "left": float(counters[w.JOINED]) - decoding_requests,
            "iterations": float(decode.iteration.sum()),
            "iteration_s": float(self.world.instance.busy_s[self.world.settings.prefills :].sum()),
        }
        self._rate = {k: (total - last_totals.get(k, 0.0)) / span_s for k, total in totals.items()}
        self._counted, self.arrivals_per_s = totals, self._rate["requests"]
        decay = math.exp(-span_s / self._lead_s)
        self._mean = {k: r + decay * (self._mean.get(k, r) - r) for k, r in self._rate.items()}

    def _measure_prefill(
        self, columns: np.ndarray, starting: int, t_s: float, span_s: float
    ) -> tuple[Measured, float]:
        """(measurement of the prefill instances in rows `columns`, requests/s that they hand on).
        The busy share is that of full batches. starting: instances that will serve in time."""
        prefill, counters, mean_rates = self.world.prefill, self.world.record.counters, self._mean
        budget_tokens = float(self.world.settings.prefill_budget)
        queued = int(counters[w.ROUTED] - counters[w.PREFILL_BEGUN] - counters[w.BACK_FROM_QUEUE])
        queued_tokens = float(prefill.queued_tokens[columns].sum())
        fresh_share = 1.0 - mean_rates["hits"] / max(mean_rates["begun"], 1e-9)
        # Of a fresh token, which attends to all before it, those that hit too.
        pairs_per_token = (
            0.5 * (2.0 - fresh_share) * mean_rates["squares"] / max(mean_rates["tokens"], 1e-9)
        )
        batch_s = prefill.pass_s + budget_tokens * (
            prefill.s_per_token + pairs_per_token * prefill.s_per_pair
        )
        tokens_per_s = budget_tokens / batch_s  # tokens/s
        if mean_rates["full_s"] > 1e-9:  # uneven dies and reads, which the line leaves out
            self._reached = mean_rates["full_line_s"] / mean_rates["full_s"]
        tokens_per_s = tokens_per_s * self._reached
        pool_tokens_per_s = max(float(tokens_per_s[columns].sum()), 1e-9)
        one_tokens_per_s = float(tokens_per_s.max())
        coming_tokens_per_s = mean_rates["tokens"] * fresh_share
        later_tokens_per_s = pool_tokens_per_s + starting * one_tokens_per_s  # when these serve
        # Prompt tokens in the queue when an instance that starts now serves.
        excess_tokens_per_s = coming_tokens_per_s - 0.5 * (pool_tokens_per_s + later_tokens_per_s)
        backlog_tokens = max(0.0, fresh_share * queued_tokens + excess_tokens_per_s * self._lead_s)
        needed_now = self._rate["tokens"] * fresh_share / one_tokens_per_s
        needed_count = max(
            self._forecasts[0].forecast(t_s, needed_now, coming_tokens_per_s / one_tokens_per_s),
            # And is gone as long after.
            (coming_tokens_per_s + backlog_tokens / self._lead_s) / one_tokens_per_s,
        )
        measurement = (
            queued, queued_tokens / (budget_tokens * max(columns.size, 1)),
            max(0.0, self._rate["computed"] / pool_tokens_per_s),
            self._mean_ttft_s(t_s, span_s) / self._ttft_s,
            needed_count if self._foresees else math.nan,
        )  # fmt: skip
        weighted_req_per_s = mean_rates["requests"] * later_tokens_per_s
        return measurement, weighted_req_per_s / max(coming_tokens_per_s, 1e-9)

    def _mean_ttft_s(self, t_s: float, span_s: float) -> float:
        """Mean TTFT (s) of first tokens in the span_s before t_s; 0 without one."""
        requests = self.world.request
        row_slice = slice(self._oldest, self._arrived)
        first_token_s, arrival_s = requests.transfer_end_s[row_slice], requests.arrival_s[row_slice]
        has_first_token = first_token_s <= t_s
        is_new = has_first_token & (first_token_s > t_s - span_s)
        is_unfinished = ~(has_first_token | (requests.status[row_slice] >= w.REJECTED))
        self._oldest += int(is_unfinished.argmax()) if is_unfinished.any() else is_unfinished.size
        return float((first_token_s[is_new] - arrival_s[is_new]).mean()) if is_new.any() else 0.0

    def _measure_decode(self, rows: np.ndarray, handed_on_per_s: float, t_s: float) -> Measured:
        """Measurement of decode instances in `rows`; handed_on_per_s: requests/s from prefill."""
        decode, counters = self.world.decode, self.world.record.counters
        waiting = int(counters[w.FRONTED]) + sum(int(counters[counter]) for counter in BACK)
        waiting -= int(counters[w.ROUTED] + counters[w.REJECTED_ROUTER] + counters[w.GIVEN_UP])
        waiting -= int(counters[w.CANCELLED_BY_CLIENT] - counters[w.LEFT_EARLY])
        slots = max(float(decode.room[rows].sum()), 1.0)
        taken_slots = float(decode.taken[rows].sum())
        ranks = self.world.settings.decode_ranks
        kv_space_tokens = float(decode.kv_tokens[rows].sum()) * ranks
        context_tokens = float(decode.context.reshape(-1, ranks)[rows].sum())
        slot_share = float(decode.in_batch[rows].sum()) / slots
        busy_share = max(slot_share, context_tokens / max(kv_space_tokens, 1.0))
        iteration_s = self._rate["iteration_s"] / max(self._rate["iterations"], 1e-9)
        tpot_s = iteration_s / self._per_iteration
        decoding = float(decode.in_batch.sum())
        needed_count = math.nan
        if self._foresees:
            requests_coming = waiting + float(decode.taken.sum()) - decoding
            requests_of_one = self._requests_of_one_instance()
            later_requests = self._expected_decoding(decoding, requests_coming, handed_on_per_s)
            later_instances = later_requests / requests_of_one
            needed_count = self._forecasts[1].forecast(
                t_s, decoding / requests_of_one, later_instances
            )
        relative_tpot = max(0.0, tpot_s) / self._tpot_s
        return waiting, (taken_slots + waiting) / slots, busy_share, relative_tpot, needed_count

    def _expected_decoding(self, decoding: float, coming: float, handed_on_per_s: float) -> float:
        """Expected number of decoding requests after the lead time: present ones that remain
        (Little's law), and waiting (`coming`) or later ones, as many as prefill can hand on."""
        leave_per_s = max(self._mean["left"], 0.0) / max(decoding, 1e-9)
        join_per_s = min(self._mean["requests"] + coming / self._lead_s, handed_on_per_s)
        if decoding < 1.0 or leave_per_s * self._lead_s < 1e-6:
            return decoding + join_per_s * self._lead_s
        stay_share = math.exp(-leave_per_s * self._lead_s)
        return decoding * stay_share + join_per_s * (1.0 - stay_share) / leave_per_s

    def _requests_of_one_instance(self) -> float:
        """Number of requests, like the present ones, that one instance serves within the TPOT SLO.
        Scales the load of the fullest instance within its slots and KV space; the deviation of a
        rank from the mean grows with the square root of the load."""
        decode, costs, ranks = self.world.decode, self.world.costs, self.world.settings.decode_ranks
        fullest_row = int(np.argmax(decode.in_batch))
        rank_requests = decode.requests.reshape(-1, ranks)[fullest_row]
        rank_context_tokens = decode.context.reshape(-1, ranks)[fullest_row]
        request_count = float(rank_requests.sum())
        if not request_count:
            return max(float(decode.room.max()), 1.0)
        role_costs = self.machine.roles[self._place[fullest_row]]
        hot_table = costs.decode_hot_tokens, costs.decode_hot_factor[fullest_row]

        def iteration_s(factor: float) -> float:
            """Seconds of an iteration with `factor` times today's load."""
            requests, context = (
                np.maximum(0.0, load.mean() * factor + (load - load.mean()) * math.sqrt(factor))
                for load in (rank_requests, rank_context_tokens)
            )
            more_args = 0, ranks, *hot_table, role_costs.operator_sink()
            return float(decode_iteration_s(role_costs.decode, requests, context, *more_args))

        kv_share = float(rank_context_tokens.sum()) / (decode.kv_tokens[fullest_row] * ranks)
        highest_fullness = max(request_count / float(decode.room[fullest_row]), kv_share)
        least_factor, most_factor = 1.0 / request_count, 1.0 / highest_fullness
        iteration_limit_s = NEAR_SLO * self._tpot_s * self._per_iteration
        shortest_s, longest_s = iteration_s(least_factor), iteration_s(most_factor)
        if shortest_s <= iteration_limit_s < longest_s:
            for _ in range(STEPS):  # along lines: seconds are nearly linear in requests
                range_share = (iteration_limit_s - shortest_s) / (longest_s - shortest_s)
                tried_factor = least_factor + range_share * (most_factor - least_factor)
                tried_s = iteration_s(tried_factor)
                if tried_s > iteration_limit_s:
                    most_factor, longest_s = tried_factor, tried_s
                else:
                    least_factor, shortest_s = tried_factor, tried_s
            most_factor, longest_s = tried_factor, tried_s
        # As many tokens a second, at the TPOT that the requests have now.
        return request_count * most_factor * iteration_s(1.0) / longest_s
