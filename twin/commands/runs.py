"""Commands that answer a scenario: by formula `predict`, by simulation all others."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.markup import escape

from twin.commands import terminal
from twin.hooks import Hook
from twin.lab.ask import scenario_and_trace
from twin.lab.explain.words import changes_text, effect_text
from twin.metrics.measures import numbered, seconds
from twin.metrics.registry import as_text, metrics_at
from twin.scenario import Scenario, SpecError, remarks

Multiplier = Annotated[float, typer.Option(help="The trace's requests come so many times faster.")]
Copies = Annotated[int, typer.Option(help="Copies of the trace, each under block ids of its own.")]
Over = Annotated[list[str], typer.Option(
    metavar="FIELD=A:B:N",
    help="N values from A to B (:log in even ratios), or FIELD=A,B,C; twice for two fields.",
)]  # fmt: skip
NoStore = Annotated[bool, typer.Option("--no-store", help="Do not keep the run.")]


def lab_function(path: str) -> Any:
    """Returns the function at "module:function" of twin/lab, imported late: `--help` stays fast."""
    return Hook("", f"twin.lab.{path}").load()


def run_scenario(
    scenario: terminal.ScenarioName, trace: terminal.TraceFile = None,
    settings: terminal.Settings = None, rate_multiplier: Multiplier = 1.0, tree_copies: Copies = 1,
    as_json: terminal.AsJson = False, no_store: NoStore = False,
    table: Annotated[list[str] | None, typer.Option(
        help="With --json: a table of the run too, as rows.")] = None,
    html: terminal.HtmlFile = None,
) -> None:  # fmt: skip
    """Simulate a scenario and store the run."""
    write_report = terminal.report_writer("run", html)
    if table and not as_json:
        raise SpecError("--table adds rows to one JSON object: say --json too")
    chosen_scenario, trace_table = scenario_and_trace(
        scenario, settings or [], trace, rate_multiplier, tree_copies
    )
    print_remarks(chosen_scenario)
    with terminal.progress_bar(chosen_scenario.name) as show_progress:
        answer = lab_function("runs.answer:answer_scenario")(
            chosen_scenario, trace_table, show_progress, keep=not no_store, tables=table or (),
            on_run=write_report,
        )  # fmt: skip
    if as_json:
        terminal.print_json(answer)
    else:
        print_run(answer)
    raise typer.Exit(0 if answer["valid"] else 1)


def compare_runs(
    runs: Annotated[list[str], typer.Argument(help="Presets, scenario files or run ids; 2 to 6.")],
    seeds: Annotated[int, typer.Option(
        min=1, max=99, help="Seeds of each, in pairs; from 3 on, with intervals.")] = 1,
    as_json: terminal.AsJson = False,
) -> None:  # fmt: skip
    """Compare runs with the first one; scenarios without a run are simulated first."""
    with terminal.progress_bar("compare") as show_progress:
        comparison = lab_function("runs.answer:compare_by_name")(
            runs, lambda name: show_progress, seeds
        )
    terminal.end_with_json(asdict(comparison), as_json)
    heads = [f"{index + 1} {name}" for index, name in enumerate(comparison.names)]
    differing = [row for row in comparison.inputs if row.path not in {"name", "question", "source"}]
    input_rows = [(r.path, *(f"{value} {r.unit}".strip() for value in r.values)) for r in differing]
    terminal.print_rows("How the questions differ", ("field", *heads), input_rows)
    figures = [(r.name, *r.cell_texts()) for r in comparison.metrics if set(r.verdicts) != {"same"}]
    terminal.print_rows("How the answers differ", ("figure", *heads), figures)
    for note in comparison.notes:
        terminal.out.print(escape(note))


def explain_run(
    scenario: Annotated[str, typer.Argument(help="A preset, a scenario file or a run's id.")],
    trace: terminal.TraceFile = None,
    settings: terminal.Settings = None,
    as_json: terminal.AsJson = False,
) -> None:
    """Say why a run is as fast as it is and what would help, each measured by re-runs."""
    with terminal.progress_bar(scenario) as show_progress:
        explanation = lab_function("runs.answer:explain_run")(
            scenario, settings or [], trace, lambda name: show_progress
        )
    terminal.end_with_json(explanation, as_json)
    terminal.out.print(escape(f"{explanation['name']}: {explanation['verdict']}"), soft_wrap=True)
    cause_rows = []
    for cause in explanation["causes"]:
        advice = cause.get("suggestion")
        remedy = changes_text(advice["settings"]) if advice else "nothing tried helps"
        cause_text = f"{cause['label']}: {cause['named']}" if cause["named"] else cause["label"]
        gain_text = effect_text(advice) if advice else ""
        cause_rows.append((cause_text, effect_text(cause["removal"]), remedy, gain_text))
    if cause_rows:
        heads = ("cause", "without it", "what to do", "which brings")
        terminal.print_rows("Causes, each removed in runs of its own", heads, cause_rows)
    else:
        terminal.out.print("No cause was found that a re-run confirms.")
    terminal.out.print(numbered(explanation["runs"], "run"), style="dim")


def sweep_fields(
    scenario: terminal.ScenarioName, over: Over, settings: terminal.Settings = None,
    as_json: terminal.AsJson = False,
    as_csv: Annotated[bool, typer.Option(
        "--csv", help="CSV on standard output; SI units.")] = False,
) -> None:  # fmt: skip
    """Simulate a scenario over a range of one or two fields, and say where its SLO breaks."""
    chosen_scenario, _ = scenario_and_trace(scenario, settings or [])
    with terminal.progress_bar(chosen_scenario.name) as show_progress:
        sweep = lab_function("runs.answer:sweep_fields")(chosen_scenario, over, show_progress)
    terminal.end_with_json(sweep, as_json)
    if as_csv:
        terminal.out.file.write(lab_function("sweep.sweep:csv_text")(sweep["points"]))
        return
    axes = [lab_function("sweep.sweep:parse_axis")(axis_text) for axis_text in sweep["over"]]
    metric_keys = ["ttft_s_p99", "tpot_s_p99", "tokens_per_s_per_npu"]
    rows = [
        (*(axis.text_of(row[axis.path]) for axis in axes),
         {True: "met", False: "broken", None: row["why"] or row["state"]}[row["slo_kept"]],
         *(as_text(key, row[key]) for key in metric_keys), row["run"] or "")
        for row in sweep["points"]
    ]  # fmt: skip
    terminal.print_rows(f"{chosen_scenario.name} over {' and '.join(axis.label for axis in axes)}",
               (*(axis.label for axis in axes), "SLO", *metric_keys, "run"), rows)  # fmt: skip
    if sweep["conclusion"]:
        terminal.out.print(sweep["conclusion"])


def predict_scenario(
    scenario: terminal.ScenarioName,
    settings: terminal.Settings = None,
    as_json: terminal.AsJson = False,
) -> None:
    """The steady state by formula alone: no arrivals, no queues, milliseconds of wall time."""
    chosen_scenario, _ = scenario_and_trace(scenario, settings or [])
    prediction = lab_function("runs.predicted:predict_all")(chosen_scenario)
    terminal.end_with_json(prediction, as_json)
    for model, model_prediction in prediction.get("models", {"": prediction}).items():
        print_prediction(": ".join(filter(None, (chosen_scenario.name, model))), model_prediction)
    time_text = f"{seconds(prediction['wall_s'])} of wall time"
    terminal.out.print(f"{time_text}, compiling left out", style="dim")


def print_prediction(name: str, prediction: Mapping[str, Any]) -> None:
    """Print a steady state by formula: figures, operators, advice and known errors."""
    figure_rows = [(key, as_text(key, value)) for key, value in prediction["summary"].items()]
    terminal.print_rows(f"{name}: always full", ("figure", "value"), figure_rows)
    for phase, seconds_by_operator in prediction["operators"].items():
        total_s = sum(seconds_by_operator.values())
        longest_first = sorted(seconds_by_operator.items(), key=lambda item: -item[1])
        rows = [(name, seconds(s), f"{100 * s / total_s:.1f} %") for name, s in longest_first]
        heads = ("operator", "critical path", "share")
        terminal.print_rows(f"Where {phase} time goes", heads, rows)
    for sentence in (prediction["advice"], *prediction["errors"]):
        terminal.out.print(escape(sentence))


def compile_ahead() -> None:
    """Compile what runs need, once; the first run on a machine then waits for nothing."""

    def print_stage(stage: str, took_s: float | None) -> None:
        """Print the seconds that a stage of compiling took; nothing while it is None."""
        if took_s is not None:
            terminal.err.print(f"{stage}: {took_s:.1f} s", style="dim")

    lab_function("runs.job:compile_once")(print_stage)
    terminal.out.print("Runs are compiled: the first one begins at once.")


def run_worker(
    address: Annotated[str, typer.Argument(
        metavar="[SCHEDULER]", help="tcp://host:8786; else TWIN_SCHEDULER.")] = "",
) -> None:  # fmt: skip
    """Simulate for a Dask scheduler with one process, until Ctrl-C."""
    scheduler = lab_function("runs.cluster:scheduler_address")(address, required=True)
    lab_function("runs.cluster:serve")(scheduler)


def print_remarks(question: Scenario) -> None:
    """Print the scenario's settings without effect to standard error, before the run."""
    for remark in remarks(question):
        terminal.err.print(escape(remark))


