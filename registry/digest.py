"""A digest is a type: parse and print are inverse, and nothing passes a bare hex string around."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from registry.errors import InputError

_TEXT = re.compile(r"sha256:([0-9a-f]{64})", re.ASCII)
CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, order=True)
class Digest:
    """SHA-256 of some bytes; prints `sha256:<64 hex>`."""

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != 32:
            raise ValueError(f"a SHA-256 digest has 32 bytes, not {len(self.raw)}")

    @classmethod
    def parse(cls, text: str) -> Digest:
        """The digest that `text` prints. Raises InputError for anything but `sha256:<64 lower-case hex>`."""
        match = _TEXT.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise InputError(f"not a digest: {text!r}", hint="a digest reads sha256:<64 lower-case hex digits>")
        return cls(bytes.fromhex(match[1]))

    @classmethod
    def of(cls, data: bytes | bytearray | memoryview) -> Digest:
        """The digest of these bytes."""
        return cls(hashlib.sha256(data).digest())

    @classmethod
    def of_chunks(cls, chunks: Iterable[bytes], progress: Callable[[int], None] | None = None) -> Digest:
        """The digest of bytes that come in pieces; `progress` gets each piece's length in bytes."""
        hasher = hashlib.sha256()
        for chunk in chunks:
            hasher.update(chunk)
            if progress:
                progress(len(chunk))
        return cls(hasher.digest())

    @classmethod
    def of_file(cls, path: Path, progress: Callable[[int], None] | None = None) -> Digest:
        """The digest of a file's bytes, read in chunks of 1 MiB; `progress` gets each chunk's length in bytes."""
        with open(path, "rb") as file:
            return cls.of_chunks(iter(partial(file.read, CHUNK), b""), progress)

    @property
    def hex(self) -> str:
        """The 64 hex digits, as they stand in a store's path or in an XNNPACK key."""
        return self.raw.hex()

    @property
    def short(self) -> str:
        """`sha256:` and 12 hex digits, for people."""
        return f"sha256:{self.hex[:12]}"

    def __str__(self) -> str:
        return f"sha256:{self.hex}"


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Points at immutable bytes: their digest and their size in bytes. In documents: {"digest", "size"}."""

    digest: Digest
    size: int

    @classmethod
    def of(cls, data: bytes) -> Descriptor:
        """The descriptor of these bytes."""
        return cls(Digest.of(data), len(data))

    def to_json(self) -> dict[str, object]:
        """The `D` of design.md's documents."""
        return {"digest": str(self.digest), "size": self.size}
