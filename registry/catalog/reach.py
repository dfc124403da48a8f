"""Which releases devices may still be told to run, and by whom: the strongest reason for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, func, select
from sqlalchemy.orm import Session

from registry import rollout
from registry import tables as t
from registry.digest import Descriptor

_ROWS = 1000  # fetched at a time

OFFERED, HELD, BEFORE, RECORDED = range(4)
"""Ranks, the strongest first: a channel's arm, an unexpired manifest, a rollback target, any recorded release."""


@dataclass(frozen=True, slots=True, order=True)
class Hold:
    """What keeps a release: its rank and a sentence for people."""

    rank: int
    text: str


def holds(session: Session, now: float) -> dict[int, Hold]:
    """The strongest hold on every release, by number. `now` is Unix time in seconds."""
    found = {number: Hold(RECORDED, f"release {number}") for number in session.scalars(select(t.Release.number))}
    for row in _arms(session):
        hold = _hold(row, now)
        found[row.release] = min(found.get(row.release, hold), hold)  # verify asks of damaged registries too
    return found


def documents(session: Session) -> Iterator[tuple[int, Descriptor]]:
    """Every release's number and document, the oldest first."""
    query = select(t.Release.number, t.Blob.digest, t.Blob.size).join(t.Blob, t.Blob.digest == t.Release.document)
    for row in session.execute(query.order_by(t.Release.number).execution_options(yield_per=_ROWS)):
        yield row.number, Descriptor(row.digest, row.size)


def _arms(session: Session) -> Iterator[Row[*tuple[Any, ...]]]:
    """Every arm that ever offered a release, whether its channel is there and whether its manifest is the newest."""
    newest = select(t.Manifest.channel, func.max(t.Manifest.sequence).label("sequence"))
    last = newest.group_by(t.Manifest.channel).subquery()
    columns = (
        *(t.Arm.channel, t.Arm.sequence, t.Arm.release, t.Arm.share_bp, t.Arm.state),
        t.Manifest.expires,
        t.Channel.deleted_at.is_(None).label("live"),
        (t.Arm.sequence == last.c.sequence).label("newest"),
    )
    query = (
        select(*columns)
        .join(t.Manifest, (t.Manifest.channel == t.Arm.channel) & (t.Manifest.sequence == t.Arm.sequence))
        .join(t.Channel, t.Channel.name == t.Arm.channel)
        .join(last, last.c.channel == t.Arm.channel)
        .where(t.Arm.release.is_not(None))
        .order_by(t.Arm.channel, t.Arm.sequence.desc(), t.Arm.position)
    )
    yield from session.execute(query.execution_options(yield_per=_ROWS))


def _hold(row: Row[*tuple[Any, ...]], now: float) -> Hold:
    if row.live and row.newest:
        halted = ", halted" if row.state == "halted" else ""
        share = rollout.percent(row.share_bp)
        return Hold(OFFERED, f"channel {row.channel} offers release {row.release} ({share}{halted})")
    if row.expires >= int(now):
        until = datetime.fromtimestamp(row.expires, UTC).strftime("%Y-%m-%d %H:%M")
        return Hold(HELD, f"devices may hold manifest {row.sequence} of {row.channel} until {until} UTC")
    if row.live:
        return Hold(BEFORE, f"channel {row.channel} can go back to release {row.release}")
    return Hold(RECORDED, f"release {row.release}")
