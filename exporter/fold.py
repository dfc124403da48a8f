"""Folding: a normalized adapter becomes the factor tensors that programs hold, byte for byte reproducibly.

The scaling s is computed in fp64 and rounded once to fp32; `B' = fp32(s) * fp32(B)` elementwise in IEEE fp32; one
cast to the factors' dtype. What needs a sum (DoRA's norm) is computed in fp64 in a fixed order, without BLAS, and
rounded once. Full export and relink call this one function. No torch.

    folded = fold(checked.accept(), card, weights)
    folded.tensors["model.layers.0.self_attn.q_proj.lora_B"].data
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from exporter.card import Card
from exporter.peft.adapter import Floats, NormalizedAdapter
from exporter.structure import Structure
from registry.digest import Digest


class WeightRows(Protocol):
    """The foundation's weights, read in blocks of rows."""

    def rows(self, module: str, start: int, stop: int) -> Floats:
        """Rows `start:stop` of the module's weight as fp32: (out, in) for linear and conv1d, (V, H) for embeddings."""
        ...


@dataclass(frozen=True, slots=True)
class Factor:
    """One folded tensor: dtype F32 or F16, shape, the digest of its bytes, and its bytes (little-endian, C order)."""

    dtype: str
    shape: tuple[int, ...]
    digest: Digest
    data: memoryview = field(repr=False)


@dataclass(frozen=True, slots=True)
class Folded:
    """A structure with its groups of equal factors, and every factor by name in canonical order."""

    structure: Structure
    tensors: Mapping[str, Factor]


def fold(adapter: NormalizedAdapter, card: Card, weights: WeightRows | None = None) -> Folded:
    """Fold an adapter for the foundation of `card`.

    `weights` is asked only where the base's own values are needed (DoRA's norm, copies of base tensors). Raises
    AdapterRefused naming the tensor for NaN or infinity, for a value that overflows the factors' dtype, and for a
    copy of a base tensor that differs from the foundation's.
    """
    raise NotImplementedError
