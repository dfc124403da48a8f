"""Who asks: the token of a request, what it may do, and how often.

caller = guard.caller(request, "publish")     # Problem 401 without a good token, 403 for another scope
guard.spend(caller)                           # Problem 429 when it comes too often
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from starlette.requests import Request

from registry.access import Token, allows
from registry.service import Registry
from server.problems import Problem

_MINUTE = 60


class Guard:
    """Checks tokens of a registry; a token may `spend` so many times `a_minute`."""

    def __init__(self, registry: Registry, a_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._a_minute = a_minute
        self._clock = clock
        self._spent: dict[str, deque[float]] = {}

    def caller(self, request: Request, wanted: str | None) -> Token:
        """The token that the request carries, if it may do what needs `wanted` (None: any may). Raises Problem."""
        kind, _, text = request.headers.get("authorization", "").partition(" ")
        token = self._registry.tokens().find(text.strip()) if kind.lower() == "bearer" else None
        if token is None:
            raise Problem(
                401,
                "this needs a token" if not text else "this token is not known, or is revoked",
                "an operator makes one: `ptdock token create`",
                headers={"WWW-Authenticate": 'Bearer realm="ptdock"'},
            )
        request.state.token = token.name
        if wanted is not None and not allows(token.scope, wanted):
            raise Problem(403, f"a token of scope {token.scope} may not do this", f"it needs the scope {wanted}")
        return token

    def registry(self, token: Token) -> Registry:
        """The registry, whose log ascribes changes to the token."""
        return self._registry.acting_as(f"token:{token.name}")

    def spend(self, token: Token) -> None:
        """Count one use. Raises Problem."""
        now, spent = self._clock(), self._spent.setdefault(token.id, deque())
        while spent and spent[0] <= now - _MINUTE:
            spent.popleft()
        if len(spent) >= self._a_minute:
            wait = int(spent[0] + _MINUTE - now) + 1
            raise Problem(
                429,
                f"this token has published {self._a_minute} times in a minute",
                f"try again in {wait} seconds",
                headers={"Retry-After": str(wait)},
            )
        spent.append(now)
