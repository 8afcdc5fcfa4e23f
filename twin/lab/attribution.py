"""Benchmark versus deployment: which cause costs how much of a benchmark's throughput.

A ladder of questions leads from a benchmark (fixed lengths, every slot always full, even experts)
to a deployment, one cause at a time, and on to what balancing brings back. Each rung is answered
by simulating it. A rung with real arrivals is worth what it sustains: the highest request rate at
which enough requests keep the promise, found by bisection below the rate that the formulas allow.

`climb` neither simulates nor stores: it is handed what is answered already and says what to ask
next, so the same ladder is climbed by a command (`attribute`), by a page that looks once a second,
and again for nothing once all its runs are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twin.lab.compare import input_diff
from twin.lab.library import load_facts, presets
from twin.spec import Scenario, SpecError, pools, with_overrides

if TYPE_CHECKING:
    from twin.lab.job import Watch
    from twin.lab.store import Store

ATTAINED = 0.9  # share of requests that must keep the promise: what "sustains" means here
PROBES = 7  # halvings between nothing and the formulas' rate: to 1/128 of it
WORDS = ("name", "question", "source")
CLOCK = ("seed", "horizon_s", "warmup_s", "step_s")
UNIT = "tokens/s per decode NPU"
BENCHMARK, BALANCED = "canary-benchmark", "canary-balanced"  # presets that any ladder borrows from

# What each cause changes, by the start of a field's path; `experts` is always last.
CAUSES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "lengths",
        "Length skew",
        ("workload.lengths", "workload.input_tokens", "workload.output_tokens", "workload.prefix",
         "workload.shared_fraction", "workload.follow_up_probability", "workload.turn_gap_s",
         "memory_pool."),
    ),
    (
        "queueing",
        "Arrivals, queueing and the promise",
        ("workload.", "slo.", "front_end.", "router."),
    ),
    ("acceptance", "Draft acceptance", ("deployment.decode.mtp_acceptance",)),
    ("other", "Other differences", ("",)),
    ("experts", "Expert imbalance", ("experts.",)),
)  # fmt: skip
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


def ladder(
    benchmark: Scenario, production: Scenario, balanced: Scenario | None = None
) -> list[Rung]:
    """The rungs from the benchmark to production, and to what balancing brings back.

    `balanced` gives its experts only. Raises AttributionError where there is no such way.
    """
    if production.workload.arrivals == "trace":
        raise AttributionError(
            "a recorded trace has no rate to look for: take arrivals that are generated"
        )
    for s in (benchmark, production):
        if not any(role in ("decode", "colocated") for role, _, _ in pools(s)):
            raise AttributionError(f"{s.name} decodes nothing, so no answer tokens can be lost")
    differing = {d.path: d.b for d in input_diff(benchmark, production) if d.path not in WORDS}
    clock = {path: differing.pop(path) for path in CLOCK if path in differing}
    rungs = [Rung("benchmark", "Benchmark", benchmark, ())]
    # Long answers need the deployment's long warm-up from the first rung that has them.
    here = with_overrides(benchmark, clock)
    if means := _mean_lengths(benchmark, production):
        here = _renamed(with_overrides(here, means), production, "Mean lengths")
        rungs.append(Rung("means", "Mean lengths", here, tuple(means)))
    for key, label, starts in CAUSES:
        later = "experts." if key != "experts" else "\0"
        taken = {
            p: v for p, v in differing.items() if p.startswith(starts) and not p.startswith(later)
        }
        if not taken:
            continue
        for path in taken:
            del differing[path]
        here = _renamed(with_overrides(here, taken), production, label)
        rungs.append(Rung(key, label, here, tuple(taken)))
    if balanced is not None:
        rungs += _balanced(here, production, balanced)
    return rungs


def _mean_lengths(benchmark: Scenario, production: Scenario) -> dict[str, Any]:
    """Production's mean lengths for every request, so that skew is told from size."""
    from twin.serving.workload import mean_lengths

    if benchmark.workload.lengths != "fixed" or production.workload.lengths == "fixed":
        return {}
    given, answer = mean_lengths(production.workload, load_facts())
    return {"workload.input_tokens": round(given), "workload.output_tokens": round(answer)}


