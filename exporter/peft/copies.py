"""Copies of base tensors that PEFT saves along: each must be the base's own, then it is dropped. Pure.

A digest decides whenever the copy can be written in the base's dtype without loss. Where it cannot (a bf16 copy of an
fp32 base), folding compares it with the foundation's weights.
"""

from __future__ import annotations

from enum import Enum

import numpy as np

from exporter.card import BaseTensor
from exporter.peft.adapter import Values
from registry.digest import Digest

_BITS = {"F32": 24, "F16": 11, "BF16": 8}  # of the significand
_EXPONENT = {"F32": 8, "F16": 5, "BF16": 8}


class Verdict(Enum):
    """What a comparison found."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNDECIDED = "undecided"


def compare_copy(copy: Values, base: BaseTensor | None) -> Verdict:
    """Whether `copy` is the base tensor, as far as its digest tells."""
    if base is None or base.digest is None or base.dtype not in _BITS:
        return Verdict.UNDECIDED
    data = _written(copy, base.dtype)
    if data is not None and Digest.of(data) == base.digest:
        return Verdict.EQUAL
    return Verdict.DIFFERENT if _holds(copy.dtype, base.dtype) else Verdict.UNDECIDED


def _holds(wide: str, narrow: str) -> bool:
    """Whether every value of `narrow` is one of `wide`: then a copy loses nothing."""
    return _BITS[wide] >= _BITS[narrow] and _EXPONENT[wide] >= _EXPONENT[narrow]


def _written(copy: Values, dtype: str) -> memoryview | None:
    """The bytes of the copy in `dtype`; None where a value would change."""
    values = copy.load()
    if dtype == "F32":
        return np.ascontiguousarray(values).data.cast("B")
    if dtype == "F16":
        with np.errstate(over="ignore"):
            halves = values.astype(np.float16)
        return halves.data.cast("B") if np.array_equal(halves.astype(np.float32), values) else None
    bits = np.ascontiguousarray(values).view(np.uint32)
    if (bits & 0xFFFF).any():
        return None
    return (bits >> 16).astype(np.uint16).data.cast("B")
