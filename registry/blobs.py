"""The blob store: immutable bytes, found by their digest.

`BlobStore` is what the registry asks of any store; `LocalStore` is a directory in OCI image layout (`oci-layout`,
`blobs/sha256/<hex>`; https://github.com/opencontainers/image-spec/blob/v1.1.0/image-layout.md), so that OCI tools can
read it as it stands. A blob appears whole or not at all: it is written in `ingest/` while it is hashed, synced, and
then linked to its name, which fails harmlessly when another process was first.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Protocol

from registry import files
from registry.digest import CHUNK, Descriptor, Digest
from registry.errors import InputError, IntegrityError, NotFound
from registry.grouped import Group, Together

_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
_NAMES = 1 << 16  # of files, held in memory at a time
_LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'

Progress = Callable[[int], None]


class BlobStore(Protocol):
    """Where blobs are. A store on a network keeps the same promises: put if absent, whole or not at all, durable."""

    remote: bool
    """Whether asking for a blob is a request, and its path a copy that has to be fetched."""

    def put_bytes(self, data: bytes) -> Descriptor:
        """Keep these bytes. Raises Unavailable when there is no space; then nothing is visible."""
        ...

    def put_file(
        self, path: Path, *, expected: Digest | None = None, move: bool = False, progress: Progress | None = None
    ) -> Descriptor:
        """Keep a file's bytes; `move` gives the file itself away. `progress` gets each chunk's length in bytes.

        Raises IntegrityError when the bytes are not `expected`, InputError when there is no such file, Unavailable.
        """
        ...

    def group(self) -> Group:
        """Puts that become durable together; see registry.grouped."""
        ...

    def size(self, digest: Digest) -> int | None:
        """The stored size in bytes; None when the blob is absent."""
        ...

    def sizes(self, digests: Collection[Digest]) -> Mapping[Digest, int | None]:
        """The stored sizes of several blobs, all asked for at once."""
        ...

    def path(self, digest: Digest) -> Path:
        """A read-only local file with the blob's bytes, to be read or mapped. Raises NotFound."""
        ...

    def chunks(self, digest: Digest, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """A blob's bytes from `start` to before `stop`, as the store has them now, in pieces. Raises NotFound."""
        ...

    def url(self, digest: Digest, seconds: int) -> str | None:
        """An address from which anyone may fetch the blob for so long; None where the store has none."""
        ...

    def read(self, digest: Digest) -> bytes:
        """A small blob's bytes, hashed again. Raises NotFound, IntegrityError."""
        ...

    def descriptors(self) -> Iterator[Descriptor]:
        """Every blob with its stored size, in the order of digests."""
        ...

    def delete(self, digest: Digest) -> None:
        """Forget a blob; one that is absent is fine. Only the collector and repair call it."""
        ...

    def stale(self, before: float) -> list[Path]:
        """Unfinished files that nobody has written to since `before` (Unix time in seconds): a crash left them."""
        ...


class LocalStore:
    """A blob store in a directory: `<root>/blobs/sha256/<hex>`, unfinished files in `<root>/ingest`."""

    remote = False

    def __init__(self, root: Path) -> None:
        self.root = root
        self._blobs = root / "blobs" / "sha256"
        self._ingest = root / "ingest"

    @classmethod
    def create(cls, root: Path) -> LocalStore:
        """Make the store's directories where they are missing. Raises Unavailable."""
        store = cls(root)
        with files.translated(root):
            files.make_directory(store._blobs)
            files.make_directory(store._ingest)
        if not (root / "oci-layout").exists():
            files.replace(root / "oci-layout", _LAYOUT)
        return store

    @classmethod
    def open(cls, root: Path) -> LocalStore:
        """The store in a directory. Raises NotFound when blobs were never kept there."""
        store = cls(root)
        if not store._blobs.is_dir():
            raise NotFound(
                f"{root} holds no blobs", hint="set PTDOCK_BLOBS as when the store was made, or run `ptdock init`"
            )
        with files.translated(root):
            files.make_directory(store._ingest)  # a backup need not have it
        return store

    def put_bytes(self, data: bytes) -> Descriptor:
        """Keep these bytes; a blob that is there already is not written again."""
        descriptor = Descriptor.of(data)
        with files.translated(self.root):
            if self._known(descriptor):
                return descriptor
            with files.unfinished(self._ingest) as (fresh, file):
                files.write(fresh, file, data)
                self._adopt(fresh, descriptor)
        return descriptor

    def put_file(
        self, path: Path, *, expected: Digest | None = None, move: bool = False, progress: Progress | None = None
    ) -> Descriptor:
        """Keep a file's bytes, hashed while they are copied; `move` links the file itself and removes its old name."""
        with open_source(path) as source, files.translated(self.root):
            if move and os.fstat(source.fileno()).st_dev == self._ingest.stat().st_dev:
                descriptor = self._take(path, source, expected, progress)
            else:
                descriptor = self._copy(path, source, expected, progress)
            if move:
                files.unlink(path)
        return descriptor

    def group(self) -> Group:
        """Puts whose files are synced side by side, and the directory once."""
        return Together(self._ingest, self._blobs)

    def _copy(self, path: Path, source: BinaryIO, expected: Digest | None, progress: Progress | None) -> Descriptor:
        with files.unfinished(self._ingest) as (fresh, file):
            descriptor = hash_source(source, progress, lambda chunk: files.write(fresh, file, chunk))
            check_expected(path, descriptor, expected)
            self._adopt(fresh, descriptor)
        return descriptor

    def _take(self, path: Path, source: BinaryIO, expected: Digest | None, progress: Progress | None) -> Descriptor:
        descriptor = hash_source(source, progress)
        check_expected(path, descriptor, expected)
        self._adopt(path, descriptor)
        return descriptor

    def _known(self, blob: Descriptor) -> bool:
        """Whether the blob is there, whole; then its grace starts again and its name is made durable."""
        path = self._at(blob.digest)
        try:
            if path.stat().st_size != blob.size:
                return False
            files.touch(path)
        except FileNotFoundError:  # absent, or collected in between
            return False
        # Another process may have linked it an instant ago and not have synced the directory yet.
        files.sync(self._blobs)
        return True

    def _adopt(self, fresh: Path, blob: Descriptor) -> None:
        """Make a written file visible as the blob, unless the blob is there already."""
        if self._known(blob):
            return
        files.protect(fresh)
        files.sync(fresh)
        path = self._at(blob.digest)
        if not files.link(fresh, path) and path.stat().st_size != blob.size:
            files.rename(fresh, path)  # a damaged blob: bytes that have this digest are the only right ones
        files.sync(self._blobs)

    def size(self, digest: Digest) -> int | None:
        """The stored size in bytes; None when the blob is absent."""
        try:
            return self._at(digest).stat().st_size
        except FileNotFoundError:
            return None

    def sizes(self, digests: Collection[Digest]) -> Mapping[Digest, int | None]:
        """The stored sizes of several blobs."""
        return {digest: self.size(digest) for digest in digests}

    def path(self, digest: Digest) -> Path:
        """The blob's own file, mode 0444. Raises NotFound."""
        path = self._at(digest)
        if not path.is_file():
            raise NotFound(f"the store holds no blob {digest}", hint="see `ptdock verify`", digest=str(digest))
        return path

    def chunks(self, digest: Digest, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """The file's bytes from `start` to before `stop`, at most 1 MiB at a time. Raises NotFound."""
        with open(self.path(digest), "rb") as file:
            left = max(0, os.fstat(file.fileno()).st_size - start) if stop is None else stop - start
            file.seek(start)
            while left > 0 and (chunk := file.read(min(CHUNK, left))):
                left -= len(chunk)
                yield chunk

    def url(self, digest: Digest, seconds: int) -> str | None:  # noqa: ARG002 - see BlobStore
        """A directory has no address."""
        return None

    def read(self, digest: Digest) -> bytes:
        """A small blob's bytes, hashed again. Raises NotFound, IntegrityError."""
        data = self.path(digest).read_bytes()
        check_stored(digest, Digest.of(data))
        return data

    def descriptors(self) -> Iterator[Descriptor]:
        """Every blob with its stored size, in the order of digests; other files in the directory are passed over."""
        for name in _ordered(self._blobs):
            if _HEX.fullmatch(name):
                with suppress(FileNotFoundError):  # collected in between
                    size = os.stat(f"{self._blobs}/{name}").st_size  # noqa: PTH116 - a Path takes thrice the time
                    yield Descriptor(Digest(bytes.fromhex(name)), size)

    def delete(self, digest: Digest) -> None:
        """Forget a blob, durably; one that is absent is fine."""
        files.unlink(self._at(digest))
        files.sync(self._blobs)

    def stale(self, before: float) -> list[Path]:
        """Unfinished files that nobody has written to since `before` (Unix time in seconds): a crash left them."""
        return sorted(path for path in self._ingest.iterdir() if _written(path) < before)

    def _at(self, digest: Digest) -> Path:
        return self._blobs / digest.hex


def _ordered(directory: Path) -> Iterator[str]:
    """The names in a directory in their order, a slice of the space of digests at a time: memory is bounded."""
    slices = sum(1 for _ in os.scandir(directory)) // _NAMES + 1
    bounds = [f"{0x10000 * number // slices:04x}" for number in range(1, slices)]
    for low, high in pairwise(("", *bounds, "g")):
        yield from sorted(entry.name for entry in os.scandir(directory) if low <= entry.name < high)


def _written(path: Path) -> float:
    """When a file was last written to; one that has gone in between is as good as new."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return math.inf


def check_stored(expected: Digest, actual: Digest) -> None:
    """Raise IntegrityError when a blob's bytes are not what its name says."""
    if actual != expected:
        raise IntegrityError(
            f"blob {expected} is damaged: its bytes have the digest {actual}",
            hint="`ptdock verify` names what depends on it",
            expected=str(expected),
            actual=str(actual),
        )


def open_source(path: Path) -> BinaryIO:
    """Open a file that somebody wants to have kept. Raises InputError when there is no readable one."""
    try:
        return open(path, "rb")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError) as error:
        raise InputError(
            f"{path} is not a readable file", hint="check the path and its owner", path=str(path)
        ) from error


def hash_source(source: BinaryIO, progress: Progress | None, sink: Callable[[bytes], None] | None = None) -> Descriptor:
    """Read a file to its end in chunks of 1 MiB, hash it and hand each chunk to `sink`."""
    hasher, size = hashlib.sha256(), 0
    while chunk := source.read(CHUNK):
        hasher.update(chunk)
        size += len(chunk)
        if sink:
            sink(chunk)
        if progress:
            progress(len(chunk))
    return Descriptor(Digest(hasher.digest()), size)


def check_expected(path: Path, actual: Descriptor, expected: Digest | None) -> None:
    """Raise IntegrityError when a file has another digest than the one that it was said to have."""
    if expected is not None and actual.digest != expected:
        raise IntegrityError(
            f"{path} is not {expected}: its bytes have the digest {actual.digest}",
            hint="fetch or write the file again",
            expected=str(expected),
            actual=str(actual.digest),
        )
