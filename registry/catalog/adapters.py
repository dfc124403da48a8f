"""Adapters: their versions, the sources these were trained as, and their builds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Select, delete, insert, select, update
from sqlalchemy.orm import Session, aliased

from registry import artifacts, names
from registry import tables as t
from registry.catalog.log import Change
from registry.digest import Descriptor, Digest

_BATCH = 500  # row ids in one statement: far below what either database takes


def batched(rows: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """The rows in runs of at most `size`."""
    return (rows[at : at + size] for at in range(0, len(rows), size))


def adapters(session: Session) -> tuple[str, ...]:
    """The names of all adapters, sorted."""
    return tuple(session.scalars(select(t.Adapter.name).order_by(t.Adapter.name)))


def versions(session: Session, adapter: str) -> tuple[artifacts.Version, ...]:
    """An adapter's versions, lowest first by SemVer's precedence."""
    rows = session.scalars(select(t.Version).where(t.Version.adapter == adapter))
    return tuple(sorted((_version(row) for row in rows), key=lambda found: names.check_version(found.version)))


def version(session: Session, adapter: str, number: str) -> artifacts.Version | None:
    """One version, when it is recorded."""
    row = session.get(t.Version, (adapter, number))
    return _version(row) if row else None


def _version(row: t.Version) -> artifacts.Version:
    return artifacts.Version(row.adapter, row.version, row.source, row.lineage, row.created, row.yanked)


def source(session: Session, of: artifacts.Version) -> artifacts.Source:
    """The source files and attachments of a version."""
    files = select(t.SourceFile.name, t.Blob.digest, t.Blob.size).join(t.Blob, t.Blob.digest == t.SourceFile.blob)
    beside = select(t.Attachment.name, t.Blob.digest, t.Blob.size).join(t.Blob, t.Blob.digest == t.Attachment.blob)
    here = (t.Attachment.adapter == of.adapter) & (t.Attachment.version == of.version)
    return artifacts.Source(
        files=_files(session, files.where(t.SourceFile.source == of.source).order_by(t.SourceFile.name)),
        attachments=_files(session, beside.where(here).order_by(t.Attachment.name)),
    )


def _files(session: Session, query: Select[str, Digest, int]) -> dict[str, Descriptor]:
    return {row.name: Descriptor(row.digest, row.size) for row in session.execute(query)}


def insert_version(change: Change, new: artifacts.Version, source: artifacts.Source) -> None:
    """Record a version that is not recorded yet, with its source and its adapter's name where they are new."""
    session = change.session
    if session.get(t.Adapter, new.adapter) is None:
        session.execute(insert(t.Adapter).values(name=new.adapter, created=change.at))
    if session.get(t.Source, new.source) is None:
        session.execute(insert(t.Source).values(digest=new.source))
        files = [{"source": new.source, "name": name, "blob": file.digest} for name, file in source.files.items()]
        session.execute(insert(t.SourceFile), files)
    values = {
        "adapter": new.adapter,
        "version": new.version,
        "source": new.source,
        "lineage": new.lineage,
        "created": new.created,
    }
    session.execute(insert(t.Version).values(values))
    beside = [
        {"adapter": new.adapter, "version": new.version, "name": name, "blob": file.digest}
        for name, file in source.attachments.items()
    ]
    if beside:
        session.execute(insert(t.Attachment), beside)


def set_yanked(change: Change, of: artifacts.Version, reason: str | None) -> None:
    """Yank a version for a reason, or undo it with None."""
    here = (t.Version.adapter == of.adapter) & (t.Version.version == of.version)
    values = {"yanked": reason, "yanked_at": change.at if reason is not None else None}
    change.session.execute(update(t.Version).where(here).values(values))


def builds(
    session: Session, adapter: str, number: str, foundation: Digest | None = None
) -> tuple[artifacts.Build, ...]:
    """A version's builds, on one foundation or on all, oldest first."""
    query = _select_builds().where(t.Build.adapter == adapter, t.Build.version == number).order_by(t.Build.id)
    if foundation is not None:
        query = query.where(t.Build.foundation == foundation)
    return _builds(session, query)


