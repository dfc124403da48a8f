"""Refusals as application/problem+json (RFC 9457): one clear sentence, a hint, and nothing about the machine.

What is the caller's fault is said in ptdock's own words, with every path of the store taken out. What is the server's
fault is said in one general sentence; the log has the rest, under the request's id.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from registry import canonical
from registry.errors import AdapterRefused, Conflict, FormatError, InputError, NotFound, PtdockError, Unavailable

MEDIA_TYPE = "application/problem+json"
_STATUS: dict[type[PtdockError], int] = {
    AdapterRefused: 422,
    FormatError: 422,
    InputError: 422,
    NotFound: 404,
    Conflict: 409,
    Unavailable: 503,
}
_PATH = re.compile(r"(?<![\w.:/-])/(?:[^\s/:,;'\"]+/)+[^\s:,;'\"]*")


class Problem(Exception):  # noqa: N818 - the RFC's noun
    """A refusal: an HTTP status, a sentence, a hint, further members, and headers that go with it."""

    def __init__(
        self,
        status: int,
        detail: str,
        hint: str = "",
        *,
        code: str = "",
        values: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.hint = hint
        self.code = code
        self.values = values or {}
        self.headers = headers or {}

    def to_bytes(self) -> bytes:
        """The document's bytes (canonical JSON)."""
        title = HTTPStatus(self.status).phrase
        members = {"type": "about:blank", "title": title, "status": self.status, "detail": self.detail}
        optional = {"hint": self.hint, "code": self.code}
        return canonical.dumps({**self.values, **members, **{key: text for key, text in optional.items() if text}})


def of_error(error: PtdockError, *hidden: Path) -> Problem:
    """An error of ptdock's as a problem; `hidden` are directories that no answer may name."""
    status = next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)
    if status >= 500 and not isinstance(error, Expected):
        return broken(status)
    values = {"findings": _without_paths(error.values["findings"], hidden)} if "findings" in error.values else {}
    message, hint = _without_paths(error.message, hidden), _without_paths(error.hint, hidden)
    return Problem(status, message, hint, code=error.code, values=values)


class Expected(Unavailable):
    """Something that this server lacks by choice, such as torch: told to the caller in full."""

    @property
    def code(self) -> str:
        """Its kind in the error tree."""
        return Unavailable.__name__


def broken(status: int = 500) -> Problem:
    """The server's own fault, of which the caller hears only whether to try again."""
    if status == 503:
        return Problem(503, "this server cannot do that now", "try again later", headers={"Retry-After": "30"})
    return Problem(500, "this server failed", "its log says why, under the id in the X-Request-Id header")


def _without_paths(value: Any, hidden: tuple[Path, ...]) -> Any:
    """The same without the names of directories."""
    if isinstance(value, dict):
        return {key: _without_paths(each, hidden) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_paths(each, hidden) for each in value]
    if not isinstance(value, str):
        return value
    for directory in hidden:
        value = value.replace(f"{directory}/", "").replace(str(directory), "the directory")
    return _PATH.sub(lambda match: Path(match[0]).name or "a directory", value)
