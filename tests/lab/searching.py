"""The process of live runs with a search of a capacity that ends once another one has begun."""

from collections.abc import Generator
from typing import Any

from twin.facts import Facts
from twin.lab.explain.capacity import Capacity
from twin.lab.explain.view import load_of
from twin.lab.runs import live
from twin.scenario import Scenario

begun: list[Scenario] = []


def searching(s: Scenario, _facts: Facts) -> Generator[Scenario, Any, Capacity]:
    """Simulate the scenario itself again and again; its own load is the answer."""
    begun.append(s)
    while begun[-1] is s:
        yield s
    path, load = load_of(s)
    return Capacity(path, load, load, load, runs=1, held=load)


if __name__ == "__main__":
    live.search_steps = searching  # type: ignore[assignment]
    live.main()
