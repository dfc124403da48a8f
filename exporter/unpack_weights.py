"""Turns packed weights back into fp32, bit for bit as torchao's `dequantize` would. numpy alone.

Two packings stand in a quantized foundation (exporter.quantize writes both):
- XNNPACK's linears: int4 + 8, two columns a byte, the even one in the low half; bf16 scales (out, groups);
- ExecuTorch's embeddings: int8, or int4 + 8 with the even column in the high half; fp32 scales (rows, groups).
A value is its integer times its group's scale: one fp32 multiplication, so one rounding, the same everywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from exporter.peft.adapter import Floats

_ZERO = 8  # what stands for 0 in four bits without a sign


def linear_values(packed: NDArray[np.uint8]) -> Floats:
    """(rows, width/2) bytes of a linear -> (rows, width) of -8 to 7."""
    return _interleaved(packed & 0x0F, packed >> 4)


def embedding_values(packed: NDArray[Any]) -> Floats:
    """(rows, width) int8, or (rows, width/2) bytes, of an embedding -> (rows, width) whole numbers."""
    if packed.dtype == np.int8:
        return packed.astype(np.float32)
    return _interleaved(packed >> 4, packed & 0x0F)


def scaled(values: Floats, scales: Floats) -> Floats:
    """(rows, width) times (rows, groups): each scale is for width/groups columns in a row."""
    rows, groups = scales.shape
    product: Floats = values.reshape(rows, groups, -1) * scales[:, :, None]
    return product.reshape(rows, -1)


def from_bf16(stored: NDArray[np.uint16]) -> Floats:
    """bf16, given as its bits, as fp32: its bits are fp32's upper half."""
    floats: Floats = (stored.astype(np.uint32) << 16).view(np.float32)
    return floats


def _interleaved(even: NDArray[np.integer[Any]], odd: NDArray[np.integer[Any]]) -> Floats:
    values = np.stack([even, odd], axis=-1).astype(np.float32) - np.float32(_ZERO)
    return values.reshape(len(even), -1)
