"""Read a `.pte`: an ExecuTorch program, the bytes it carries and the keys it asks for.

The layout (executorch/schema/program.fbs, extended_header.h): a FlatBuffer with the identifier "ET12" in whose front,
at byte 8, an extended header "eh00" is inserted; then the segments: constants, delegate payloads, named data. A
program without segments has no extended header. Of the instructions nothing is read: what a program computes is for
the runtime, what it is linked to is for us.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise

from registry.errors import FormatError
from registry.formats import Buffer
from registry.formats.flatbuffer import Budget, Region, Table
from registry.formats.layout import Layout, Span, check_segments, pick
from registry.formats.plans import Method, Tensor, read_plans
from registry.formats.xnnpack import Delegate, read_delegate

_WHAT = ".pte"
_VERSION = 0  # the newest Program.version that ExecuTorch 1.5 writes
_HEADER = struct.Struct("<4sI3Q")  # magic, length, program size, segment base offset, segment data size
_HEADER_AT = 8

XNNPACK = "XnnpackBackend"


@dataclass(frozen=True, slots=True)
class NamedBytes:
    """Named data inside the program: key, absolute offset and size in bytes."""

    key: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class ExternalKey:
    """A key that the program asks for: with the layout if it is a tensor outside of any delegate; size in bytes."""

    key: str
    layout: Layout | None
    size: int


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant inside the program, outside of delegates: where it stands, its layout and name where known.

    `size` runs to the next constant, so it can hold a few bytes of padding.
    """

    offset: int
    size: int
    layout: Layout | None
    name: str | None


@dataclass(frozen=True, slots=True)
class Pte:
    """What a program is made of and what it links to.

    `program_size` is the whole file in bytes, `flatbuffer_size` its part before the segments. `asked` are all the
    keys that methods and XNNPACK delegates name; `external` those of them that are not `inline`. `layouts` tells by
    key how XNNPACK sees constants that are plain dense tensors. `constants` are those outside of delegates,
    `embedded` the bytes of constants in delegates' own payloads.
    """

    program_size: int
    flatbuffer_size: int
    methods: tuple[Method, ...]
    backends: tuple[str, ...]
    operators: tuple[str, ...]
    segments: tuple[Span, ...]
    inline: tuple[NamedBytes, ...]
    asked: tuple[ExternalKey, ...]
    external: tuple[ExternalKey, ...]
    layouts: dict[str, Layout]
    constants: tuple[Constant, ...]
    embedded: int

    @property
    def constant_bytes(self) -> int:
        """Bytes of all constants inside the file: its own, its delegates' and its named data."""
        return self.embedded + sum(c.size for c in self.constants) + sum(n.size for n in self.inline)


@dataclass(frozen=True, slots=True)
class _Header:
    program: int  # where the FlatBuffer ends
    base: int  # where the segments start; the file's end without segments


def _header(view: memoryview) -> _Header:
    """The extended header, checked against the file's real length."""
    if bytes(view[_HEADER_AT : _HEADER_AT + 4]) != b"eh00":
        return _Header(len(view), len(view))
    if len(view) < _HEADER_AT + _HEADER.size:
        raise FormatError(f"{_WHAT}: {len(view)} bytes are too short for a header of {_HEADER_AT + _HEADER.size}")
    _, length, program, base, data_size = _HEADER.unpack_from(view, _HEADER_AT)
    if length < _HEADER.size or program < _HEADER_AT + length or (base and base < program):
        raise FormatError(f"{_WHAT}: the header contradicts itself: {length}, {program}, {base}")
    expected = base + data_size if base else program
    if expected != len(view):
        raise FormatError(
            f"{_WHAT}: the header describes a file of {expected} bytes, it has {len(view)}",
            hint="the file was cut or changed: fetch it again",
            expected=expected,
            actual=len(view),
        )
    return _Header(program, base or program)


def _inline(root: Table, segments: tuple[Span, ...]) -> dict[str, NamedBytes]:
    found: dict[str, NamedBytes] = {}
    for table in root.tables(7):
        key, span = table.string(0), pick(segments, table.scalar(1, "I"), what=f"{_WHAT}: named data")
        if not key:
            raise FormatError(f"{_WHAT}: named data has no key")
        if key in found:
            raise FormatError(f"{_WHAT}: the key {key} stands twice")
        found[key] = NamedBytes(key, span.offset, span.size)
    return found


