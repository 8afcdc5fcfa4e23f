"""Who simulates for a plan: this process and helpers, or a scheduler's workers (`runs.cluster`).
Plans in the background, each in a process and a folder of its own, named by the question's digest:
question, progress, simulations, answer. An interrupted plan goes on; a file is its lock."""

import hashlib
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from twin.engine.simulate import ENGINE_VERSION, simulate
from twin.facts import Facts
from twin.lab.files import try_lock, write_text
from twin.lab.library import ROOT, facts_environment, load_facts
from twin.lab.plan.answer import answer_of, interim_answer, ledger_rows, stage_text
from twin.lab.plan.candidates import space_of
from twin.lab.plan.finish import Finish
from twin.lab.plan.price import imports_of
from twin.lab.plan.question import Plan, PlanError, plan_digest, plan_from_text, question_text
from twin.lab.plan.search import Search
from twin.lab.plan.trial import (
    Latencies,
    Trial,
    digest_without_slo,
    judge,
    rejudge,
    slo_only_judges,
    trial_of,
)
from twin.lab.runs.cluster import Child, Cluster, ClusterError, scheduler_address
from twin.lab.runs.process import command_of, cores
from twin.lab.store import StoreError
from twin.scenario import Scenario, json_text, scenario_digest, scenario_from_canonical

Note = Callable[[float, Mapping[str, Any]], bool]  # share done, answer so far; False: stop

NOTHING_YET = {"so_far": [], "front": [], "simulations": 0, "deployments": 0, "stage": "Pricing"}
BEAT_S = 0.2  # between two looks at a cluster
RUNS_HELD, REQUESTS_HELD = 2_000, 10_000  # runs that another SLO can judge; requests of one
PATIENCE_S = 60.0  # for a scheduler and the first to join it, before a plan ends
QUESTION, STATUS, ANSWER, MEMORY, STOP, LOCK, LOG = (
    "question.txt", "status.json", "plan.json", "simulated.jsonl", "stop", "lock", "log.txt",
)  # fmt: skip
NOTED_S = 0.3  # between two reports of a plan's progress
BEGUN_S = 30.0  # longest wait for its process to start, on a machine that is very busy
WORKING_MOST = 2  # plans at work at the same time; more are refused


class Stopped(Exception):
    """The plan was stopped on request."""


class Memory:
    """Simulations of a plan by scenario digest, for one engine and facts; may be in a file too."""

    def __init__(self, path: Path | None = None, version: str = ""):
        """Read the simulations of a version (engine and facts) from a file of JSON lines (`path`;
        None: no file); an incomplete line is ignored."""
        self._path, self._version = path, version
        self.trials: dict[str, Trial | str] = {}
        for json_line in path.read_text("utf-8").splitlines() if path and path.exists() else ():
            with suppress(ValueError):
                stored_entry = json.loads(json_line)
                if stored_entry.get("version") == version:
                    self.trials[stored_entry["scenario"]] = stored_entry["trial"]

    def save(self, digest: str, trial: Trial | str) -> None:
        """Store the figures of a simulation, or why it is impossible, by scenario digest."""
        self.trials[digest] = trial
        if self._path is not None:
            stored_entry = {"version": self._version, "scenario": digest, "trial": trial}
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(stored_entry) + "\n")


def simulate_one(scenario: Scenario, facts: Facts) -> Trial | str:
    """Figures of one simulation, or why it is impossible; also called in helper processes."""
    try:
        trace, expert_counts = imports_of(scenario)
        return trial_of(simulate(scenario, facts, trace, counts=expert_counts))
    except ValueError as error:
        if not type(error).__module__.startswith("twin."):
            raise
        return str(error)


def version_of(facts: Facts) -> str:
    """Version of the engine and of the facts, on which simulations depend besides the scenario."""
    return f"{ENGINE_VERSION} {facts.digest}"


def simulate_text(text: str) -> str:
    """Figures as JSON of a simulation for another process; text: a line with the version, then the
    scenario. Raises PlanError for another version."""
    version, _, scenario_text = text.partition("\n")
    # First: a scenario of another version may not be readable here.
    if version != version_of(facts := load_facts()):
        problem = "a process of the cluster has another twin or other facts"
        raise PlanError(f"{problem}: install the same version")
    scenario = scenario_from_canonical(scenario_text)
    return json.dumps(simulate_one(scenario, facts), default=np.ndarray.tolist)


