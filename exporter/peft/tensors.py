"""The adapter's tensors as they are stored, read by memory map, and the values that factors are made of.

A safetensors file is read through `registry.formats.safetensors`, which checks every length, offset and dtype before
anything is allocated. Nothing is copied until a factor is folded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from exporter.peft.adapter import Floats, Values
from registry.formats.safetensors import Reader, bf16_to_f32, numpy_dtype

FLOATING = ("F32", "F16", "BF16")
MAX_HEADER = 16 << 20
"""Bytes: a hundred thousand tensors' worth, a fifth of a gigabyte once it is parsed."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor of the adapter: its name in the file, dtype, shape, and a view of its bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    raw: memoryview = field(repr=False)

    def values(self) -> Values:
        """The tensor as values that load on demand; only for the dtypes in FLOATING."""
        return Values(self.name, self.shape, self.dtype, self._widened)

    def _widened(self) -> Floats:
        array = np.frombuffer(self.raw, dtype=numpy_dtype(self.dtype)).reshape(self.shape)
        if self.dtype == "BF16":
            return bf16_to_f32(array)
        return array.astype(np.float32, copy=False)


def read_tensors(path: Path) -> dict[str, Stored]:
    """All tensors of a safetensors file, as views of its memory map. Raises FormatError or InputError."""
    with Reader(path, follow_symlinks=False, limit=MAX_HEADER) as reader:
        return {
            name: Stored(name, entry.dtype, entry.shape, reader.raw(name))
            for name, entry in reader.header.tensors.items()
        }


def peak(values: Values) -> float:
    """The largest magnitude among the values: NaN when one is NaN, 0 for none."""
    array = values.load()
    if not array.size:
        return 0.0
    return float(np.maximum(np.max(array), -np.min(array)))


def rows_of(values: Values, start: int, stop: int) -> Values:
    """The rows `start:stop` of these values."""
    shape = (stop - start, *values.shape[1:])
    return Values(values.name, shape, values.dtype, lambda: values.load()[start:stop])


def picked_rows(values: Values, order: tuple[int, ...]) -> Values:
    """The rows in another order."""
    if order == tuple(range(values.shape[0])):
        return values
    return Values(values.name, values.shape, values.dtype, lambda: values.load()[list(order)])


def joined(first: Values, second: Values, *, axis: int, sign: float) -> Values:
    """`first` and `sign` times `second`, one behind the other along `axis`."""
    shape = list(first.shape)
    shape[axis] += second.shape[axis]

    def load() -> Floats:
        return np.concatenate([first.load(), np.float32(sign) * second.load()], axis=axis)

    dtype = first.dtype if first.dtype == second.dtype else "F32"
    return Values(first.name, tuple(shape), dtype, load)
