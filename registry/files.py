"""The one module through which the registry changes the disk: write, fsync, link, rename, unlink.

Each step is announced before it happens, so that a test can record the steps, refuse one ("disk full") or kill the
process at it, and then look at what a crash leaves. While nobody listens, a step costs one comparison.

    with observed(steps.append):
        replace(home / "site" / "v1" / "stable.json", document)

A file is written under a fresh name, synced, and only then linked or renamed to where readers look; the directory is
synced after that, because on POSIX a new name survives a power cut only then.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from registry.errors import Unavailable

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}


@dataclass(frozen=True, slots=True)
class Step:
    """One step that is about to happen: `target` is a link's or rename's new name, `data` what is written."""

    operation: str
    path: Path
    target: Path | None = None
    data: bytes = field(default=b"", repr=False)


Observer = Callable[[Step], None]
_observer: Observer | None = None


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Announce every step of this process to `observer`; what it raises comes out of the step instead of it."""
    global _observer  # noqa: PLW0603 - the disk is one, so is who watches it
    before, _observer = _observer, observer
    try:
        yield
    finally:
        _observer = before


def announce(operation: str, path: Path, target: Path | None = None, data: bytes = b"") -> None:
    """Tell the observer about a step; for other modules' own steps too, such as a database's commit."""
    if _observer is not None:
        _observer(Step(operation, path, target, data))


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn the system's refusals (disk full, no permission) at `path` into Unavailable with a hint."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise Unavailable(
                f"no space left for {path}", hint="free some space, then repeat the command", path=str(path)
            ) from error
        if error.errno in _DENIED:
            raise Unavailable(
                f"cannot write {path}: {error.strerror}", hint="check the owner and the mount", path=str(path)
            ) from error
        raise


def create(directory: Path) -> tuple[Path, BinaryIO]:
    """A fresh empty file in `directory`, open for writing; nobody else knows its name."""
    path = directory / secrets.token_hex(16)
    announce("create", path)
    return path, open(path, "xb", buffering=0)


def write(path: Path, file: BinaryIO, data: bytes) -> None:
    """Append `data` to the file that `create` answered, all of it."""
    announce("write", path, data=data)
    view = memoryview(data)
    while view:  # an unbuffered write may take a part only
        view = view[file.write(view) :]


def sync(path: Path) -> None:
    """Make a file's bytes, or a directory's names, survive a power cut."""
    announce("sync", path)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync alone leaves the bytes in the drive's cache
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        else:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def forget(path: Path) -> None:
    """Let the system's cache drop a synced file that nobody is about to read; where that cannot be said, nothing."""
    if hasattr(os, "posix_fadvise"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def protect(path: Path) -> None:
    """Make a file read-only (0444): content that a digest names never changes."""
    announce("protect", path)
    path.chmod(0o444)


def link(path: Path, target: Path) -> bool:
    """Give a file a second name unless something has it already; answers whether it did. Atomic."""
    announce("link", path, target)
    try:
        os.link(path, target)
    except FileExistsError:
        return False
    return True


def rename(path: Path, target: Path) -> None:
    """Move a file over whatever has the name `target`. Atomic."""
    announce("rename", path, target)
    path.replace(target)


def unlink(path: Path) -> None:
    """Remove a name; one that is gone already is fine."""
    announce("unlink", path)
    path.unlink(missing_ok=True)


def touch(path: Path) -> None:
    """Mark a file as used now, which restarts its grace before collection."""
    announce("touch", path)
    os.utime(path)


def make_directory(path: Path) -> None:
    """Make a directory and its parents, durably; one that exists is fine."""
    if path.is_dir():
        return
    make_directory(path.parent)
    announce("mkdir", path)
    path.mkdir(exist_ok=True)
    sync(path.parent)


@contextmanager
def unfinished(directory: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """A fresh file as `create` answers it, whose first name is gone afterwards, whatever happened."""
    path, file = create(directory)
    try:
        with file:
            yield path, file
    finally:
        # Clearing up must not hide the error that led here; what stays behind is a stale temporary file.
        with suppress(OSError):
            unlink(path)


def replace(path: Path, data: bytes) -> None:
    """Write a small file so that readers see the old bytes or the new ones, never a part. Raises Unavailable."""
    with translated(path):
        make_directory(path.parent)
        with unfinished(path.parent) as (fresh, file):
            write(fresh, file, data)
            protect(fresh)
            sync(fresh)
            rename(fresh, path)
        sync(path.parent)


@contextmanager
def locked(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold an exclusive lock on the file at `path`; `waiting` is called once when another process holds it.

    The system drops the lock when the process ends, however it ends.
    """
    with translated(path):
        file = open(path, "ab")  # noqa: SIM115 - closed below, outside of the translation
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting:
                waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
