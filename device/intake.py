"""Bring one blob from a source into the device's directory, so that only the right bytes ever become visible.

The bytes are hashed while they are written to `partial/`, never more of them than the pinned size. A download that
breaks off goes on where it stopped; its digest decides at the end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from device.checks import Checks
from device.source import Source
from device.store import DeviceStore
from registry import files
from registry.digest import CHUNK, Descriptor, Digest
from registry.errors import IntegrityError
from registry.site import blob_path


class Intake:
    """Takes blobs from `source` into `store`; `progress` hears how many bytes more are in (fewer after a new start)."""

    def __init__(
        self, store: DeviceStore, source: Source, checks: Checks, progress: Callable[[int], None] = lambda _: None
    ) -> None:
        self._store = store
        self._source = source
        self._checks = checks
        self._progress = progress

    def take(self, blob: Descriptor) -> None:
        """Make the blob stand in the store, sound; one that already does is left alone, a damaged one replaced.

        Raises NotFound and Unavailable from the source, Unavailable for a full disk, and IntegrityError for other
        bytes than pinned: those are deleted and never were visible.
        """
        if self._checks.damage(blob) is None:
            self._progress(blob.size)
            return
        partial = self._store.partial(blob.digest)
        with files.translated(partial):
            resumed = _resumable(partial, blob.size)
            try:
                self._download(partial, blob)
            except IntegrityError:
                if not resumed:
                    raise
                # The earlier attempt's piece may be at fault (a power cut leaves zeros): once more, from the start.
                self._download(partial, blob)

    def _download(self, partial: Path, blob: Descriptor) -> None:
        try:
            with open(partial, "a+b", buffering=0) as file:
                self._fill(partial, file, blob)
            files.protect(partial)
            files.sync(partial)
            files.rename(partial, self._store.path(blob.digest))
            files.sync(self._store.blobs)
        except (IntegrityError, OSError):
            # Wrong bytes go; and a full disk wants its room back more than the next attempt wants a head start.
            files.unlink(partial)
            raise
        self._checks.vouch(blob.digest)

    def _fill(self, partial: Path, file: BinaryIO, blob: Descriptor) -> None:
        """Hash what is there, append what is missing. Raises IntegrityError unless the whole is `blob`."""
        hasher, size = hashlib.sha256(), 0
        file.seek(0)
        while chunk := file.read(CHUNK):
            hasher.update(chunk)
            size += len(chunk)
        self._progress(size)
        for chunk in self._source.stream(blob_path(blob.digest), size, blob.size):
            files.write(partial, file, chunk)
            hasher.update(chunk)
            size += len(chunk)
            self._progress(len(chunk))
        actual = Descriptor(Digest(hasher.digest()), size)
        if actual != blob:
            self._progress(-size)
            raise _other_bytes(self._source, blob, actual)


def _resumable(partial: Path, limit: int) -> bool:
    """Whether an unfinished download is here to go on with; one that is longer than the whole is none."""
    if not partial.exists():
        return False
    partial.chmod(0o644)  # a crash just before the rename leaves it read-only
    size = partial.stat().st_size
    if size > limit:
        files.unlink(partial)
    return 0 < size <= limit


def _other_bytes(source: Source, blob: Descriptor, actual: Descriptor) -> IntegrityError:
    if actual.size < blob.size:
        message = f"{source} holds only {actual.size} of the {blob.size} bytes of {blob.digest.short}"
    else:
        message = f"{source} answered other bytes for {blob.digest.short}: their digest is {actual.digest.short}"
    return IntegrityError(
        message,
        hint="nothing of it was kept; the source is damaged: publish it again, or sync from another",
        expected=blob.to_json(),
        actual=actual.to_json(),
        reason="digest",
    )
