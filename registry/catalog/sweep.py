"""Condemning and forgetting blobs; `registry.collecting` says when, under the write lock."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, insert, select, update

from registry import tables as t
from registry.catalog import content
from registry.catalog.log import Change, stamp
from registry.digest import Descriptor


def condemn(change: Change, blobs: Sequence[Descriptor]) -> list[Descriptor]:
    """Condemn blobs, files without a row too; answers those that were not condemned before."""
    digests = [blob.digest for blob in blobs]
    known = content.sizes(change.session, digests)
    fresh = (t.Blob.digest.in_(digests)) & t.Blob.condemned_at.is_(None)
    free = set(change.session.scalars(select(t.Blob.digest).where(fresh)))
    change.session.execute(update(t.Blob).where(fresh).values(condemned_at=change.at))
    new = [blob for blob in blobs if blob.digest not in known]
    if new:
        values = [{"digest": blob.digest, "size": blob.size, "condemned_at": change.at} for blob in new]
        change.session.execute(insert(t.Blob), values)
    return [blob for blob in blobs if blob.digest in free or blob.digest not in known]


def due(change: Change, blobs: Sequence[Descriptor], *, before: float) -> list[Descriptor]:
    """Those of these blobs that were condemned at `before` (Unix time in seconds) or earlier."""
    sentenced = t.Blob.digest.in_([blob.digest for blob in blobs]) & (t.Blob.condemned_at <= stamp(before))
    found = set(change.session.scalars(select(t.Blob.digest).where(sentenced)))
    return [blob for blob in blobs if blob.digest in found]


def forget(change: Change, blobs: Sequence[Descriptor]) -> None:
    """Remove the rows of blobs; the database refuses while anything refers to one."""
    change.session.execute(delete(t.Blob).where(t.Blob.digest.in_([blob.digest for blob in blobs])))


def take_back(change: Change, blobs: Sequence[Descriptor]) -> None:
    """Condemn these blobs no longer."""
    here = t.Blob.digest.in_([blob.digest for blob in blobs])
    change.session.execute(update(t.Blob).where(here).values(condemned_at=None))
