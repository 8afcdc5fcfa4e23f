"""Benchmark versus deployment: which cause costs how much of a benchmark's throughput.

A ladder of questions leads from a benchmark to a deployment, one cause at a time, and on to what
balancing brings back; each rung is simulated. With real arrivals it is worth the highest request
rate at which enough requests keep the SLO, found by bisection below the formulas' rate:
`throughput` asks for the first token in time only, so for the most without a growing queue, `slo`
for TPOT too. Causes multiply more than they add, so a late one takes its share of what is left;
`alone` asks what it takes while all else stays. `climb` neither simulates nor stores: it says what
to ask next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from twin.lab.compare import changed
from twin.lab.library import load_facts, presets
from twin.scenario import Scenario, SpecError, pools, with_overrides

if TYPE_CHECKING:
    from twin.lab.job import Watch
    from twin.lab.store import Store

ATTAINED = 0.9  # share of requests that must keep the SLO: what "sustains" means here
PROBES = 7  # halvings between nothing and the formulas' rate: to 1/128 of it
WORDS = ("name", "question", "source")
CLOCK = ("seed", "horizon_s", "warmup_s", "start", "step_s")
UNIT = "tokens/s per decode NPU"
BENCHMARK, BALANCED = "canary-benchmark", "canary-balanced"  # presets that any ladder borrows from

# What each cause changes: fields by the start of their path, the longest that fits.
CAUSES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "lengths",
        "Uneven lengths",
        ("workload.lengths", "workload.input_tokens", "workload.output_tokens", "workload.prefix",
         "workload.shared_fraction", "workload.follow_up_probability", "workload.turn_gap_s",
         "memory_pool."),
    ),
    ("queueing", "Bursts and queueing", ("workload.", "slo.", "front_end.", "router.")),
    ("acceptance", "Draft acceptance", ("deployment.decode.mtp_acceptance",)),
    ("other", "Other differences", ("",)),
    ("experts", "Expert imbalance", ("experts.",)),
)  # fmt: skip
CONTEXT = ("context", "Longer contexts")
APART = ("acceptance", "other", "experts")  # causes that are also asked for alone
THROUGHPUT, SLO = "throughput", "slo"
MEASURES = (THROUGHPUT, SLO)
ANY_TPOT_MS = 10_000.0  # the longest that a scenario can ask for
STATIC = ("static", "Static balancing (EPLB)")
DYNAMIC = ("balancing", "Balancing in the loop")

Summary = Mapping[str, Any]
Answers = Callable[[Scenario], Summary | None]


class AttributionError(ValueError):
    """A pair of scenarios between which no ladder leads: one sentence that says why."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One question of the ladder: the one before it with one cause more."""

    key: str
    label: str
    scenario: Scenario
    changed: tuple[str, ...]  # fields that this rung changed
    base: str = ""  # of a cause alone: key of the rung that it is put on

    @property
    def searched(self) -> bool:
        """Whether its rate is looked for: clients that wait for answers set their own."""
        return self.scenario.workload.arrivals != "closed_loop"


@dataclass(frozen=True, slots=True)
class Step:
    """How far a rung is answered."""

    rung: Rung
    tokens_per_s_per_npu: float | None  # None: not known yet
    rate_req_per_s: float | None  # sustained rate where it was looked for
    asked: tuple[Scenario, ...]  # questions it needed so far, the answered ones
    wanted: Scenario | None  # the question it needs next
    summary: Summary | None  # of the answer it is worth

    @property
    def done(self) -> bool:
        """Whether the rung's worth is known."""
        return self.wanted is None


@dataclass(frozen=True, slots=True)
class Part:
    """What one cause takes from the benchmark, or gives back."""

    key: str
    label: str
    tokens_per_s_per_npu: float  # after this cause
    change: float  # tokens/s per NPU; negative: lost
    share_of_benchmark: float  # change over the benchmark
    alone: float | None = None  # change over the benchmark of this cause without those before it


