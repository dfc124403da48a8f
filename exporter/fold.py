"""Folding: a normalized adapter becomes the factor tensors that programs hold, byte for byte reproducibly.

The scaling s is computed in fp64 and rounded once to fp32; `B' = fp32(s) * fp32(B)` elementwise in IEEE fp32; one
cast to the factors' dtype. What needs a sum (DoRA's norm) is computed in fp64 in a fixed order, without BLAS, and
rounded once. Full export and relink call this one function. No torch.

    folded = fold(checked.accept(), card, weights)
    folded.tensors["model.layers.0.self_attn.q_proj.lora_B"].data
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from exporter.card import Card
from exporter.nil import is_nil
from exporter.peft.adapter import Floats, ModuleAdapter, NormalizedAdapter, Values
from exporter.peft.effects import DIVERGED_HINT, OVERFLOW_HINT
from exporter.peft.findings import Finding, Level
from exporter.structure import FACTOR_SUFFIXES, Structure
from registry.digest import Digest
from registry.errors import AdapterRefused, Unavailable

BLOCK_ROWS = 64
"""Rows of a base weight in memory at a time."""

_BEGINNING = 64  # bytes of a factor that tell trained ones apart
_ONE = np.float32(1)
_NUMPY: dict[str, type[np.floating[Any]]] = {"F32": np.float32, "F16": np.float16}


class WeightRows(Protocol):
    """The foundation's weights, read in blocks of rows."""

    def rows(self, module: str, start: int, stop: int) -> Floats:
        """Rows `start:stop` of the module's weight as fp32: (out, in) for linear and conv1d, (V, H) for embeddings."""
        ...


@dataclass(frozen=True, slots=True)
class Factor:
    """One folded tensor: dtype F32 or F16, shape, and its bytes (little-endian, C order)."""

    dtype: str
    shape: tuple[int, ...]
    data: memoryview = field(repr=False)

    @property
    def digest(self) -> Digest:
        """The SHA-256 of the bytes; computed when asked for, since a check needs that of few factors."""
        return Digest.of(self.data)


@dataclass(frozen=True, slots=True)
class Folded:
    """A structure with its groups of equal factors, and every factor by name in canonical order.

    `nil` is whether all of it changes nothing.
    """

    structure: Structure
    tensors: Mapping[str, Factor]
    nil: bool = False


def fold(adapter: NormalizedAdapter, card: Card, weights: WeightRows | None = None) -> Folded:
    """Fold an adapter for the foundation of `card`.

    `weights` is asked only where the base's own values are needed (DoRA's norm, copies of base tensors). Raises
    AdapterRefused naming the tensor for NaN or infinity, for a value that overflows the factors' dtype, and for a
    copy of a base tensor that differs from the foundation's.
    """
    for name, copy in adapter.base_copies.items():
        _check_copy(name, copy, card, _needed(weights, copy.name))
    tensors: dict[str, Factor] = {}
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # what is not finite is refused by name
        for module in adapter.modules.values():
            tensors |= _fold_module(module, card, weights)
    tensors = dict(sorted(tensors.items()))
    nil = all(is_nil(module, _values(module, tensors), card, weights) for module in adapter.modules.values())
    return Folded(adapter.structure.with_equal(_equal_groups(tensors)), tensors, nil)


def _values(module: ModuleAdapter, tensors: Mapping[str, Factor]) -> dict[str, NDArray[Any]]:
    """The folded factors of a module by suffix, as views."""
    found = ((suffix, tensors.get(f"{module.name}.{suffix}")) for suffix in FACTOR_SUFFIXES)
    return {suffix: np.frombuffer(each.data, _NUMPY[each.dtype]) for suffix, each in found if each is not None}


def _fold_module(module: ModuleAdapter, card: Card, weights: WeightRows | None) -> dict[str, Factor]:
    scaling = np.float32(module.scaling)
    rows: Floats | np.float32 = scaling
    parts: dict[str, tuple[Values | None, Floats | np.float32]] = {}
    if module.magnitude is not None:
        scale = dora_scale(module, _needed(weights, module.magnitude.name))
        parts["dora_scale"] = (_constant(module.magnitude, scale), _ONE)
        rows = (scale * module.scaling).astype(np.float32)[:, None]
    parts |= {
        "lora_A": (module.lora_a, _ONE),
        "lora_B": (module.lora_b, rows),
        "lora_B.bias": (module.lora_bias, scaling),
        "bias": (module.bias, _ONE),
        "weight": (module.weight, _ONE),
        "lora_embedding_A": (module.embedding_a, _ONE),
        "lora_embedding_B": (module.embedding_b, scaling),
        "rows": (module.rows, _ONE),
    }
    return {
        f"{module.name}.{suffix}": _factor(values, factor, card.factor_dtype)
        for suffix, (values, factor) in parts.items()
        if values is not None
    }


