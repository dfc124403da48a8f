"""What devices say became of their syncs: typed codes, counted per release, with nothing that tells who said it.

`POST /v1/health` is for devices that were switched on to report, and needs no token, so anybody can send lies: the
figures are for a person who looks at them, and nothing here ever halts a release. A report counts only for a release
that its channel offers, and once per anonymous id, which devices change every day. The counts are this process's own,
since it began; `/metrics` has them too, and Prometheus keeps their history.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi import Path as PathParameter
from pydantic import BaseModel, ConfigDict, Field, field_validator
from starlette.concurrency import run_in_threadpool

from registry import canonical
from registry.errors import NotFound
from registry.health import CODES, MOST
from registry.manifest import Manifest
from registry.service import Registry
from registry.site import Directory, manifest_path
from server import documents
from server.guard import Guard
from server.reading import NAME, model_of, read_body

_LIMIT = 1 << 16
_REMEMBERED = 1_000_000  # who said what already; 16 bytes each, and what the dictionary takes

Key = tuple[str, int, str]
"""Channel, release, code."""


class Report(BaseModel):
    """What became of one channel: a code of docs/devices.md."""

    model_config = ConfigDict(extra="forbid")

    channel: Annotated[str, Field(pattern=NAME)]
    release: Annotated[int, Field(ge=1, le=2**31 - 1)]
    code: Annotated[str, Field(json_schema_extra={"enum": sorted(CODES)})]

    @field_validator("code")
    @classmethod
    def _known(cls, code: str) -> str:
        if code not in CODES:
            raise ValueError("is not a code that devices report")
        return code


class Reports(BaseModel):
    """One device's reports; `id` is random to whoever does not know the device's secret, and another one each day."""

    model_config = ConfigDict(extra="forbid")

    schema_: Annotated[Literal[1], Field(alias="schema")]
    id: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    reports: Annotated[list[Report], Field(min_length=1, max_length=MOST)]


def _schema() -> dict[str, Any]:
    """The body's JSON Schema in one piece."""
    schema = Reports.model_json_schema()
    schema["properties"]["reports"]["items"] = schema.pop("$defs")["Report"]
    return schema


class Health:
    """Counts reports, each id's of a release and code once."""

    def __init__(self, registry: Registry) -> None:
        self._site = Directory(registry.site)
        self._counts: Counter[Key] = Counter()
        self._said: OrderedDict[bytes, None] = OrderedDict()

    def take(self, said: Reports) -> None:
        """Count what is new. What is of no release that the channel offers is passed over: it may just have ended."""
        offered = {name: set(self._shares(name)) for name in {report.channel for report in said.reports}}
        for report in said.reports:
            key = report.channel, report.release, report.code
            if report.release in offered[report.channel] and self._is_new(said.id, key):
                self._counts[key] += 1

    def figures(self, channel: str) -> dict[str, Any]:
        """The channel's arms with what was reported of each, codes in the order of their number. Raises NotFound."""
        shares = self._shares(channel)
        if not shares:
            raise NotFound(f"no channel {channel!r} is published here", hint="has it offered a release?")
        arms = [
            {"release": release, "share_bp": share, "reports": self._of(channel, release)}
            for release, share in shares.items()
        ]
        return {"channel": channel, "arms": arms}

    def counts(self) -> Iterable[tuple[Key, int]]:
        """All that was counted."""
        return sorted(self._counts.items())

    def _of(self, channel: str, release: int) -> dict[str, int]:
        found = Counter({key[2]: count for key, count in self._counts.items() if key[:2] == (channel, release)})
        return dict(found.most_common())

    def _shares(self, channel: str) -> dict[int, int]:
        """The releases that a channel offers, and their shares in basis points; none for an unknown channel."""
        data = self._site.read(manifest_path(channel))
        arms = Manifest.from_bytes(data).arms if data else ()
        return {arm.release: arm.share_bp for arm in arms if arm.release is not None}

    def _is_new(self, who: str, key: Key) -> bool:
        mark = hashlib.blake2b(repr((who, key)).encode(), digest_size=16).digest()
        if mark in self._said:
            return False
        self._said[mark] = None
        while len(self._said) > _REMEMBERED:
            self._said.popitem(last=False)
        return True


def health_routes(health: Health, guard: Guard) -> APIRouter:
    """The two routes."""
    router = APIRouter()
    responses = {204: {"description": "Heard."}, **documents.refusals(400, 413, 415, 422)}

    @router.post("/v1/health", openapi_extra=documents.body(_schema()), responses=responses, response_class=Response)
    async def report(request: Request) -> Response:
        """Say what became of a device's syncs: typed codes, and an id that tells nobody who it is."""
        said = model_of(await read_body(request, _LIMIT), Reports, "the report")
        await run_in_threadpool(health.take, said)
        return Response(status_code=204, headers={"Cache-Control": "no-store"})

    @router.get("/v1/health/{channel}", responses=documents.refusals(401, 404, 422), response_class=Response)
    def show(request: Request, channel: Annotated[str, PathParameter(pattern=NAME)]) -> Response:
        """What devices reported of each release that a channel offers, since this server began; any token may ask."""
        guard.caller(request, None)
        data = canonical.dumps(health.figures(channel))
        return Response(data, media_type="application/json", headers={"Cache-Control": "no-store"})

    return router
