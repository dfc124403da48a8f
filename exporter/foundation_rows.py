"""Reads the foundation's own weights, row by row, for what folding needs of the base (DoRA's norm, saved copies)."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exporter.peft.adapter import Floats
from exporter.unpack_weights import embedding_values, from_bf16, linear_values, scaled
from registry import canonical
from registry.artifacts import ExternalTensor, Foundation
from registry.errors import InputError
from registry.formats import Buffer, mapped
from registry.service import Registry

_STORED: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
}


class FoundationRows:
    """A foundation's weights as fp32 blocks, straight from the memory-mapped `.ptd`; the file is never read whole."""

    def __init__(self, registry: Registry, foundation: Foundation) -> None:
        self._registry, self._foundation = registry, foundation

    @cached_property
    def _file(self) -> Buffer:
        return mapped(self._registry.blobs.path(self._foundation.file.digest))

    @cached_property
    def _tensors(self) -> dict[str, ExternalTensor]:
        return {name: tensor for tensor in self._foundation.tensors for name in tensor.names}

    def rows(self, module: str, start: int, stop: int) -> Floats:
        """Rows `start:stop` of `<module>.weight`, out first, fp32, dequantized where packed. Raises InputError."""
        weight = self._tensor(f"{module}.weight")
        if module in self._by_columns:
            return np.ascontiguousarray(self._block(weight, 0, weight.shape[0])[:, start:stop].T, np.float32)
        block = self._block(weight, start, stop)
        if weight.dtype in {"F32", "F16"}:
            return block.astype(np.float32)
        scale = self._tensor(f"{module}.weight_scale")
        scales = self._block(scale, start, stop)
        outside = weight.key.startswith("tensor_")  # no delegate's: an embedding in ExecuTorch's own packing
        values = embedding_values(block) if outside else linear_values(block)
        return scaled(values, from_bf16(scales) if scale.dtype == "BF16" else scales)

    @cached_property
    def _by_columns(self) -> frozenset[str]:
        """The modules whose weight is (in, out): GPT-2's Conv1D."""
        table = canonical.loads(self._registry.blobs.read(self._foundation.modules.digest), what="module table")
        return frozenset(name for name, row in table["modules"].items() if row["kind"] == "conv1d")

    def _tensor(self, name: str) -> ExternalTensor:
        tensor = self._tensors.get(name)
        if tensor is None or tensor.dtype not in _STORED:
            raise InputError(
                f"this foundation holds no {name}",
                hint="ptdock foundation show NAME --tensors lists what it holds",
                tensor=name,
            )
        return tensor

    def _block(self, tensor: ExternalTensor, start: int, stop: int) -> NDArray[Any]:
        kind, width = _STORED[tensor.dtype], int(np.prod(tensor.shape[1:], dtype=np.int64))
        at = tensor.offset + start * width * kind.itemsize
        block = np.frombuffer(self._file, kind, count=(stop - start) * width, offset=at)
        return block.reshape(stop - start, *tensor.shape[1:])
