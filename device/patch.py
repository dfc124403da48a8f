"""A foundation from the one that the device holds: pieces that did not change are copied, the others fetched.

    patched = Patched.between(source, store.path(old), blob_path(new), table)
    patched.stream(blob_path(new), 0, table.size)      # as the source's own stream, at a fraction of its bytes

The result is a source like any other: it is resumed, hashed and believed by its digest alone (device.intake).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from device.source import Source, Through
from registry.digest import CHUNK, Digest
from registry.segments import SegmentTable

BRIDGE = 32 << 10
"""Bytes that are fetched though they are here, rather than split one request into two."""


@dataclass(frozen=True, slots=True)
class Run:
    """Bytes `start` to `stop` of the new file: from `offset` of the old one, or from the source where that is None."""

    start: int
    stop: int
    offset: int | None


class Patched(Through):
    """A Source (device.source) that takes what it can of one file from an older one."""

    def __init__(self, source: Source, old: Path, path: str, runs: Sequence[Run]) -> None:
        super().__init__(source)
        self._old = old
        self._path = path
        self._runs = runs

    @classmethod
    def between(cls, source: Source, old: Path, path: str, table: SegmentTable) -> Patched:
        """Cut and hash the old foundation, and plan how the new one, of this table, comes together.

        Raises FormatError when the old file is no foundation.
        """
        return cls(source, old, path, _bridged(_runs(table, _offsets(SegmentTable.of_file(old)))))

    @property
    def remote(self) -> int:
        """How many bytes the source has to send."""
        return sum(run.stop - run.start for run in self._runs if run.offset is None)

    def stream(self, path: str, start: int, stop: int, *, ranged: bool = False) -> Iterator[bytes]:
        """See Source; bytes of the old file come in between those of the source, which must serve ranges."""
        if path != self._path:
            yield from super().stream(path, start, stop, ranged=ranged)
            return
        for run in self._runs:
            first, last = max(start, run.start), min(stop, run.stop)
            if first >= last:
                continue
            if run.offset is None:
                yield from self._source.stream(path, first, last, ranged=True)
            else:
                yield from self._copied(run.offset + first - run.start, last - first)

    def _copied(self, offset: int, size: int) -> Iterator[bytes]:
        with open(self._old, "rb") as file:
            file.seek(offset)
            while size and (chunk := file.read(min(CHUNK, size))):
                size -= len(chunk)
                yield chunk


def _offsets(table: SegmentTable) -> dict[Digest, int]:
    found, offset = {}, 0
    for piece in table.pieces:
        found[piece.digest] = offset
        offset += piece.size
    return found


def _runs(table: SegmentTable, held: dict[Digest, int]) -> list[Run]:
    """One run per piece, neighbours that come from the source joined."""
    runs: list[Run] = []
    start = 0
    for piece in table.pieces:
        stop, offset = start + piece.size, held.get(piece.digest)
        if offset is None and runs and runs[-1].offset is None:
            runs[-1] = Run(runs[-1].start, stop, None)
        else:
            runs.append(Run(start, stop, offset))
        start = stop
    return runs


def _bridged(runs: list[Run]) -> list[Run]:
    """The same with short local runs between two remote ones fetched along: fewer requests for a few bytes more."""
    joined: list[Run] = []
    for run in runs:
        short = len(joined) > 1 and joined[-1].offset is not None and joined[-1].stop - joined[-1].start <= BRIDGE
        if short and run.offset is None and joined[-2].offset is None:
            joined.pop()
            joined[-1] = Run(joined[-1].start, run.stop, None)
        else:
            joined.append(run)
    return joined
