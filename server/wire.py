"""ASGI's messages in two functions: a request's headers as text, and an answer."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import Scope, Send


def said(scope: Scope) -> dict[str, str]:
    """A request's headers by name in lower case; repeated ones are joined, as RFC 9110 (5.3) has it."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


async def answer(send: Send, status: int, headers: Mapping[str, str], body: bytes = b"", *, more: bool = False) -> None:
    """Send an answer; with `more`, only its beginning. A Content-Length is added where the headers have none."""
    known = {"content-length": str(len(body))} if status != 304 and not more else {}
    lines = {**known, **{name.lower(): value for name, value in headers.items()}}
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in lines.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    if not more:
        await send({"type": "http.response.body", "body": body})
