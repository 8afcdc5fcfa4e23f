"""Every figure of a run, declared once: name, formula of `Observed`, place. Figures begin after the
warm-up (TTFT by first tokens, TPOT and E2E by finishes); counts are of the whole run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from twin.metrics.clients import fairness
from twin.metrics.latency import quotient
from twin.metrics.measures import NOTHING, Kind, amount
from twin.metrics.observed import Observed
from twin.scenario import Scenario

Better = Literal["lower", "higher", ""]
Group = Literal["times", "ttft parts", "rates", "use", "counts", "run"]
Place = Literal[
    "line", "tile", "library", "comparison", "table",  # lists of runs, a run's page, command line
    "leading", "head",  # what a verdict is about: in sentences, at the head of a run's page
    "card", "sweep", "panel",  # a preset's card; a sweep's table and its charts
    "instances", "clients", "memory pool",  # sections of a run's page
]  # fmt: skip
Value = float | int | None
Summary = dict[str, float | int | str | None]  # of a run: figures by metric
Formula = Callable[[Observed], Value]

# Where a figure stands: a run in one line, its page, the library, a comparison, the command line.
LINE: tuple[Place, ...] = ("line", "tile", "library", "comparison", "table")
TILE: tuple[Place, ...] = ("tile", "comparison", "table")
COMPARED: tuple[Place, ...] = ("comparison", "table")
TABLE: tuple[Place, ...] = ("table",)
SWEPT: tuple[Place, ...] = (*TILE, "leading", "head", "sweep", "panel")
PER_REQUEST = "per request"


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a run."""

    key: str  # unit last, statistic after it
    label: str  # sentence case, no unit in it
    kind: Kind
    unit: str  # SI unit for times and bytes (scaled when shown); as shown for all else
    better: Better
    help: str  # what it counts
    group: Group = "run"
    of: Formula | None = None  # from what a run left; None: not of a summary
    basis: str = ""  # per what, or of what: NPU, request, machine
    short: str = ""  # the label in a tile, where the basis stands next to it
    places: tuple[Place, ...] = ()
    slo: Callable[[Scenario], float] | None = None  # the limit it is held against, in SI
    note: tuple[str, str] = ("", "")  # next to its tile: another metric, and words around its value
    applies: Callable[[Scenario], bool] | None = None  # where it says something; None: always
    unless_zero: bool = False  # in a tile or a table only where it is not zero
    term: str = ""  # its row of the glossary

    @property
    def tile(self) -> str:
        """Title of the metric's tile, label and basis: 'Decode, per decode NPU'."""
        title = self.short or self.label
        return f"{title}, {self.basis}" if self.basis not in ("", PER_REQUEST) else title

    def shows(self, place: Place, value: object, scenario: Scenario | None = None) -> bool:
        """Whether a place shows this value of the metric."""
        if place not in self.places or value is None or (self.unless_zero and not value):
            return False
        return scenario is None or self.applies is None or self.applies(scenario)


def _latencies(
    prefix: str, name: str, what: str, places_of: dict[str, tuple[Place, ...]],
    slo: Callable[[Scenario], float] | None = None,
) -> list[Metric]:  # fmt: skip
    """Metrics of one latency. prefix: of keys; name: of labels; what: help text; places_of: places
    by statistic ("mean", "p99"); slo: limit in seconds, for p99."""
    return [
        Metric(
            f"{prefix}_{statistic}", f"{name} {statistic}", "time", "s", "lower", what, "times",
            lambda o, key=f"{prefix}_{statistic}": o.spreads[key],  # type: ignore[misc]
            PER_REQUEST, places=places_of.get(statistic, ()),
            slo=slo if statistic == "p99" else None, term=name,
        )
        for statistic in ("mean", "p50", "p90", "p95", "p99")
    ]  # fmt: skip


def _part(name: str, label: str, what: str) -> Metric:
    """Metric of one part of the TTFT: its mean seconds. what: help text."""
    return Metric(f"ttft_{name}_s_mean", label, "time", "s", "lower", what, "ttft parts",
                  lambda o: o.part_mean(name), PER_REQUEST, term="TTFT")  # fmt: skip


