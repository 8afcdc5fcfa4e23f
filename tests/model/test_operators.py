"""An operator is one entry of words and one of work: declared, it is priced, booked and shown."""

import pytest

from docs.make import operator_table
from twin.lab.explain.waterfall import piece_of
from twin.metrics.operators import OPERATORS, Operator
from twin.model import costs, operators
from twin.model.operators import Plain, Work
from twin.model.predict import EVEN, Traffic, shares_by_cause
from twin.model.timeline import decode_timeline, prefill_timeline
from twin.ui.theme import OTHER, operator_colour, title

NAME = "dummy_attention_norm"
LENGTHS = Traffic(4096.0, 1024.0)


@pytest.fixture
def declare(monkeypatch):
    """Declare an operator nobody knows: it reads 40 MB of weights, and does nothing else."""
    for kept in ("_price_dies", "_price_over_exchanges"):  # prices are kept else
        monkeypatch.setattr(costs, kept, getattr(costs, kept).__wrapped__)

    def declare():
        entry = Operator(
            NAME, "Dummy norm", "attention's projections", ("decode", "prefill"), "attention",
            "vector cores", "Reads weights for nothing.",
        )  # fmt: skip
        work = Work("bf16", 4e7, 0.0, 0.0, 0.0)
        plain = Plain(NAME, "after", 1, lambda shape, formats: work, entry.phases)
        monkeypatch.setitem(OPERATORS, NAME, entry)
        monkeypatch.setattr(operators, "PLAIN", [*operators.PLAIN, plain])

    return declare


def test_an_operator_that_is_declared_stands_everywhere(ask, declare, facts):
    known = ask(deployment__decode__microbatch="off")
    reading = shares_by_cause(known.costs, LENGTHS, EVEN)["reading weights"]
    declare()
    full = ask(deployment__decode__microbatch="off")
    machine_bytes_per_s = 1.6e12
    for phase, before in ((full.decode, known.decode), (full.prefill, known.prefill)):
        assert 61 * 4e7 / machine_bytes_per_s < phase.operators[NAME] < 0.2
        for name, seconds in before.operators.items():
            grown = phase.operators[name] / seconds
            assert grown == pytest.approx(1.0) or name in ("mtp", "dispatch", "combine")
    assert full.decode.iteration_s > known.decode.iteration_s + full.decode.operators[NAME] * 0.99
    assert shares_by_cause(full.costs, LENGTHS, EVEN)["reading weights"] > reading
    plans = (
        decode_timeline(ask().costs.decode, 40.0, 160_000.0, 1.0, 1.0),
        prefill_timeline(full.costs.prefill, 1e5, 2e8, 1.0, 1.0),
    )
    for plan in plans:
        assert NAME in {name for piece in plan.pieces for name, _ in piece.operators}
    assert (title(NAME), operator_colour(NAME) != OTHER) == ("Dummy norm", True)
    assert f"| `{NAME}` | Dummy norm | decode, prefill |" in operator_table()


def test_its_time_counts_with_its_place(declare):
    declare()
    assert [piece_of(name) for name in (NAME, "mla_prolog", "experts", "of_another_version")] == [
        "attention", "attention", "experts", "experts",
    ]  # fmt: skip
