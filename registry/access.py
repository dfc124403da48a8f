"""Tokens: who may change a registry over HTTP, and what. Only their digests are kept.

    made = registry.tokens().create("ci", "publish")     # made.text is shown once
    registry.tokens().find(text)                         # the Token, or None: unknown, revoked or wrong

A token reads `ptdock_<id>_<secret>`. The secret has 256 random bits, so its plain SHA-256 is as good as the secret is
(a slow hash protects only what people could guess), and it is compared in constant time.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from registry import states
from registry.catalog import tokens
from registry.catalog.log import Change
from registry.catalog.tokens import Token
from registry.database import Database
from registry.digest import Digest
from registry.errors import Conflict, InputError, NotFound
from registry.names import check_name

__all__ = ["SCOPES", "Made", "Token", "Tokens", "allows"]

SCOPES = ("publish", "release", "admin")
_TEXT = re.compile(r"ptdock_([0-9a-f]{16})_[A-Za-z0-9_-]{43}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Made:
    """A new token; `text` is the one thing that its holder needs, and stands nowhere else."""

    token: Token
    text: str = field(repr=False)


def allows(scope: str, wanted: str) -> bool:
    """Whether a token of one scope may do what needs another: `admin` may do all, the others their own."""
    return scope in {wanted, "admin"}


class Tokens:
    """A registry's tokens; `change` opens a transaction."""

    def __init__(self, database: Database, change: Callable[[], AbstractContextManager[Change]]) -> None:
        self._database = database
        self._change = change

    def create(self, name: str, scope: str) -> Made:
        """Make a token. Raises Conflict for a name that is or was used: the log names who did what by it."""
        check_name(name, what="token")
        if scope not in SCOPES:
            raise InputError(f"{scope!r} is not a scope", hint=f"one of {', '.join(SCOPES)}")
        key = secrets.token_hex(8)
        text = f"ptdock_{key}_{secrets.token_urlsafe(32)}"
        with self._change() as change:
            if any(each.name == name for each in tokens.tokens(change.session)):
                raise Conflict(f"a token {name!r} exists", hint="choose another name: names are never used again")
            token = Token(key, name, scope, change.at)
            digest = Digest.of(text.encode())
            tokens.insert_token(change, token, digest)
            change.record("token.create", f"token {name}", after=states.token(key, scope, digest))
        return Made(token, text)

    def all(self) -> tuple[Token, ...]:
        """Every token, oldest first, the revoked ones too."""
        with self._database.read() as session:
            return tokens.tokens(session)

    def revoke(self, name: str) -> Token:
        """Let a token do nothing from now on; again changes nothing. Raises NotFound."""
        with self._change() as change:
            token = next((each for each in tokens.tokens(change.session) if each.name == name), None)
            if token is None:
                raise NotFound(f"no token {name!r}", hint="`ptdock token list` names them")
            if token.revoked is None:
                tokens.revoke_token(change, token)
                change.record("token.revoke", f"token {name}", before={"id": token.id, "scope": token.scope})
        return next(each for each in self.all() if each.name == name)

    def find(self, text: str) -> Token | None:
        """The token with this text, unless it is revoked."""
        match = _TEXT.fullmatch(text)
        if match is None:
            return None
        with self._database.read() as session:
            found = tokens.find(session, match[1])
        if found is None or found[0].revoked is not None:
            return None
        token, digest = found
        return token if hmac.compare_digest(digest.raw, Digest.of(text.encode()).raw) else None