def _share(key: str, label: str, what: str, of: Formula, places: tuple[Place, ...] = ()) -> Metric:
    """Metric of the used share of a capacity or of time; of: its formula."""
    return Metric(key, label, "share", "%", "", what, "use", of, places=places, term="utilisation")


def _per_token(o: Observed, per_second: float | None) -> Value:
    """An amount per served token, from the amount per second; None without either."""
    return None if per_second is None else quotient(per_second * o.steady_s, o.tokens_served)


def _token_cost(o: Observed) -> Value:
    """Price, in currency, of the NPU-hours of a million served tokens; None without a price."""
    price_per_hour = o.price_per_npu_hour * o.npus_held
    return _per_token(o, 1e6 * price_per_hour / 3600.0) if price_per_hour > 0.0 else None


def _capacity_used(name: str) -> Formula:
    """Formula of a capacity's used share, from totals `{name}_amount` and `{name}_capacity`."""
    return lambda o: quotient(o.totals[f"{name}_amount"], o.totals[f"{name}_capacity"] * o.steady_s)


def _count(key: str, name: str, what: str, of: Formula, better: Better = "", **more: Any) -> Metric:
    """Metric that counts things. what: help text; of: its formula; more: further fields of the
    metric, such as `unit`, by default requests."""
    return Metric(key, name, "count", more.pop("unit", "requests"), better, what,
                  more.pop("group", "counts"), of, **more)  # fmt: skip


_LATENCY = [
    *_latencies("ttft_s", "TTFT", "Time to first token: first token minus arrival, per request.",
              {"p50": LINE, "p99": (*SWEPT, "card")}, lambda s: s.slo.ttft_s),
    *_latencies("tpot_s", "TPOT", "Time per output token: (finish minus first token) / (output "
              "tokens minus 1), per request.",
              {"mean": (*LINE, "card"), "p99": SWEPT}, lambda s: 1e-3 * s.slo.tpot_ms),
    *_latencies("itl_s", "ITL", "Inter-token latency: each gap between two tokens of one request.",
              {}),
    *_latencies("e2e_s", "E2E", "End to end: finish minus arrival, per request.", {"p50": TABLE}),
    *_latencies("session_s", "Session", "First question of a session to its last answer, pauses "
              "included; where turns wait for answers.",
              {"p50": (*COMPARED, "clients"), "p99": ("clients",)}),
    _part("front_end", "Front end", "Waiting for and being served by an API server."),
    _part("router", "Waiting for admission", "Until decode room is reserved and prefill chosen."),
    _part("prefill_queue", "Prefill queue", "In the queue of the chosen prefill instance."),
    _part("prefill", "Prefill", "From the start of the first prefill batch to the last one's end."),
    _part("kv_transfer", "KV transfer", "Moving KV blocks from prefill to decode dies."),
    Metric("decode_iteration_s_mean", "Decode iteration", "time", "s", "lower",
           "One forward pass of a decode instance over all its requests.", "times",
           lambda o: quotient(o.totals["iteration_s"], o.totals["iterations"]), places=TABLE,
           term="iteration"),
    Metric("prefill_batch_s_mean", "Prefill batch", "time", "s", "lower",
           "One batch of prompts on a prefill instance, begin to end.", "times",
           lambda o: quotient(o.totals["prefill_busy_s"], o.totals["prefill_batches"])),
]  # fmt: skip


