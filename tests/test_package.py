"""The package: a wheel holds all the twin needs, so that it answers from any folder."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from tests.conftest import ROOT, free_port, wait_until_healthy
from tests.protocol import Tab
from twin.kernels.compiled import NUMBA_VARIABLE, OWN_VARIABLE, use_own_cache


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the twin installed from its wheel; what it requires is there already."""
    home = tmp_path_factory.mktemp("package")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(home), str(ROOT)]
    subprocess.run([*pip, *build], check=True)
    (wheel,) = home.glob("*.whl")
    install = ["install", "--no-deps", "--no-index", "--no-compile"]
    install += ["--target", str(home / "site"), str(wheel)]
    subprocess.run([*pip, *install], check=True)
    return home / "site"


def twin(site: Path, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What the installed command says in another folder, of a user with another home."""
    return subprocess.run(
        [sys.executable, str(site / "bin" / "twin"), *words],
        check=False,
        cwd=home,
        env=os.environ | {"PYTHONPATH": str(site), "HOME": str(home), "XDG_DATA_HOME": ""},
        capture_output=True,
        text=True,
    )


def test_an_installed_twin_answers_as_the_clone_does(site, tmp_path):
    installed = twin(site, tmp_path, "presets", "--json")
    assert installed.returncode == 0, installed.stderr
    here = [sys.executable, "-m", "twin", "presets", "--json"]
    assert installed.stdout == subprocess.check_output(here, cwd=ROOT, text=True)


@pytest.mark.long  # it compiles what a fresh installation has never run
def test_an_installed_twin_predicts(site, tmp_path):
    done = twin(site, tmp_path, "predict", "quickstart", "--json")
    assert done.returncode == 0, done.stderr
    assert "decode_tokens_per_s_per_npu" in done.stdout


def test_an_installed_twin_keeps_its_runs_in_the_users_home(site, tmp_path):
    done = twin(site, tmp_path, "check")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / ".local/share/twin/twin.db").exists()
    assert not list(site.rglob("*.db"))


def test_an_installed_twin_serves_its_dashboard(site, tmp_path):
    port = free_port()
    log = (tmp_path / "log").open("wb")
    # The same sources are compiled in the clone's folder: that they can be is not asked here.
    kernels = {NUMBA_VARIABLE: str(use_own_cache()), OWN_VARIABLE: ""}
    server = subprocess.Popen(
        [sys.executable, str(site / "bin" / "twin"), "serve", f"--port={port}"],
        cwd=tmp_path,
        env=os.environ
        | {"PYTHONPATH": str(site), "HOME": str(tmp_path), "XDG_DATA_HOME": ""}
        | {"PYTHONFAULTHANDLER": "1", **kernels},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        wait_until_healthy(url := f"http://localhost:{port}", server, tmp_path / "log")
        with Tab(url, requests.Session(), "library") as tab:  # Start would begin to simulate
            for page in ("Library", "Compare"):
                titles = [title.heading for title in tab.open(page.lower()).of("heading")]
                assert page in [title.body for title in titles if title.tag == "h1"]
    except Exception:
        server.send_signal(signal.SIGABRT)  # it says where each of its threads stands
        server.wait()
        sys.stdout.write((tmp_path / "log").read_text()[-20_000:])
        raise
    finally:
        server.terminate()
        server.wait()
        log.close()


def test_the_frame_and_the_pictures_come_along(site):
    assert (site / "twin/share/app.py").read_bytes() == (ROOT / "app.py").read_bytes()
    assert (site / "twin/share/.streamlit/config.toml").exists()
    others = [p.relative_to(ROOT) for p in (ROOT / "twin" / "ui").rglob("*.js")]
    assert others
    assert all((site / path).exists() for path in others)


def test_the_package_names_its_licence_and_every_requirement(site):
    (metadata,) = site.glob("twin-*.dist-info/METADATA")
    said = metadata.read_text("utf-8")
    pins = re.findall(r"^[\w.-]+==\S+$", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    assert "License-Expression: Apache-2.0" in said
    required = re.findall(r"^Requires-Dist: (\S+)$", said, re.MULTILINE)
    assert sorted(required) == sorted(pin.lower().replace("_", "-") for pin in pins)
    assert (metadata.parent / "licenses/LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
