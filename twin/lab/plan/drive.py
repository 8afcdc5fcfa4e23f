"""Who simulates for a plan: this process, and where there are more cores, helpers of its own.

A helper (`python -m twin.lab.plan.drive`) reads a scenario a line and writes its figures a line; it
ends when its input does, so none outlives the process that started it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from twin.engine.simulate import simulate
from twin.facts import Facts
from twin.lab.library import ROOT, facts_environment, load_facts
from twin.lab.plan.answer import answered, ledger, so_far
from twin.lab.plan.candidates import space_of
from twin.lab.plan.finish import Finish
from twin.lab.plan.question import Plan
from twin.lab.plan.search import Search, Steps
from twin.lab.plan.trial import Trial, judged, measured
from twin.scenario import Scenario, canonical, scenario_digest, scenario_from_canonical

Note = Callable[[float, Mapping[str, Any]], bool]  # share done, answer so far; False: stop


class Stopped(Exception):
    """The plan was stopped on request."""


class Memory(Protocol):
    """Answers of earlier simulations, by digest of the scenario."""

    def get(self, digests: Sequence[str]) -> dict[str, Trial | str]:
        """Those that are known."""

    def put(self, answers: Mapping[str, Trial | str]) -> None:
        """Store some."""


def one(scenario: Scenario, facts: Facts) -> Trial | str:
    """The figures of one simulation, or why it cannot be. A helper does the same."""
    try:
        return measured(simulate(scenario, facts))
    except ValueError as error:
        if not type(error).__module__.startswith("twin."):
            raise
        return str(error)


class Helper:
    """A process that simulates."""

    def __init__(self) -> None:
        """Start it."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "twin.lab.plan.drive"],
            cwd=ROOT, env={**os.environ, **facts_environment()},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def ask(self, scenario: Scenario) -> Trial | str:
        """The figures of one simulation. Raises OSError where the process is gone."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(canonical(scenario).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise OSError("a helper of the plan ended")
        answer: Trial | str = json.loads(line)
        return answer

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


@dataclass
class Simulators:
    """This process and its helpers; what is in the memory is not simulated again."""

    facts: Facts
    helpers: list[Helper] = field(default_factory=list)
    memory: Memory | None = None
    made: int = 0  # simulations that were carried out, not remembered

    def all(self, scenarios: Sequence[Scenario], beat: Callable[[], None]) -> list[Trial | str]:
        """The figures of each scenario, in order; `beat` is called between two, and may raise."""
        digests = [scenario_digest(s) for s in scenarios]
        answers: dict[str, Trial | str] = (
            {} if self.memory is None else dict(self.memory.get(digests))
        )
        left = [(d, s) for d, s in zip(digests, scenarios, strict=True) if d not in answers]
        found: dict[str, Trial | str] = {}
        lock = threading.Lock()

        def take() -> tuple[str, Scenario] | None:
            with lock:
                return left.pop(0) if left else None

        def store(digest: str, answer: Trial | str) -> None:
            with lock:
                found[digest] = answer
                if self.memory is not None:
                    self.memory.put({digest: answer})

        def help_out(helper: Helper) -> None:
            while (item := take()) is not None:
                digest, scenario = item
                try:
                    store(digest, helper.ask(scenario))
                except (OSError, ValueError):
                    with lock:
                        left.insert(0, item)
                    return

        threads = [threading.Thread(target=help_out, args=(h,)) for h in self.helpers]
        for thread in threads:
            thread.start()
        try:
            while True:
                while (item := take()) is not None:
                    beat()
                    store(item[0], one(item[1], self.facts))
                for thread in threads:
                    thread.join()
                if not left:  # else a helper ended and gave its scenario back
                    break
                threads = []
        except BaseException:
            left.clear()
            raise
        self.made += len(found)
        answers |= found
        return [answers[d] for d in digests]

    def close(self) -> None:
        """End the helpers."""
        for helper in self.helpers:
            helper.close()


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def carried_out(
    plan: Plan,
    facts: Facts | None = None,
    note: Note = lambda _share, _so_far: True,
    *,
    helpers: int | None = None,
    memory: Memory | None = None,
) -> dict[str, Any]:
    """The answer of a plan, with its ledger. `note` hears how far it is and may stop it (Stopped);
    helpers: processes next to this one; None: one for each further core. Raises PlanError and the
    rooms' own ValueErrors, each with one sentence."""
    facts = facts or load_facts()
    began_s = time.monotonic()

    def over() -> bool:
        return bool(plan.seconds) and time.monotonic() - began_s > plan.seconds

    count = cores() - 1 if helpers is None else helpers
    by = Simulators(facts, [Helper() for _ in range(count)], memory)
    try:
        search = Search(space_of(plan, facts), facts, over)
        finish = Finish(search, facts)
        # Simulations of a finalist, about: five seeds, its largest load, losses.
        total = plan.simulations + plan.finalists * (5 + 12 + 2 * len(plan.survives))
        made, news = 0, so_far(search) | {"stage": "Searching"}

        def beat() -> None:
            if not note(min(0.99, made / total), news):
                raise Stopped

        for stage, steps in (("Searching", search.steps()), ("Making sure", finish.steps())):
            for scenarios, send in _driven(steps):
                news = so_far(search) | {"stage": stage, "simulations": made}
                beat()
                answers = by.all(scenarios, beat)
                send([a if isinstance(a, str) else judged(a, plan) for a in answers])
                made += len(scenarios)
    finally:
        by.close()
    found = answered(finish) | {"ledger": ledger(search)}
    found["counts"]["simulations"] = made
    return found


def _driven(
    steps: Steps,
) -> Generator[tuple[tuple[Scenario, ...], Callable[[Sequence[Trial | str]], None]], None, None]:
    """Every batch of a search with the function that takes its answers."""
    sent: list[Sequence[Trial | str]] = []
    try:
        wanted = next(steps)
        while True:
            yield wanted, sent.append
            wanted = steps.send(sent.pop())
    except StopIteration:
        return


def main() -> None:
    """Answer one scenario after the other until there will be no more."""
    facts = load_facts()
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
        for line in sys.stdin.buffer:
            answer = one(scenario_from_canonical(line.decode()), facts)
            answers.write(json.dumps(answer).encode() + b"\n")
            answers.flush()


if __name__ == "__main__":
    main()
