"""No index leaves its column: numba checks none, and a write outside ends runs at random."""

import os
import subprocess
import sys

import pytest

MANY = 1000  # scenarios of any field


@pytest.mark.long
def test_compiled_code_stays_within_its_columns(tmp_path):
    """Requests that were inside when a run began name no prefill instance: -1 was once a row."""
    checks = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    finished = subprocess.run(
        [sys.executable, "-m", "tests.laws.any_scenario", str(MANY)],
        env=os.environ | checks, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert " 0 broken" in finished.stdout.splitlines()[-1], finished.stdout[-3000:]
