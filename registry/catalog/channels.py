"""Releases, channels and the manifests that were issued: a channel's state is its newest manifest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, insert, select, update
from sqlalchemy.orm import Session

from registry import artifacts
from registry import tables as t
from registry.catalog import adapters, content
from registry.catalog.log import Change
from registry.digest import Descriptor, Digest
from registry.manifest import Arm, Manifest
from registry.rollout import NOTHING

ADVANCE = "channel.advance"
"""The event of going past what is published; its `release` is the highest number that was published."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A manifest as the database knows it."""

    channel: str
    sequence: int
    file: Descriptor
    arms: tuple[Arm, ...]


def newest_number(session: Session) -> int:
    """The number of the newest release; 0 when there is none."""
    return session.scalar(select(func.max(t.Release.number))) or 0


def next_number(session: Session) -> int:
    """The number of the next release: above all that are recorded, and above those that devices know from elsewhere.

    A restored backup has lost the releases made after it; going past what is published (ADVANCE) noted their numbers.
    """
    passed = session.scalars(select(t.Event.after).where(t.Event.action == ADVANCE))
    return max([newest_number(session), *(int(event["release"]) for event in passed)]) + 1


def insert_release(change: Change, new: artifacts.Release) -> None:
    """Record a release with its lines and their builds, all of which are recorded."""
    session = change.session
    values = {"number": new.number, "document": new.document.digest, "holes": int(new.holes), "created": new.created}
    session.execute(insert(t.Release).values(values))
    for position, line in enumerate(new.lines):
        where = {"release": new.number, "foundation": line.foundation}
        session.execute(insert(t.Line).values(position=position, **where))
        entries = [
            {"adapter": name, "build": adapters.build_id(session, build), **where}
            for name, build in line.builds.items()
        ]
        session.execute(insert(t.LineEntry), entries)


def insert_files(change: Change, number: int, files: Iterable[Digest]) -> None:
    """Record what a release pins beside its builds, so that none of it can be forgotten."""
    rows = [{"release": number, "blob": digest} for digest in sorted(set(files))]
    if rows:
        change.session.execute(insert(t.ReleaseFile), rows)


def release(session: Session, number: int) -> artifacts.Release | None:
    """The release with this number, when it is recorded."""
    row = session.get(t.Release, number)
    return _release(session, row) if row else None


def releases(session: Session) -> tuple[artifacts.Release, ...]:
    """All releases, oldest first."""
    return tuple(_release(session, row) for row in session.scalars(select(t.Release).order_by(t.Release.number)))


def _release(session: Session, row: t.Release) -> artifacts.Release:
    lines = session.scalars(select(t.Line.foundation).where(t.Line.release == row.number).order_by(t.Line.position))
    return artifacts.Release(
        number=row.number,
        document=content.sizes(session, [row.document])[row.document],
        lines=tuple(
            artifacts.Line(foundation, adapters.builds_of_line(session, row.number, foundation))
            for foundation in lines.all()
        ),
        created=row.created,
        holes=bool(row.holes),
    )


def newest_on(session: Session, foundation: Digest) -> Digest | None:
    """The document of the newest release that has a line on this foundation."""
    query = select(t.Release.document).join(t.Line, t.Line.release == t.Release.number)
    return session.scalar(query.where(t.Line.foundation == foundation).order_by(t.Release.number.desc()).limit(1))


def ever_offered(session: Session) -> dict[int, tuple[str, ...]]:
    """The channels, deleted ones too, that ever offered each release, by its number."""
    query = select(t.Arm.release, t.Arm.channel).where(t.Arm.release.is_not(None)).distinct()
    found: dict[int, tuple[str, ...]] = {}
    for row in session.execute(query.order_by(t.Arm.release, t.Arm.channel)):
        found[row.release] = (*found.get(row.release, ()), row.channel)
    return found


def documents(session: Session, numbers: Iterable[int]) -> dict[int, Descriptor]:
    """The documents of these releases, by number."""
    query = select(t.Release.number, t.Blob.digest, t.Blob.size).join(t.Blob, t.Blob.digest == t.Release.document)
    rows = session.execute(query.where(t.Release.number.in_(list(numbers))))
    return {row.number: Descriptor(row.digest, row.size) for row in rows}


def insert_channel(change: Change, name: str, salt: str, settings: Mapping[str, Any]) -> None:
    """Record a channel, or bring back a deleted one under a new salt; its manifests stay."""
    if change.session.get(t.Channel, name):
        values = {"salt": salt, "settings": settings, "deleted_at": None}
        change.session.execute(update(t.Channel).where(t.Channel.name == name).values(values))
    else:
        new = {"name": name, "salt": salt, "settings": settings, "created": change.at}
        change.session.execute(insert(t.Channel).values(new))


def update_channel(change: Change, name: str, **values: Any) -> None:
    """Change a channel's `salt`, `settings` or `deleted_at`."""
    change.session.execute(update(t.Channel).where(t.Channel.name == name).values(values))


def channel(session: Session, name: str) -> artifacts.Channel | None:
    """The channel with this name, unless it is deleted."""
    row = session.get(t.Channel, name)
    return _channel(session, row) if row and row.deleted_at is None else None


def channels(session: Session) -> tuple[artifacts.Channel, ...]:
    """All channels that are not deleted, by name."""
    rows = session.scalars(select(t.Channel).where(t.Channel.deleted_at.is_(None)).order_by(t.Channel.name))
    return tuple(_channel(session, row) for row in rows)


def _channel(session: Session, row: t.Channel) -> artifacts.Channel:
    sequence = last_sequence(session, row.name)
    return artifacts.Channel(row.name, row.salt, sequence, row.settings, _arms(session, row.name, sequence) or NOTHING)


