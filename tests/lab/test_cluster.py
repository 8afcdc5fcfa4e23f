"""Runs and plans on a cluster that the commands of docs/OPERATE.md start; and kill -9 of its parts.

PostgreSQL is a part of it where its programs are installed; else the store is SQLite.
"""

import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import free_port
from tests.draws import some
from tests.lab import postgres
from tests.lab.fake_engine import answer
from tests.lab.plan.small import as_bytes, brief_answer, facts, small
from tests.lab.planning import small_plans
from tests.test_house import ROOT
from twin.lab.plan import drive
from twin.lab.runs import cluster as afar
from twin.lab.runs.cluster import Cluster, ClusterError
from twin.lab.runs.executor import Runner
from twin.lab.store import open_store
from twin.lab.store.owner import CLUSTER
from twin.scenario import Scenario

PATIENCE_S = 240.0
OPERATE = (ROOT / "docs/OPERATE.md").read_text("utf-8")


def commands() -> list[str]:
    """The lines of the section that starts a cluster."""
    section = OPERATE.partition("## More than one machine")[2].partition("\n## ")[0]
    return re.search(r"```sh\n(.*?)```", section, re.DOTALL)[1].splitlines()


def until(true, seconds=PATIENCE_S):
    """What is true once something is."""
    end_s = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end_s, "waited in vain"
        time.sleep(0.1)  # a look at the store takes milliseconds
    return found


class Place:
    """What the commands start, each part by the command that started it; at ports of its own."""

    def __init__(self, home: Path):
        self.home = home
        with_database = shutil.which("initdb") is not None
        text = "\n".join(commands()).replace("8786", str(free_port()))
        text = text.replace("5433", str(free_port())).replace("/srv/twin", str(home))
        programs = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        self.environment = {**os.environ, **programs}
        self.parts: list[tuple[str, subprocess.Popen[bytes]]] = []
        self.user = postgres.SERVER_USER if os.getuid() == 0 else None
        self.database = ""
        for line in filter(None, text.splitlines()):
            words = shlex.split(line, comments=True)
            if words[0] == "export":
                self.environment |= dict(word.split("=", 1) for word in words[1:])
            elif words[0] in ("initdb", "pg_ctl"):
                if with_database:
                    self.database = "postgresql"
                    subprocess.run(words, check=True, user=self.user, cwd=home,
                                   stdout=subprocess.DEVNULL)  # fmt: skip
            elif words[-1] == "&":
                self.start(line)
        if not with_database:
            self.environment["TWIN_DB_URL"] = f"sqlite:///{home}/twin.db"

    @property
    def scheduler(self) -> str:
        return self.environment["TWIN_SCHEDULER"]

    def start(self, line: str) -> None:
        words = shlex.split(line)[:-1]
        assert words[:2] == ["python", "-m"]
        with (self.home / "log").open("ab") as log:
            process = subprocess.Popen([sys.executable, *words[1:]], cwd=ROOT, stderr=log,
                                       env=self.environment)  # fmt: skip
        self.parts.append((line, process))

    def kill(self, word: str) -> None:
        """kill -9 one part whose command has a word, and start it again."""
        line, process = next(part for part in self.parts if word in part[0])
        self.parts.remove((line, process))
        process.kill()
        process.wait()
        self.start(line)

    def close(self) -> None:
        for _, process in self.parts:
            process.kill()
            process.wait()
        if self.database:
            stop = ["pg_ctl", f"--pgdata={self.home}/postgres", "--mode=immediate", "stop"]
            subprocess.run(stop, check=True, user=self.user, cwd=self.home,
                           stdout=subprocess.DEVNULL)  # fmt: skip


@pytest.fixture(scope="module")
def place():
    with tempfile.TemporaryDirectory(prefix="twin-", dir="/tmp") as name:
        home = Path(name)
        home.chmod(0o777)
        started = Place(home)
        yield started
        started.close()


def of_folder(folder: Path, process: int | str = "[0-9]*") -> int:
    """The process that is at the plan of a folder, of all or of one; 0: none."""
    for path in Path("/proc").glob(f"{process}/cmdline"):
        with suppress(OSError):
            if b"plan.drive" in (said := path.read_bytes()) and str(folder).encode() in said:
                return int(path.parent.name)
    return 0


def planned(place: Place, folder: Path, kills: list[str], seed: int = 1) -> None:
    """The small plan while parts are killed, one at a time, each after some more simulations: its
    bytes are those of one process, and no simulation that had ended was made again."""
    chance = random.Random(seed)
    server = [sys.executable, "-m", "tests.lab.planning", str(folder)]

    def serve():
        return subprocess.Popen(server, cwd=ROOT, env=place.environment)

    def simulated() -> list[str]:
        """Digests of what has been; a line that is just written is none yet."""
        text = "".join(path.read_text() for path in folder.glob("*/simulated.jsonl"))
        whole = text[: text.rfind("\n") + 1]
        return [json.loads(line)["scenario"] for line in whole.splitlines()]

    process, before = serve(), 0
    for part in kills:
        until(lambda: len(simulated()) > before or process.poll() is not None)  # noqa: B023
        time.sleep(chance.uniform(0.0, 0.3))
        if part != "server":
            place.kill(part)
        else:
            at = of_folder(folder)
            process.kill()
            process.wait()
            if at and chance.random() < 0.5:  # else it notices by itself that the server is gone
                with suppress(ProcessLookupError):
                    os.kill(at, signal.SIGKILL)
            # To read of all processes again and again would take half a core.
            until(lambda: not of_folder(folder, at))  # noqa: B023
            process = serve()
        before = len(simulated())
    assert process.wait(PATIENCE_S) == 0
    (key,) = [path.name for path in folder.iterdir()]
    found = small_plans(folder).state_of(key)
    assert as_bytes(found.answer) == brief_answer()
    assert len(set(simulated())) == len(simulated())


