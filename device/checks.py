"""Is the file on this disk still the one that its digest names? Asked before a file is loaded or counted as held.

Hashing a foundation of half a gigabyte takes a moment, so a file that was found sound is not read again while its
inode, size, modification and change time stay what they were. That trusts the file system to notice a write; bits
that rot beneath it are found by hashing again (`again=True`, `status --verify`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from device.store import DeviceStore
from registry import files
from registry.digest import Descriptor, Digest
from registry.errors import IntegrityError

Stamp = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong with a blob: `actual` is None where the file is missing or its size alone convicts it."""

    expected: Descriptor
    size: int | None
    actual: Digest | None

    def __str__(self) -> str:
        if self.size is None:
            return f"{self.expected.digest.short} is missing"
        if self.actual is None:
            kind = "truncated" if self.size < self.expected.size else "too long"
            return f"{self.expected.digest.short} is {kind}: {self.size} bytes instead of {self.expected.size}"
        return f"{self.expected.digest.short} is damaged: its bytes have the digest {self.actual.short}"

    def error(self, what: str) -> IntegrityError:
        """The error that names this damage of `what` (`the foundation`, `adapter pirate`)."""
        return IntegrityError(
            f"{what}: {self}",
            hint="sync again: damaged files are fetched anew",
            expected=self.expected.to_json(),
            actual={"digest": str(self.actual) if self.actual else None, "size": self.size},
        )


class Checks:
    """The checks of one device directory, remembered in `checked.json`; losing that file costs time only."""

    def __init__(self, store: DeviceStore) -> None:
        self._store = store
        self._path = store.root / "checked.json"
        self._stamps = _read(self._path)
        self._changed = False

    def damage(self, blob: Descriptor, *, again: bool = False) -> Damage | None:
        """None if the blob is here and sound, else what is wrong with it. `again` hashes it in any case."""
        path = self._store.path(blob.digest)
        with files.translated(path):
            stamp = _stamp(path)
            if stamp is None:
                return self._forget(Damage(blob, None, None))
            if stamp[1] != blob.size:
                return self._forget(Damage(blob, stamp[1], None))
            if self._stamps.get(blob.digest.hex) == stamp and not again:
                return None
            actual = Digest.of_file(path)
        if actual != blob.digest:
            return self._forget(Damage(blob, stamp[1], actual))
        self._remember(blob.digest, stamp)
        return None

    def vouch(self, digest: Digest) -> None:
        """Remember a file that was hashed while it was written."""
        stamp = _stamp(self._store.path(digest))
        if stamp is not None:
            self._remember(digest, stamp)

    def save(self) -> None:
        """Keep what was learnt for the next process."""
        if self._changed:
            files.replace(self._path, json.dumps(self._stamps).encode())
            self._changed = False

    def _remember(self, digest: Digest, stamp: Stamp) -> None:
        if self._stamps.get(digest.hex) != stamp:
            self._stamps[digest.hex] = stamp
            self._changed = True

    def _forget(self, damage: Damage) -> Damage:
        self._changed |= self._stamps.pop(damage.expected.digest.hex, None) is not None
        return damage


def _stamp(path: Path) -> Stamp | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _read(path: Path) -> dict[str, Stamp]:
    try:
        table = json.loads(path.read_bytes())
        return {hex_: (int(a), int(b), int(c), int(d)) for hex_, (a, b, c, d) in table.items()}
    except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return {}
