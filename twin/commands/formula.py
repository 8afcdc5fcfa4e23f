"""The command `predict`: it needs neither engine nor store."""

from rich.markup import escape

from twin.commands.terminal import AsJson, ScenarioName, Settings, out, print_json, print_rows
from twin.lab.ask import question
from twin.lab.runs.predicted import predicted
from twin.metrics.measures import seconds
from twin.metrics.registry import shown


def predict(scenario: ScenarioName, settings: Settings = None, as_json: AsJson = False) -> None:
    """The steady state by formula alone: no arrivals, no queues, milliseconds of wall time."""
    named, _ = question(scenario, settings or [])
    prediction = predicted(named)
    if as_json:
        print_json(prediction)
        return

    rows = [(k, shown(k, v)) for k, v in prediction["summary"].items()]
    print_rows(f"{named.name}: always full", ("figure", "value"), rows)
    for phase, operators in prediction["operators"].items():
        total = sum(operators.values())
        longest = sorted(operators.items(), key=lambda item: -item[1])
        shares = [(k, seconds(v), f"{100 * v / total:.1f} %") for k, v in longest]
        print_rows(f"Where {phase} time goes", ("operator", "critical path", "share"), shares)
    for sentence in (prediction["advice"], *prediction["errors"]):
        out.print(escape(sentence))
    out.print(f"{seconds(prediction['wall_s'])} of wall time, compiling left out", style="dim")