def _constant(named: Values, data: NDArray[np.float64]) -> Values:
    """Computed values, rounded once to fp32, under the name of the tensor that they come from."""
    return Values(named.name, data.shape, "F32", lambda: data.astype(np.float32))


def _factor(values: Values, factor: Floats | np.float32, dtype: str) -> Factor:
    """`factor * values` elementwise in fp32, cast once."""
    source = values.load()
    product = source if factor is _ONE else factor * source
    stored = np.ascontiguousarray(product, dtype=_NUMPY[dtype])
    if not np.isfinite(stored).all():  # so it is where the source is not, unless that is multiplied by zero: NaN then
        if not np.isfinite(source).all():
            raise _refused("not-finite", values.name, f"{values.name}: holds NaN or infinity", DIVERGED_HINT)
        message = f"{values.name}: a value overflows {dtype} when it is folded"
        raise _refused("overflow", values.name, message, OVERFLOW_HINT)
    return Factor(dtype, values.shape, stored.data.cast("B"))


def dora_scale(module: ModuleAdapter, weights: WeightRows, block: int = BLOCK_ROWS) -> NDArray[np.float64]:
    """DoRA's g = m / ||W + s*B*A|| per output row, fp64, shape (out,) (https://arxiv.org/abs/2402.09353, eq. 5).

    `block` rows are read at a time; products are added rank by rank and squares pairwise, elementwise and in one
    order, so that no BLAS and no number of threads changes a bit. Raises AdapterRefused where a row of W + s*B*A is
    zero.
    """
    magnitude, first, second = _loaded(module.magnitude), _loaded(module.lora_a), _loaded(module.lora_b)
    down, up = first.astype(np.float64), module.scaling * second.astype(np.float64)
    norms = np.empty(len(up))
    for start in range(0, len(up), block):
        stop = min(start + block, len(up))
        rows = weights.rows(module.name, start, stop).astype(np.float64)
        for rank in range(len(down)):
            rows += up[start:stop, rank, None] * down[rank]
        norms[start:stop] = np.sqrt(_row_sums(rows * rows))
    if not norms.all():
        message = f"{module.name}: DoRA's norm is zero for row {int(norms.argmin())}"
        raise _refused("zero-norm", module.name, message, "PEFT divides by it too: train without this module")
    return magnitude.astype(np.float64) / norms


def _row_sums(block: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum along each row by halving: the same additions in the same order on every machine."""
    width = block.shape[1]
    while width > 1:
        half = (width + 1) // 2
        block[:, : width - half] += block[:, half:width]
        width = half
    return block[:, 0]


def _check_copy(name: str, copy: Values, card: Card, weights: WeightRows) -> None:
    """Compare a copy of a base weight with the foundation's, each rounded to the other's dtype."""
    values = copy.load()
    for start in range(0, len(values), BLOCK_ROWS):
        part = values[start : start + BLOCK_ROWS]
        held = weights.rows(name, start, start + len(part))
        same = (_rounded(part, card.factor_dtype) == held) | (_rounded(held, copy.dtype) == part)
        if not same.all():
            message = f"{copy.name} differs from the foundation's weight: trained on a different base"
            raise _refused("other-base", copy.name, message, "use the foundation of that base")


def _rounded(values: Floats, dtype: str) -> Floats:
    """The values as fp32 after rounding to `dtype`, half to even."""
    if dtype == "F16":
        with np.errstate(over="ignore"):
            return values.astype(np.float16).astype(np.float32)
    if dtype == "BF16":
        bits = np.ascontiguousarray(values).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
    return values


def _equal_groups(tensors: Mapping[str, Factor]) -> list[list[str]]:
    """Names of factors with the same bytes, two or more each; only those that begin alike are hashed."""
    alike = _grouped(tensors, lambda factor: (len(factor.data), bytes(factor.data[:_BEGINNING])))
    return [names for some in alike for names in _grouped({name: tensors[name] for name in some}, attrgetter("digest"))]


def _grouped(tensors: Mapping[str, Factor], key: Callable[[Factor], Hashable]) -> list[list[str]]:
    """The names of factors for which `key` is the same, two or more each."""
    groups: dict[Hashable, list[str]] = defaultdict(list)
    for name, factor in tensors.items():
        groups[key(factor)].append(name)
    return [names for names in groups.values() if len(names) > 1]


def _loaded(values: Values | None) -> Floats:
    if values is None:
        raise ValueError("a module with a magnitude has lora_a and lora_b")
    return values.load()


def _needed(weights: WeightRows | None, tensor: str) -> WeightRows:
    if weights is None:
        raise Unavailable(f"{tensor}: folding needs the foundation's weights", hint="fold beside the foundation's .ptd")
    return weights


def _refused(code: str, subject: str, message: str, hint: str) -> AdapterRefused:
    finding = Finding(Level.ERROR, code, subject, message, hint=hint)
    return AdapterRefused(message, hint=hint, findings=[finding.to_json()])
