"""The JSON API: runs, formula answers and plans, as the objects that the command line prints with
`--json`; `/api/openapi.json` describes it. A refusal is `{"detail": one sentence}`: 404 not stored
or not this visitor's, 413 too large, 422 a scenario that cannot be, 409 what the store refuses."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field, create_model
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from twin.engine.simulate import ENGINE_VERSION
from twin.experts.popularity import ExpertsError
from twin.facts import FactError
from twin.hardware.chip import HardwareError
from twin.lab.ask import scenario_named, with_settings
from twin.lab.library import load_facts, presets
from twin.lab.plan.drive import Plans, plans_of
from twin.lab.plan.question import Plan, PlanError, default_goal, plan_from
from twin.lab.runs.budget import TooLarge, budget_of, require_fits, require_known_names
from twin.lab.runs.executor import Runner
from twin.lab.runs.predicted import predict_all
from twin.lab.store import Store, StoreError
from twin.lab.store.errors import NoTable, UnknownId
from twin.lab.store.statements import require
from twin.model.shape import ModelError
from twin.scenario import Scenario, SpecError, parse_scenario, scenario_digest
from twin.workload.requests import WorkloadError


def _visitor_store(request: Request) -> Store:
    """Return the store, limited to the rights of the visitor who sent the request. Raises
    PermissionError if this server requires a login and the request has none."""
    store: Store = request.app.state.store_of(request)
    return store


VisitorStore = Annotated[Store, Depends(_visitor_store)]


class Question(BaseModel):
    """A scenario: a preset's key or a table of fields, and fields that replace some of them."""

    model_config = ConfigDict(extra="forbid")

    scenario: str | dict[str, Any] = Field(examples=["quickstart"])
    settings: dict[str, Any] = Field(
        default_factory=dict, examples=[{"workload.rate_req_per_s": 120.0}]
    )

    def to_scenario(self) -> Scenario:
        """The question's scenario. Raises SpecError if it is not valid or is the name of a file."""
        if isinstance(self.scenario, dict):
            return with_settings(parse_scenario(self.scenario), self.settings)
        if self.scenario.endswith(".toml"):
            raise SpecError("name a preset, or send the scenario's fields as a table")
        return with_settings(scenario_named(self.scenario), self.settings)


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

    def to_plan(self) -> Plan:
        """The plan that the question describes; raises SpecError or PlanError."""
        if unknown := self.limits.keys() - LIMITS.keys():
            raise PlanError(f"limits have no {min(unknown)!r}: choose of {', '.join(LIMITS)}")
        scenario = self.to_scenario()
        return plan_from(scenario, {"goal": default_goal(scenario)} | self.limits)


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


def plan_router() -> APIRouter:
    """Router of the paths below `/plans`: submit, status, stop and result."""
    router = APIRouter(prefix="/plans", tags=["plans"])

    @router.post("", status_code=202)
    def submit(question: PlanQuestion, store: VisitorStore) -> PlanState:
        """Begin a plan, or continue a stopped one. Equal questions have one common plan."""
        plan = question.to_plan()
        store.require_writes()
        _require_whole(store, plan.scenario)
        require_fits(budget_of(store, plan.scenario, facts := load_facts()))
        return _plan_state(store, plans_of(store.artefacts.folder, facts).start(plan))

    @router.get("/{plan}")
    def status(plan: str, store: VisitorStore) -> PlanState:
        """State of a plan by its key: progress, best so far, whether it has answered."""
        return _plan_state(store, plan)

    @router.delete("/{plan}")
    def stop(plan: str, store: VisitorStore) -> PlanState:
        """Request that a plan stops; its simulations stay stored, and it can be resumed."""
        plans, _ = _require_plan(store, plan)
        store.require_writes()
        plans.stop(plan)
        return _plan_state(store, plan)

    @router.get("/{plan}/result")
    def result(plan: str, store: VisitorStore) -> dict[str, Any]:
        """What `plan --json` prints: `ranked`, `gap`, `relaxations`, `front`, `ledger`."""
        state = _require_plan(store, plan)[0].state_of(plan)
        if not state.answer:
            raise StoreError(state.problem or f"plan {plan} is at work: its answer is to come")
        return dict(state.answer)

    return router


def _require_whole(store: Store, scenario: Scenario) -> None:
    """Check that the imported files of a scenario are stored (StoreError if not), and that every
    machine, chip, model and stack that it names exists (HardwareError, ModelError or FactError)."""
    if missing_text := store.missing_text(scenario):
        raise StoreError(missing_text)
    require_known_names(scenario, load_facts())


def _require_plan(store: Store, key: str) -> tuple[Plans, Plan]:
    """Return (plans of the visitor's store, the plan with this key). Raises UnknownId without
    it."""
    plans = plans_of(store.artefacts.folder, load_facts())
    if (plan := plans.stored_plan(key)) is None:
        raise UnknownId("plan", key)
    return plans, plan


def _plan_state(store: Store, key: str) -> PlanState:
    """A plan by its key as the API returns it: state, progress, limits and best answer so far."""
    plans, stored_plan = _require_plan(store, key)
    state = plans.state_of(key)
    return PlanState(
        plan=key, name=stored_plan.scenario.name,
        limits=stored_plan.model_dump(mode="json", exclude={"scenario"}), working=state.working,
        answered=bool(state.answer), progress=1.0 if state.answer else state.progress,
        problem=state.problem, so_far=dict(state.so_far),
    )  # fmt: skip


MOST_BYTES = 256 * 1024  # of a request: as much as a link unpacks to