def builds_on(session: Session, foundation: Digest) -> tuple[artifacts.Build, ...]:
    """All builds on a foundation, oldest first."""
    return _builds(session, _select_builds().where(t.Build.foundation == foundation).order_by(t.Build.id))


def builds_with(session: Session, blob: Digest) -> tuple[artifacts.Build, ...]:
    """The builds whose program, factors or part a blob is, oldest first."""
    part = select(t.BuildPart.build).where(t.BuildPart.blob == blob)
    here = (t.Build.digest == blob) | (t.Build.factors == blob) | t.Build.id.in_(part)
    return _builds(session, _select_builds().where(here).order_by(t.Build.id))


def revoked_program(session: Session, program: Digest) -> tuple[str, str] | None:
    """The oldest revoked build of this program, as `NAME@VERSION`, and why; None where it was never revoked."""
    here = (t.Build.digest == program) & t.Build.revoked.is_not(None)
    query = select(t.Build.adapter, t.Build.version, t.Build.revoked).where(here).order_by(t.Build.id).limit(1)
    row = session.execute(query).first()
    return (f"{row.adapter}@{row.version}", str(row.revoked)) if row else None


def builds_through(session: Session, hollow: Digest, table: Digest) -> tuple[artifacts.Build, ...]:
    """The builds through the templates that have this hollow program and this relocation table, oldest first."""
    here = (t.Template.hollow == hollow) & (t.Template.relocations == table)
    return _builds(session, _select_builds().where(here).order_by(t.Build.id))


def versions_with(session: Session, blob: Digest) -> tuple[artifacts.Version, ...]:
    """The versions whose source list, source file or attachment a blob is, oldest first."""
    file = select(t.SourceFile.source).where(t.SourceFile.blob == blob)
    beside = t.Attachment.blob == blob
    here = (t.Version.source == blob) | t.Version.source.in_(file)
    same = (t.Attachment.adapter == t.Version.adapter) & (t.Attachment.version == t.Version.version)
    rows = session.scalars(select(t.Version).where(here | select(t.Attachment).where(same, beside).exists()))
    return tuple(sorted((_version(row) for row in rows), key=lambda found: (found.created, found.adapter)))


def builds_of_line(session: Session, release: int, foundation: Digest) -> dict[str, artifacts.Build]:
    """The builds of one line of a release, by adapter name."""
    query = _select_builds().join(t.LineEntry, t.LineEntry.build == t.Build.id)
    here = (t.LineEntry.release == release) & (t.LineEntry.foundation == foundation)
    return {build.adapter: build for build in _builds(session, query.where(here).order_by(t.Build.adapter))}


def find_build(session: Session, wanted: artifacts.Build) -> int | None:
    """The row of a build, when it is recorded."""
    same = (t.Build.adapter == wanted.adapter) & (t.Build.version == wanted.version)
    same &= (t.Build.digest == wanted.file.digest) & (t.Build.foundation == wanted.foundation)
    return session.scalar(select(t.Build.id).where(same).order_by(t.Build.id.desc()).limit(1))


def build_id(session: Session, of: artifacts.Build) -> int:
    """The row of a recorded build."""
    same = (t.Build.adapter == of.adapter) & (t.Build.version == of.version) & (t.Build.digest == of.file.digest)
    query = select(t.Build.id).where(same, t.Build.foundation == of.foundation).order_by(t.Build.id.desc())
    return session.scalars(query).one()


def through_template(session: Session, adapter: str, number: str, template: int) -> artifacts.Build | None:
    """The build of a version through the template in this row."""
    here = (t.Build.adapter == adapter) & (t.Build.version == number) & (t.Build.template == template)
    found = _builds(session, _select_builds().where(here))
    return found[0] if found else None


