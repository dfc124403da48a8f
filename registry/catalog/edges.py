"""What refers to a blob: every row of every table that has one in a column, and the releases that reach it.

The tables are not listed here: whatever has a foreign key to `blobs` keeps what it names, so a table of tomorrow is
never forgotten. Edges come in the order of their blobs, straight from the database's sorter, so that a walk over all of
them takes the same memory however many there are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    FromClause,
    Select,
    Table,
    Text,
    cast,
    func,
    literal,
    null,
    select,
    type_coerce,
    union_all,
)
from sqlalchemy.orm import Session

from registry import tables as t
from registry.digest import Descriptor, Digest

Query = Select[*tuple[Any, ...]]

_ROWS = 1000  # fetched at a time
_PARAMETERS = 300  # digests in one statement, each of which stands in it a dozen times


@dataclass(frozen=True, slots=True)
class Edge:
    """One reference to a blob: `kind` is `table.column`, `owner` says which row, `release` which one reaches it."""

    blob: Digest
    kind: str
    owner: str
    release: int | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A blob as it is recorded; `condemned_at` since when the collector means to delete it."""

    blob: Descriptor
    condemned_at: str | None


def rows(session: Session) -> Iterator[Row]:
    """Every recorded blob, in the order of digests."""
    query = select(t.Blob.digest, t.Blob.size, t.Blob.condemned_at).order_by(t.Blob.digest)
    for row in session.execute(query.execution_options(yield_per=_ROWS)):
        yield Row(Descriptor(row.digest, row.size), row.condemned_at)


def edges(session: Session) -> Iterator[Edge]:
    """Every reference to every blob, in the order of the blobs' digests."""
    found = union_all(*_references(), *_releases()).subquery()
    query = select(found).order_by(found.c.blob)
    return _read(session, query.execution_options(yield_per=_ROWS))


def edges_of(session: Session, digests: Collection[Digest]) -> Iterator[Edge]:
    """Every reference to these blobs, in the order of digests, the owners of each sorted."""
    ordered = sorted(digests)
    for start in range(0, len(ordered), _PARAMETERS):
        some = ordered[start : start + _PARAMETERS]
        narrowed = [query.where(query.selected_columns.blob.in_(some)) for query in (*_references(), *_releases())]
        found = union_all(*narrowed).subquery()
        yield from _read(session, select(found).order_by(found.c.blob, found.c.kind, found.c.owner, found.c.release))


def referred(session: Session, digests: Collection[Digest]) -> set[Digest]:
    """Those of these blobs to which anything refers."""
    return {edge.blob for edge in edges_of(session, digests)}


def _read(session: Session, query: Query) -> Iterator[Edge]:
    return (Edge(row.blob, row.kind, row.owner, row.release) for row in session.execute(query))


def _references() -> Iterator[Query]:
    """One query for each column that refers to a blob."""
    for table in t.Table.metadata.sorted_tables:
        for key in sorted(table.foreign_keys, key=lambda key: key.parent.name):
            if key.column is t.Blob.__table__.c.digest:
                owner, beside = _owner(table)
                chosen = select(
                    type_coerce(key.parent, t.DigestText).label("blob"),
                    literal(f"{table.name}.{key.parent.name}").label("kind"),
                    owner.label("owner"),
                    cast(null(), t.Bytes).label("release"),
                )
                yield chosen.select_from(beside).where(key.parent.is_not(None))


def _owner(table: Table) -> tuple[ColumnElement[str], FromClause]:
    """The text that says which row it is, and the table joined with what that takes."""
    builds, versions = t.Build.__table__, t.Version.__table__
    if "build" in table.c and "role" in table.c:
        owner = _version(builds) + literal(" ") + table.c.role
        return owner, table.join(builds, builds.c.id == table.c.build)
    if "build" in table.c:
        return _version(builds), table.join(builds, builds.c.id == table.c.build)
    if table.name in {"sources", "source_files"}:
        source = table.c["source" if "source" in table.c else "digest"]
        first = select(func.min(_version(versions))).where(versions.c.source == source).scalar_subquery()
        return func.coalesce(first, _text(source)), table
    if {"adapter", "version"} <= set(table.c.keys()):
        return _version(table), table
    for name in {"release", "foundation"} & set(table.c.keys()):
        return _text(table.c[name]), table
    keys = [_text(column) for column in table.primary_key]
    owner = keys[0]
    for key in keys[1:]:
        owner = owner + literal(" ") + key
    return owner, table


def _version(table: FromClause) -> ColumnElement[str]:
    return type_coerce(table.c.adapter, Text) + literal("@") + type_coerce(table.c.version, Text)


def _text(column: ColumnElement[Any]) -> ColumnElement[str]:
    return cast(column, Text) if not isinstance(column.type, t.DigestText) else type_coerce(column, Text)


def _releases() -> Iterable[Query]:
    """One query for each way in which a release reaches a blob: foundations, programs, parts of builds."""
    entries, builds, parts = t.LineEntry.__table__, t.Build.__table__, t.BuildPart.__table__
    lines = t.Line.__table__
    built = entries.join(builds, builds.c.id == entries.c.build)
    ways = (
        (lines.c.foundation, _text(lines.c.foundation), lines.c.release, lines),
        (builds.c.digest, _version(builds), entries.c.release, built),
        (parts.c.blob, _version(builds), entries.c.release, built.join(parts, parts.c.build == builds.c.id)),
    )
    for blob, owner, release, beside in ways:
        yield select(
            type_coerce(blob, t.DigestText).label("blob"),
            literal("release").label("kind"),
            owner.label("owner"),
            cast(release, t.Bytes).label("release"),
        ).select_from(beside)
