"""`ptdock gc`: what nothing keeps is condemned, and deleted when it has been so for a day.

A blob goes in two steps, each in a transaction that holds the write lock and looks again whether anything keeps it.
Condemning writes down when; whoever records a reference to a condemned blob takes it back (registry.catalog.content).
Deleting removes the row, then the file, then commits: the database refuses to remove a row that is referred to, a
publisher that records waits for the lock, and a crash leaves at worst a condemned row without a file, which is
neither damage nor lost. What a publisher has put, but not yet recorded, is loose too: the grace is its time.

No event pins `condemned_at`, for a falsified one can do no harm: each step looks at the references again, so it moves
only when a loose blob goes. A publisher that loses one so is told to put it again, and does (publishing.insisting).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from registry import files
from registry.blobs import BlobStore
from registry.catalog import edges, sweep
from registry.catalog.log import Change
from registry.digest import Descriptor

GRACE_SECONDS = 24 * 3600
STALE_SECONDS = 24 * 3600  # an unfinished file that nobody has written to for so long is nobody's
BATCH = 64  # blobs in one transaction: others wait for it


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection did: blobs condemned now, deleted, taken back because something keeps them again.

    `waiting` were condemned before and are not due yet; `unfinished` are the files and directories of interrupted
    commands that were removed.
    """

    kept: int
    kept_bytes: int
    condemned: tuple[Descriptor, ...]
    waiting: tuple[Descriptor, ...]
    deleted: tuple[Descriptor, ...]
    taken_back: tuple[Descriptor, ...]
    unfinished: tuple[Path, ...]


def condemn(change: Change, some: Sequence[Descriptor]) -> list[Descriptor]:
    """Condemn those of some blobs to which nothing refers; answers those that were not condemned before."""
    loose = _loose(change, some)
    condemned = sweep.condemn(change, loose)
    _record(change, "store.condemn", condemned)
    return condemned


def delete(change: Change, store: BlobStore, some: Sequence[Descriptor], *, grace: float) -> list[Descriptor]:
    """Delete those of some blobs that have been condemned for `grace` seconds and to which nothing refers."""
    due = sweep.due(change, _loose(change, some), before=change.now - grace)
    sweep.forget(change, due)
    _record(change, "store.delete", due)
    for blob in due:
        store.delete(blob.digest)
    return due


def take_back(change: Change, some: Sequence[Descriptor]) -> list[Descriptor]:
    """Take the sentence from condemned blobs that something keeps."""
    sweep.take_back(change, some)
    _record(change, "store.keep", some)
    return list(some)


def in_batches(
    some: Iterable[Descriptor], step: Callable[[Sequence[Descriptor]], list[Descriptor]]
) -> tuple[Descriptor, ...]:
    """Do a step for some blobs, so many at a time; answers what it answered."""
    left = iter(some)
    return tuple(blob for batch in iter(lambda: tuple(islice(left, BATCH)), ()) for blob in step(batch))


def unfinished(home: Path, store: BlobStore) -> list[Path]:
    """What commands that were interrupted a day ago and earlier left in a home: files and work directories."""
    before = time.time() - STALE_SECONDS
    named = (path for pattern in ("export-*", "work-*") for path in home.glob(pattern))
    work = (path for path in named if path.is_dir() and path.stat().st_mtime < before)
    return [*store.stale(before), *sorted(work)]


def remove_unfinished(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Remove them; what has gone in between is fine."""
    removed = []
    for path in paths:
        with suppress(FileNotFoundError):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                files.unlink(path)
            removed.append(path)
    return tuple(removed)


def _loose(change: Change, some: Sequence[Descriptor]) -> list[Descriptor]:
    referred = edges.referred(change.session, [blob.digest for blob in some])
    return [blob for blob in some if blob.digest not in referred]


def _record(change: Change, action: str, some: Sequence[Descriptor]) -> None:
    if some:
        size = sum(blob.size for blob in some)
        digests = [str(blob.digest) for blob in some]
        change.record(action, f"{len(some)} blobs", after={"size": size, "blobs": digests})
