"""Rows of tokens."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from registry import tables as t
from registry.catalog.log import Change
from registry.digest import Digest


@dataclass(frozen=True, slots=True)
class Token:
    """Who may do what; `created` and `revoked` in ISO 8601 (UTC)."""

    id: str
    name: str
    scope: str
    created: str
    revoked: str | None = None


def insert_token(change: Change, token: Token, digest: Digest) -> None:
    """Record a token and its text's digest."""
    values = {"id": token.id, "name": token.name, "scope": token.scope, "created": token.created, "digest": digest}
    change.session.execute(insert(t.Token).values(values))


def revoke_token(change: Change, token: Token) -> None:
    """Record that a token is revoked."""
    change.session.execute(update(t.Token).where(t.Token.id == token.id).values(revoked_at=change.at))


def tokens(session: Session) -> tuple[Token, ...]:
    """Every token, oldest first."""
    rows = session.scalars(select(t.Token).order_by(t.Token.created, t.Token.id))
    return tuple(_token(row) for row in rows)


def find(session: Session, key: str) -> tuple[Token, Digest] | None:
    """The token with this id, and its text's digest."""
    row = session.get(t.Token, key)
    return (_token(row), row.digest) if row else None


def _token(row: t.Token) -> Token:
    return Token(row.id, row.name, row.scope, row.created, row.revoked_at)
