"""The question of a plan: a scenario, a goal, limits, what may vary, and a budget."""

import hashlib
import json
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from twin.facts import Facts
from twin.hardware.power import power
from twin.lab.plan.space import CHOICES, CONTROLLER, OFFLOAD, TICKED
from twin.scenario import (
    Scenario,
    json_text,
    pools_by_role,
    require_one_model,
    scenario_from_canonical,
    value_of,
    with_overrides,
)
from twin.scenario.declaration import Section
from twin.scenario.words import numbered

Goal = Literal["efficiency", "rate", "npus"]
By = Literal["share", "mean"]
Loss = Literal["die", "node", "sub_plane", "memory_server"]
GOALS: dict[Goal, str] = {
    "npus": "The fewest NPUs for this load",
    "efficiency": "Most tokens/s per NPU, each at its largest load",
    "rate": "The largest load on this machine",
}
LOSSES: dict[Loss, str] = {
    "die": "A die", "node": "A node", "sub_plane": "A sub-plane of UB",
    "memory_server": "A memory server",
}  # fmt: skip
SIMULATIONS = 96  # of a search, without what finalists take
PLACEMENT = "deployment.placement"
# What a plan sets itself, or cannot compare: (path, value, sentence).
PLAIN: tuple[tuple[str, Any, str], ...] = (
    ("faults", (), "the faults of the scenario are left out: `survives` asks about losses"),
    (CONTROLLER, "fixed", "instances are fixed: `controller` does not vary"),
    ("elastic.npus", 0, "controllers have the NPUs that a deployment declares, and no others"),
    ("deployment.prefill.on", "own_npus", "prefill has NPUs of its own"),
    (OFFLOAD, 0.0, "no attention is offloaded: `offload` does not vary"),
    (PLACEMENT, "packed", "instances are packed, not placed by hand"),
)


class PlanError(ValueError):
    """An invalid plan: one sentence that says why."""


class Plan(Section):
    """Question: what to deploy for a scenario's machine, traffic and SLO (TTFT, TPOT and share)."""

    scenario: Scenario
    goal: Goal = "npus"
    by: By = "share"  # of requests that meet TTFT and TPOT; or their means over requests do
    more: float = Field(0.0, ge=-0.99, le=100.0)  # load beyond the scenario's, a share of it
    npus: int = Field(0, ge=0)  # limit; 0: the machine's
    power_kw: float = Field(0.0, ge=0.0)  # limit of what the deployment draws; 0: none
    cost_per_million_tokens: float = Field(0.0, ge=0.0)  # limit; 0: none
    survives: tuple[Loss, ...] = ()  # losses after which the SLO has to hold
    vary: tuple[str, ...] = TICKED  # keys of `space.CHOICES`
    simulations: int = Field(SIMULATIONS, ge=1, le=20_000)  # of the search
    finalists: int = Field(7, ge=1, le=20)  # deployments that are made sure of and ranked
    seconds: float = Field(0.0, ge=0.0)  # of wall time for the search; 0: simulations alone count

    @field_validator("vary")
    @classmethod
    def _order_choices(cls, vary: tuple[str, ...]) -> tuple[str, ...]:
        """The choices that vary, in their declared order. Raises ValueError for an unknown one."""
        for choice_key in vary:
            if choice_key not in CHOICES:
                raise ValueError(f"{choice_key} does not vary: choose of {', '.join(CHOICES)}")
        return tuple(choice_key for choice_key in CHOICES if choice_key in vary)

    @model_validator(mode="after")
    def _check_cost_and_models(self) -> "Plan":
        """Check that a cost limit has a price, and that there is one model. Raises ValueError."""
        if self.cost_per_million_tokens and not self.scenario.cost.price_per_npu_hour:
            raise ValueError("a limit of cost needs cost.price_per_npu_hour of the scenario")
        require_one_model(self.scenario, "a plan")
        return self

    @property
    def is_load_fixed(self) -> bool:
        """Whether all deployments get the same load; else each gets the largest that it carries."""
        return self.goal == "npus"


