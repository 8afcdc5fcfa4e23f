"""Peak memory is a process's own."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHILD = "from twin.lab.runs.process import peak_bytes; print(peak_bytes())"
PARENT = f"""
import subprocess, sys
block = b"1" * 400_000_000
print(subprocess.check_output([sys.executable, "-c", {CHILD!r}], text=True))
"""


def test_a_process_started_by_a_large_one_is_not_large_itself():
    said = subprocess.check_output([sys.executable, "-c", PARENT], cwd=ROOT, text=True)
    assert 1e6 < int(said) < 200e6


GIVES_BACK = """
from twin.lab.runs.process import peak_bytes
before = peak_bytes()
block = b"1" * (before + 50_000_000)
high = peak_bytes()
del block
print(before, high, peak_bytes())
"""


def test_the_peak_stays_when_memory_is_given_back():
    """In a process of its own: this one may be large, and the peak of all tests is."""
    said = subprocess.check_output([sys.executable, "-c", GIVES_BACK], cwd=ROOT, text=True)
    before, high, after = map(int, said.split())
    assert high >= 1.5 * before + 50_000_000 / 2
    assert after > high - 2_000_000  # the kernel counts pages in batches
