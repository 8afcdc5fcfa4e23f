"""Whatever goes wrong, in whatever order: what was told to somebody stays true.

A failure names its seed; `python -m tests.lab.histories SEED` prints it. What one has found gets
a test of its own beside the code that was mended: seeds tell other histories when the way they
are told changes.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.draws import some
from tests.lab import planted
from tests.lab.histories import history, new_template

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = [range(first, first + 10) for first in range(0, 2000, 10)]  # a third of a second each


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return new_template(tmp_path_factory.mktemp("template"))


@pytest.mark.parametrize("seeds", some([range(3)], *BLOCKS), ids=str)
def test_no_history_ends_badly(template, seeds):
    for seed in seeds:
        assert history(seed, template).wrong == [], f"python -m tests.lab.histories {seed}"


def test_a_history_is_told_by_its_seed_alone(template):
    """In another process, where sets are in another order."""
    told = history(7, template).history
    command = [sys.executable, "-m", "tests.lab.histories", "7"]
    again = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "5"}
    )
    assert len(told) > 100
    assert [line[:40] for line in again.stdout.splitlines()] == [line[:40] for line in told]


@pytest.mark.parametrize("bug", some([], *planted.PLANTED))
def test_a_planted_bug_is_found(template, bug):
    """Else histories would prove nothing."""
    for seed in range(0, 200, 10):
        if planted.finds(bug, range(seed, seed + 10), template):
            return
    pytest.fail(f"200 histories do not find it: {bug}")
