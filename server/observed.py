"""The outermost layer: every request gets an id, a bound on its body, a log line and a place in the metrics.

A log line is one JSON object on standard error. It names the route, never a query or a body, and who asked only as the
name of a token: no secret, no device's id, no address. What goes wrong here or further in becomes a problem document.
"""

from __future__ import annotations

import json
import secrets
import sys
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from registry.errors import PtdockError
from server.metrics import Metrics
from server.problems import MEDIA_TYPE, Problem, broken, of_error
from server.wire import answer

Log = Callable[[dict[str, Any]], None]


def log_line(entry: dict[str, Any]) -> None:
    """Write one line of the log."""
    sys.stderr.write(json.dumps(entry, ensure_ascii=True, default=str) + "\n")


class Observed:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, metrics: Metrics, log: Log = log_line) -> None:
        self._app = app
        self._metrics = metrics
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(scope, send)
        try:
            await self._app(exchange.scope, receive, exchange.send)
        except Exception as error:  # noqa: BLE001 - the one place where a request's failure ends
            await self._failed(exchange, error)
        finally:
            self._tell(exchange)

    async def _failed(self, exchange: Exchange, error: Exception) -> None:
        problem = error if isinstance(error, Problem) else of_error(error) if isinstance(error, PtdockError) else None
        if problem is None or problem.status >= 500:
            exchange.trouble = "".join(traceback.format_exception(error))
        if not exchange.status:  # else half of the answer is out, and returning now cuts it off
            await send_problem(exchange.send, problem or broken())

    def _tell(self, exchange: Exchange) -> None:
        took = time.perf_counter() - exchange.began
        method = exchange.method if exchange.method in _METHODS else "other"
        self._metrics.count(method, exchange.route, exchange.status, exchange.sent, took)
        entry = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "id": exchange.id,
            "method": method,
            "route": exchange.route,
            "status": exchange.status,
            "bytes": exchange.sent,
            "ms": round(took * 1000, 2),
        }
        state = exchange.scope["state"]
        optional = {"token": state.get("token"), "trouble": exchange.trouble or state.get("trouble")}
        self._log({**entry, **{name: value for name, value in optional.items() if value}})


_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"}


class Exchange:
    """One request and what became of it."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.id = secrets.token_hex(8)
        self.began = time.perf_counter()
        self.method = scope["method"]
        self.scope = {**scope, "state": dict(scope.get("state", {}))}
        self.status = 0
        self.sent = 0
        self.trouble = ""
        self._send = send

    @property
    def route(self) -> str:
        """The name of the route that answered: a FastAPI route's own path, or the tree's directory."""
        route = self.scope.get("route", "unknown")
        return route if isinstance(route, str) else str(getattr(route, "path", "unknown"))

    async def send(self, message: Message) -> None:
        """Pass a message on, with the headers that every answer has."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            extra = [(b"x-content-type-options", b"nosniff"), (b"x-request-id", self.id.encode())]
            message = {**message, "headers": [*message.get("headers", ()), *extra]}
        elif self.method == "HEAD":
            message = {**message, "body": b""}
        else:
            self.sent += len(message.get("body", b""))
        await self._send(message)


async def send_problem(send: Send, problem: Problem) -> None:
    """Answer with a problem document."""
    headers = {"content-type": MEDIA_TYPE, "cache-control": "no-store", **problem.headers}
    await answer(send, problem.status, headers, problem.to_bytes())
