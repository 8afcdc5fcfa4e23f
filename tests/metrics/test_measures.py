import pytest

from twin.metrics.measures import amount, seconds


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0005, "500 µs"), (0.04996, "50.0 ms"), (0.9996, "1.00 s"), (83.456, "83.5 s")],
)
def test_durations_choose_their_unit(value, text):
    assert seconds(value) == text


def test_nothing_is_a_dash_and_never_zero():
    assert amount(None, "time") == amount(float("nan"), "share") == "–"