def _subsegments(table: Table | None, segments: tuple[Span, ...]) -> tuple[Span, ...]:
    """The pieces of one segment, each running to the next one's start."""
    offsets = table.numbers(1, "Q") if table else ()
    if table is None or not offsets:
        return ()
    span = pick(segments, table.scalar(0, "I"), what=f"{_WHAT}: constants")
    bounds = (*offsets, span.size)
    if any(end < start for start, end in pairwise(bounds)):
        raise FormatError(f"{_WHAT}: the constants' offsets do not ascend inside their segment of {span.size} bytes")
    return tuple(Span(span.offset + start, end - start) for start, end in pairwise(bounds))


def _constants(root: Table, segments: tuple[Span, ...], tensors: list[Tensor]) -> tuple[Constant, ...]:
    """Constants and initial values of mutable tensors, wherever this schema has ever put them."""
    buffers = tuple(table.span(0) or Span(0, 0) for table in root.tables(2))
    fixed = buffers or _subsegments(root.table(5), segments)
    mutable = tuple(span for table in root.tables(6) for span in _subsegments(table, segments))
    users = {(tensor.mutable, tensor.buffer): tensor for tensor in reversed(tensors) if tensor.key is None}
    found = []
    for is_mutable, spans in ((False, fixed), (True, mutable)):
        for index, span in enumerate(spans):
            user = users.get((is_mutable, index))
            layout, name = (user.layout, user.name) if user else (None, None)
            if span.size:
                found.append(Constant(span.offset, span.size, layout, name))
    return tuple(found)


def _delegates(view: memoryview, payloads: list[tuple[str, Span]], budget: Budget) -> tuple[Delegate, ...]:
    """The XNNPACK delegates; equal payloads are stored, and read, once."""
    distinct = dict.fromkeys(span for backend, span in payloads if backend == XNNPACK)
    return tuple(read_delegate(view, span, budget) for span in distinct)


def _asked(tensors: list[Tensor], delegates: tuple[Delegate, ...]) -> tuple[ExternalKey, ...]:
    """Every key once. Raises FormatError if one is asked for in two ways."""
    asked = [ExternalKey(t.key, t.layout, t.layout.size) for t in tensors if t.key is not None]
    asked += [ExternalKey(c.key, None, c.size) for delegate in delegates for c in delegate.constants]
    found: dict[str, ExternalKey] = {}
    for key in asked:
        first = found.setdefault(key.key, key)
        if first != key:
            raise FormatError(
                f"{_WHAT}: {key.key} is asked for as {first.layout or first.size} and as {key.layout or key.size}"
            )
    return tuple(found.values())


def _external(asked: tuple[ExternalKey, ...], inline: dict[str, NamedBytes]) -> tuple[ExternalKey, ...]:
    """The keys that are not inside. Raises FormatError if one that is has another size than asked for."""
    for key in asked:
        here = inline.get(key.key)
        if here and here.size != key.size:
            raise FormatError(f"{_WHAT}: {key.key} has {here.size} bytes, {key.size} are asked for")
    return tuple(key for key in asked if key.key not in inline)


def read_pte(data: Buffer) -> Pte:
    """Read what a `.pte` carries and what it asks for. Raises FormatError on anything that contradicts the format.

    `data` is the whole file; of its segments only the XNNPACK delegates' headers and graphs are read.
    """
    view = memoryview(data).cast("B")
    header, budget = _header(view), Budget(len(view))
    root = Region(view, 0, header.program, _WHAT, budget).root(b"ET12")
    version = root.scalar(0, "I")
    if version > _VERSION:
        raise FormatError(f"{_WHAT}: schema version {version}, this reader knows {_VERSION}", hint="upgrade ptdock")
    spans = (Span(header.base + table.scalar(0, "Q"), table.scalar(1, "Q")) for table in root.tables(4))
    segments = check_segments(spans, start=header.base, end=len(view), what=_WHAT)
    plans, inline = read_plans(root, segments), _inline(root, segments)
    delegates = _delegates(view, plans.delegates, budget)
    asked = _asked(plans.tensors, delegates)
    return Pte(
        program_size=len(view),
        flatbuffer_size=header.program,
        methods=tuple(plans.methods),
        backends=tuple(sorted({backend for backend, _ in plans.delegates})),
        operators=tuple(sorted(plans.operators)),
        segments=segments,
        inline=tuple(inline.values()),
        asked=asked,
        external=_external(asked, inline),
        layouts={c.key: c.layout for delegate in delegates for c in delegate.constants if c.layout},
        constants=_constants(root, segments, plans.tensors),
        embedded=sum(delegate.embedded for delegate in delegates),
    )
