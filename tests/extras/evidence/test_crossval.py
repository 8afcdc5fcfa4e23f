"""Cross-validation: what a row alone carries is lost without it, what others carry is kept."""

from types import SimpleNamespace

import numpy as np
import pytest

from twin.extras.evidence.calibrate import CONSTANTS, _refit, cross_validate
from twin.extras.evidence.made import load_made
from twin.lab.evidence.rows import load_published
from twin.lab.library import load_facts

SLOPE = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
TRUTH = np.array([0.8, 0.4])
START = np.array([0.5, 0.5])


def errors(x, chosen):
    return (SLOPE @ (x - TRUTH))[list(chosen)]


def test_a_constant_that_one_row_carries_goes_back_to_its_start_without_it():
    ones = np.ones(3)
    space = SimpleNamespace(start=START, errors=errors)
    assert _refit(space, [SLOPE], ones, [0, 1, 2]) == pytest.approx(TRUTH, abs=1e-3)
    without = _refit(space, [SLOPE], ones, [1, 2])
    assert without == pytest.approx([START[0], TRUTH[1]], abs=1e-3)


def test_rows_of_one_kernel_leave_each_other_out():
    rows = [r for r in load_published() if r.calibrates and r.id.startswith("cm384-dispatch")]
    own = [c for c in CONSTANTS if c.name in ("quantise", "barrier_round")]
    cross = cross_validate(load_facts(), rows, own)
    assert [left.name for left in cross.left_out if left.by == "row"] == [r.id for r in rows]
    assert [span.name for span in cross.constants] == [c.name for c in own]
    assert all(span.low <= span.high for span in cross.constants)
    assert cross.mean("row") >= 0.0


def test_the_kept_cross_validation_has_every_constant_and_every_calibrating_row():
    cross = load_made().cross
    assert {span.name for span in cross.constants} == {c.name for c in CONSTANTS}
    assert all(0.0 <= left.predicted < 1.0 for left in cross.left_out)
    assert {left.by for left in cross.left_out} == {"row", "source", "system"}