def ladder(
    benchmark: Scenario,
    production: Scenario,
    balanced: Scenario | None = None,
    measure: str = THROUGHPUT,
) -> list[Rung]:
    """The rungs from the benchmark to production, and to what balancing brings back. `balanced`
    gives its experts only. Raises AttributionError where there is no such way."""
    if production.workload.arrivals == "trace":
        raise AttributionError(
            "a recorded trace has no rate to look for: take arrivals that are generated"
        )
    for s in (benchmark, production):
        if not any(role in ("decode", "colocated") for role, _, _ in pools(s)):
            raise AttributionError(f"{s.name} decodes nothing, so no output tokens can be lost")
    differing = {p: v for p, v in changed(benchmark, production).items() if p not in WORDS}
    clock = {path: differing.pop(path) for path in CLOCK if path in differing}
    rungs = [Rung("benchmark", "Benchmark", benchmark, ())]
    # Long answers need the deployment's long warm-up from the first rung that has them.
    here = with_overrides(benchmark, clock)

    def climb_on(key: str, label: str, taken: dict[str, Any]) -> None:
        nonlocal here
        if taken:
            own = {"name": f"{production.name[:70]} · {label}", "question": ""}
            here = with_overrides(here, taken | own | {"source": production.source})
            rungs.append(Rung(key, label, here, tuple(taken)))

    means, context = _mean_lengths(benchmark, production)
    climb_on("means", "Mean lengths", means)
    climb_on(*CONTEXT, context)
    for key, label, _ in CAUSES:
        taken = {p: v for p, v in differing.items() if _cause(p) == key}
        if key == "lengths" and means and production.workload.arrivals != "closed_loop":
            # Dies can be evened out only while some have a free slot, so these clients do not wait.
            taken["workload.arrivals"] = "uniform"
        climb_on(key, label, taken)
    if balanced is not None:
        back = changed(here, balanced)
        placed = ("experts.redundant", "experts.placement")
        climb_on(*STATIC, {p: v for p, v in back.items() if p.startswith(placed)})
        climb_on(*DYNAMIC, {p: v for p, v in back.items() if p.startswith("experts.balancing.")})
    return [_measured(rung, measure) for rung in rungs]


def _cause(path: str) -> str:
    """Key of the cause that a field belongs to."""
    fits = ((len(p), key) for key, _, starts in CAUSES for p in starts if path.startswith(p))
    return max(fits)[1]


