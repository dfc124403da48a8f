"""Local copies of blobs that are kept elsewhere, for code that maps them or hands a path on.

A copy was hashed while it came, is read-only, and appears whole or not at all. The least recently used ones go when the
directory grows over its limit; who has one open or mapped keeps it until it is closed.
"""

from __future__ import annotations

import hashlib
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from registry import files
from registry.blobs import check_stored
from registry.digest import Digest

LIMIT = 32 << 30
"""The most bytes that copies take, but for those that were used within the last hour."""

_IN_USE_SECONDS = 3600


class Cache:
    """Copies in `<root>/<64 hex digits>`, unfinished ones in `<root>/ingest`."""

    def __init__(self, root: Path, limit: int = LIMIT) -> None:
        self.root = root
        self._ingest = root / "ingest"
        self._limit = limit

    def get(self, digest: Digest) -> Path | None:
        """A blob's copy, marked as used now; None when there is none."""
        path = self._at(digest)
        try:
            files.touch(path)
        except FileNotFoundError:
            return None
        return path

    def fetch(self, digest: Digest, chunks: Callable[[], Iterator[bytes]]) -> Path:
        """A blob's copy, made of `chunks` when there is none. Raises IntegrityError when these are other bytes."""
        path = self.get(digest)
        if path is not None:
            return path
        with files.translated(self.root):
            files.make_directory(self._ingest)
            with files.unfinished(self._ingest) as (fresh, file):
                hasher = hashlib.sha256()
                for chunk in chunks():
                    hasher.update(chunk)
                    files.write(fresh, file, chunk)
                check_stored(digest, Digest(hasher.digest()))
                self._keep(fresh, digest)
        return self._at(digest)

    def adopt(self, path: Path, digest: Digest) -> None:
        """Make a file whose bytes have this digest the copy; it may be on another file system, then nothing happens."""
        with files.translated(self.root):
            files.make_directory(self._ingest)
            if path.stat().st_dev == self._ingest.stat().st_dev:
                self._keep(path, digest)

    def forget(self, digest: Digest) -> None:
        """Remove a blob's copy, if there is one."""
        files.unlink(self._at(digest))

    def stale(self, before: float) -> list[Path]:
        """Unfinished files that nobody has written to since `before` (Unix time in seconds)."""
        if not self._ingest.is_dir():
            return []
        return sorted(path for path in self._ingest.iterdir() if path.stat().st_mtime < before)

    def _keep(self, path: Path, digest: Digest) -> None:
        files.protect(path)
        files.sync(path)  # or a power cut could leave the name with other bytes
        files.rename(path, self._at(digest))
        self._shrink()

    def _shrink(self) -> None:
        copies = sorted(self._copies())
        total = sum(size for _, size, _ in copies)
        for used, size, path in copies:
            if total <= self._limit or used > time.time() - _IN_USE_SECONDS:
                return
            files.unlink(path)
            total -= size

    def _copies(self) -> Iterator[tuple[float, int, Path]]:
        """When each copy was last used (Unix time in seconds), its size in bytes, and where it is."""
        for path in self.root.iterdir():
            with suppress(FileNotFoundError):  # another process shrinks the cache too
                found = path.stat()
                if stat.S_ISREG(found.st_mode):
                    yield found.st_mtime, found.st_size, path

    def _at(self, digest: Digest) -> Path:
        return self.root / digest.hex