@dataclass
class Simulators:
    """Simulates in this process and helper processes, or on a cluster. A run that differs from an
    earlier one in its SLO only is judged again, not repeated."""

    facts: Facts
    helpers: list[Child] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)
    cluster: Cluster | None = None
    # By digest without the SLO, the oldest first:
    runs: dict[str, tuple[Trial, Latencies]] = field(default_factory=dict)

    def simulate(
        self, scenarios: Sequence[Scenario], beat: Callable[[], None]
    ) -> list[Trial | str]:
        """Figures of each scenario, or why it is impossible, in order; `beat` is called before each
        simulation, and may raise."""
        digests, stored_trials = [scenario_digest(s) for s in scenarios], self.memory.trials
        to_run = {
            sha: s for sha, s in zip(digests, scenarios, strict=True) if sha not in stored_trials
        }
        run_keys = {sha: digest_without_slo(s) for sha, s in to_run.items() if slo_only_judges(s)}
        memory_lock = threading.Lock()

        def store(digest: str, answer: Trial | str) -> None:
            """Store the figures of a simulation; any thread may call it."""
            with memory_lock:
                if not isinstance(answer, str):
                    answer = self._without_latencies(run_keys.get(digest, ""), answer)
                self.memory.save(digest, answer)

        for digest, run_key in run_keys.items():
            if run_key in self.runs:
                store(digest, rejudge(*self.runs[run_key], to_run.pop(digest)))
        remaining_runs = list(to_run.items())
        if self.cluster is not None:
            self._simulate_on_cluster(self.cluster, remaining_runs, store, beat)
        else:
            self._simulate_locally(remaining_runs, store, beat)
        return [stored_trials[sha] for sha in digests]

    def _without_latencies(self, key: str, trial: Trial) -> Trial:
        """Figures of a run without its latencies, which are stored under `key` ('': dropped) so
        that the run can be judged under another SLO."""
        stored_figures = {figure: value for figure, value in trial.items() if figure != "latencies"}
        latencies = trial.get("latencies")
        if isinstance(latencies, list):  # of another process
            ttft_s, per_token_s, *finished_and_valid = latencies
            latencies = Latencies(np.array(ttft_s), np.array(per_token_s), *finished_and_valid)
        if key and latencies is not None and latencies.ttft_s.size <= REQUESTS_HELD:
            if len(self.runs) >= RUNS_HELD:
                del self.runs[next(iter(self.runs))]
            self.runs[key] = stored_figures, latencies
        return stored_figures

    def _simulate_locally(
        self, to_run: list[tuple[str, Scenario]], store: Callable[[str, Trial | str], None],
        beat: Callable[[], None],
    ) -> None:  # fmt: skip
        """Simulate pairs of digest and scenario (`to_run`) in this process and in the helpers;
        this process repeats what a helper failed at. store: gets each digest and its figures; beat:
        called before each simulation, and may raise."""
        pair_queue, failed_pairs = (
            iter(to_run),
            list[tuple[str, Scenario]](),
        )  # all threads take of one iterator

        def help_out(helper: Child) -> None:
            """Have a helper process simulate until nothing is left or it fails."""
            for digest, scenario in pair_queue:
                try:
                    store(digest, json.loads(helper.answer("trial", self._trial_text(scenario))))
                except (OSError, ValueError):
                    failed_pairs.append((digest, scenario))
                    return

        threads = [threading.Thread(target=help_out, args=(child,)) for child in self.helpers]
        for thread in threads:
            thread.start()

        try:
            for source_pairs in (pair_queue, failed_pairs):
                for digest, scenario in source_pairs:
                    beat()
                    store(digest, simulate_one(scenario, self.facts))
                for thread in threads:  # of which the last gives back what it failed at
                    thread.join()
        except BaseException:
            to_run.clear()
            raise

    def _trial_text(self, scenario: Scenario) -> str:
        """The text of a simulation for another process: version and scenario on two lines."""
        return f"{version_of(self.facts)}\n{json_text(scenario)}"

    def _simulate_on_cluster(
        self, cluster: Cluster, remaining: Sequence[tuple[str, Scenario]],
        store: Callable[[str, Trial | str], None], beat: Callable[[], None],
    ) -> None:  # fmt: skip
        """Simulate pairs of digest and scenario on a cluster; store, beat: as for
        `_simulate_locally`. Raises ClusterError, also after PATIENCE_S without workers."""
        digest_by_key = {}
        for digest, scenario in remaining:
            task_key = f"{version_of(self.facts)} {digest}"
            digest_by_key[task_key] = digest
            cluster.send(task_key, "trial", self._trial_text(scenario))
        last_contact_s = time.monotonic()
        while digest_by_key:
            beat()
            problem = f"nothing has joined {cluster.address} to simulate"
            try:
                answers = cluster.answers(BEAT_S)
                last_contact_s = (
                    time.monotonic() if answers or cluster.worker_count() else last_contact_s
                )
            except ClusterError as error:
                answers, problem = {}, str(error)
            if time.monotonic() - last_contact_s > PATIENCE_S:
                raise ClusterError(f"{problem}; go on later, and nothing is simulated twice")
            for task_key, answer in answers.items():
                if isinstance(answer, Exception):
                    raise ClusterError(f"a simulation on the cluster failed: {answer}")
                store(digest_by_key.pop(task_key), json.loads(answer))

    def close(self) -> None:
        """End the helper processes, and work that runs on a cluster."""
        for simulator in (*self.helpers, *([self.cluster] if self.cluster else ())):
            simulator.close()


