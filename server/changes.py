"""The verbs that need a token: publish an adapter, move a channel; and what is shown to who has one.

Each verb is one call of the façade, made as the token's own act: the audit log names it. Publishing takes the files as
they are and goes through the same gate as on the command line; pickles are never read here.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import APIRouter, Request, Response
from fastapi import Path as PathParameter
from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import FormData

from console import documents as shown
from console.commands.gate import published_document
from exporter.publish import PublishOptions, publish
from registry import canonical
from registry.artifacts import ReleaseResult
from registry.composing import Contents, LineSpec
from registry.errors import Unavailable
from registry.rolling import Rollout
from registry.service import Registry
from server import documents
from server.guard import Guard
from server.problems import Expected
from server.reading import NAME, read_model
from server.settings import Settings
from server.upload import FORM, options_of, read_form, write_files

Share = Annotated[int, Field(ge=1, le=10_000, description="Basis points of the devices.")]
Number = Annotated[int, Field(ge=1, le=2**31 - 1, description="A release's number.")]
Name = Annotated[str, PathParameter(pattern=NAME)]
Text = Annotated[str, Field(min_length=1, max_length=256)]


class Strict(BaseModel):
    """A body without room for what it does not name."""

    model_config = ConfigDict(extra="forbid")


class Publish(Strict):
    """What uploaded files are to become."""

    foundation: Text
    version: Text | None = None
    context: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    lineage: dict[str, Any] = {}
    adapter_name: Text | None = None


class Create(Strict):
    """A release to make and, unless it is a draft, to offer."""

    adapters: Annotated[list[Text], Field(min_length=1, max_length=10_000)]
    lines: Annotated[list[Text], Field(min_length=1, max_length=100)] | None = None
    share_bp: Share = 10_000
    allow_holes: bool = False
    draft: bool = False


class Widen(Strict):
    """A release's new share."""

    share_bp: Share
    release: Number | None = None


class Which(Strict):
    """A release of the channel; none means the newest."""

    release: Number | None = None


class Empty(Strict):
    """Nothing more to say."""


def changes(guard: Guard, settings: Settings) -> APIRouter:
    """The routes."""
    router = APIRouter()
    _publishing(router, guard, settings)
    _releasing(router, guard, settings)
    return router


def _publishing(router: APIRouter, guard: Guard, settings: Settings) -> None:
    one = CapacityLimiter(1)  # folding and linking take a core; whoever comes meanwhile waits
    asked = documents.asked("multipart/form-data", FORM)
    refusals = documents.refusals(400, 401, 403, 404, 409, 413, 415, 422, 429, 503)

    @router.post("/v1/adapters/{name}/versions", openapi_extra=asked, responses=refusals, response_class=Response)
    async def publish_adapter(request: Request, name: Name) -> Response:
        """Check the files, make the `.pte` and record both, as `ptdock adapter publish` does."""
        token = await run_sync(guard.caller, request, "publish")
        guard.spend(token)
        form = await read_form(request, settings.upload)
        try:
            given = options_of(form, Publish)
            document = await run_sync(_publish, guard.registry(token), name, given, form, limiter=one)
        finally:
            await form.close()
        return answer(document)

    @router.get("/v1/adapters/{name}", responses=documents.refusals(401, 404, 422), response_class=Response)
    def show(request: Request, name: Name) -> Response:
        """An adapter's versions and their builds, the unreleased ones too; any token may ask."""
        registry = guard.registry(guard.caller(request, None))
        found = [_version(registry, each.version, name) for each in registry.versions(name)]
        return answer({"name": name, "versions": found})


def _version(registry: Registry, number: str, name: str) -> dict[str, Any]:
    ref = f"{name}@{number}"
    return {**shown.version(registry.version(ref)), "builds": shown.builds(registry.builds(ref))}


def _publish(registry: Registry, name: str, given: Publish, form: FormData) -> dict[str, Any]:
    began = time.monotonic()
    options = PublishOptions(
        foundation=given.foundation,
        name=name,
        version=given.version,
        context=given.context,
        lineage=given.lineage,
        adapter_name=given.adapter_name,
    )
    with tempfile.TemporaryDirectory(dir=registry.home, prefix="work-") as work:
        write_files(form, Path(work))
        try:
            made = publish(registry, Path(work), options)
        except Unavailable as error:
            if "structure" not in error.values:
                raise
            raise Expected(error.message, hint=error.hint) from error
    return published_document(registry, made, time.monotonic() - began)


def _releasing(router: APIRouter, guard: Guard, settings: Settings) -> None:
    refusals = documents.refusals(400, 401, 403, 404, 409, 413, 415, 422, 503)

    def verb(path: str, model: type[Strict], act: Callable[[Rollout, Any], ReleaseResult], text: str) -> None:
        async def route(request: Request, channel: Name) -> Response:
            token = await run_sync(guard.caller, request, "release")
            given = await read_model(request, model, settings.plan)
            rollout = guard.registry(token).rollout(channel)
            return answer(shown.rolled(await run_sync(act, rollout, given)))

        route.__doc__ = text
        asked = documents.asked("application/json", model.model_json_schema())
        endpoint: Callable[..., Awaitable[Response]] = route
        router.add_api_route(
            f"/v1/channels/{{channel}}/{path}",
            endpoint,
            methods=["POST"],
            name=path,
            responses=refusals,
            openapi_extra=asked,
            response_class=Response,
        )

    verb("releases", Create, _create, "Make a release and offer it to a share of the channel's devices.")
    verb("widen", Widen, lambda to, given: to.widen(given.share_bp, given.release), "Grow a release's share.")
    verb("halt", Which, lambda to, given: to.halt(given.release), "Offer a release to no further device.")
    verb("resume", Which, lambda to, given: to.resume(given.release), "Undo halt.")
    verb("complete", Empty, lambda to, _: to.complete(), "Give the newest release to every device.")
    verb("rollback", Which, lambda to, given: to.rollback(given.release), "Offer an earlier release again.")


def _create(rollout: Rollout, given: Create) -> ReleaseResult:
    lines = None if given.lines is None else [LineSpec(each) for each in given.lines]
    contents = Contents(given.adapters, lines, allow_holes=given.allow_holes)
    return rollout.create(contents, given.share_bp, draft=given.draft)


def answer(document: dict[str, Any]) -> Response:
    """A JSON document that nobody but its reader keeps."""
    return Response(canonical.dumps(document), media_type="application/json", headers={"Cache-Control": "no-store"})