class Run(BaseModel):
    """State of a run, its progress (0 to 1), and its figures once it is done."""

    run: str
    scenario: str
    name: str
    state: str
    progress: float
    message: str
    valid: bool
    summary: dict[str, Any]
    notes: list[str]
    digest: str
    tables: list[str]


def application(
    store_of: Callable[[Request], Store],
    runner: Callable[[], Runner],
    hosts: Sequence[str] = ("*",),
) -> FastAPI:
    """Build the JSON API. store_of: returns the store with the rights of a request's visitor;
    raises PermissionError if a login is needed and missing. runner: returns the runner that the
    pages use too. hosts: names under which a request may call the server; others are refused."""
    app = FastAPI(
        title="Supernode twin",
        version=ENGINE_VERSION,
        summary="Simulate an AI supernode that serves large language models.",
        docs_url=None,  # they load scripts from elsewhere, which the server's policy forbids
        redoc_url=None,
    )
    app.add_middleware(with_body_limit)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))
    for error_type in REFUSALS:
        app.add_exception_handler(error_type, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse_malformed)
    app.state.store_of = store_of
    app.include_router(plan_router())

    @app.get("/presets")
    def list_presets(_store: VisitorStore) -> list[dict[str, str]]:
        """Key, question and digest of every preset."""
        return [
            {"key": p.key, "question": p.scenario.question, "scenario": scenario_digest(p.scenario)}
            for p in presets()
        ]

    @app.post("/predict")
    def predict(question: Question, store: VisitorStore) -> dict[str, Any]:
        """The steady state by formula: `summary`, seconds by operator, advice, known errors."""
        scenario = question.to_scenario()
        _require_whole(store, scenario)
        counts = store.counts.value_of(scenario)
        trace = store.traces.value_of(scenario)
        return predict_all(scenario, trace, counts.counts if counts else None)

    @app.post("/runs", status_code=202)
    def submit(question: Question, store: VisitorStore) -> Run:
        """Queue a run, or return the run of the same question, be it finished or not."""
        scenario = question.to_scenario()
        _require_whole(store, scenario)
        return _run_state(store, runner().submit(scenario, store))

    @app.get("/runs/{run}")
    def status(run: str, store: VisitorStore) -> Run:
        """State of a run by its id; its figures once it is done."""
        return _run_state(store, run)

    @app.delete("/runs/{run}")
    def cancel(run: str, store: VisitorStore) -> Run:
        """Stop a queued or running run. It remains in the store."""
        runner().cancel(run, store)
        return _run_state(store, run)

    @app.get("/runs/{run}/tables/{table}")
    def rows(run: str, table: str, store: VisitorStore) -> Response:
        """One table of a run as JSON: a list of its rows."""
        require(store.runs.get(run), "run", run)
        return Response(store.runs.table(run, table).write_json(), media_type="application/json")

    return app


# HTTP status by kind of error: of two kinds that an error is of, the narrower stands first.
REFUSALS: dict[type[Exception], int] = {
    PermissionError: 401, UnknownId: 404, NoTable: 404, TooLarge: 413, StoreError: 409,
    SpecError: 422, HardwareError: 422, ExpertsError: 422, WorkloadError: 422,
    ModelError: 422, FactError: 422, PlanError: 422,
}  # fmt: skip


def _refuse(_request: Request, error: Exception) -> Response:
    """Answer with the error's sentence as JSON and the HTTP status of its kind."""
    status = next(status for kind, status in REFUSALS.items() if isinstance(error, kind))
    return JSONResponse({"detail": str(error)}, status)


def _refuse_malformed(_request: Request, error: Exception) -> Response:
    """Answer 422 with one sentence: the first wrong field of the request and what is wrong."""
    assert isinstance(error, RequestValidationError)
    first_error = error.errors()[0]
    (_, *field_path), fault = first_error["loc"], first_error["msg"]
    field = ".".join(map(str, field_path))
    reply = f"{field}: {fault}"
    if first_error["type"] == "json_invalid":
        problem = first_error["ctx"]["error"]
        reply = f"the request's body is no JSON: {problem} at character {field_path[0]}"
    elif not field_path:
        reply = "the request's body should be a JSON object, sent as content-type: application/json"
    elif field_path[0] == "scenario" and field_path[1:]:  # of a union: neither of its kinds
        reply = "scenario: a preset's key or a table of fields"
    elif first_error["type"] == "dict_type":
        reply = f"{field} should be a JSON object"
    elif first_error["type"] == "extra_forbidden":
        reply = f"a request has no {field!r}: it has a scenario, settings and, of a plan, limits"
    return JSONResponse({"detail": reply}, 422)


def _run_state(store: Store, run: str) -> Run:
    """A run by its id as the API returns it: state, figures, digest and names of its tables."""
    row = require(store.runs.get(run), "run", run)
    fields = {"run": row.id, "digest": row.result_digest, "tables": sorted(store.runs.tables(run))}
    stored_fields = {name: getattr(row, name) for name in Run.model_fields if name not in fields}
    return Run(**fields, **stored_fields)


def with_body_limit(app: ASGIApp) -> ASGIApp:
    """Returns the app behind a limit: a body of more than MOST_BYTES is answered with 413."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        """Call the app, which reads the body by parts that are counted."""
        received_bytes = 0

        async def receive_counted() -> Message:
            """The next part of the request; raises HTTPException once the body is too long."""
            nonlocal received_bytes
            message = await receive()
            received_bytes += len(message.get("body", b""))
            if received_bytes > MOST_BYTES:
                raise HTTPException(413, f"a request has at most {MOST_BYTES} bytes")
            return message

        await app(scope, receive_counted, send)

    return answer