def carry_out(
    plan: Plan, facts: Facts | None = None, note: Note = lambda _share, _so_far: True, *,
    helpers: int | None = None, memory: Memory | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The answer of a plan with its ledger; `note` gets the share done and the interim answer, and
    stops the plan by returning False (Stopped); helpers: number of processes next to this one,
    None: one for each further core, or a cluster if one is set. Raises PlanError, ValueError."""
    facts = facts or load_facts()
    deadline_s = time.monotonic() + (plan.seconds or math.inf)
    address = scheduler_address() if helpers is None else ""
    helper_count = (0 if address else cores() - 1) if helpers is None else helpers
    cluster = Cluster(address) if address else None
    processes = [Child() for _ in range(helper_count)]
    simulators = Simulators(facts, processes, memory or Memory(), cluster)
    try:
        # A finalist's seeds, its largest load, and losses, about: seven took 235 to 400, and 120
        # more for each loss (docs/studies/PLANS.md).
        expected_simulations = plan.simulations + plan.finalists * (45 + 17 * len(plan.survives))
        simulated_count, share_done, latest_answer = 0, 0.0, dict(NOTHING_YET)

        def report_progress() -> None:
            """Report share done and answer so far. Raises Stopped if the plan has to stop."""
            if not note(share_done, latest_answer):
                raise Stopped

        space = space_of(plan, facts, beat=report_progress)
        search = Search(space, facts, lambda: time.monotonic() > deadline_s)
        finish = Finish(search, facts)
        for phase_steps in (search_phase := search.steps(), finish.steps()):
            scenarios = next(phase_steps, None)
            while scenarios is not None:
                stage = "Searching" if phase_steps is search_phase else stage_text(finish)
                progress = {"stage": stage, "simulations": simulated_count}
                latest_answer = interim_answer(finish) | progress
                if finish.relax is None:
                    share_done = min(0.99, simulated_count / expected_simulations)
                else:  # by limits: simulations of searches anew are not known in advance
                    share_done = max(share_done, finish.relax.share_done())
                report_progress()
                results_and_scenarios = zip(
                    simulators.simulate(scenarios, report_progress), scenarios, strict=True
                )
                simulated_count += len(scenarios)
                # A string is the sentence of a refusal.
                trials = [
                    result if isinstance(result, str) else judge(result, plan, scenario)
                    for result, scenario in results_and_scenarios
                ]
                try:
                    scenarios = phase_steps.send(trials)
                except StopIteration:
                    break
    finally:
        simulators.close()
    engine_and_facts = {"engine": ENGINE_VERSION, "facts": facts.digest}  # that the answer is of
    final_answer = answer_of(finish) | engine_and_facts | {"ledger": ledger_rows(search)}
    final_answer["counts"]["simulations"] = simulated_count
    return final_answer


@dataclass(frozen=True, slots=True)
class PlanStatus:
    """State of a plan."""

    working: bool
    progress: float  # 0..1
    so_far: Mapping[str, Any]  # `answer.so_far`; empty before there is any
    answer: Mapping[str, Any]  # `answer.answered` with its ledger; empty before the end
    problem: str  # why it ended without an answer
    stopping: bool = False  # a stop was requested, and it still works
    refused: bool = False  # it cannot be carried out: begun again it ends the same way


@dataclass(frozen=True, slots=True)
class Plans:
    """The plans of a folder, for one engine and one set of facts."""

    folder: Path
    version: str

    def start(self, plan: Plan) -> str:
        """Begin or continue a plan; returns its key. Raises StoreError if too many are running."""
        plan_key = self.key(plan)
        folder = self.folder / plan_key
        if self.state_of(plan_key).answer or _is_locked(folder):
            return plan_key
        if sum(map(_is_locked, self.folder.glob("*"))) >= WORKING_MOST:
            raise StoreError(f"{WORKING_MOST} plans are at work: stop one, or wait for it")
        folder.mkdir(parents=True, exist_ok=True)
        self.write_question(plan_key, plan)
        for file_name in (STOP, STATUS):
            (folder / file_name).unlink(missing_ok=True)
        with (folder / LOG).open("wb") as log_file:
            process = subprocess.Popen(
                command_of("twin.lab.plan.drive", str(folder)), cwd=ROOT,
                env={**os.environ, **facts_environment()}, stdin=subprocess.DEVNULL,
                stdout=log_file, stderr=log_file, start_new_session=True,
            )  # fmt: skip
        deadline_s = time.monotonic() + BEGUN_S
        while not _is_locked(folder) and process.poll() is None and time.monotonic() < deadline_s:
            time.sleep(0.05)
        return plan_key

    def key(self, plan: Plan) -> str:
        """Name of a plan's folder; equal plans of one engine and equal facts share one."""
        return hashlib.sha256(f"{plan_digest(plan)} {self.version}".encode()).hexdigest()[:24]

    def write_question(self, key: str, plan: Plan) -> None:
        """Store a plan's question in the folder of its key."""
        write_text(self._folder_of(key) / QUESTION, question_text(plan))

    def stop(self, key: str) -> None:
        """Request a plan to stop; its simulations stay stored."""
        folder = self._folder_of(key)
        if folder.is_dir():
            (folder / STOP).touch()

    def state_of(self, key: str) -> PlanStatus:
        """State of a plan by its key; an unknown plan has not begun."""
        folder = self._folder_of(key)
        stored_status, answer = _json_object(folder / STATUS), _json_object(folder / ANSWER)
        is_working, problem = _is_locked(folder), ""
        if not is_working and not answer and folder.is_dir():
            default_problem = "It was interrupted; go on, and nothing is simulated twice."
            problem = str(stored_status.get("problem", default_problem))
        progress = float(stored_status.get("progress", 0.0))
        is_stopping = is_working and (folder / STOP).exists()
        is_refused = bool(problem) and bool(stored_status.get("refused"))
        so_far = stored_status.get("so_far", {})
        return PlanStatus(is_working, progress, so_far, answer, problem, is_stopping, is_refused)

    def stored_plan(self, key: str) -> Plan | None:
        """The plan that is stored under a key; None if it is unknown or cannot be read."""
        try:
            return plan_from_text((self._folder_of(key) / QUESTION).read_text("utf-8"))
        except (OSError, ValueError):
            return None

    def _folder_of(self, key: str) -> Path:
        """Folder of a plan's key; characters that a folder's name may not have are dropped."""
        return self.folder / ("".join(letter for letter in key if letter.isalnum())[:64] or "none")


def plans_of(artefacts: Path, facts: Facts) -> Plans:
    """The plans of a store, in a folder next to its artefacts, for these facts."""
    return Plans(artefacts / "plans", version_of(facts))


def carry_out_folder(folder: Path) -> None:
    """Carry out the plan of a folder and write its answer, unless another process is doing so."""
    with try_lock(folder / LOCK, patience_s=2.0) as has_lock:  # who only looks has it for a moment
        if not has_lock:
            return
        facts = load_facts()
        plan = plan_from_text((folder / QUESTION).read_text("utf-8"))
        memory = Memory(folder / MEMORY, version_of(facts))
        last_note_s, server_pid = 0.0, os.getppid()

        def note_progress(share_done: float, so_far: Mapping[str, Any]) -> bool:
            """Write the progress from time to time; returns whether the plan goes on."""
            nonlocal last_note_s
            if time.monotonic() - last_note_s > NOTED_S:
                last_note_s = time.monotonic()
                write_text(folder / STATUS, json.dumps({"progress": share_done, "so_far": so_far}))
            return not (folder / STOP).exists() and os.getppid() == server_pid

        try:
            answer = carry_out(plan, facts, note_progress, memory=memory)
        except (Stopped, ValueError) as error:
            stopped_text = "It was stopped; go on, and nothing is simulated twice."
            problem = stopped_text if isinstance(error, Stopped) else str(error)
            is_refused = not isinstance(error, Stopped | ClusterError)
            status = _json_object(folder / STATUS) | {"problem": problem, "refused": is_refused}
            write_text(folder / STATUS, json.dumps(status))
        else:
            write_text(folder / ANSWER, json.dumps(answer, sort_keys=True))


def _json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if the file is missing or holds something else."""
    try:
        parsed_json = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return parsed_json if isinstance(parsed_json, dict) else {}


def _is_locked(folder: Path) -> bool:
    """Whether a process is carrying out the plan of a folder."""
    if not (folder / LOCK).exists():
        return False
    with try_lock(folder / LOCK, shared=True) as has_lock:
        return not has_lock


def main() -> None:
    """Carry out the plan of the folder that the command names."""
    os.nice(5)  # the pages stay quick
    carry_out_folder(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