PARTS = ("worker", "scheduler", "server")


@pytest.mark.parametrize(
    "kills", some([[*PARTS]], *[[part] * 4 for part in PARTS for _ in range(5)])
)
def test_a_plan_outlives_whatever_is_killed_with_the_same_bytes(place, tmp_path, kills):
    planned(place, tmp_path, kills, seed=len(kills))


def test_runs_of_a_server_are_carried_out_by_workers(place, monkeypatch):
    for name in ("TWIN_SCHEDULER", "TWIN_DB_URL", "TWIN_ARTIFACTS"):
        monkeypatch.setenv(name, place.environment[name])
    store = open_store()
    runner = Runner(store, engine="tests.lab.fake_engine").start()

    def state(run):
        return store.runs.get(run).state

    quick, long = Scenario(horizon_s=31.0), Scenario(horizon_s=60_000.0)
    first = runner.submit(quick)
    until(lambda: state(first) == "done")
    assert not runner._processes and store.runs.get(first).owner.name.startswith(CLUSTER)
    assert store.runs.table(first, "requests").equals(answer(quick).tables["requests"])

    # A request to stop is obeyed; one that does not hear is killed, and its worker goes on.
    going, deaf = runner.submit(long), runner.submit(Scenario(question="deaf"))
    for run in (going, deaf):
        until(lambda: store.runs.get(run).beat_s)  # noqa: B023
        runner.cancel(run)
    until(lambda: state(going) == "cancelled" and state(deaf) == "cancelled")

    # A worker is killed: another begins its run anew. One that kills every process is given up.
    again = runner.submit(Scenario(horizon_s=300.0))
    until(lambda: store.runs.get(again).live)
    stat = Path(f"/proc/{store.runs.get(again).owner.pid}/stat").read_text()
    os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
    killed = runner.submit(Scenario(question="killed"))
    until(lambda: state(again) == "done" and state(killed) == "failed")
    assert "the cluster gave it up" in store.runs.get(killed).message
    assert runner.trouble == ""
    runner.close(kill=True)
    store.close()

    # A plan for which nothing is there to simulate ends and says so.
    for _, process in [part for part in place.parts if "worker" in part[0]]:
        process.kill()
    monkeypatch.setattr(drive, "PATIENCE_S", 1.0)
    with pytest.raises(ClusterError, match="nothing has joined tcp://.*; go on later"):
        drive.Simulators(facts(), cluster=Cluster(place.scheduler)).simulate(
            [small()], lambda: None
        )


def test_what_a_cluster_cannot_do_is_one_sentence(monkeypatch):
    for address in ("localhost", "http://x:1", "tcp://x", "tcp://x:1 y"):
        with pytest.raises(ClusterError, match="an address as tcp://"):
            afar.scheduler_address(address)
    away = Cluster(f"tcp://127.0.0.1:{free_port()}")
    away.send("key", "trial", "text")
    monkeypatch.setattr(afar, "CONNECT_S", 0.1)
    with pytest.raises(ClusterError, match="no scheduler answers at tcp://"):
        away.answers()
    monkeypatch.setattr(drive, "PATIENCE_S", 0.0)
    with pytest.raises(ClusterError, match="no scheduler .*; go on later"):
        drive.Simulators(facts(), cluster=away).simulate([small()], lambda: None)
    monkeypatch.setattr(afar, "import_module", lambda name: __import__("no_such_library"))
    with pytest.raises(ClusterError, match="pip install"):
        away.answers()


def test_a_worker_with_another_twin_refuses_to_simulate():
    with pytest.raises(ValueError, match="install the same version"):
        drive.simulate_text("another version\n{}")


def test_a_process_that_has_grown_ends_in_order_while_its_input_is_open():
    grown = "from twin.lab.runs import cluster; cluster.PEAK_BYTES_MAX = 0; cluster.main()"
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", grown], cwd=ROOT, **pipes) as process:
        process.stdin.write(b'{"what": "trial", "text": "another version"}\n')
        process.stdin.flush()
        assert process.wait(PATIENCE_S) == 0
        reply = json.loads(process.stdout.read())
        assert reply["last"] and "refused" in reply
        assert b"Fatal" not in process.stderr.read()


def test_the_operators_page_names_the_pinned_versions():
    pins = set((ROOT / "requirements-dev.txt").read_text("utf-8").splitlines())
    named = re.findall(r'"([\w.\[\]]+==[\d.]+)"', OPERATE)
    assert {"distributed==2026.8.0", "psycopg[binary]==3.3.9"} <= {*named} <= pins
    assert afar.MISSING.split('"')[1] in pins
