"""The audit log, and the transaction in which every change is made and recorded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, insert, select
from sqlalchemy.orm import Session

from registry import audit
from registry import tables as t
from registry.audit import Event
from registry.digest import Digest


@dataclass(frozen=True, slots=True)
class Change:
    """A transaction that changes something: its session, its time (Unix seconds) and who makes it."""

    session: Session
    now: float
    actor: str

    @property
    def at(self) -> str:
        """The time as it is recorded."""
        return stamp(self.now)

    def record(self, action: str, subject: str, *, before: Any = None, after: Any = None) -> Digest:
        """Append an event to the log; answers its digest, the log's new head."""
        number, prev = _last(self.session)
        event = Event(number + 1, self.at, self.actor, action, subject, before, after, prev)
        values = {**event.to_json(), "prev": event.prev, "digest": event.digest}
        self.session.execute(insert(t.Event).values(values))
        return event.digest


def stamp(now: float) -> str:
    """A time (Unix seconds) in ISO 8601, UTC, with microseconds: texts in the order of time."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds(at: str) -> float:
    """The time of a stamp in Unix seconds; 0 for a text that is none."""
    try:
        return datetime.fromisoformat(at).timestamp()
    except ValueError:
        return 0


def found(change: Change, uuid: str) -> bool:
    """Give a database that has none its identity, which the log starts from; answers whether it did."""
    if identity(change.session):
        return False
    change.session.execute(insert(t.Identity).values(id=1, uuid=uuid, created=change.at))
    change.record("registry.init", uuid)
    return True


def identity(session: Session) -> str:
    """The registry's UUID; empty before `found`."""
    return session.scalar(select(t.Identity.uuid)) or ""


def head(session: Session) -> Digest:
    """The digest of the newest event, or what the first one would follow."""
    return _last(session)[1]


def event_with(session: Session, digest: Digest) -> Event | None:
    """The event with this digest, when it is in the log."""
    row = session.scalar(select(t.Event).where(t.Event.digest == digest))
    return event(row) if row else None


def _last(session: Session) -> tuple[int, Digest]:
    row = session.execute(select(t.Event.id, t.Event.digest).order_by(t.Event.id.desc()).limit(1)).first()
    return (row.id, row.digest) if row else (0, audit.genesis(identity(session)))


def events(session: Session, limit: int | None = None) -> list[Event]:
    """The log, newest first."""
    return [event(row) for row in session.scalars(select(t.Event).order_by(t.Event.id.desc()).limit(limit))]


def chain(session: Session) -> Iterator[tuple[Event, Digest]]:
    """The log, oldest first, each event beside its recorded digest."""
    query = select(t.Event.__table__).order_by(t.Event.id)
    for row in session.execute(query.execution_options(yield_per=1000)):
        yield event(row), row.digest


def event(row: t.Event | Row[*tuple[Any, ...]]) -> Event:
    """A row of the log as a value."""
    return Event(row.id, row.at, row.actor, row.action, row.subject, row.before, row.after, row.prev)