_RATES = [
    Metric("goodput_req_per_s", "Goodput", "rate", "req/s", "higher",
           "Requests per second that met the whole SLO; the whole machine.", "rates",
           lambda o: o.per_second(o.met_count), "whole machine", places=(*TILE, "leading", "sweep"),
           note=("slo_attainment", "{} met the SLO"), term="goodput"),
    Metric("slo_attainment", "SLO attainment", "share", "%", "higher",
           "Share of finished requests that met both the TTFT and the TPOT target.", "rates",
           lambda o: quotient(o.met_count, float(o.finished_steady)), short="SLO met",
           places=("library", "comparison", "table", "leading", "card"), term="SLO"),
    Metric("throughput_req_per_s", "Finished requests per second", "rate", "req/s", "higher",
           "Requests finished per second; the whole machine.", "rates",
           lambda o: o.per_second(float(o.finished_steady)), "whole machine", places=COMPARED,
           term="throughput"),
    Metric("decode_tokens_per_s_per_npu", "Decode throughput", "rate", "tokens/s per NPU", "higher",
           "Output tokens per second over the NPUs of the decode pool (an NPU is two dies).",
           "rates", lambda o: o.per_second(o.totals["decode_tokens"], o.pool_npus("decode")),
           "per decode NPU", "Decode", (*LINE, "card"), term="throughput"),
    Metric("prefill_tokens_per_s_per_npu", "Prefill throughput", "rate", "tokens/s per NPU",
           "higher", "Input tokens computed per second over the NPUs of the prefill pool (an NPU "
           "is two dies).",
           "rates", lambda o: o.per_second(o.totals["prefill_tokens"], o.pool_npus("prefill")),
           "per prefill NPU", "Prefill", (*LINE, "card"), unless_zero=True, term="throughput"),
    Metric("prompt_tokens_per_s_per_npu", "Prompt throughput", "rate", "tokens/s per NPU",
           "higher", "Input tokens per second, computed or read from the memory pool, over the "
           "NPUs of the prefill pool.",
           "rates", lambda o: o.per_second(
               o.totals["prefill_tokens"] + o.totals["hit_tokens"], o.pool_npus("prefill")),
           "per prefill NPU", "Prompts", term="throughput"),
    Metric("tokens_per_s_per_npu", "Machine throughput", "rate", "tokens/s per NPU", "higher",
           "Output tokens per second over every NPU that serves, prefill and decode together.",
           "rates", lambda o: o.per_second(o.output_tokens, o.npus_held),
           "per serving NPU", "Output", SWEPT, term="throughput",
           # One token a prompt: true, and no figure of anything.
           applies=lambda s: s.deployment.mode != "prefill_only"),
    Metric("output_tokens_per_s", "Output tokens", "rate", "tokens/s", "higher",
           "Output tokens per second; the whole machine.", "rates",
           lambda o: o.per_second(o.output_tokens), "whole machine"),
    Metric("hit_token_ratio", "Hit ratio", "share", "%", "higher",
           "Share of input tokens found in HBM or read from the memory pool instead of computed.",
           "rates", lambda o: quotient(o.totals["hit_tokens"], o.totals["prompt_tokens"]),
           "input tokens", places=(*TILE, "memory pool"), term="prefix-cache hit"),
    Metric("hbm_token_ratio", "Hits in HBM", "share", "%", "",
           "Share of input tokens whose KV the HBM of their instance still had.", "rates",
           lambda o: quotient(o.totals["hbm_hit_tokens"], o.totals["prompt_tokens"]),
           "input tokens", places=TABLE, applies=lambda s: s.memory_pool.in_hbm,
           term="prefix-cache hit"),
    Metric("ssd_token_ratio", "Hits from SSD", "share", "%", "",
           "Share of input tokens that the memory pool's DRAM had lost and its SSD tier still had.",
           "rates", lambda o: quotient(o.ssd_tokens, o.totals["prompt_tokens"]),
           "input tokens", places=TABLE, unless_zero=True, term="prefix-cache hit"),
    Metric("fairness", "Fairness between tenants", "share", "%", "higher",
           "Jain's index of the tokens that each tenant was served over its max-min fair share by "
           "weight.", "rates", fairness, places=(*COMPARED, "clients")),
]  # fmt: skip

