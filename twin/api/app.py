"""The JSON API: runs, formula answers and plans, as the objects that the command line prints with
`--json`; `/api/openapi.json` describes it. A refusal is `{"detail": one sentence}`: 404 not stored
or not this visitor's, 413 too large, 422 a scenario that cannot be, 409 what the store refuses."""

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from twin.api import plans
from twin.api.question import Question, Seen
from twin.engine.simulate import ENGINE_VERSION
from twin.lab.library import presets
from twin.lab.plan.question import PlanError
from twin.lab.plan.work import PlansBusy
from twin.lab.runs.budget import TooLarge
from twin.lab.runs.executor import Runner
from twin.lab.runs.predicted import predicted
from twin.lab.store import Store, StoreError
from twin.lab.store.errors import UnknownId
from twin.lab.store.statements import require
from twin.model.shape import ModelError
from twin.scenario import SpecError, scenario_digest

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
    """The API over a store as each visitor sees it and the runner of the pages. store_of: raises
    PermissionError for a request without a login where one is needed. hosts: names by which a
    request may call the server, so that a foreign name that leads here gets nothing."""
    app = FastAPI(
        title="Supernode twin",
        version=ENGINE_VERSION,
        summary="Simulate an AI supernode that serves large language models.",
        docs_url=None,  # they load scripts from elsewhere, which the server's policy forbids
        redoc_url=None,
    )
    app.add_middleware(bounded)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))
    for kind, code in REFUSALS.items():
        app.add_exception_handler(kind, _refuse(code))
    app.add_exception_handler(RequestValidationError, _malformed)
    app.state.store_of = store_of
    app.include_router(plans.router())

    @app.get("/presets")
    def list_presets(_seen: Seen) -> list[dict[str, str]]:
        """Key, question and digest of every preset."""
        return [
            {"key": p.key, "question": p.scenario.question, "scenario": scenario_digest(p.scenario)}
            for p in presets()
        ]

    @app.post("/predict")
    def predict(question: Question, _seen: Seen) -> dict[str, Any]:
        """The steady state by formula: `summary`, seconds by operator, advice, known errors."""
        return predicted(question.resolved())

    @app.post("/runs", status_code=202)
    def submit(question: Question, seen: Seen) -> Run:
        """Queue a run; a question that was answered before is that run, done."""
        return _shown(seen, runner().submit(question.resolved(), seen))

    @app.get("/runs/{run}")
    def status(run: str, seen: Seen) -> Run:
        """State of a run."""
        return _shown(seen, run)

    @app.delete("/runs/{run}")
    def cancel(run: str, seen: Seen) -> Run:
        """Stop a queued or running run; its row stays."""
        runner().cancel(run, seen)
        return _shown(seen, run)

    @app.get("/runs/{run}/tables/{table}")
    def rows(run: str, table: str, seen: Seen) -> Response:
        """One table of a run as JSON rows."""
        require(seen.runs.get(run), "run", run)
        text = seen.runs.table(run, table).write_json()
        return Response(text, media_type="application/json")

    return app


REFUSALS: dict[type[Exception], int] = {
    PermissionError: 401,
    TooLarge: 413,
    UnknownId: 404,
    StoreError: 409,
    SpecError: 422,
    ModelError: 422,
    PlanError: 422,
    PlansBusy: 409,
}


def _refuse(status: int) -> Callable[[Request, Exception], Response]:
    def answer(_request: Request, error: Exception) -> Response:
        return JSONResponse({"detail": str(error)}, status)

    return answer


def _malformed(_request: Request, error: Exception) -> Response:
    """Answer 422 with the first wrong field and its fault in one sentence."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or "the request's body"
    return JSONResponse({"detail": f"{where}: {first['msg']}"}, 422)


def _shown(seen: Store, run: str) -> Run:
    """A run as the API returns it: row, digest, names of tables and the scenario."""
    row = require(seen.runs.get(run), "run", run)
    own = {"run": row.id, "digest": row.result_digest, "tables": sorted(seen.runs.tables(run))}
    columns = {name: getattr(row, name) for name in Run.model_fields if name not in own}
    return Run(**own, **columns)


def bounded(app: ASGIApp) -> ASGIApp:
    """ASGI middleware: refuse a body of more than MOST_BYTES while it arrives."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body up to the limit, then call the app; refuse a larger body with 413."""
        if scope["type"] != "http":
            return await app(scope, receive, send)
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if len(body) > MOST_BYTES:
                refusal = JSONResponse({"detail": f"a request has at most {MOST_BYTES} bytes"}, 413)
                return await refusal(scope, receive, send)
            if not message.get("more_body"):
                break
        parts = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def again() -> Message:
            return next(parts, None) or await receive()

        return await app(scope, again, send)

    return answer
