"""Rows as they stand, one after another: what verification and archives walk through, however many there are."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session, aliased

from registry import tables as t
from registry.artifacts import Source
from registry.digest import Descriptor, Digest
from registry.manifest import Arm

_ROWS = 1000  # fetched at a time


@dataclass(frozen=True, slots=True)
class Program:
    """A build as a row: whose program it is, and its files."""

    ref: str
    file: Descriptor
    factors: Descriptor


@dataclass(frozen=True, slots=True)
class Issued:
    """A manifest as a row, with its arms."""

    channel: str
    sequence: int
    file: Descriptor
    issued: int
    expires: int
    log_head: Digest
    newest: bool
    arms: tuple[Arm, ...]


def programs(session: Session, template: int) -> Iterator[Program]:
    """The builds through the template in this row, oldest first."""
    file, factors = aliased(t.Blob), aliased(t.Blob)
    query = (
        select(
            *(t.Build.adapter, t.Build.version, t.Build.digest, t.Build.factors),
            file.size.label("size"),
            factors.size.label("factors_size"),
        )
        .join(file, file.digest == t.Build.digest)
        .join(factors, factors.digest == t.Build.factors)
        .where(t.Build.template == template)
        .order_by(t.Build.id)
    )
    for row in session.execute(query.execution_options(yield_per=_ROWS)):
        ref = f"{row.adapter}@{row.version}"
        yield Program(ref, Descriptor(row.digest, row.size), Descriptor(row.factors, row.factors_size))


def documents(session: Session) -> Iterator[tuple[str, Digest, Any]]:
    """Every document that is a row under its own digest: what it is, the digest, the value."""
    for what, table in (("recipe", t.Recipe), ("structure", t.Structure)):
        for row in session.execute(select(table.digest, table.document).execution_options(yield_per=_ROWS)):
            yield what, row.digest, row.document


def bases(session: Session) -> Iterator[tuple[Digest, Digest]]:
    """Every base's fingerprint, and its tensor table's digest."""
    for row in session.execute(select(t.Base.fingerprint, t.Base.tensors)):
        yield row.fingerprint, row.tensors


def sources(session: Session) -> Iterator[tuple[Digest, Source]]:
    """Every source's digest and its files as the rows list them."""
    query = (
        select(t.Source.digest.label("source"), t.SourceFile.name, t.Blob.digest, t.Blob.size)
        .outerjoin(t.SourceFile, t.SourceFile.source == t.Source.digest)
        .outerjoin(t.Blob, t.Blob.digest == t.SourceFile.blob)
        .order_by(t.Source.digest, t.SourceFile.name)
    )
    rows = session.execute(query.execution_options(yield_per=_ROWS))
    for digest, files in groupby(rows, key=lambda row: row.source):
        there = (file for file in files if file.digest is not None)
        yield digest, Source({file.name: Descriptor(file.digest, file.size) for file in there}, {})


def versions(session: Session) -> Iterator[tuple[str, str]]:
    """Every version's adapter and number."""
    for row in session.execute(select(t.Version.adapter, t.Version.version).execution_options(yield_per=_ROWS)):
        yield row.adapter, row.version


def self_tests(session: Session) -> Iterator[tuple[str, Digest | None, Digest | None]]:
    """For each build whose self-test is not its newest proof's: the build, the self-test, and the proof's.

    Either may have none; a build without a proof has no self-test.
    """
    newest = select(t.Proof.build, func.max(t.Proof.id).label("id")).group_by(t.Proof.build).subquery()
    query = (
        select(t.Build.adapter, t.Build.version, t.BuildPart.blob, t.Proof.self_test)
        .join(newest, newest.c.id == t.Proof.id)
        .join(t.Build, t.Build.id == t.Proof.build)
        .outerjoin(t.BuildPart, (t.BuildPart.build == t.Build.id) & (t.BuildPart.role == "self_test"))
        .where(t.BuildPart.blob.is_distinct_from(t.Proof.self_test))
    )
    for row in session.execute(query.execution_options(yield_per=_ROWS)):
        yield f"{row.adapter}@{row.version}", row.blob, row.self_test
    unproven = ~select(t.Proof.id).where(t.Proof.build == t.Build.id).exists() & (t.BuildPart.role == "self_test")
    lone = select(t.Build.adapter, t.Build.version, t.BuildPart.blob).join(t.Build, t.Build.id == t.BuildPart.build)
    for part in session.execute(lone.where(unproven)):
        yield f"{part.adapter}@{part.version}", part.blob, None


def manifests(session: Session) -> Iterator[Issued]:
    """Every manifest that was ever issued, by channel and sequence."""
    last = select(t.Manifest.channel, func.max(t.Manifest.sequence).label("sequence")).group_by(t.Manifest.channel)
    newest = last.subquery()
    query = (
        select(t.Manifest, t.Blob.size, newest.c.sequence.label("newest"))
        .join(t.Blob, t.Blob.digest == t.Manifest.digest)
        .join(newest, newest.c.channel == t.Manifest.channel)
        .order_by(t.Manifest.channel, t.Manifest.sequence)
    )
    for row, size, top in session.execute(query.execution_options(yield_per=_ROWS)):
        here = (t.Arm.channel == row.channel) & (t.Arm.sequence == row.sequence)
        arms = session.scalars(select(t.Arm).where(here).order_by(t.Arm.position)).all()
        yield Issued(
            channel=row.channel,
            sequence=row.sequence,
            file=Descriptor(row.digest, size),
            issued=row.issued,
            expires=row.expires,
            log_head=row.log_head,
            newest=row.sequence == top,
            arms=tuple(Arm(arm.release, arm.share_bp, arm.state, bool(arm.holdout)) for arm in arms),
        )


def issued_at(session: Session, heads: Collection[Digest]) -> set[tuple[str, Digest]]:
    """The channels of the manifests that name these events as the log's head."""
    query = select(t.Manifest.channel, t.Manifest.log_head).where(t.Manifest.log_head.in_(heads))
    return {(row.channel, row.log_head) for row in session.execute(query)}


def release_files(session: Session, number: int) -> set[Digest]:
    """What is kept for a release beside its builds."""
    return set(session.scalars(select(t.ReleaseFile.blob).where(t.ReleaseFile.release == number)))