_COST = [
    Metric("power_kw", "Power", "rate", "kW", "lower",
           "Mean electric power of the NPUs that serve, with their share of host, switches and "
           "optics; watts of data/power.toml and data/chips are estimates.", "rates",
           lambda o: None if o.power_w is None else 1e-3 * o.power_w, "serving NPUs",
           places=COMPARED, term="power"),
    Metric("joules_per_token", "Energy per token", "rate", "J/token", "lower",
           "That power over output tokens per second; over input tokens where nothing is decoded.",
           "rates", lambda o: _per_token(o, o.power_w), "serving NPUs",
           places=(*TILE, "sweep", "panel"), term="power"),
    Metric("energy_kwh", "Energy", "rate", "kWh", "lower", "Energy of the steady state.", "rates",
           lambda o: None if o.power_w is None else o.power_w * o.steady_s / 3.6e6,
           "serving NPUs", places=TABLE, term="power"),
    *(Metric(f"{role}_clock", f"Clock, {role}", "share", "%", "higher",
             f"Of {role} NPUs' cores, at which a full pool keeps the power cap.", "rates",
             lambda o, role=role: o.clock(role), places=TABLE, term="power cap",  # type: ignore
             applies=lambda s: s.cost.cap_w > 0.0) for role in ("prefill", "decode")),
    Metric("npu_hours", "NPU-hours", "rate", "NPU-hours", "lower",
           "NPUs that belong to an instance, times the simulated time.", "rates",
           lambda o: o.npu_s_held / 3600.0, places=(*COMPARED, "instances")),
    Metric("npu_hours_idle", "NPU-hours idle", "rate", "NPU-hours", "lower",
           "Of these, in the steady state, hours in which the instance computes nothing: it has no "
           "request, starts or drains.", "rates", lambda o: o.idle_npu_s / 3600.0,
           places=(*TABLE, "instances")),
    Metric("goodput_per_npu_hour", "Goodput per NPU-hour", "rate", "requests", "higher",
           "Requests that met the whole SLO for an hour of an NPU that belongs to an instance.",
           "rates", lambda o: quotient(3600.0 * o.met_count, o.npus_held * o.steady_s),
           places=(*COMPARED, "instances"), term="goodput"),
    Metric("cost_per_million_tokens", "Cost", "rate", "/ M tokens", "lower",
           "Price of the NPU-hours over a million output tokens, in the currency of the price that "
           "was set; over input tokens where nothing is decoded.", "rates", _token_cost,
           "serving NPUs", places=(*TILE, "sweep", "panel"),
           applies=lambda s: s.cost.price_per_npu_hour > 0.0),
    Metric("tokens_per_currency", "Tokens for one unit of currency", "rate", "tokens", "higher",
           "The other way round.", "rates", lambda o: quotient(1e6, _token_cost(o) or 0.0),
           "serving NPUs", places=COMPARED, applies=lambda s: s.cost.price_per_npu_hour > 0.0),
]  # fmt: skip

_USE = [
    _share("prefill_utilisation", "Prefill busy, of the time",
          "Share of time a prefill instance computes.",
          lambda o: o.mean_per_instance("prefill_busy_s", "prefill"), TABLE),
    _share("decode_utilisation", "Decode busy, of the time",
          "Share of time a decode instance computes, however few of its slots are taken.",
          lambda o: o.mean_per_instance("decode_busy_s", "decode"), TABLE),
    _share("hbm_utilisation", "HBM bandwidth used", "Bytes read over what the dies could read.",
          _capacity_used("hbm")),
    _share("cube_utilisation", "Cube cores used", "FLOPs done over what the dies could do.",
          _capacity_used("cube")),
    *(_share(f"{plane}_utilisation", f"{plane.upper()} plane used",
            "Bytes over capacity, mean of all links.", _capacity_used(plane))
      for plane in ("ub", "rdma", "vpc")),
    _share("kv_used_fraction_mean", "Decode KV space used", "KV tokens held over what fits in HBM.",
          lambda o: o.mean_per_instance("kv_used_s", "decode")),
    _share("pool_used_fraction", "Memory pool used", "KV blocks held over what the DRAM holds.",
          lambda o: quotient(o.totals["pool_used"], o.totals["samples"]), ("memory pool",)),
    *(Metric(f"{name}_bytes_per_s", label, "bytes", "B/s", "", f"{help_text}; the whole machine.",
             "use", lambda o, name=name: o.per_second(o.totals.get(f"{name}_moved", 0.0)),  # type: ignore
             places=TABLE, unless_zero=True)
      for name, label, help_text in (
          ("pool_read", "Read from the memory pool", "KV bytes of hits that DRAM answers"),
          ("pool_write", "Written to the memory pool", "KV bytes of prompts stored"),
          ("ssd_read", "Read from the SSD tier", "KV bytes that DRAM had lost"),
          ("ssd_write", "Written to the SSD tier", "KV bytes of prompts stored"))),
    _count("concurrency_mean", "Requests in the machine",
           "Mean number of requests inside, from arrival to finish.",
           lambda o: quotient(o.totals["inside"], o.totals["samples"]), group="use"),
    _count("preemptions", "Preemptions",
           "Times a request lost its KV blocks on a full die and was computed again.",
           lambda o: int(o.totals["preemptions"]), "lower", unit="preemptions", group="use",
           places=TABLE, term="preemption"),
]  # fmt: skip

