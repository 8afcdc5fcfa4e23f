import numpy as np
import pytest

from twin.compiled import entry
from twin.hardware.chip import load_chip
from twin.model.roofline import interpolate, load_machine, roof


def test_a_roof_is_the_longer_far_from_the_ridge_and_more_at_it():
    assert roof(5.0, 0.0) == 5.0
    assert roof(10.0, 1.0) == pytest.approx(10.0, rel=0.01)
    assert roof(3.0, 4.0) == 5.0


def test_interpolation_passes_its_points_and_stays_at_the_ends():
    xs, ys = np.array([1.0, 2.0, 4.0]), np.array([3.0, 2.0, 1.0])
    for call in (interpolate, entry(interpolate)):
        assert [call(x, xs, ys) for x in (0.0, 2.0, 3.0, 9.0)] == [3.0, 2.0, 1.5, 1.0]


def test_the_slowest_of_many_dies_is_slower(facts):
    m = load_machine(facts, load_chip(facts, "ascend-910c"))
    assert 1.0 == m.slowest(1) <= m.slowest(8) < m.slowest(320)
    assert m.pull(0.5) < m.pull(1.0) == 1.0