def plan_from(scenario: Scenario, fields: dict[str, Any]) -> Plan:
    """The plan of a scenario; fields: values of other fields by name. Raises PlanError."""
    try:
        return Plan.model_validate({"scenario": scenario, **fields})
    except ValidationError as error:
        first_error = error.errors()[0]
        field_name = str(first_error["loc"][0]) if first_error["loc"] else "plan"
        if first_error["type"] == "tuple_type":
            raise PlanError(f"{field_name} should be a list") from None
        raise PlanError(
            f"{field_name}: {first_error['msg']}".replace("Value error, ", "")
        ) from None


def check_power(plan: Plan, facts: Facts) -> None:
    """Check that a chip's rated power is known if the plan limits power. Raises PlanError."""
    pools = pools_by_role(plan.scenario)
    for chip in sorted({pool.chip for pool in pools.values()} if plan.power_kw else ()):
        if power(plan.scenario, facts, chip=chip) is None:
            problem = f"a limit of power needs the rated power of {chip}, which is not known"
            raise PlanError(f"{problem}: set cost.npu_w")


def default_goal(s: Scenario) -> Goal:
    """Default goal: 'npus'; for a closed loop, whose clients fill any deployment, 'efficiency'."""
    return "efficiency" if s.workload.arrivals == "closed_loop" else "npus"


def plan_sentence(plan: Plan) -> str:
    """Goal and limits of a plan as a sentence."""
    scenario = plan.scenario
    share_text = f"met by {100 * scenario.slo.share:g} % of requests"
    rule = share_text if plan.by == "share" else "on the mean"
    limit_texts = [f"TTFT {scenario.slo.ttft_s:g} s and TPOT {scenario.slo.tpot_ms:g} ms {rule}"]
    limit_texts += [f"{numbered(plan.npus, 'NPU')} at most"] if plan.npus else []
    limit_texts += [f"{plan.power_kw:g} kW at most"] if plan.power_kw else []
    cost_limit = plan.cost_per_million_tokens
    limit_texts += [f"{cost_limit:g} per million tokens at most"] if cost_limit else []
    limit_texts += [f"after the loss of: {LOSSES[loss].lower()}" for loss in plan.survives]
    limit_texts += [f"{100 * plan.more:+.0f} % load"] if plan.more else []
    goal = GOALS[plan.goal]
    return f"{goal[0].lower()}{goal[1:]}; {', '.join(limit_texts)}."


def freed_paths(plan: Plan) -> tuple[str, ...]:
    """Paths of the fields in PLAIN that a plan varies; the scenario's value is tried too."""
    paths = {path for choice_key in plan.vary for path in CHOICES[choice_key].values}
    return tuple(path for path, *_ in PLAIN if path in paths)


def base_scenario(plan: Plan) -> tuple[Scenario, list[str]]:
    """(scenario, notes): the plan's scenario with the values of PLAIN, to which settings of
    candidates are added, and a sentence for each replaced value that the plan does not vary."""
    scenario, notes, overrides, free_paths = plan.scenario, [], {}, freed_paths(plan)
    for path, plain_value, sentence in PLAIN:
        present_value = value_of(scenario, path)
        if present_value == plain_value or (path == PLACEMENT and present_value != "by_hand"):
            continue
        overrides[path] = list(plain_value) if isinstance(plain_value, tuple) else plain_value
        if path not in free_paths and (path != "elastic.npus" or CONTROLLER in free_paths):
            notes.append(f"{sentence[0].upper()}{sentence[1:]}.")
    return with_overrides(scenario, overrides), notes


def question_text(plan: Plan) -> str:
    """A plan as two lines: the scenario, and a JSON object of the other fields without defaults."""
    plan_fields = plan.model_dump(mode="json", exclude={"scenario"}, exclude_defaults=True)
    fields_json = json.dumps(plan_fields, sort_keys=True, separators=(",", ":"))
    return f"{json_text(plan.scenario)}\n{fields_json}"


def plan_digest(plan: Plan) -> str:
    """SHA-256 (hex) of a plan: the same for equal questions."""
    return hashlib.sha256(question_text(plan).encode()).hexdigest()


def plan_from_text(text: str) -> Plan:
    """Read a plan from its text: a line with the scenario and a JSON line with the other fields."""
    scenario_text, _, fields_json = text.partition("\n")
    return plan_from(scenario_from_canonical(scenario_text), json.loads(fields_json or "{}"))