def _balanced(here: Scenario, production: Scenario, balanced: Scenario) -> list[Rung]:
    """Balancing in two rungs: placed once, then again and again."""
    wish = {
        d.path: d.b for d in input_diff(here, balanced)
        if d.path.startswith(("experts.redundant", "experts.placement", "experts.balancing."))
    }  # fmt: skip
    looped = {p: wish.pop(p) for p in list(wish) if p.startswith("experts.balancing.")}
    rungs: list[Rung] = []
    for (key, label), taken in ((STATIC, wish), (DYNAMIC, looped)):
        if taken:
            here = _renamed(with_overrides(here, taken), production, label)
            rungs.append(Rung(key, label, here, tuple(taken)))
    return rungs


def _renamed(s: Scenario, production: Scenario, label: str) -> Scenario:
    name = f"{production.name[:70]} · {label}"
    return s.model_copy(update={"name": name, "question": "", "source": production.source})


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
    found = with_overrides(production, changes)
    return found.model_copy(update={"name": f"{production.name[:70]} · benchmark", "question": ""})


def ladder_of(scenario: Scenario) -> list[Rung]:
    """The ladder of one deployment, with the canary presets for what it does not say itself.

    From its even benchmark, over experts in order without copies, to experts placed once and to
    balancing in the loop. Raises AttributionError where there is no such way.
    """
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
    return ladder(even_benchmark(production, known[BENCHMARK]), production, balanced)


def attribute(scenario: Scenario, store: Store, watch: Callable[[str], Watch]) -> list[Step]:
    """Climb the ladder of a deployment in this process; what is stored is not run again.

    `watch(name)` gives what hears the progress of the run of that name.
    """
    from twin.lab.estimate import capacity
    from twin.lab.runner import find_run, run_now

    facts = load_facts()

    def stored(question: Scenario) -> Summary | None:
        found = find_run(store, question, facts=facts)
        row = store.runs.get(found) if found else None
        return row.summary if row else None

    steps = []
    for rung in ladder_of(scenario):
        most = capacity(rung.scenario, facts).requests_per_s if rung.searched else 0.0
        step = climb(rung, stored, most)
        while step.wanted is not None:
            run_now(store, step.wanted, facts=facts, watch=watch(step.wanted.name))
            step = climb(rung, stored, most)
        steps.append(step)
    return steps


def worth(summary: Summary) -> float:
    """Answer tokens per second and NPU that decodes."""
    return float(summary.get("decode_tokens_per_s_per_npu") or 0.0)


def climb(rung: Rung, answers: Answers, most_req_per_s: float) -> Step:
    """How far a rung is answered, and what to ask next.

    `most_req_per_s` is what the formulas say it sustains for ever: the search stays below it.
    """
    if not rung.searched:
        found = answers(rung.scenario)
        if found is None:
            return Step(rung, None, None, (), rung.scenario, None)
        return Step(rung, worth(found), None, (rung.scenario,), None, found)
    low, high = 0.0, most_req_per_s
    best: Summary | None = None
    asked: list[Scenario] = []
    for _ in range(PROBES):
        rate = 0.5 * (low + high)
        question = at_rate(rung.scenario, rate)
        found = answers(question)
        if found is None:
            return Step(rung, None, None, tuple(asked), question, best)
        asked.append(question)
        if (found.get("slo_attainment") or 0.0) >= ATTAINED:
            low, best = rate, found
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
    found: list[Part] = []
    for step in steps:
        value = step.tokens_per_s_per_npu
        if value is None:
            break
        whole = found[0].tokens_per_s_per_npu if found else value
        change = value - (found[-1].tokens_per_s_per_npu if found else 0.0)
        found.append(
            Part(step.rung.key, step.rung.label, value, change, change / whole if whole else 0.0)
        )
    return found


def reached(found: Sequence[Part]) -> float | None:
    """Production's throughput over the benchmark's; None while it is not known."""
    deployed = [p for p in found if p.key not in (STATIC[0], DYNAMIC[0])]
    if len(deployed) < 2 or deployed[-1].key != "experts" or not found[0].tokens_per_s_per_npu:
        return None
    return deployed[-1].tokens_per_s_per_npu / found[0].tokens_per_s_per_npu
