"""Dtypes and dense tensor layouts, spelled as safetensors spells them (F32, BF16, I64, …)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from registry.errors import FormatError

# Bits of one element, by name: safetensors' `Dtype` (safetensors/src/tensor.rs).
DTYPE_BITS = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}

# ExecuTorch's enum ScalarType (schema/scalar_type.fbs); the quantized and sub-byte types have no dense layout.
SCALAR_TYPES = {
    0: "U8",
    1: "I8",
    2: "I16",
    3: "I32",
    4: "I64",
    5: "F16",
    6: "F32",
    7: "F64",
    11: "BOOL",
    15: "BF16",
    23: "F8_E5M2",
    24: "F8_E4M3",
    25: "F8_E5M2FNUZ",
    26: "F8_E4M3FNUZ",
    27: "U16",
    28: "U32",
    29: "U64",
}

MAX_RANK = 64  # numpy's and torch's own limit
_MAX_BYTES = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of a file: `offset` from its start and `size`, both in bytes."""

    offset: int
    size: int

    @property
    def end(self) -> int:
        """The offset behind the last byte."""
        return self.offset + self.size


@dataclass(frozen=True, slots=True)
class Layout:
    """A dense tensor: dtype, size of each dimension, and the dimensions' order in memory from outer to inner."""

    dtype: str
    sizes: tuple[int, ...]
    dim_order: tuple[int, ...]

    @property
    def size(self) -> int:
        """The tensor's length in bytes."""
        return byte_size(self.dtype, self.sizes)

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.sizes)}"


def byte_size(dtype: str, shape: tuple[int, ...]) -> int:
    """Bytes of a dense tensor of at most MAX_RANK dimensions. Raises FormatError unless they are whole and fit 63 bits.

    A dimension of 0 does not excuse the others: their product must be addressable too.
    """
    bits = prod(shape) * DTYPE_BITS[dtype]
    if bits % 8:
        raise FormatError(f"{bits} bits ({dtype} {list(shape)}) are no whole number of bytes")
    if prod(size for size in shape if size) * DTYPE_BITS[dtype] // 8 > _MAX_BYTES:
        raise FormatError(f"a tensor {dtype} {list(shape)} has more than 2^63 bytes")
    return bits // 8


def dense_layout(scalar_type: int, sizes: tuple[int, ...], dim_order: tuple[int, ...], *, what: str) -> Layout:
    """The layout that ExecuTorch's fields describe; `what` names the tensor. Raises FormatError if they contradict."""
    dtype = SCALAR_TYPES.get(scalar_type)
    if dtype is None:
        raise FormatError(f"{what}: scalar type {scalar_type} is not a dense dtype")
    if len(sizes) > MAX_RANK:
        raise FormatError(f"{what}: {len(sizes)} dimensions, at most {MAX_RANK} are possible")
    if min(sizes, default=0) < 0:
        raise FormatError(f"{what}: negative size in {list(sizes)}")
    if sorted(dim_order) != list(range(len(sizes))):
        raise FormatError(f"{what}: dim order {list(dim_order)} does not order {len(sizes)} dimensions")
    layout = Layout(dtype, sizes, dim_order)
    byte_size(dtype, sizes)
    return layout


def check_segments(spans: Iterator[Span], *, start: int, end: int, what: str) -> tuple[Span, ...]:
    """The segments, if they ascend without overlap between `start` and `end`. Raises FormatError naming the segment."""
    segments: list[Span] = []
    for index, span in enumerate(spans):
        if span.offset < start:
            raise FormatError(
                f"{what}: segment {index} starts at byte {span.offset}, inside what stands before it (ends at {start})"
            )
        if span.end > end:
            raise FormatError(f"{what}: segment {index} ends at byte {span.end}, the segments end at {end}")
        segments.append(span)
        start = span.end
    return tuple(segments)


def pick(spans: tuple[Span, ...], index: int, *, what: str) -> Span:
    """The span that an index in a file means; `what` names whose index. Raises FormatError where there is none."""
    if index >= len(spans):
        raise FormatError(f"{what} points at segment {index} of {len(spans)}")
    return spans[index]
