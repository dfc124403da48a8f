"""Which channels offered which releases, from which manifest to which: history, told in spans."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Row, Text, func, select
from sqlalchemy.orm import Session

from registry import tables as t
from registry.artifacts import Build, Template
from registry.audit import Event
from registry.catalog import adapters, foundations, log
from registry.digest import Digest


@dataclass(frozen=True, slots=True)
class Span:
    """Manifests of one channel, one after another, that offered a release to the same share in the same state.

    `sequences` are the first and the last of them; `since` and `until` are Unix seconds, when the first was issued and
    when one that says otherwise was; `until` is None while the newest manifest says so. Devices may hold the last one
    until `expires`.
    """

    channel: str
    release: int
    share_bp: int
    state: str
    sequences: tuple[int, int]
    since: int
    until: int | None
    expires: int


def offers(session: Session, releases: Collection[int]) -> tuple[Span, ...]:
    """Every span in which one of these releases was offered, by channel and time."""
    found: list[Span] = []
    for row in _arms(session, releases):
        span = Span(
            row.channel,
            row.release,
            row.share_bp,
            row.state,
            (row.sequence, row.sequence),
            row.issued,
            row.until,
            row.expires,
        )
        last = next((i for i in reversed(range(len(found))) if _continues(found[i], row)), None)
        if last is None:
            found.append(span)
        else:
            sequences = (found[last].sequences[0], row.sequence)
            found[last] = replace(found[last], sequences=sequences, until=row.until, expires=row.expires)
    return tuple(found)


def manifest(session: Session, channel: str, sequence: int) -> tuple[Span, ...]:
    """The spans that one manifest is part of."""
    here = (t.Arm.channel == channel) & (t.Arm.sequence == sequence)
    releases = session.scalars(select(t.Arm.release).where(here, t.Arm.release.is_not(None))).all()
    spans = offers(session, [number for number in releases if number is not None])
    return tuple(
        span for span in spans if span.channel == channel and span.sequences[0] <= sequence <= span.sequences[1]
    )


def releases_with(session: Session, builds: Collection[Build]) -> set[int]:
    """The releases that hold one of these builds."""
    rows = [adapters.build_id(session, build) for build in builds]
    entries = select(t.LineEntry.release).where(t.LineEntry.build.in_(rows)).distinct()
    return set(session.scalars(entries))


def releases_through(session: Session, template: Template) -> set[int]:
    """The releases that hold a build through this template, or offer it as their base program."""
    row = foundations.template_id(session, template)
    built = select(t.LineEntry.release).join(t.Build, t.Build.id == t.LineEntry.build).where(t.Build.template == row)
    plain = select(t.ReleaseFile.release).where(t.ReleaseFile.blob == template.hollow.digest)
    return {*session.scalars(built.distinct()), *session.scalars(plain)}


def releases_on(session: Session, foundation: Digest) -> set[int]:
    """The releases with a line on this foundation."""
    return set(session.scalars(select(t.Line.release).where(t.Line.foundation == foundation)))


def events(session: Session, subject: str) -> tuple[Event, ...]:
    """What the log says of a subject, oldest first."""
    return tuple(
        map(log.event, session.scalars(select(t.Event).where(t.Event.subject == subject).order_by(t.Event.id)))
    )


def mentions(session: Session, digest: Digest) -> tuple[Event, ...]:
    """The events that name a digest among what they did, oldest first."""
    named = t.Event.after.cast(Text).contains(str(digest))
    return tuple(map(log.event, session.scalars(select(t.Event).where(named).order_by(t.Event.id))))


def _continues(span: Span, row: Row[*tuple[Any, ...]]) -> bool:
    said = (span.channel, span.release, span.share_bp, span.state, span.until)
    return said == (row.channel, row.release, row.share_bp, row.state, row.issued) and span.sequences[1] < row.sequence


def _arms(session: Session, releases: Collection[int]) -> Iterator[Row[*tuple[Any, ...]]]:
    """The arms that offered these releases, each with when the channel's next manifest was issued."""
    following = func.lead(t.Manifest.issued).over(partition_by=t.Manifest.channel, order_by=t.Manifest.sequence)
    told = select(
        t.Manifest.channel, t.Manifest.sequence, t.Manifest.issued, t.Manifest.expires, following.label("until")
    ).subquery()
    query = (
        select(t.Arm.channel, t.Arm.sequence, t.Arm.release, t.Arm.share_bp, t.Arm.state)
        .add_columns(told.c.issued, told.c.expires, told.c.until)
        .join(told, (told.c.channel == t.Arm.channel) & (told.c.sequence == t.Arm.sequence))
        .where(t.Arm.release.in_(sorted(releases)))
        .order_by(t.Arm.channel, t.Arm.sequence, t.Arm.position)
    )
    yield from session.execute(query)
