"""ServeGen's clients as requests: rates, marginals, and sets that are not whole."""

import json

import numpy as np
import pytest

from tests.extras.servegen.doors import servegen
from tests.lab.test_real_traces import TRACES, assert_fitted, assert_lengths, golden, needs_traces
from tests.made_trace import archive
from twin.lab.traces.reader import read_trace, trace_figures
from twin.lab.traces.source import TraceError

SERVEGEN = TRACES / "servegen-deepseek-r1" / "servegen_data_reason_deepseek-r1.tar.gz"


def test_servegen_keeps_rates_and_marginals(tmp_path):
    t = read_trace(archive(servegen(), "w:gz"))
    assert len(t) == 1500 and t.arrival_s[-1] < 1200
    assert (t.arrival_s + 0 < 600).sum() == pytest.approx(300, abs=40)
    assert set(t.input_tokens) == {100, 300} and set(t.output_tokens) == {10}
    assert (t.input_tokens == 300).mean() == pytest.approx(0.75, abs=0.05)
    for name, data in servegen().items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    assert read_trace(tmp_path).digest == t.digest


def test_servegen_marginals_are_independent():
    files = servegen(rates=(5.0,))
    both = "{100: 0.5, 300: 0.5}"
    body = json.dumps({"0": {"input_tokens": both, "output_tokens": both}}).encode()
    t = read_trace(archive(files | {"data/chunk-0-dataset.json": body}))
    assert abs(np.corrcoef(t.input_tokens, t.output_tokens)[0, 1]) < 4 / len(t) ** 0.5


def test_an_incomplete_servegen_set_is_refused():
    files = servegen()
    del files["data/chunk-0-dataset.json"]
    with pytest.raises(TraceError, match="no chunk-0-dataset.json"):
        read_trace(archive(files))


@needs_traces
def test_servegen_day():
    table = read_trace(SERVEGEN)
    seen, expected = trace_figures(table), golden("servegen/deepseek-r1")
    assert len(table) == round(expected["implied_requests"])
    assert_lengths(
        seen, {side: expected[f"{side}_tokens"] for side in ("input", "output")}, rel=0.01
    )
    assert seen["interarrival_cv"] == pytest.approx(1.56, abs=0.03)
    assert_fitted("servegen-deepseek-r1", table)
