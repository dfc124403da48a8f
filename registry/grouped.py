"""Many blobs at once: written one by one, made durable together.

    with store.group() as group:
        files = [group.put_bytes(program) for program in programs]   # written, seen by nobody
        group.settle()                                               # whole and visible, or the error

A single put waits for the disk twice. A group syncs its files side by side, so that the file system commits them
together, and then the directory once. Until `settle` returns nothing may be recorded; a crash before it leaves
unfinished files, a crash in it at worst orphans.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from registry import files
from registry.digest import Descriptor, Digest

_SYNCS = 8  # at a time: a journal commits them together


class Group(Protocol):
    """Puts that belong together; a context manager that clears up what was not settled. Threads may share one."""

    def put_bytes(self, data: bytes, /) -> Descriptor:
        """Keep these bytes from `settle` on. Raises Unavailable."""
        ...

    def put_file(self, path: Path, /) -> Descriptor:
        """Keep a file's bytes from `settle` on, hashed while they are copied. Raises InputError, Unavailable."""
        ...

    def settle(self) -> None:
        """Make everything that was put durable, then visible. Raises Unavailable."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class OneByOne:
    """A group of a store that has nothing to gain from grouping: every put is whole when it returns."""

    def __init__(self, put_bytes: Callable[[bytes], Descriptor], put_file: Callable[[Path], Descriptor]) -> None:
        self.put_bytes = put_bytes
        self.put_file = put_file

    def settle(self) -> None:
        """Nothing is left to do."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left to clear up."""


class Together:
    """A group of a directory: `ingest` takes unfinished files, `blobs` the finished ones under their digests."""

    def __init__(self, ingest: Path, blobs: Path) -> None:
        self._ingest = ingest
        self._blobs = blobs
        self._lock = threading.Lock()
        self._fresh: dict[Digest, tuple[Path, int]] = {}
        self._unwanted: list[Path] = []

    def put_bytes(self, data: bytes) -> Descriptor:
        """Write these bytes, unless they are in the store or in the group already."""
        blob = Descriptor.of(data)
        if not self._is_there(blob):
            with files.translated(self._ingest):
                path, file = files.create(self._ingest)
                self._unwanted.append(path)
                with file:
                    files.write(path, file, data)
            self._keep(blob, path)
        return blob

    def put_file(self, path: Path) -> Descriptor:
        """Copy a file; that it was there already is known only when it has been read."""
        from registry.blobs import hash_source, open_source  # noqa: PLC0415 - blobs makes groups

        with open_source(path) as source, files.translated(self._ingest):
            fresh, file = files.create(self._ingest)
            self._unwanted.append(fresh)
            with file:
                blob = hash_source(source, None, lambda chunk: files.write(fresh, file, chunk))
        if not self._is_there(blob):
            self._keep(blob, fresh)
        return blob

    def _is_there(self, blob: Descriptor) -> bool:
        if blob.digest in self._fresh:
            return True
        path = self._blobs / blob.digest.hex
        try:
            there = path.stat().st_size == blob.size
            if there:
                files.touch(path)
        except FileNotFoundError:
            return False
        return there

    def _keep(self, blob: Descriptor, path: Path) -> None:
        with self._lock:
            self._fresh.setdefault(blob.digest, (path, blob.size))

    def settle(self) -> None:
        """Sync the files side by side, name them, sync the directory that holds the names."""
        with files.translated(self._blobs):
            with ThreadPoolExecutor(_SYNCS) as pool:
                list(pool.map(_finish, [path for path, _ in self._fresh.values()]))
            for digest, (path, size) in self._fresh.items():
                at = self._blobs / digest.hex
                if not files.link(path, at) and at.stat().st_size != size:
                    files.rename(path, at)  # a damaged blob: bytes that have this digest are the only right ones
            # Also for what was there before: its name may be as young as these.
            files.sync(self._blobs)
        self._clear()

    def _clear(self) -> None:
        """Take the unfinished names away; what stays behind is a stale file, and hides no error."""
        for path in self._unwanted:
            with suppress(OSError):
                files.unlink(path)
        self._unwanted.clear()
        self._fresh.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()


def _finish(path: Path) -> None:
    files.protect(path)
    files.sync(path)
    files.forget(path)
