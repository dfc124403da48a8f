"""Blobs: what the store keeps, as the database knows it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, FromClause, Table, exists, func, insert, or_, select, text, update
from sqlalchemy.orm import Session

from registry import tables as t
from registry.blobs import BlobStore
from registry.catalog.log import Change
from registry.digest import Descriptor, Digest
from registry.errors import BlobMissing, IntegrityError

_PARAMETERS = 500  # well below what any database takes in one statement


def require(change: Change, store: BlobStore, blobs: Iterable[Descriptor]) -> None:
    """Record blobs that are about to be referred to; each is in the store, or BlobMissing is raised.

    The look into the store happens under the write lock, which the collector holds while it deletes: what was seen
    here cannot go before the reference to it is committed. Condemned blobs are taken back.
    """
    wanted = {blob.digest: blob for blob in blobs}
    stored = store.sizes(wanted)
    for blob in wanted.values():
        _check(blob, stored[blob.digest])
    known = sizes(change.session, wanted)
    missing = [{"digest": blob.digest, "size": blob.size} for blob in wanted.values() if blob.digest not in known]
    if missing:
        change.session.execute(insert(t.Blob), missing)
    for some in _slices(known):
        condemned = t.Blob.digest.in_(some) & t.Blob.condemned_at.is_not(None)
        change.session.execute(update(t.Blob).where(condemned).values(condemned_at=None))


def _check(blob: Descriptor, actual: int | None) -> None:
    if actual is None:
        raise BlobMissing(
            f"the store holds no blob {blob.digest}",
            hint="repeat the command: it puts the blob first",
            **blob.to_json(),
        )
    if actual != blob.size:
        raise IntegrityError(
            f"blob {blob.digest} has {actual} bytes in the store, not {blob.size}",
            hint="`ptdock verify` names what depends on it",
            expected=blob.size,
            actual=actual,
        )


class _Recorded(dict[Digest, Descriptor]):
    """Descriptors by digest. Every reference has its blob's row: one that is not there is damage, and no KeyError."""

    def __missing__(self, digest: Digest) -> Descriptor:
        raise IntegrityError(f"blob {digest} is referred to, but not recorded", hint="see `ptdock verify`")


def sizes(session: Session, digests: Collection[Digest]) -> dict[Digest, Descriptor]:
    """The descriptors of those blobs that are recorded; asking for another one raises IntegrityError."""
    found = _Recorded()
    for some in _slices(digests):
        rows = session.execute(select(t.Blob.digest, t.Blob.size).where(t.Blob.digest.in_(some)))
        found.update((row.digest, Descriptor(row.digest, row.size)) for row in rows)
    return found


def recorded(session: Session) -> Iterator[Descriptor]:
    """Every blob that the database knows, in the order of digests."""
    rows = session.execute(select(t.Blob.digest, t.Blob.size).order_by(t.Blob.digest))
    return (Descriptor(row.digest, row.size) for row in rows)


def users(session: Session, digest: Digest) -> tuple[str, ...]:
    """What refers to a blob: every row of every table that has it in a column, as `table: key`, sorted."""
    found: set[str] = set()
    for table in t.Table.metadata.sorted_tables:
        columns = [key.parent for key in table.foreign_keys if key.column is t.Blob.__table__.c.digest]
        if columns:
            rows = session.execute(select(*_label(table)).where(or_(*(column == digest for column in columns))))
            found.update(f"{table.name}: {' '.join(str(value) for value in row)}" for row in rows)
    return tuple(sorted(found))


def _label(table: FromClause) -> Sequence[ColumnElement[Any]]:
    """The columns that say which row it is: adapter and version where it has them, else its key."""
    named = [table.c[name] for name in ("adapter", "version") if name in table.c]
    return named if len(named) == 2 else list(table.primary_key)


def faults(session: Session) -> list[str]:
    """What is wrong with the database itself: damaged pages, which PostgreSQL names when it reads one, broken links."""
    if session.get_bind().dialect.name != "sqlite":
        return [fault for table in t.Table.metadata.sorted_tables for fault in _broken_links(session, table)]
    pages = [row[0] for row in session.execute(text("PRAGMA quick_check")) if row[0] != "ok"]
    links = [
        f"a row of {row[0]} refers to a missing row of {row[2]}"
        for row in session.execute(text("PRAGMA foreign_key_check"))
    ]
    return pages + links


def _broken_links(session: Session, table: Table) -> Iterator[str]:
    """What foreign keys would refuse; who owns a PostgreSQL can switch them off."""
    for constraint in table.foreign_key_constraints:
        target = constraint.referred_table.alias()
        pairs = [(key.parent, target.c[key.column.name]) for key in constraint.elements]
        there = exists().where(*(column == aim for column, aim in pairs))
        query = select(func.count()).where(*(column.is_not(None) for column, _ in pairs), ~there)
        if count := session.scalar(query.select_from(table)):
            yield f"{count} rows of {table.name} refer to a missing row of {constraint.referred_table.name}"


def _slices(digests: Collection[Digest]) -> Iterator[list[Digest]]:
    ordered = sorted(digests)
    return (ordered[start : start + _PARAMETERS] for start in range(0, len(ordered), _PARAMETERS))
