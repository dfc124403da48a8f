"""The store against the rows: every recorded blob is there, whole, and the bytes that its name says."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from heapq import merge
from itertools import groupby
from types import TracebackType
from typing import Self

from registry.catalog import foundations
from registry.catalog.edges import rows
from registry.collecting import STALE_SECONDS
from registry.digest import Descriptor, Digest
from registry.errors import DAMAGE
from registry.links import verify_foundation
from registry.verification.inspection import Inspection

Progress = Callable[[int], None]
Faults = list[tuple[Digest, str]]  # blobs, and what is wrong with their bytes
_AHEAD = 8  # batches per processor that wait to be hashed
_BATCH = 64  # as many blobs at most are one batch,
_BATCH_BYTES = 1 << 20  # and as many bytes, unless a blob alone has more


def check_store(inspection: Inspection, progress: Progress) -> None:
    """Compare what is recorded with what is there, both in the order of digests, and hash it unless `fast`."""
    orphans, orphan_bytes = 0, 0
    streams = (
        ((row.blob.digest, 0, row.blob) for row in rows(inspection.session)),
        ((file.digest, 1, file) for file in inspection.store.descriptors()),
    )
    with Hashing(inspection, progress) as hashing:
        for _, group in groupby(merge(*streams, key=lambda each: each[:2]), key=lambda each: each[0]):
            found = {stream: blob for _, stream, blob in group}
            if 0 not in found:
                orphans, orphan_bytes = orphans + 1, orphan_bytes + found[1].size
            elif _there(inspection, found[0], found.get(1)) and not inspection.fast:
                hashing.add(found[0])
    _note_leftovers(inspection, orphans, orphan_bytes)


def _there(inspection: Inspection, row: Descriptor, file: Descriptor | None) -> bool:
    inspection.blobs += 1
    inspection.size += row.size
    if file is None:
        inspection.blob_found(row.digest, "the blob is missing from the store")
    elif file.size != row.size:
        inspection.blob_found(row.digest, f"has {file.size} bytes, recorded are {row.size}")
    return inspection.sound(row)


class Hashing:
    """Hashes blobs on all processors, a bounded number at a time; hashing runs outside of Python's lock.

    Small ones go to a processor together: handing one over costs as much as hashing 100 kB.
    """

    def __init__(self, inspection: Inspection, progress: Progress) -> None:
        self._inspection = inspection
        self._progress = progress
        self._lock = threading.Lock()
        self._workers = os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._workers)
        self._batch: list[Digest] = []
        self._size = 0
        self._waiting: deque[Future[Faults]] = deque()

    def __enter__(self) -> Self:
        return self

    def add(self, blob: Descriptor) -> None:
        """Hash a blob soon; what is found of those before it is noted meanwhile."""
        self._batch.append(blob.digest)
        self._size += blob.size
        if self._size >= _BATCH_BYTES or len(self._batch) == _BATCH:
            self._submit()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._submit()
        while self._waiting and error is None:
            self._note()
        self._pool.shutdown(cancel_futures=True)

    def _submit(self) -> None:
        self._waiting.append(self._pool.submit(self._faults, self._batch))
        self._batch, self._size = [], 0
        while len(self._waiting) > _AHEAD * self._workers:
            self._note()

    def _note(self) -> None:
        for digest, message in self._waiting.popleft().result():
            self._inspection.blob_found(digest, _which_tensors(self._inspection, digest) or message)

    def _faults(self, digests: list[Digest]) -> Faults:
        found = ((digest, self._fault(digest)) for digest in digests)
        return [(digest, message) for digest, message in found if message]

    def _fault(self, digest: Digest) -> str | None:
        """What is wrong with a blob's bytes."""
        try:
            actual = Digest.of_chunks(self._inspection.store.chunks(digest), self._tell)
        except DAMAGE as error:
            return error.message
        except OSError as error:  # the disk itself refuses to read
            return f"cannot be read: {error.strerror}"
        return None if actual == digest else f"its bytes have the digest {actual}"

    def _tell(self, size: int) -> None:
        with self._lock:
            self._progress(size)


def _which_tensors(inspection: Inspection, digest: Digest) -> str | None:
    """Of a damaged foundation, which tensors are damaged."""
    table = foundations.foundation(inspection.session, digest)
    try:
        if table is not None:
            verify_foundation(inspection.store.path(digest), table)
    except DAMAGE as error:
        return error.message
    return None


def _note_leftovers(inspection: Inspection, orphans: int, size: int) -> None:
    """What interrupted commands left behind: harmless, and the collector's business."""
    if orphans:
        inspection.notes.append(f"{orphans} blobs ({size} bytes) that nothing refers to")
    stale = inspection.store.stale(time.time() - STALE_SECONDS)
    if stale:
        inspection.notes.append(f"{len(stale)} unfinished files older than a day in {stale[0].parent}")
