"""Reads a request's body within bounds, and JSON out of it."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from registry import canonical
from registry.errors import FormatError
from server.problems import Problem

M = TypeVar("M", bound=BaseModel)
NAME = r"^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9_-])?$"
"""registry.names as one pattern: it says that a name does not end in a dot, too."""


def bounded(request: Request, limit: int, media_type: str) -> None:
    """Raise Problem for a body that says it is larger than `limit` bytes (413), or is of another kind (415)."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != media_type:
        raise Problem(415, f"the body must be {media_type}, not {kind[:100] or 'without a type'}")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem(415, "the body must not be encoded", "send it as it is, without Content-Encoding")
    length = request.headers.get("content-length", "0")
    if length.isascii() and length.isdigit() and int(length[:20]) > limit:
        raise too_large(limit)


def too_large(limit: int) -> Problem:
    """The refusal of a body beyond `limit` bytes."""
    return Problem(413, f"the body may have at most {limit} bytes")


async def read_body(request: Request, limit: int) -> bytes:
    """The JSON body's bytes. Raises Problem."""
    bounded(request, limit, "application/json")
    data = bytearray()
    try:
        async for chunk in request.stream():
            data += chunk
            if len(data) > limit:
                raise too_large(limit)
    except ClientDisconnect:
        raise Problem(400, "the body broke off") from None
    return bytes(data)


async def read_model(request: Request, model: type[M], limit: int) -> M:
    """The body as a model, strictly: no duplicate keys, no type bent into another. Raises Problem."""
    return model_of(await read_body(request, limit), model, "the body")


def model_of(data: bytes, model: type[M], what: str) -> M:
    """JSON as a model, strictly. Raises Problem: 400 for what is no JSON, 422 for other JSON."""
    try:
        canonical.loads(data, what=what)
    except FormatError as error:
        raise Problem(400, error.message, error.hint, code=error.code) from None
    try:
        return model.model_validate_json(data, strict=True)
    except ValidationError as error:
        raise Problem(422, _first(error), code=FormatError.__name__, values={"errors": _all(error)}) from None


def _all(error: ValidationError) -> list[dict[str, str]]:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [{"at": ".".join(map(str, each["loc"])), "message": each["msg"]} for each in found[:20]]


def _first(error: ValidationError) -> str:
    first = _all(error)[0]
    return f"{first['at'] or 'the body'}: {first['message']}"[:500]
