"""The command `model-cache`."""

from dataclasses import asdict
from typing import Annotated

import typer

from twin.commands.terminal import AsJson, ScenarioName, print_json, print_rows
from twin.extras.model_cache import study
from twin.lab.ask import question
from twin.lab.library import load_facts
from twin.metrics.measures import amount


def model_cache(
    scenario: ScenarioName,
    models: Annotated[int, typer.Option(min=1, max=64, help="Models that are served.")] = 8,
    instances: Annotated[
        int, typer.Option(min=1, max=512, help="NPU slots: each holds one model at a time.")
    ] = 8,
    skew: Annotated[
        float, typer.Option(min=0, max=5, help="Popularity by rank to this power; 0: alike.")
    ] = 0.0,
    local_models: Annotated[
        int, typer.Option(min=0, max=64, help="Models that an NPU slot's own DRAM holds.")
    ] = 1,
    pool_models: Annotated[
        int, typer.Option(min=0, max=64, help="Models that the memory pool holds.")
    ] = 16,
    bucket_gb_per_s: Annotated[
        float, typer.Option(min=0.01, max=1000, help="GB/s of a bucket of object storage.")
    ] = 2.5,
    share: Annotated[
        list[float] | None, typer.Option(help="Share of each model, in place of --skew.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Which models, in turn; else the scenario's.")
    ] = None,
    rate: Annotated[float, typer.Option(min=0, help="Requests/s of all models.")] = 0.05,
    idle_s: Annotated[
        float, typer.Option(min=0, help="An idle model gives its NPUs back after so long.")
    ] = 60.0,
    hours: Annotated[float, typer.Option(min=0.01, help="Simulated time.")] = 24.0,
    seed: Annotated[int, typer.Option(min=0, help="Of the requests.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Cold start, warm start and switching of models: object storage, local DRAM, memory pool."""
    resolved, _ = question(scenario)
    facts = load_facts()
    model_question = study.Question(
        models, instances, skew, local_models, pool_models, 1e9 * bucket_gb_per_s,
        tuple(share or ()), tuple(model or ()), rate, idle_s, hours, seed,
    )  # fmt: skip
    answer = study.model_stores(resolved, facts, model_question)
    if as_json:
        print_json(asdict(answer))
        return
    heads = ("stored in", *(store.name for store in answer.stores))
    print_rows(f"{resolved.name}: {answer.title}", heads, study.table(answer.stores))
    wait_texts = [
        (name, *(amount(store.wait_s_by_model[k], "time") for store in answer.stores))
        for k, name in enumerate(answer.models)
    ]
    print_rows("Mean waiting by model", ("model", *heads[1:]), wait_texts)
    typer.echo(study.takes_for_granted(resolved, facts, model_question))