_COUNTS = [
    _count("requests", "Requests", "Requests that arrived.", lambda o: o.requests.height,
           places=("library", "table")),
    _count("finished", "Finished", "Requests answered to the end.",
           lambda o: int(o.totals["finished"]), short="Finished requests", places=TILE,
           note=("running", "{} still inside")),
    _count("requests_steady", "Finished after warm-up",
           "Requests that finished in the steady state: what latency figures rest on.",
           lambda o: o.finished_steady),
    _count("rejected", "Rejected", "Requests never served.", lambda o: int(o.totals["rejected"]),
           "lower", places=(*COMPARED, "clients"), term="admission"),
    _count("cancelled", "Cancelled", "Requests whose clients left before the answer.",
           lambda o: int(o.totals.get("cancelled", 0.0)), "lower", places=(*COMPARED, "clients"),
           unless_zero=True),
    _count("asked_again", "Asked again", "Retries of clients after a time-out or a refusal.",
           lambda o: int(o.totals.get("asked_again", 0.0)), "lower", places=(*TABLE, "clients"),
           unless_zero=True),
    _count("wasted_tokens", "Wasted tokens", "Prompt tokens computed and output tokens emitted "
           "for requests that were cancelled.",
           lambda o: int(o.totals.get("wasted_tokens", 0.0)), "lower", unit="tokens",
           places=(*TABLE, "clients"), unless_zero=True),
    _count("sessions_finished", "Sessions finished", "Sessions whose last turn was answered, where "
           "turns wait for answers.", lambda o: o.session_times.size or None,
           unit="sessions", places=(*TABLE, "clients")),
    Metric("steady_state", "Steady state", "count", "state", "", "Whether queues and requests "
           "inside stay level after the warm-up: steady, filling or overloaded; nothing where load "
           "or machine change by themselves.", "counts", places=TABLE),
    _count("running", "Unfinished", "Still in the machine at the end.",
           lambda o: o.requests.height - o.ended_count, places=TABLE),
    _count("lost", "Lost", "Requests given up after faults: their last retry failed, or no "
           "instance was left to serve.", lambda o: o.incidents.lost, "lower", places=TABLE,
           unless_zero=True),
    _count("retried", "Retried", "Requests that a fault threw out at least once and that were "
           "tried again.", lambda o: o.incidents.retried, "lower", places=TABLE,
           unless_zero=True),
    _count("rebalances", "Rebalances", "Times experts were moved to even out the load of dies.",
           lambda o: o.incidents.rebalances, unit="rebalances", places=TABLE, unless_zero=True,
           term="EPLB"),
    Metric("moved_bytes", "Experts moved", "bytes", "B", "",
           "Bytes of expert weights that all rebalances moved.", "counts",
           lambda o: o.incidents.moved_bytes, places=TABLE, unless_zero=True, term="EPLB"),
    Metric("down_s", "Out of service", "time", "s", "lower",
           "Seconds that instances were out of service, summed over instances.", "counts",
           lambda o: o.incidents.down_s, places=TABLE, unless_zero=True, term="recovery"),
    _count("starts", "Instances started", "Instances that began to start on NPUs that were free.",
           lambda o: int(o.totals.get("starts", 0)), unit="starts", places=(*TABLE, "instances"),
           unless_zero=True, term="instance"),
    _count("role_changes", "Changes of role", "Instances that took the NPUs of instances of the "
           "other pool, once these had drained.",
           lambda o: int(o.totals.get("role_changes", 0)), unit="changes",
           places=(*COMPARED, "instances"), unless_zero=True, term="instance"),
    Metric("little_error", "Little's law gap", "share", "%", "lower",
           "Requests inside, counted two ways: sampled over time, and rate times time inside.",
           "counts", lambda o: o.totals["little_error"]),
]  # fmt: skip