def print_run(answer: Mapping[str, Any]) -> None:
    """Print a run's figures, notes and broken checks, and where it is stored."""
    summary = answer["summary"]
    metrics = [m for m in metrics_at("table") if m.shows("table", summary.get(m.key))]
    figure_rows = [(metric.key, as_text(metric.key, summary[metric.key])) for metric in metrics]
    terminal.print_rows(str(answer["name"]), ("figure", "value"), figure_rows)
    for group in ("model", "tenant"):
        group_rows, columns = answer.get(f"{group}s", []), metrics_at("library")
        columns = [m for m in columns if any(row.get(m.key) is not None for row in group_rows)]
        heads = (group, *(metric.label for metric in columns))
        rows = [(row[group], *(as_text(metric.key, row.get(metric.key)) for metric in columns))
                 for row in group_rows]  # fmt: skip
        if group_rows:
            terminal.print_rows(f"By {group}", heads, rows)
    for note in answer["notes"]:
        terminal.out.print(escape(note))
    for check in answer["broken_checks"]:
        terminal.err.print(escape(f"broken: {check['id']} {check['statement']}: {check['detail']}"))
    stored_text = f"stored as run {answer['run']}" if answer["run"] else "not stored"
    requests_text = f"{numbered(answer['requests'], 'request')} in {answer['wall_s']:.2f} s"
    terminal.out.print(f"{requests_text}; {stored_text}", style="dim")
