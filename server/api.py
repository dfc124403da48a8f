"""The questions that need no token: what one device would do, and how the server is.

    app = create_app(registry, Settings())          # an ASGI application

Bodies are read strictly, and every refusal is a problem document; `documents` says so in OpenAPI.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from registry import canonical
from registry.device_state import DeviceState
from registry.errors import PtdockError
from registry.service import Registry
from registry.site import blob_path
from server import documents
from server.changes import changes
from server.guard import Guard
from server.health import Health, health_routes
from server.metrics import CONTENT_TYPE, Metrics
from server.observed import Log, Observed, log_line
from server.planner import Planner
from server.problems import MEDIA_TYPE, Problem, broken, of_error
from server.reading import NAME, read_model
from server.settings import Settings
from server.tree import Elsewhere, Tree

Name = Annotated[str, Field(pattern=NAME)]


class Question(BaseModel):
    """What `POST /v1/plan` is asked: for these channels, what would this device do."""

    model_config = ConfigDict(extra="forbid")

    channels: Annotated[list[Name], Field(min_length=1, max_length=100)]
    device: dict[str, Any]
    delete_first: bool = False


def create_app(registry: Registry, settings: Settings, log: Log = log_line) -> ASGIApp:
    """The whole server for one registry."""
    health = Health(registry)
    metrics = Metrics(registry, health)
    guard = Guard(registry, settings.publishes)
    api = FastAPI(
        title="ptdock",
        version="1",
        description=documents.DESCRIPTION,
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # a redirect would name the host
        separate_input_output_schemas=False,
    )
    api.include_router(_questions(registry, settings))
    api.include_router(_status_routes(registry, metrics))
    api.include_router(health_routes(health, guard))
    api.include_router(changes(guard, settings))
    _word_refusals(api, registry)
    documents.complete(api)
    return Observed(Tree(registry.site, api, _elsewhere(registry, settings)), metrics, log)


def _elsewhere(registry: Registry, settings: Settings) -> Elsewhere:
    """Where blobs are served: at the address that the settings name, or by the store that keeps them itself."""
    if settings.blobs is not None:
        return lambda digest: f"{settings.blobs}/{blob_path(digest)}"
    return lambda digest: registry.blobs.url(digest, settings.signed_seconds)


def _questions(registry: Registry, settings: Settings) -> APIRouter:
    router = APIRouter()
    planner = Planner(registry)

    @router.post("/v1/plan", openapi_extra=documents.PLAN, responses=documents.refusals(400, 404, 413, 415, 422))
    async def plan(request: Request) -> Response:
        """What one device would do about these channels, and why. A device computes its own and obeys no other."""
        asked = await read_model(request, Question, settings.plan)
        data = await run_in_threadpool(_planned, planner, asked)
        return Response(data, media_type="application/json", headers={"Cache-Control": "no-store"})

    return router


def _planned(planner: Planner, asked: Question) -> bytes:
    device = DeviceState.from_bytes(canonical.dumps(asked.device))
    return planner.plan(asked.channels, device, delete_first=asked.delete_first).to_bytes()


def _status_routes(registry: Registry, metrics: Metrics) -> APIRouter:
    router = APIRouter()

    @router.get("/healthz", response_class=Response, responses=documents.STATUS)
    async def healthz() -> Response:
        """The process answers."""
        return _status()

    @router.get("/readyz", response_class=Response, responses={**documents.STATUS, **documents.refusals(503)})
    def readyz() -> Response:
        """The database and the store answer too."""
        for name, check in _checks(registry).items():
            try:
                check()
            except (PtdockError, OSError) as error:
                raise Problem(503, f"the {name} does not answer", "its log says why") from error
        return _status()

    @router.get("/metrics", response_class=Response, responses=documents.METRICS)
    def read_metrics() -> Response:
        """For Prometheus: traffic, the manifests' age and expiry, the keys' expiry."""
        return Response(metrics.text(), headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})

    return router


def _checks(registry: Registry) -> dict[str, Callable[[], object]]:
    return {
        "database": lambda: registry.uuid,
        "store": (registry.home / "blobs" / "sha256").stat,
    }


def _status() -> Response:
    return Response(b'{"status":"ok"}', media_type="application/json", headers={"Cache-Control": "no-store"})


def _word_refusals(api: FastAPI, registry: Registry) -> None:
    """Make a problem document of whatever a route raises."""

    def respond(problem: Problem) -> Response:
        headers = {"Cache-Control": "no-store", **problem.headers}
        return Response(problem.to_bytes(), problem.status, headers, media_type=MEDIA_TYPE)

    @api.exception_handler(Problem)
    async def refused(_request: Request, problem: Problem) -> Response:
        return respond(problem)

    @api.exception_handler(PtdockError)
    async def failed(request: Request, error: PtdockError) -> Response:
        problem = of_error(error, registry.home)
        if problem.status >= 500:
            request.state.trouble = f"{error.code}: {error.message}"
        return respond(problem)

    @api.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return respond(Problem(422, f"{'.'.join(map(str, first['loc']))}: {first['msg']}"))

    @api.exception_handler(HTTPException)
    async def unknown(_request: Request, error: HTTPException) -> Response:
        hint = "GET /openapi.json lists what there is"
        return respond(
            Problem(error.status_code, _WORDS.get(error.status_code, "refused"), hint, headers=error.headers or {})
        )

    @api.exception_handler(Exception)
    async def broke(_request: Request, _error: Exception) -> Response:
        return respond(broken())


_WORDS = {400: "the body cannot be read", 404: "there is no such thing here", 405: "this method does not apply here"}
