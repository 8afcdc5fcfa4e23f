import pytest

from twin.metrics.measures import MEASURES, amount, measure, seconds, shown, verdict


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0005, "500 µs"), (0.04996, "50.0 ms"), (0.9996, "1.00 s"), (83.456, "83.5 s")],
)
def test_durations_choose_their_unit(value, text):
    assert seconds(value) == text


def test_every_measure_shows_a_unit_or_is_a_bare_count():
    for key, described in MEASURES.items():
        text = shown(key, 1234.5)
        assert not text.replace(",", "").replace(".", "").isdigit(), key
        assert described.help, key


def test_an_unlisted_figure_is_read_from_its_name():
    assert measure("ttft_other_s_p99").kind == "time"
    assert shown("reload_bytes_per_s_mean", 2.5e9) == "2.50 GB/s"


def test_nothing_is_a_dash_and_never_zero():
    assert amount(None, "time") == amount(float("nan"), "share") == "–"


def test_less_waiting_is_better_and_more_tokens_are_better():
    assert verdict("ttft_s_p99", 1.0, 2.0) == "better"
    assert verdict("goodput_req_per_s", 1.0, 2.0) == "worse"
    assert verdict("goodput_req_per_s", 2.0, 2.0) == "same"
    assert verdict("requests", 1.0, 2.0) == ""
