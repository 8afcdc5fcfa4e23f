"""The command `plan`: what to deploy."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from twin.commands import terminal
from twin.lab.ask import scenario_and_trace
from twin.lab.files import write_text
from twin.lab.plan.answer import answer_sentences, brief_text
from twin.lab.plan.drive import carry_out
from twin.lab.plan.question import Plan, default_goal, plan_from
from twin.lab.plan.space import CHOICES
from twin.lab.store import open_store
from twin.metrics.measures import amount


def plan_deployment(
    scenario: terminal.ScenarioName, trace: terminal.TraceFile = None,
    settings: terminal.Settings = None,
    goal: Annotated[str, typer.Option(
        help="npus, efficiency or rate; as the traffic suggests if left out.")] = "",
    by: Annotated[str, typer.Option(
        help="share: so many requests meet TTFT and TPOT; or mean: means do.")] = "share",
    npus: Annotated[int, typer.Option(min=0, help="NPUs that may be taken; 0: all.")] = 0,
    power_kw: Annotated[float, typer.Option(min=0, help="Limit of power in kW; 0: none.")] = 0.0,
    cost: Annotated[float, typer.Option(
        min=0, help="Limit of cost per million tokens; 0: none.")] = 0.0,
    survives: Annotated[list[str] | None, typer.Option(
        help="die, node, sub_plane or memory_server; repeat it for more.")] = None,
    vary: Annotated[list[str] | None, typer.Option(
        help="What may vary; repeat it. --vary list names all.")] = None,
    more: Annotated[float, typer.Option(help="Load beyond the scenario's: 0.2 is 20 %.")] = 0.0,
    simulations: Annotated[int, typer.Option(
        min=1, max=20_000, help="Budget of the search, in short simulations.")] = 96,
    seconds: Annotated[float, typer.Option(min=0, help="Budget in seconds too; 0: none.")] = 0.0,
    ledger: Annotated[Path | None, typer.Option(
        help="Write every deployment with its status to this file.")] = None,
    html: terminal.HtmlFile = None, as_json: terminal.AsJson = False,
) -> None:  # fmt: skip
    """Find what to deploy for a scenario: priced by formula, proved by simulation, ranked."""
    if vary == ["list"]:
        choices = [(key, c.label, "yes" if c.crossed else "") for key, c in CHOICES.items()]
        terminal.print_rows("What may vary", ("--vary", "choice", "by default"), choices)
        return
    base_scenario, recorded_trace = scenario_and_trace(scenario, settings or [], trace)
    if recorded_trace is not None:
        open_store().traces.save(recorded_trace)  # where processes of the plan find it
    settings_of_plan = {
        "goal": goal or default_goal(base_scenario), "by": by, "npus": npus, "power_kw": power_kw,
        "cost_per_million_tokens": cost, "survives": survives or (), "simulations": simulations,
        "seconds": seconds, "more": more,
    }  # fmt: skip
    if ledger is not None and not ledger.absolute().parent.is_dir():
        raise typer.BadParameter(f"{ledger.parent} is no folder to write the ledger to")
    write_report = terminal.report_writer("plan", html)
    new_plan = plan_from(base_scenario, settings_of_plan | ({"vary": vary} if vary else {}))
    with terminal.progress_bar(base_scenario.name) as show_progress:
        answer = carry_out(new_plan, note=lambda share, so_far: show_progress(
            share, {"simulations": so_far["simulations"]}))  # fmt: skip
    write_report(new_plan, answer)
    if ledger is not None:
        write_text(ledger, json.dumps(answer["ledger"], indent=1))
    terminal.end_with_json(answer, as_json)
    _print_answer(base_scenario.name, new_plan, answer)


def _print_answer(name: str, question: Plan, answer: Mapping[str, Any]) -> None:
    """Print a plan's ranked deployments as a table, and its sentences."""
    deployment_rows = [
        (f"{row['rank']}{' =' if row['equal_to_first'] else ''}", brief_text(row["settings"]),
         f"{row['npus']:,}", amount(row["summary"]["tokens_per_s_per_npu"], "rate"),
         amount(row["summary"]["tpot_s_mean"] or 0.0, "time"),
         amount(row["summary"]["ttft_s_p99"] or 0.0, "time"),
         *("yes" if row["losses"].get(failure, {}).get("status") == "feasible" else "no"
           for failure in question.survives))
        for row in answer["ranked"]
    ]  # fmt: skip
    heads = ("", "deployment", "NPUs", "tokens/s/NPU", "TPOT", "TTFT p99",
             *(f"without a {failure}" for failure in question.survives))  # fmt: skip
    if deployment_rows:
        terminal.print_rows(f"{name}: what to deploy", heads, deployment_rows)
    for sentence in answer_sentences(dict(answer)):
        terminal.out.print(sentence)