def _mean_lengths(
    benchmark: Scenario, production: Scenario
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Requests all alike: of production's mean lengths, then of its answer tokens' mean context,
    which is longer because long answers are decoded for longer."""
    from twin.workload.generate import length_means

    if benchmark.workload.lengths != "fixed" or production.workload.lengths == "fixed":
        return {}, {}
    mean = length_means(production.workload, load_facts())
    answer = round(mean.output_tokens)
    given, longer = round(mean.input_tokens), round(mean.context_tokens - 0.5 * answer)
    means = {"workload.input_tokens": given, "workload.output_tokens": answer}
    return means, {"workload.input_tokens": longer} if longer > given else {}


def _measured(rung: Rung, measure: str) -> Rung:
    """The rung as a measure asks for it."""
    if measure not in MEASURES:
        raise AttributionError(f"measure = {measure!r}: there are {' and '.join(MEASURES)}")
    if measure == SLO or not rung.searched:
        return rung
    free = with_overrides(rung.scenario, {"slo.tpot_ms": ANY_TPOT_MS})
    return replace(rung, scenario=free)


def alone(rungs: Sequence[Rung]) -> list[Rung]:
    """Late causes each alone on the benchmark with mean lengths, its slots full."""
    base = rungs[1] if len(rungs) > 1 and rungs[1].key == "means" else rungs[0]
    rungs_alone = []
    for rung in (rung for rung in rungs if rung.key in APART):
        wish = changed(base.scenario, rung.scenario)
        scenario = with_overrides(base.scenario, {p: wish[p] for p in wish if p in rung.changed})
        scenario = scenario.model_copy(update={"name": f"{rung.scenario.name[:90]} alone"})
        rungs_alone.append(Rung(f"alone:{rung.key}", rung.label, scenario, rung.changed, base.key))
    return rungs_alone


def even_benchmark(production: Scenario, pattern: Scenario) -> Scenario:
    """A benchmark of production's own machine: the pattern's traffic, slots full, experts even."""
    slots = sum(
        count * npus * production.deployment.decode.batch_per_npu
        for role, count, npus in pools(production)
        if role in ("decode", "colocated")
    )
    w = pattern.workload
    changes = {f"workload.{name}": value for name, value in w.model_dump().items()}
    changes |= {
        "workload.concurrency": slots,
        "deployment.decode.mtp_acceptance": pattern.deployment.decode.mtp_acceptance,
        "experts": pattern.experts.model_dump(mode="json"),
        **{path: getattr(pattern, path) for path in ("horizon_s", "warmup_s")},
    }
    benchmark = with_overrides(production, changes)
    return benchmark.model_copy(
        update={"name": f"{production.name[:70]} · benchmark", "question": ""}
    )


def ladder_of(scenario: Scenario, measure: str = THROUGHPUT) -> list[Rung]:
    """The ladder of one deployment, with the canary presets for what it does not say itself, from
    its even benchmark to balancing in the loop. Raises AttributionError where none leads."""
    known = {p.key: p.scenario for p in presets()}
    pattern = known[BALANCED].experts
    e = scenario.experts
    never = e.balancing.model_copy(update={"policy": "none"})
    unplaced = {"placement": "round_robin", "redundant": 0, "balancing": never}
    placed = e
    if e.placement in ("round_robin", "perfect"):
        asked = {"placement": pattern.placement, "redundant": pattern.redundant}
        placed = e.model_copy(update=asked)
    if e.balancing.policy == "none":
        placed = placed.model_copy(update={"balancing": pattern.balancing})
    production = scenario.model_copy(update={"experts": e.model_copy(update=unplaced)})
    balanced = scenario.model_copy(update={"experts": placed})
    benchmark = even_benchmark(production, known[BENCHMARK])
    return ladder(benchmark, production, balanced, measure)


def attribute(
    scenario: Scenario, store: Store, watch: Callable[[str], Watch], measure: str = THROUGHPUT
) -> list[Step]:
    """Climb the ladder of a deployment in this process, and its causes alone. What is stored is not
    run again. `watch(name)` gives what hears the progress of the run of that name."""
    from twin.lab.runner import find_run, run_now
    from twin.steady import steady

    facts = load_facts()

    def stored(question: Scenario) -> Summary | None:
        row = find_run(store, question)
        return row.summary if row else None

    steps = []
    rungs = ladder_of(scenario, measure)
    for rung in rungs + alone(rungs):
        most = steady(rung.scenario, facts).requests_per_s if rung.searched else 0.0
        step = climb(rung, stored, most)
        while step.wanted is not None:
            run_now(store, step.wanted, watch=watch(step.wanted.name))
            step = climb(rung, stored, most)
        steps.append(step)
    return steps


def worth(summary: Summary) -> float:
    """Answer tokens per second and NPU that decodes."""
    return float(summary.get("decode_tokens_per_s_per_npu") or 0.0)


def climb(rung: Rung, answers: Answers, most_req_per_s: float) -> Step:
    """How far a rung is answered, and what to ask next. `most_req_per_s` is what the formulas say
    it sustains for ever: the search stays below it."""
    if not rung.searched:
        summary = answers(rung.scenario)
        if summary is None:
            return Step(rung, None, None, (), rung.scenario, None)
        return Step(rung, worth(summary), None, (rung.scenario,), None, summary)
    low, high = 0.0, most_req_per_s
    best: Summary | None = None
    asked: list[Scenario] = []
    for _ in range(PROBES):
        rate = 0.5 * (low + high)
        question = at_rate(rung.scenario, rate)
        summary = answers(question)
        if summary is None:
            return Step(rung, None, None, tuple(asked), question, best)
        asked.append(question)
        if (summary.get("slo_attainment") or 0.0) >= ATTAINED:
            low, best = rate, summary
        else:
            high = rate
    return Step(rung, worth(best) if best else 0.0, low, tuple(asked), None, best)


def at_rate(scenario: Scenario, rate_req_per_s: float) -> Scenario:
    """The question at a rate of three figures, so that it is found again."""
    rate = float(f"{rate_req_per_s:.3g}")
    try:
        asked = with_overrides(scenario, {"workload.rate_req_per_s": rate})
    except SpecError as error:
        raise AttributionError(f"{scenario.name}: {error}") from None
    return asked.model_copy(update={"name": f"{scenario.name[:100]} · {rate:g} req/s"})


def parts(steps: Sequence[Step]) -> list[Part]:
    """The waterfall of the steps that are answered, up to the first that is not."""
    value_of = {step.rung.key: step.tokens_per_s_per_npu for step in steps}
    waterfall: list[Part] = []
    for step in steps:
        value = step.tokens_per_s_per_npu
        if value is None or step.rung.base:
            break
        whole = waterfall[0].tokens_per_s_per_npu if waterfall else value
        change = value - (waterfall[-1].tokens_per_s_per_npu if waterfall else 0.0)
        waterfall.append(
            Part(step.rung.key, step.rung.label, value, change, change / whole if whole else 0.0)
        )
    for step in steps:
        before, after = value_of.get(step.rung.base), step.tokens_per_s_per_npu
        if before is None or after is None:
            continue
        for k, part in enumerate(waterfall):
            if f"alone:{part.key}" == step.rung.key:
                share = (after - before) / waterfall[0].tokens_per_s_per_npu
                waterfall[k] = replace(part, alone=share)
    return waterfall
