"""Factors on the wire: as they were trained, half the bytes of what programs hold; the device widens and scales them.

A wire table is a relocation table whose tensors also say what the wire holds: `source`, the trained dtype (BF16, F16
or F32), and `scale`, the fp32 factor that folding multiplies by; it travels as one zlib stream, a third of its
size. For each tensor in the table's order

    folded = cast(fp32(scale) * fp32(wire), dtype)

elementwise in IEEE fp32, which is folding's own arithmetic (exporter.fold): so the device's program is the published
one, byte for byte. What folding computes otherwise (DoRA's scale) travels folded, with the scale 1. Pure, no torch.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from registry import canonical
from registry.errors import FormatError
from registry.relocation import RelocationTable, Slot

Floats = NDArray[np.float32]
ONE = np.float32(1)
MAX_TABLE = 32 << 20  # 100,000 tensors, ten times what a large adapter has
WIDTHS = {"F32": 4, "F16": 2, "BF16": 2}
_STORED: dict[str, type[np.floating[Any]]] = {"F32": np.float32, "F16": np.float16}


@dataclass(frozen=True, slots=True)
class Trained:
    """One factor as it was trained: its dtype, its values widened to fp32, and the scale that folds it."""

    dtype: str
    values: Floats
    scale: np.float32 = ONE


def encode(table: RelocationTable, trained: Mapping[str, Trained]) -> tuple[bytes, bytes]:
    """The wire table and the wire bytes of an adapter; `trained` holds each slot's factor by any of its names.

    Adapters with the same dtypes and scales share a table. Raises FormatError for a factor that is missing.
    """
    document = canonical.loads(table.to_bytes(), what="relocation table")
    pieces = []
    for slot, entry in zip(table.slots, document["tensors"], strict=True):
        factor = next((trained[name] for name in slot.names if name in trained), None)
        if factor is None or factor.values.size != prod(slot.shape):
            raise FormatError(f"{slot.names[0]}: expected {prod(slot.shape)} trained values")
        entry |= {"source": factor.dtype, "scale": float(factor.scale)}
        pieces.append(_narrowed(factor))
    return zlib.compress(canonical.dumps(document), 9), b"".join(pieces)


@lru_cache(maxsize=4)
def folded_table(table: RelocationTable) -> bytes:
    """The wire table of factors that travel folded, in the relocation table's order: the same for all adapters."""
    document = canonical.loads(table.to_bytes(), what="relocation table")
    for slot, entry in zip(table.slots, document["tensors"], strict=True):
        entry |= {"source": slot.dtype, "scale": 1.0}
    return zlib.compress(canonical.dumps(document), 9)


def expand(table: bytes, wire: bytes | memoryview) -> tuple[RelocationTable, bytes]:
    """The relocation table, and the folded factors as `relink` takes them. Raises FormatError for other sizes."""
    text = inflated(table)
    slots = RelocationTable.from_bytes(text)
    entries = canonical.loads(text, what="wire table")["tensors"]
    view, start, pieces = memoryview(wire), 0, []
    for slot, entry in zip(slots.slots, entries, strict=True):
        source = entry.get("source", slot.dtype)
        if not isinstance(source, str) or source not in WIDTHS or slot.dtype not in _STORED:
            raise FormatError(f"wire table: {slot.names[0]} is {source!r} to become {slot.dtype!r}")
        end = start + prod(slot.shape) * WIDTHS[source]
        pieces.append(_folded(slot, source, _scale(entry), view[start:end]))
        start = end
    if start != len(view):
        raise FormatError(f"the wire table describes {start} bytes, there are {len(view)}")
    return slots, b"".join(pieces)


def inflated(table: bytes) -> bytes:
    """A wire table's JSON; no more than MAX_TABLE bytes come out of it, whatever the stream claims."""
    decoder = zlib.decompressobj()
    try:
        text = decoder.decompress(table, MAX_TABLE)
    except zlib.error as error:
        raise FormatError(f"the wire table is not a zlib stream: {error}") from None
    if not decoder.eof or decoder.unused_data:
        raise FormatError(f"the wire table is cut, longer than its stream, or larger than {MAX_TABLE} bytes")
    return text


def _folded(slot: Slot, source: str, scale: np.float32, data: memoryview) -> bytes:
    if len(data) != prod(slot.shape) * WIDTHS[source]:
        raise FormatError(f"{slot.names[0]}: the wire ends in the middle of it")
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        folded = np.ascontiguousarray(_widened(source, data) * scale, dtype=_STORED[slot.dtype]).tobytes()
    if len(folded) != slot.size:
        raise FormatError(f"{slot.names[0]}: {len(folded)} bytes, the table says {slot.size}")
    return folded


def _scale(entry: Mapping[str, Any]) -> np.float32:
    value = entry.get("scale", 1.0)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FormatError(f"wire table: {value!r} is not a scale")
    return np.float32(value)


def _narrowed(factor: Trained) -> bytes:
    """The values in the dtype that they came from, little-endian; exact, because they came from it."""
    if factor.dtype == "BF16":
        return (np.ascontiguousarray(factor.values).view(np.uint32) >> 16).astype("<u2").tobytes()
    return factor.values.astype("<f2" if factor.dtype == "F16" else "<f4").tobytes()


def _widened(source: str, data: memoryview) -> Floats:
    if source == "BF16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(data, "<f2" if source == "F16" else "<f4").astype(np.float32)
