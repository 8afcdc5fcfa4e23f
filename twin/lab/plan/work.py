"""Plans in the background, each in a process and a folder of its own, named by the question's
digest: question, progress, simulations, answer. An interrupted plan goes on; a file is its lock."""

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twin.facts import Facts
from twin.lab.files import try_lock, write_text
from twin.lab.library import ROOT, facts_environment, load_facts
from twin.lab.plan.drive import Memory, Stopped, carry_out, version_of
from twin.lab.plan.question import Plan, PlanError, plan_digest, plan_from_text, question_text
from twin.lab.runs.cluster import ClusterError
from twin.lab.runs.process import command_of

QUESTION, STATUS, ANSWER, MEMORY, STOP, LOCK, LOG = (
    "question.txt", "status.json", "plan.json", "simulated.jsonl", "stop", "lock", "log.txt",
)  # fmt: skip
NOTED_S = 0.3  # between two reports of a plan's progress
BEGUN_S = 30.0  # longest wait for its process to start, on a machine that is very busy
WORKING_MOST = 2  # plans at work at the same time; more are refused


class PlansBusy(PlanError):
    """A plan that cannot begin yet: one sentence."""


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
        """Begin or continue a plan; returns its key. Raises PlansBusy if too many are running."""
        key = self.key(plan)
        folder = self.folder / key
        if self.state_of(key).answer or _is_locked(folder):
            return key
        if sum(map(_is_locked, self.folder.glob("*"))) >= WORKING_MOST:
            raise PlansBusy(f"{WORKING_MOST} plans are at work: stop one, or wait for it")
        folder.mkdir(parents=True, exist_ok=True)
        self.write_question(key, plan)
        for name in (STOP, STATUS):
            (folder / name).unlink(missing_ok=True)
        with (folder / LOG).open("wb") as log_file:
            process = subprocess.Popen(
                command_of("twin.lab.plan.work", str(folder)), cwd=ROOT,
                env={**os.environ, **facts_environment()}, stdin=subprocess.DEVNULL,
                stdout=log_file, stderr=log_file, start_new_session=True,
            )  # fmt: skip
        deadline_s = time.monotonic() + BEGUN_S
        while not _is_locked(folder) and process.poll() is None and time.monotonic() < deadline_s:
            time.sleep(0.05)
        return key

    def key(self, plan: Plan) -> str:
        """Name of a plan's folder; equal plans of one engine and equal facts share one."""
        return hashlib.sha256(f"{plan_digest(plan)} {self.version}".encode()).hexdigest()[:24]

    def write_question(self, key: str, plan: Plan) -> None:
        """Store the question of a plan in its folder."""
        write_text(self._folder_of(key) / QUESTION, question_text(plan))

    def stop(self, key: str) -> None:
        """Request a plan to stop; its simulations stay stored."""
        folder = self._folder_of(key)
        if folder.is_dir():
            (folder / STOP).touch()

    def state_of(self, key: str) -> PlanStatus:
        """State of a plan by its key; an unknown plan has not begun."""
        folder = self._folder_of(key)
        status, answer = _json_object(folder / STATUS), _json_object(folder / ANSWER)
        is_working, problem = _is_locked(folder), ""
        if not is_working and not answer and folder.is_dir():
            default_problem = "It was interrupted; go on, and nothing is simulated twice."
            problem = str(status.get("problem", default_problem))
        progress = float(status.get("progress", 0.0))
        is_stopping = is_working and (folder / STOP).exists()
        is_refused = bool(problem) and bool(status.get("refused"))
        so_far = status.get("so_far", {})
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
    """The plans of a store, in a folder next to its artefacts."""
    return Plans(artefacts / "plans", version_of(facts))


def carry_out_folder(folder: Path) -> None:
    """Carry out the plan of a folder, and write its answer; nothing if another process does."""
    with try_lock(folder / LOCK, patience_s=2.0) as has_lock:  # who only looks has it for a moment
        if not has_lock:
            return
        facts = load_facts()
        plan = plan_from_text((folder / QUESTION).read_text("utf-8"))
        memory = Memory(folder / MEMORY, version_of(facts))
        last_note_s, server_pid = 0.0, os.getppid()

        def note_progress(share: float, so_far: Mapping[str, Any]) -> bool:
            """Write the progress from time to time; returns whether the plan goes on."""
            nonlocal last_note_s
            if time.monotonic() - last_note_s > NOTED_S:
                last_note_s = time.monotonic()
                write_text(folder / STATUS, json.dumps({"progress": share, "so_far": so_far}))
            return not (folder / STOP).exists() and os.getppid() == server_pid

        try:
            answer = carry_out(plan, facts, note_progress, memory=memory)
        except (Stopped, ValueError) as error:
            stop_text = "It was stopped; go on, and nothing is simulated twice."
            problem = stop_text if isinstance(error, Stopped) else str(error)
            is_refused = not isinstance(error, Stopped | ClusterError)
            status = _json_object(folder / STATUS) | {"problem": problem, "refused": is_refused}
            write_text(folder / STATUS, json.dumps(status))
        else:
            write_text(folder / ANSWER, json.dumps(answer, sort_keys=True))


def _json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if the file is missing or holds something else."""
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


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
