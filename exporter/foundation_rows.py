"""Reads the foundation's own weights, row by row, for what folding needs of the base (DoRA's norm, saved copies)."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from exporter.peft.adapter import Floats
from registry.artifacts import ExternalTensor, Foundation
from registry.errors import InputError
from registry.formats import Buffer, mapped
from registry.service import Registry

_KINDS: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2")}


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
        """Rows `start:stop` of `<module>.weight`, fp32. Raises InputError for a weight that is absent or quantized."""
        name = f"{module}.weight"
        tensor = self._tensors.get(name)
        if tensor is None or tensor.dtype not in _KINDS or self._foundation.recipe["quantization"]:
            raise InputError(
                f"{name} cannot be read from this foundation",
                hint="publish on a foundation whose weights are not quantized",
                tensor=name,
            )
        kind, width = _KINDS[tensor.dtype], int(np.prod(tensor.shape[1:], dtype=np.int64))
        at = tensor.offset + start * width * kind.itemsize
        block = np.frombuffer(self._file, kind, count=(stop - start) * width, offset=at)
        rows: Floats = block.reshape(stop - start, *tensor.shape[1:]).astype(np.float32)
        return rows
