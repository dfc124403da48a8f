"""The segment table: a foundation cut into pieces, so that a device that holds another one fetches only what changed.

    {"schema": 1, "critical": [], "pieces": [{"size": 30720, "digest": "sha256:…"}, …]}

The pieces follow each other and make up the whole file: its header, then each segment with the padding behind it.
ExecuTorch pads by the segment's own size, so a tensor that did not change has the same piece wherever it stands, and
a device finds the pieces of the file that it holds by cutting it the same way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from registry import canonical
from registry.digest import CHUNK, Digest
from registry.documents import SCHEMA, Fields, opened
from registry.errors import FormatError
from registry.formats import mapped
from registry.formats.ptd import Ptd, read_ptd

MAX_BYTES = 16 << 20
KNOWN = "critical digest pieces schema size"


@dataclass(frozen=True, slots=True)
class Piece:
    """Some bytes of a foundation: how many, and their digest."""

    size: int
    digest: Digest

    @classmethod
    def read(cls, fields: Fields) -> Piece:
        """From the document. Raises FormatError."""
        return cls(fields.integer("size", low=1), fields.digest("digest"))


@dataclass(frozen=True, slots=True)
class SegmentTable:
    """A foundation's pieces in the file's order."""

    pieces: tuple[Piece, ...]

    @property
    def size(self) -> int:
        """The file's size in bytes."""
        return sum(piece.size for piece in self.pieces)

    def to_bytes(self) -> bytes:
        """The document's only bytes (canonical JSON)."""
        pieces = [{"size": each.size, "digest": str(each.digest)} for each in self.pieces]
        return canonical.dumps({"schema": SCHEMA, "critical": [], "pieces": pieces})

    @classmethod
    def from_bytes(cls, data: bytes) -> SegmentTable:
        """Read a document strictly; unknown fields are ignored unless critical. Raises FormatError."""
        fields = opened(data, what="segment table", known=KNOWN, limit=MAX_BYTES)
        return cls(tuple(Piece.read(each) for each in fields.objects("pieces")))

    @classmethod
    def of_file(cls, path: Path, progress: Callable[[int], None] | None = None) -> SegmentTable:
        """Cut and hash a `.ptd`; `progress` gets the bytes of each piece. Raises FormatError."""
        pieces = []
        with open(path, "rb") as file:
            for start, end in pairwise(cuts(read_ptd(mapped(path)))):
                pieces.append(Piece(end - start, _digest(file, end - start)))
                if progress:
                    progress(end - start)
        return cls(tuple(pieces))


def cuts(ptd: Ptd) -> list[int]:
    """The offsets at which a foundation is cut: its start, each segment's start, its end."""
    return sorted({0, *(span.offset for span in ptd.segments if span.offset < ptd.file_size), ptd.file_size})


def _digest(file: BinaryIO, size: int) -> Digest:
    hasher = hashlib.sha256()
    for chunk in _chunks(file, size):
        hasher.update(chunk)
    return Digest(hasher.digest())


def _chunks(file: BinaryIO, size: int) -> Iterator[bytes]:
    while size:
        chunk = file.read(min(CHUNK, size))
        if not chunk:
            raise FormatError(f"the foundation ends {size} bytes early")
        size -= len(chunk)
        yield chunk