def insert_build(change: Change, new: artifacts.Build, template: int) -> None:
    """Record a build of a recorded version through the template in this row."""
    values = {
        "adapter": new.adapter,
        "version": new.version,
        "foundation": new.foundation,
        "template": template,
        "digest": new.file.digest,
        "factors": new.factors.digest,
        "warnings": list(new.warnings),
        "created": change.at,
    }
    row = change.session.execute(insert(t.Build).values(values).returning(t.Build.id)).scalar_one()
    parts = [{"build": row, "role": role, "blob": part.digest} for role, part in new.parts.items()]
    if parts:
        change.session.execute(insert(t.BuildPart), parts)


def insert_proof(change: Change, build: int, document: Digest, self_test: Digest | None) -> None:
    """Record a proof of the build in this row; devices replay its self-test from now on, and no other one."""
    values = {"build": build, "document": document, "self_test": self_test, "created": change.at}
    change.session.execute(insert(t.Proof).values(values))
    before = (t.BuildPart.build == build) & (t.BuildPart.role == "self_test")
    change.session.execute(delete(t.BuildPart).where(before))
    if self_test is not None:
        change.session.execute(insert(t.BuildPart).values(build=build, role="self_test", blob=self_test))


def proofs(session: Session, build: int) -> tuple[artifacts.Proof, ...]:
    """The proofs of the build in this row, oldest first."""
    document, test = aliased(t.Blob), aliased(t.Blob)
    query = (
        select(t.Proof, document.size.label("size"), test.size.label("test_size"))
        .join(document, document.digest == t.Proof.document)
        .outerjoin(test, test.digest == t.Proof.self_test)
    )
    return tuple(
        artifacts.Proof(
            Descriptor(row.document, size), Descriptor(row.self_test, test_size) if row.self_test else None, row.created
        )
        for row, size, test_size in session.execute(query.where(t.Proof.build == build).order_by(t.Proof.id))
    )


def set_revoked(change: Change, revoked: Iterable[artifacts.Build], reason: str) -> None:
    """Revoke builds for a reason; those that are revoked already keep theirs."""
    for build in revoked:
        row = (t.Build.id == build_id(change.session, build)) & t.Build.revoked.is_(None)
        change.session.execute(update(t.Build).where(row).values(revoked=reason, revoked_at=change.at))


def _select_builds() -> Select[t.Build, int, int, Digest]:
    file, factors = aliased(t.Blob), aliased(t.Blob)
    return (
        select(
            t.Build, file.size.label("size"), factors.size.label("factors_size"), t.Template.digest.label("template")
        )
        .join(file, file.digest == t.Build.digest)
        .join(factors, factors.digest == t.Build.factors)
        .join(t.Template, t.Template.id == t.Build.template)
    )


def _builds(session: Session, query: Select[t.Build, int, int, Digest]) -> tuple[artifacts.Build, ...]:
    rows = session.execute(query).all()
    parts = _parts(session, [row.Build.id for row in rows])
    return tuple(_build(row.Build, row._mapping, parts.get(row.Build.id, {})) for row in rows)  # noqa: SLF001 - public


def _parts(session: Session, builds: Sequence[int]) -> dict[int, dict[str, Descriptor]]:
    """The parts of these builds, by row and role."""
    found: dict[int, dict[str, Descriptor]] = {}
    query = select(t.BuildPart.build, t.BuildPart.role, t.Blob.digest, t.Blob.size).join(
        t.Blob, t.Blob.digest == t.BuildPart.blob
    )
    for some in batched(builds, _BATCH):
        for row in session.execute(query.where(t.BuildPart.build.in_(some)).order_by(t.BuildPart.role)):
            found.setdefault(row.build, {})[row.role] = Descriptor(row.digest, row.size)
    return found


def _build(row: t.Build, beside: Mapping[Any, Any], parts: Mapping[str, Descriptor]) -> artifacts.Build:
    return artifacts.Build(
        adapter=row.adapter,
        version=row.version,
        foundation=row.foundation,
        template=beside["template"],
        file=Descriptor(row.digest, beside["size"]),
        factors=Descriptor(row.factors, beside["factors_size"]),
        warnings=tuple(row.warnings),
        revoked=row.revoked,
        parts=parts,
    )
