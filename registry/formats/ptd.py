"""Read a `.ptd`: ExecuTorch's FlatTensor file, a key-value store of byte blobs and tensors.

The layout (executorch/extension/flat_tensor/serialize: flat_tensor.fbs, flat_tensor_header.h): a FlatBuffer with
the identifier "FT01" in whose front, at byte 8, an extended header "FH01" is inserted; then the segments. Only the
header and the FlatBuffer are touched, so a memory map of any size costs a few pages.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from registry.errors import FormatError
from registry.formats import Buffer
from registry.formats.flatbuffer import Budget, Region, Table
from registry.formats.layout import Layout, Span, check_segments, dense_layout, pick

_WHAT = ".ptd"
_VERSION = 0  # the newest FlatTensor.version that ExecuTorch 1.5 writes
_HEADER = struct.Struct("<4sI4Q")  # magic, length, flatbuffer offset and size, segment base offset, segment data size
_HEADER_AT = 8


@dataclass(frozen=True, slots=True)
class Entry:
    """One key: its segment's index, absolute offset and size in bytes; `layout` if it was stored as a tensor."""

    key: str
    segment: int
    offset: int
    size: int
    layout: Layout | None


@dataclass(frozen=True, slots=True)
class Ptd:
    """A foundation file: its size, where its header ends and its segments start, the segments and the entries by key.

    Several entries may share one segment: equal bytes are stored once.
    """

    file_size: int
    header_size: int
    segment_base: int
    segments: tuple[Span, ...]
    entries: tuple[Entry, ...]


def _check_header(view: memoryview) -> tuple[int, int]:
    """Where the FlatBuffer ends and where the segments start, both checked against the file's real length."""
    end = _HEADER_AT + _HEADER.size
    if len(view) < end:
        raise FormatError(
            f"{_WHAT}: {len(view)} bytes are too short for a header of {end}", expected=end, actual=len(view)
        )
    magic, length, offset, size, base, data_size = _HEADER.unpack_from(view, _HEADER_AT)
    if magic != b"FH01":
        raise FormatError(f"{_WHAT}: expected the header 'FH01' at byte 8, found {ascii(magic)[1:]}")
    if length < _HEADER.size or offset < length or offset + size > base:
        raise FormatError(
            f"{_WHAT}: the header's own numbers contradict each other ({length}, {offset}, {size}, {base})"
        )
    if base + data_size != len(view):
        raise FormatError(
            f"{_WHAT}: the header describes a file of {base + data_size} bytes, it has {len(view)}",
            hint="the file was cut or changed: fetch it again",
            expected=base + data_size,
            actual=len(view),
        )
    return offset + size, base


def _layout(table: Table | None, key: str, size: int) -> Layout | None:
    if table is None:
        return None
    what = f"{_WHAT}: {key}"
    layout = dense_layout(table.scalar(0, "b"), table.numbers(1, "i"), table.numbers(2, "B"), what=what)
    if layout.size != size:
        raise FormatError(f"{what}: {layout} has {layout.size} bytes, its segment {size}")
    return layout


def _entry(table: Table, segments: tuple[Span, ...]) -> Entry:
    key, index = table.string(0), table.scalar(1, "I")
    if not key:
        raise FormatError(f"{_WHAT}: an entry has no key")
    span = pick(segments, index, what=f"{_WHAT}: {key}")
    return Entry(key, index, span.offset, span.size, _layout(table.table(2), key, span.size))


def _entries(root: Table, segments: tuple[Span, ...]) -> tuple[Entry, ...]:
    found: dict[str, Entry] = {}
    for table in root.tables(2):
        entry = _entry(table, segments)
        if entry.key in found:
            raise FormatError(f"{_WHAT}: the key {entry.key} stands twice")
        found[entry.key] = entry
    return tuple(found.values())


def read_ptd(data: Buffer) -> Ptd:
    """Read the header, segments and keys of a `.ptd`. Raises FormatError on anything that contradicts the format.

    `data` is the whole file, best as a memory map (`formats.mapped`): no segment is read. A file that was cut names
    the expected and the actual length.
    """
    view = memoryview(data).cast("B")
    end, base = _check_header(view)
    root = Region(view, 0, end, _WHAT, Budget(end)).root(b"FT01")
    version = root.scalar(0, "I")
    if version > _VERSION:
        raise FormatError(f"{_WHAT}: schema version {version}, this reader knows {_VERSION}", hint="upgrade ptdock")
    spans = (Span(base + table.scalar(0, "Q"), table.scalar(1, "Q")) for table in root.tables(1))
    segments = check_segments(spans, start=base, end=len(view), what=_WHAT)
    return Ptd(len(view), end, base, segments, _entries(root, segments))
