"""What an adapter does to its base, in figures, and what changed between two adapters. numpy alone, no I/O.

- `norm`            ||D||, the Frobenius norm of D = W' - W, of the weights that the program computes with
- `relative`        ||D|| / ||W||: how far a weight moves
- `effective_rank`  exp(H(p)) with p_i = s_i / sum(s), s the singular values of B*A as folded (O. Roy, M. Vetterli, The
                    effective rank, EUSIPCO 2007, eq. 4): as many directions as the adapter really uses; none where D is
                    no product of factors (replaced weights and rows), and without DoRA's scale, which has full rank

    figures = measure(part, foundation_rows)
    moved = distance(before, after, foundation_rows)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exporter.card import Module
from exporter.fold import WeightRows
from exporter.structure import ModuleStructure
from registry.errors import PtdockError

BLOCK_BYTES = 8 << 20
"""Of a weight in fp64 at a time."""

Factors = Mapping[str, NDArray[Any]]
Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Part:
    """What an adapter brings to one module: its factors by suffix (`lora_A`, …), shapes as in exporter.structure."""

    name: str
    module: Module
    structure: ModuleStructure = field(default_factory=ModuleStructure)
    factors: Factors = field(default_factory=dict, repr=False)

    @property
    def size(self) -> int:
        """Bytes of its factors; a program stores those that are equal once."""
        return sum(each.nbytes for each in self.factors.values())

    @property
    def needs_base(self) -> bool:
        """Whether D depends on the base's own values."""
        return bool({"weight", "dora_scale", "rows"} & self.factors.keys())


@dataclass(frozen=True, slots=True)
class Move:
    """How far a weight moves: `norm` and `relative`; each None where the foundation cannot give what it needs."""

    norm: float | None
    relative: float | None
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """The figures."""
        return {"norm": self.norm, "relative": self.relative}


@dataclass(frozen=True, slots=True)
class Figures:
    """One module's figures; `note` says what could not be measured, and why."""

    part: Part
    move: Move
    effective_rank: float | None

    def to_json(self) -> dict[str, Any]:
        """The figures beside the module's name and structure."""
        return {
            "name": self.part.name,
            "structure": self.part.structure.to_json(),
            "size": self.part.size,
            **self.move.to_json(),
            "effective_rank": self.effective_rank,
            "note": self.move.note or None,
        }


def measure(part: Part, weights: WeightRows, block: int = BLOCK_BYTES) -> Figures:
    """The figures of one module on the foundation that `weights` reads, `block` bytes at a time."""
    return Figures(part, distance(Part(part.name, part.module), part, weights, block), effective_rank(part.factors))


def distance(before: Part, after: Part, weights: WeightRows, block: int = BLOCK_BYTES) -> Move:
    """How far one adapter's module is from the other's, on one foundation; a Part without factors is the base."""
    blind = ""
    moved = base = 0.0
    for start, stop in _blocks(after.module, block):
        weight = None
        if not blind:
            try:
                weight = _doubles(weights.rows(after.name, start, stop))
            except PtdockError as error:
                if before.needs_base or after.needs_base:
                    return Move(None, None, error.message)
                blind = error.message
        difference = delta(after, start, stop, weight) - delta(before, start, stop, weight)
        moved += float(np.sum(np.square(difference)))
        base += 0.0 if weight is None else float(np.sum(np.square(weight)))
    norm = math.sqrt(moved)
    return Move(norm, norm / math.sqrt(base) if base and not blind else None, blind)


def delta(part: Part, start: int, stop: int, weight: Doubles | None) -> Doubles | np.float64:
    """Rows `start:stop` of D; `weight` are the base's rows, None only where they are not needed. 0 without factors."""
    own = part.factors
    found: Doubles | np.float64 = np.float64(0)
    if weight is not None and "weight" in own:
        replaced = own["weight"].T if part.module.kind == "conv1d" else own["weight"]
        return np.asarray(replaced[start:stop] - weight)
    if own.keys() >= {"lora_A", "lora_B"}:
        found = _doubles(own["lora_B"][start:stop]) @ _doubles(own["lora_A"])
    if own.keys() >= {"lora_embedding_A", "lora_embedding_B"}:
        found = _doubles(own["lora_embedding_A"][:, start:stop]).T @ _doubles(own["lora_embedding_B"]).T
    if weight is not None and "dora_scale" in own:
        found = found + (_doubles(own["dora_scale"][start:stop, None]) - 1) * weight
    if weight is not None and "rows" in own:
        found = np.zeros_like(weight) + found
        for place, index in enumerate(part.structure.rows):
            if start <= index < stop:
                found[index - start] = own["rows"][place] - weight[index - start]
    return found


def _doubles(values: NDArray[Any]) -> Doubles:
    return values.astype(np.float64)


def effective_rank(factors: Factors) -> float | None:
    """How many directions B*A uses: exp of the entropy of its normalized singular values; 0 for nil, None without."""
    for first, second in (("lora_A", "lora_B"), ("lora_embedding_A", "lora_embedding_B")):
        if factors.keys() >= {first, second}:
            values = singular_values(factors[first], factors[second])
            shares = values[values > 0] / values.sum() if values.any() else values[:0]
            return float(np.exp(-np.sum(shares * np.log(shares)))) if shares.size else 0.0
    return None


def singular_values(first: NDArray[Any], second: NDArray[Any]) -> Doubles:
    """The singular values of B*A, from A (r, in) and B (out, r), without the product: those of R_B * R_A^T."""
    return np.asarray(np.linalg.svd(_triangle(second) @ _triangle(first.T).T, compute_uv=False), np.float64)


def _triangle(matrix: NDArray[Any]) -> Doubles:
    """R of the matrix's QR decomposition."""
    return np.asarray(np.linalg.qr(_doubles(matrix), mode="r"), np.float64)


def _blocks(module: Module, size: int) -> Iterator[tuple[int, int]]:
    """Runs of rows that fit `size` bytes in fp64: of (out, in), of an embedding's (V, H), of a norm's (H,)."""
    rows, width = {
        "embedding": (module.inputs, module.outputs),
        "norm": (module.outputs, 1),
    }.get(module.kind, (module.outputs, module.inputs))
    step = max(1, size // (8 * max(width, 1)))
    return ((start, min(start + step, rows)) for start in range(0, rows, step))


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The members that differ: {name: {"before", "after"}}; one that is absent is absent there too."""
    return {
        name: {word: side[name] for word, side in (("before", before), ("after", after)) if name in side}
        for name in sorted(before.keys() | after.keys())
        if name not in before or name not in after or before[name] != after[name]
    }