def _arms(session: Session, channel: str, sequence: int) -> tuple[Arm, ...]:
    query = select(t.Arm).where(t.Arm.channel == channel, t.Arm.sequence == sequence).order_by(t.Arm.position)
    return tuple(Arm(arm.release, arm.share_bp, arm.state, bool(arm.holdout)) for arm in session.scalars(query))


def last_sequence(session: Session, channel: str) -> int:
    """The sequence of a channel's newest manifest; 0 before the first."""
    return session.scalar(select(func.max(t.Manifest.sequence)).where(t.Manifest.channel == channel)) or 0


def insert_manifest(change: Change, new: Manifest, file: Descriptor, log_head: Digest) -> None:
    """Record a manifest with its arms: from the commit on, this is the channel's state."""
    values = {
        "channel": new.channel,
        "sequence": new.sequence,
        "digest": file.digest,
        "issued": new.issued,
        "expires": new.expires,
        "log_head": log_head,
    }
    change.session.execute(insert(t.Manifest).values(values))
    where = {"channel": new.channel, "sequence": new.sequence}
    change.session.execute(insert(t.Arm), [{**where, **_arm(position, arm)} for position, arm in enumerate(new.arms)])


def _arm(position: int, arm: Arm) -> dict[str, Any]:
    return {
        "position": position,
        "release": arm.release,
        "share_bp": arm.share_bp,
        "state": arm.state,
        "holdout": int(arm.holdout),
    }


def manifest(session: Session, channel: str, sequence: int) -> Descriptor | None:
    """The manifest that a channel had at a sequence."""
    query = select(t.Blob.digest, t.Blob.size).join(t.Manifest, t.Manifest.digest == t.Blob.digest)
    row = session.execute(query.where(t.Manifest.channel == channel, t.Manifest.sequence == sequence)).first()
    return Descriptor(row.digest, row.size) if row else None


def manifest_at(session: Session, channel: str, at: int) -> Descriptor | None:
    """The newest manifest that was issued at or before a time in Unix seconds, of a deleted channel too."""
    query = select(t.Blob.digest, t.Blob.size).join(t.Manifest, t.Manifest.digest == t.Blob.digest)
    here = (t.Manifest.channel == channel) & (t.Manifest.issued <= at)
    row = session.execute(query.where(here).order_by(t.Manifest.sequence.desc()).limit(1)).first()
    return Descriptor(row.digest, row.size) if row else None


def before_release(session: Session, channel: str, release: int) -> tuple[Arm, ...]:
    """The arms that a channel had just before it first offered a release; none when that was its first manifest."""
    offered = (t.Arm.channel == channel) & (t.Arm.release == release)
    first = session.scalar(select(func.min(t.Arm.sequence)).where(offered))
    earlier = (t.Manifest.channel == channel) & (t.Manifest.sequence < first)
    sequence = session.scalar(select(func.max(t.Manifest.sequence)).where(earlier)) if first else None
    return _arms(session, channel, sequence) if sequence else ()


def lifetime(session: Session, channel: str, sequence: int) -> tuple[int, int]:
    """When a manifest was issued and when it expires, in Unix seconds."""
    query = select(t.Manifest.issued, t.Manifest.expires)
    row = session.execute(query.where(t.Manifest.channel == channel, t.Manifest.sequence == sequence)).one()
    return row.issued, row.expires


def manifests(session: Session) -> tuple[Issued, ...]:
    """Every manifest that was ever issued, by channel and sequence."""
    query = select(t.Manifest, t.Blob.size).join(t.Blob, t.Blob.digest == t.Manifest.digest)
    rows = session.execute(query.order_by(t.Manifest.channel, t.Manifest.sequence))
    return tuple(
        Issued(row.channel, row.sequence, Descriptor(row.digest, size), _arms(session, row.channel, row.sequence))
        for row, size in rows
    )


def unexpired(session: Session, now: float) -> tuple[tuple[Digest, ...], tuple[Digest, ...]]:
    """The newest manifest of each channel, and all others that a device may still hold, of deleted channels too."""
    newest = {channel.name: channel.sequence for channel in channels(session)}
    query = select(t.Manifest).order_by(t.Manifest.channel, t.Manifest.sequence)
    current, earlier = [], []
    for row in session.scalars(query.where((t.Manifest.expires >= int(now)) | t.Manifest.channel.in_(list(newest)))):
        if newest.get(row.channel) == row.sequence:
            current.append(row.digest)
        elif row.expires >= int(now):
            earlier.append(row.digest)
    return tuple(current), tuple(earlier)


def revoked(session: Session, channel: str, beside: Sequence[int] = ()) -> tuple[Digest, ...]:
    """The revoked builds that a device of this channel may hold: of any release it ever offered, and of `beside`."""
    offered = select(t.Arm.release).where(t.Arm.channel == channel, t.Arm.release.is_not(None))
    reached = t.LineEntry.release.in_(offered) | t.LineEntry.release.in_(list(beside))
    query = select(t.Build.digest).join(t.LineEntry, t.LineEntry.build == t.Build.id)
    rows = session.scalars(query.where(t.Build.revoked.is_not(None), reached).distinct().order_by(t.Build.digest))
    return tuple(rows)


def reaching(session: Session, build: artifacts.Build) -> tuple[str, ...]:
    """The channels, not deleted ones, that ever offered a release with this build."""
    query = (
        select(t.Arm.channel)
        .join(t.LineEntry, t.LineEntry.release == t.Arm.release)
        .join(t.Channel, t.Channel.name == t.Arm.channel)
        .where(t.LineEntry.build == adapters.build_id(session, build), t.Channel.deleted_at.is_(None))
    )
    return tuple(session.scalars(query.distinct().order_by(t.Arm.channel)))
