"""Read an XNNPACK delegate's payload: which named data it asks for, and how it sees them.

The layout (executorch/backends/xnnpack/serialization: xnnpack_graph_serialize.py, schema.fbs, runtime_schema.fbs): a
header with "XH00" at byte 4, then a FlatBuffer XNNGraph with the identifier "XN00" or "XN01", then constant data for
older files. Today's exporter puts every constant into named data under the SHA-256 of its bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from registry.errors import FormatError
from registry.formats.flatbuffer import Budget, Region, Table
from registry.formats.layout import MAX_RANK, Layout, Span, byte_size

_WHAT = "XNNPACK delegate"
_HEADER = struct.Struct("<4s4sHIIIQ")  # zeros, magic, length, FlatBuffer offset and size, constants' offset and size
_PLAIN = {1: "F32", 2: "F16", 12: "I32", 14: "BF16"}  # XNNDatatype's dense, unquantized members
_TENSOR, _QUANTIZED = 1, 2  # members of the union XValueUnion
_INT4_GROUPS = 10  # XNNDatatype's xnn_datatype_qbint4
_GROUP_QUANT = 4  # the member PerChannelGroupQuant of the union XNNQuantParams


@dataclass(frozen=True, slots=True)
class Constant:
    """Named data of a delegate: key, size in bytes, and its layout where it is a dense tensor.

    int4 weights are two columns a byte, so U8 (out, in / 2), the even column in the low half; 8 stands for zero. Their
    scales are BF16 (out, groups).
    """

    key: str
    size: int
    layout: Layout | None


@dataclass(frozen=True, slots=True)
class Delegate:
    """What a delegate asks for by key, and the bytes of constants that stand in its own payload."""

    constants: tuple[Constant, ...]
    embedded: int


def _locate(view: memoryview, payload: Span) -> Span:
    """The FlatBuffer inside the payload; a payload without a header is the FlatBuffer itself."""
    if payload.size < _HEADER.size:
        raise FormatError(f"{_WHAT}: {payload.size} bytes are too short for a header of {_HEADER.size}")
    _, magic, length, offset, size, constants, constant_size = _HEADER.unpack_from(view, payload.offset)
    if magic != b"XH00":
        return payload
    if length < _HEADER.size or offset < length or offset + size > constants:
        raise FormatError(f"{_WHAT}: the header contradicts itself: {length}, {offset} + {size}, {constants}")
    if constants + constant_size > payload.size:
        raise FormatError(f"{_WHAT}: the header describes {constants + constant_size} bytes, it has {payload.size}")
    return Span(payload.offset + offset, size)


def _layouts(graph: Table) -> dict[int, Layout]:
    """By constant index: the layouts of the values that are dense tensors."""
    found: dict[int, Layout] = {}
    for value in graph.tables(2):
        kind, table = value.union(0)
        if table is not None and kind in {_TENSOR, _QUANTIZED}:
            found |= _plain(table) if kind == _TENSOR else _int4_groups(table)
    return found


def _plain(tensor: Table) -> dict[int, Layout]:
    index, dtype, dims = tensor.scalar(3, "I"), _PLAIN.get(tensor.scalar(0, "h")), tensor.numbers(2, "I")
    return {index: _dense(dtype, dims)} if index and dtype and len(dims) <= MAX_RANK else {}


def _int4_groups(value: Table) -> dict[int, Layout]:
    """The packed values and the scales of an int4 weight in groups; nothing for other quantized tensors."""
    tensor, (kind, quantization) = value.table(0), value.union(1)
    if tensor is None or quantization is None or kind != _GROUP_QUANT or tensor.scalar(0, "h") != _INT4_GROUPS:
        return {}
    dims, group = tensor.numbers(2, "I"), quantization.scalar(2, "i")
    if len(dims) != 2 or group < 1:
        return {}
    data, scales = tensor.scalar(3, "I"), quantization.scalar(4, "I")
    return {
        data: _dense("U8", (dims[0], (dims[1] + 1) // 2)),
        scales: _dense("BF16", (dims[0], dims[1] // group)),
    }


def _dense(dtype: str, dims: tuple[int, ...]) -> Layout:
    return Layout(dtype, dims, tuple(range(len(dims))))


def _constants(graph: Table) -> Iterator[Constant]:
    layouts = _layouts(graph)
    for index, table in enumerate(graph.tables(8)):
        key, size = table.string(2), table.scalar(1, "Q")
        if not key:
            continue
        layout = layouts.get(index)
        dense = layout is not None and byte_size(layout.dtype, layout.sizes) == size
        yield Constant(key, size, layout if dense else None)


def _embedded(graph: Table, payload_constants: int) -> int:
    """Bytes of constants that no key names: the oldest files' buffers in the FlatBuffer, older ones' behind it."""
    buffers = (table.span(0) for table in graph.tables(6))
    return payload_constants + sum(span.size for span in buffers if span)


def read_delegate(view: memoryview, payload: Span, budget: Budget) -> Delegate:
    """Read one payload of a program's bytes `view`. Raises FormatError on anything that contradicts the format."""
    span = _locate(view, payload)
    graph = Region(view, span.offset, span.end, _WHAT, budget).root(b"XN00", b"XN01")
    behind = 0 if span == payload else _HEADER.unpack_from(view, payload.offset)[6]
    return Delegate(tuple(_constants(graph)), _embedded(graph, behind))
