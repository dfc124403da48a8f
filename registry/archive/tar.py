"""The file of an archive: a tar (POSIX.1-1988 headers, GNU's for sizes above 8 GiB) of an OCI image layout.

Nothing in it depends on when or by whom it was written: equal contents give equal bytes. Reading is strict: plain files
under the names of an image layout, each once, none of them a link, and no header may ask for more memory than a name.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from registry.digest import CHUNK, Descriptor, Digest
from registry.errors import FormatError

LAYOUT = "oci-layout"
INDEX = "index.json"
_BLOB = re.compile(r"(?:\./)?blobs/sha256/([0-9a-f]{64})", re.ASCII)
_DOCUMENTS = re.compile(r"(?:\./)?(oci-layout|index\.json)", re.ASCII)
_DIRECTORIES = re.compile(r"(?:\./)?(blobs(/sha256)?)?/?", re.ASCII)
_MAX_DOCUMENT = 1 << 20
_MAX_HEADER = 1 << 16  # bytes of an extended header: a name and a size need a few hundred
_BLOCK = 512


def members(
    documents: Iterable[tuple[str, bytes]], blobs: Iterable[tuple[Descriptor, Iterable[bytes]]]
) -> Iterator[bytes]:
    """The bytes of a tar with these documents and then these blobs."""
    for name, data in documents:
        yield from _member(name, len(data), [data])
    for blob, chunks in blobs:
        yield from _member(f"blobs/sha256/{blob.digest.hex}", blob.size, chunks)
    yield bytes(2 * _BLOCK)


def _member(name: str, size: int, chunks: Iterable[bytes]) -> Iterator[bytes]:
    header = tarfile.TarInfo(name)
    header.size, header.mode = size, 0o444
    yield header.tobuf(tarfile.GNU_FORMAT)
    yield from chunks
    yield bytes(-size % _BLOCK)


class Members:
    """An archive that was opened: where each blob stands in it."""

    def __init__(self, file: BinaryIO, documents: dict[str, bytes], blobs: dict[Digest, tuple[int, int]]) -> None:
        self._file = file
        self._blobs = blobs
        self.documents = documents

    def __contains__(self, blob: object) -> bool:
        """Whether a blob of this digest and size is there."""
        if not isinstance(blob, Descriptor):
            return False
        return self._blobs.get(blob.digest, (0, -1))[1] == blob.size

    def chunks(self, digest: Digest) -> Iterator[bytes]:
        """A blob's bytes, in pieces. Raises FormatError where the file ends before them."""
        at, left = self._blobs[digest]
        while left:
            self._file.seek(at)
            chunk = self._file.read(min(CHUNK, left))
            if not chunk:
                raise FormatError(f"the archive ends inside of {digest}", hint="it was cut: copy it again")
            at, left = at + len(chunk), left - len(chunk)
            yield chunk

    def read(self, blob: Descriptor, limit: int) -> bytes:
        """A document among the blobs, hashed. Raises FormatError for one that is missing, too large or another."""
        if blob not in self or blob.size > limit:
            raise FormatError(f"the archive holds no {blob.digest} of {blob.size} bytes, at most {limit}")
        data = b"".join(self.chunks(blob.digest))
        if Digest.of(data) != blob.digest:
            raise FormatError(f"the archive's {blob.digest} has the digest {Digest.of(data)}")
        return data


def open_members(file: BinaryIO, path: Path) -> Members:
    """Find every member of a tar. Raises FormatError for anything that does not belong into one of ours."""
    documents: dict[str, bytes] = {}
    blobs: dict[Digest, tuple[int, int]] = {}
    try:
        with tarfile.open(fileobj=_Guarded(file), mode="r:") as tar:  # type: ignore[call-overload]  # what it uses of one
            for member in _each(tar):
                _enter(member, file, documents, blobs)
    except tarfile.TarError as error:
        raise FormatError(f"{path}: not a tar archive: {error}", hint="`ptdock save` writes one") from None
    return Members(file, documents, blobs)


def _each(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    while (member := tar.next()) is not None:
        tar.members = []  # type: ignore[attr-defined]  # tarfile would keep them all
        yield member


def _enter(
    member: tarfile.TarInfo, file: BinaryIO, documents: dict[str, bytes], blobs: dict[Digest, tuple[int, int]]
) -> None:
    """Note one member. Raises FormatError for a link, a device, another name, and for one that stands twice."""
    name = member.name
    if member.isdir() and _DIRECTORIES.fullmatch(f"{name}/"):
        return
    blob, document = _BLOB.fullmatch(name), _DOCUMENTS.fullmatch(name)
    if member.type not in {tarfile.REGTYPE, tarfile.AREGTYPE} or not (blob or document):
        raise FormatError(f"archive: {name[:100]!r} does not belong into an archive", hint="`ptdock save` writes one")
    if blob:
        digest = Digest(bytes.fromhex(blob[1]))
        if digest in blobs:
            raise FormatError(f"archive: {digest} stands in it twice")
        blobs[digest] = (member.offset_data, member.size)
    elif document:
        if document[1] in documents or member.size > _MAX_DOCUMENT:
            raise FormatError(f"archive: {document[1]} stands in it twice, or has more than {_MAX_DOCUMENT} bytes")
        file.seek(member.offset_data)
        documents[document[1]] = file.read(member.size)


class _Guarded:
    """A file that tarfile may not ask for much: headers are small, and contents are never read through it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        """Some bytes. Raises FormatError for more than any header needs."""
        if not 0 <= size <= _MAX_HEADER:
            raise FormatError(f"archive: a header of {size} bytes, at most {_MAX_HEADER} are read")
        return self._file.read(size)

    def seek(self, position: int, whence: int = 0) -> int:
        """As of the file."""
        return self._file.seek(position, whence)

    def tell(self) -> int:
        """As of the file."""
        return self._file.tell()
