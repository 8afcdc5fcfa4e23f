"""Plans in the JSON API, found by the digest of the question: submit, follow, stop, read."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from twin.api.question import PlanQuestion, Seen
from twin.lab.library import load_facts
from twin.lab.plan.question import Plan
from twin.lab.plan.work import Plans, plans_of
from twin.lab.runs.budget import budget_of, require_fits
from twin.lab.store import Store, StoreError
from twin.lab.store.errors import UnknownId


class PlanState(BaseModel):
    """State of a plan: its progress (0 to 1), the best so far, and whether it has answered."""

    plan: str
    name: str
    limits: dict[str, Any]
    working: bool
    answered: bool
    progress: float
    problem: str = Field(description="Why it ended without an answer; submitted again it goes on.")
    so_far: dict[str, Any]


def router() -> APIRouter:
    """The paths below `/plans`."""
    paths = APIRouter(prefix="/plans", tags=["plans"])

    @paths.post("", status_code=202)
    def submit(question: PlanQuestion, seen: Seen) -> PlanState:
        """Begin a plan, or go on with one that was stopped; the same question is the same plan."""
        plan = question.plan()
        seen.require_writes()
        if missing := seen.lacking(plan.scenario):
            raise StoreError(missing)
        require_fits(budget_of(seen, plan.scenario, load_facts()))
        return _shown(seen, _plans(seen).start(plan))

    @paths.get("/{plan}")
    def status(plan: str, seen: Seen) -> PlanState:
        """State of a plan."""
        return _shown(seen, plan)

    @paths.delete("/{plan}")
    def stop(plan: str, seen: Seen) -> PlanState:
        """Request that a plan stops; its simulations stay stored, and it can be resumed."""
        plans, _ = _found(seen, plan)
        seen.require_writes()
        plans.stop(plan)
        return _shown(seen, plan)

    @paths.get("/{plan}/result")
    def result(plan: str, seen: Seen) -> dict[str, Any]:
        """What `plan --json` prints: `ranked`, `gap`, `relaxations`, `front`, `ledger`."""
        look = _found(seen, plan)[0].look(plan)
        if not look.answer:
            raise StoreError(look.problem or f"plan {plan} is at work: its answer is to come")
        return dict(look.answer)

    return paths


def _plans(seen: Store) -> Plans:
    return plans_of(seen.artefacts.folder, load_facts())


def _found(seen: Store, key: str) -> tuple[Plans, Plan]:
    """The store of plans and one plan by key. Raises UnknownId."""
    plans = _plans(seen)
    if (question := plans.question(key)) is None:
        raise UnknownId("plan", key)
    return plans, question


def _shown(seen: Store, key: str) -> PlanState:
    """A plan's state as the API returns it."""
    plans, question = _found(seen, key)
    look = plans.look(key)
    return PlanState(
        plan=key, name=question.scenario.name,
        limits=question.model_dump(mode="json", exclude={"scenario"}), working=look.working,
        answered=bool(look.answer), progress=1.0 if look.answer else look.progress,
        problem=look.problem, so_far=dict(look.so_far),
    )  # fmt: skip