_RUN = [
    Metric("warmup_s", "Warm-up left out", "time", "s", "", "Start that no figure counts.",
           of=lambda o: o.scenario.warmup_s),
    Metric("horizon_s", "Simulated time", "time", "s", "", "From the first second to the last.",
           of=lambda o: o.scenario.horizon_s),
    _count("npus", "NPUs that serve", "NPU packages; one is two dies.",
           lambda o: o.npus_held, unit="NPUs", group="run", term="NPU"),
    _count("npus_prefill", "Prefill NPUs", "NPUs of the prefill pool.",
           lambda o: o.npus.get("prefill", 0), unit="NPUs", group="run"),
    _count("npus_decode", "Decode NPUs", "NPUs of the decode pool.",
           lambda o: o.npus.get("decode", 0), unit="NPUs", group="run"),
    _count("npus_colocated", "Colocated NPUs", "NPUs that do both.",
           lambda o: o.npus.get("colocated", 0), unit="NPUs", group="run"),
]  # fmt: skip

METRICS = {m.key: m for m in (*_LATENCY, *_RATES, *_COST, *_USE, *_COUNTS, *_RUN)}


def metrics_at(place: Place) -> list[Metric]:
    """Metrics shown at a place, in the order of declaration."""
    return [metric for metric in METRICS.values() if place in metric.places]


# What the ending of a name says about a figure that is not declared.
_ENDINGS: tuple[tuple[str, Kind, str], ...] = (
    ("_tokens_per_s_per_npu", "rate", "tokens/s per NPU"), ("_tokens_per_s", "rate", "tokens/s"),
    ("_req_per_s", "rate", "req/s"), ("_bytes_per_s", "bytes", "B/s"), ("_bytes", "bytes", "B"),
    ("_utilisation", "share", "%"), ("_fraction", "share", "%"), ("_ratio", "share", "%"),
    ("_s", "time", "s"),
)  # fmt: skip


def summarise(run: Observed) -> Summary:
    """Value of every metric that has a formula, by key, in the order of declaration."""
    return {key: metric.of(run) for key, metric in METRICS.items() if metric.of is not None}


def metric_of(key: str) -> Metric:
    """The metric of a key; an undeclared one gets kind and unit from the end of its name."""
    if key in METRICS:
        return METRICS[key]
    base_key = key
    for statistic in ("_mean", "_p50", "_p90", "_p95", "_p99", "_peak", "_max"):
        base_key = base_key.removesuffix(statistic)
    label = key.replace("_", " ").capitalize()
    for suffix, kind, unit in _ENDINGS:
        if base_key.endswith(suffix):
            return Metric(key, label, kind, unit, "", "")
    return Metric(key, label, "count", "", "", "")


def as_text(key: str, value: object) -> str:
    """A summary figure as text with its unit: as_text('ttft_s_p50', 0.8312) is '831 ms'."""
    metric = metric_of(key)
    if value is None or isinstance(value, str):
        return value or NOTHING
    return amount(float(value), metric.kind, metric.unit)  # type: ignore[arg-type]


def verdict(key: str, value: float, baseline: float) -> Literal["better", "worse", "same", ""]:
    """Judgement of a figure against its baseline; '' when neither direction is better."""
    if abs(value - baseline) <= 5e-4 * max(abs(value), abs(baseline)):
        return "same"
    better = metric_of(key).better
    if not better:
        return ""
    return "better" if (value < baseline) == (better == "lower") else "worse"
