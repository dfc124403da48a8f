"""The device's directory: blobs by digest, unfinished downloads, and one pointer that says what is active.

    state.json             the pointer: replaced by one rename, so a set is active as a whole or not at all
    blobs/sha256/<hex>     complete files, checked against their digest, read-only
    partial/<hex>          downloads that are not complete; never loaded
    checked.json           which blobs were checked in which state of the file (a cache; may be lost)
    used.json              when each program was last loaded (may be lost too)
    trust/                 the root of trust and the newest signed metadata that were seen (python-tuf's own files)
    lock                   held by whoever changes anything

Blobs are never written in place: a loaded foundation is mapped into the process that runs it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from registry import files
from registry.device_state import DeviceState
from registry.digest import Digest
from registry.errors import FormatError, InputError, IntegrityError, NotFound

_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
_TEMPORARY = re.compile(r"[0-9a-f]{32}", re.ASCII)  # as registry.files names them


class DeviceStore:
    """One device directory. Reading needs no lock; every change happens under `locked`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.blobs = root / "blobs" / "sha256"
        self.partials = root / "partial"
        self.pointer = root / "state.json"
        self.trust = root / "trust"

    @classmethod
    def create(cls, root: Path) -> DeviceStore:
        """Open `root`, made with its folders where they are missing.

        Raises InputError for a file, Unavailable when it cannot be written.
        """
        store = cls(root)
        if root.exists() and not root.is_dir():
            raise InputError(f"{root} is a file", hint="give a directory for the device's files")
        with files.translated(root):
            files.make_directory(store.blobs)
            files.make_directory(store.partials)
        return store

    def locked(self, note: Callable[[str], None]) -> AbstractContextManager[None]:
        """Hold the directory's lock; `note` hears when another process has to finish first."""
        return files.locked(self.root / "lock", lambda: note(f"another process is changing {self.root}: waiting"))

    def path(self, digest: Digest) -> Path:
        """Where the blob of this digest stands, or would."""
        return self.blobs / digest.hex

    def partial(self, digest: Digest) -> Path:
        """Where this blob's unfinished download stands, or would."""
        return self.partials / digest.hex

    def held(self) -> dict[Digest, int]:
        """The blobs that stand here and their sizes in bytes; nothing is said of their content."""
        return _sizes(self.blobs)

    def unfinished(self) -> dict[Digest, int]:
        """The downloads that are not complete and how many bytes of each are here."""
        return _sizes(self.partials)

    def put(self, digest: Digest, data: bytes) -> None:
        """Make bytes that were checked stand under their digest, by one durable rename. Raises Unavailable."""
        files.replace(self.path(digest), data)

    def remove(self, digest: Digest) -> None:
        """Delete a blob and its unfinished download, where there are any."""
        with files.translated(self.root):
            files.unlink(self.path(digest))
        self.remove_partial(digest)

    def remove_partial(self, digest: Digest) -> None:
        """Delete a blob's unfinished download, where there is one."""
        with files.translated(self.root):
            files.unlink(self.partial(digest))

    def leftovers(self, before: float) -> list[Path]:
        """Temporary files of writes that a crash cut short, last touched before that time (seconds since 1970)."""
        entries = self.root.iterdir() if self.root.is_dir() else ()
        return [each for each in entries if _TEMPORARY.fullmatch(each.name) and each.stat().st_mtime < before]

    def read_state(self) -> DeviceState | None:
        """What the pointer says; None before the first sync. Raises IntegrityError if it is damaged."""
        try:
            data = self.pointer.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            return DeviceState.from_bytes(data)
        except FormatError as error:
            raise IntegrityError(
                f"{self.pointer} is damaged: {error.message}",
                hint="delete that one file and sync again: the downloaded files are checked and kept",
            ) from error

    def known_state(self) -> DeviceState:
        """What the pointer says. Raises NotFound for a directory that was never synced, IntegrityError like above."""
        state = self.read_state()
        if state is None:
            raise NotFound(
                f"{self.root} is not a device directory", hint="ptdock device sync CHANNEL --dir DIR makes one"
            )
        return state

    def write_state(self, state: DeviceState) -> None:
        """Make `state` the device's state, by one durable rename. Raises Unavailable."""
        files.replace(self.pointer, state.to_bytes())


def _sizes(folder: Path) -> dict[Digest, int]:
    found: dict[Digest, int] = {}
    for entry in folder.iterdir() if folder.is_dir() else ():
        if _HEX.fullmatch(entry.name):
            found[Digest(bytes.fromhex(entry.name))] = entry.stat().st_size
    return found
