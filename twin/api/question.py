"""What a request of the JSON API brings: whose it is, a scenario, limits of a plan."""

from typing import Annotated, Any

from fastapi import Depends, Request
from pydantic import BaseModel, ConfigDict, Field, create_model

from twin.lab.ask import scenario_named, with_machine
from twin.lab.plan.question import Plan, PlanError, plan_from, usual_goal
from twin.lab.store import Store
from twin.scenario import Scenario, SpecError, parse_scenario


def _seen(request: Request) -> Store:
    """The store as a request's visitor sees it. Raises PermissionError without a login."""
    store: Store = request.app.state.store_of(request)
    return store


Seen = Annotated[Store, Depends(_seen)]


class Question(BaseModel):
    """A scenario: a preset's key or a table of fields, and fields that replace some of them."""

    model_config = ConfigDict(extra="forbid")

    scenario: str | dict[str, Any] = Field(examples=["quickstart"])
    settings: dict[str, Any] = Field(
        default_factory=dict, examples=[{"workload.rate_req_per_s": 120.0}]
    )

    def resolved(self) -> Scenario:
        """The scenario; raises SpecError. A file's name is refused: presets and tables only."""
        if isinstance(self.scenario, dict):
            return with_machine(parse_scenario(self.scenario), self.settings)
        if self.scenario.endswith(".toml"):
            raise SpecError("name a preset, or send the scenario's fields as a table")
        return with_machine(scenario_named(self.scenario), self.settings)


# Its fields but the scenario, whose declarations no schema of JSON holds.
_FIELDS: dict[str, Any] = {
    name: (field.annotation, field)
    for name, field in Plan.model_fields.items()
    if name != "scenario"
}
LIMITS = create_model("Limits", **_FIELDS).model_json_schema()["properties"]


class PlanQuestion(Question):
    """A scenario, and what its plan has to find within which limits."""

    limits: dict[str, Any] = Field(
        default_factory=dict,
        description="Fields of docs/PLAN.md; the goal as the traffic suggests if left out.",
        examples=[{"goal": "npus", "simulations": 48, "survives": ["node"]}],
        json_schema_extra={"properties": LIMITS, "additionalProperties": False},
    )

    def plan(self) -> Plan:
        """The plan; raises SpecError or PlanError."""
        if unknown := self.limits.keys() - LIMITS.keys():
            raise PlanError(f"limits have no {min(unknown)!r}: choose of {', '.join(LIMITS)}")
        scenario = self.resolved()
        return plan_from(scenario, {"goal": usual_goal(scenario)} | self.limits)
