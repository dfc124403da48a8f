"""Whether what an adapter brings to a module changes anything at all, known once it is folded. Pure, apart from rows.

The gate sees factors of zeros; only here is it seen that a DoRA scale is one, or that a replaced weight is the base's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from exporter.card import Card
from exporter.peft.adapter import ModuleAdapter, Values
from exporter.peft.copies import Verdict, compare_copy

if TYPE_CHECKING:
    from exporter.fold import WeightRows

ROUNDING = 1e-6
"""A scale of m / ||W||, with m rounded to fp32 by whoever computed the norm, is one within this."""


def is_nil(module: ModuleAdapter, factors: Mapping[str, NDArray[Any]], card: Card, weights: WeightRows | None) -> bool:
    """Whether the module computes what the base's does; `factors` are the folded ones by suffix."""
    if module.name in card.dead:
        return True
    products = (("lora_A", "lora_B"), ("lora_embedding_A", "lora_embedding_B"))
    if any(factors[first].any() and factors[second].any() for first, second in products if first in factors):
        return False
    if "lora_B.bias" in factors and factors["lora_B.bias"].any():
        return False
    if "dora_scale" in factors and np.abs(factors["dora_scale"] - 1).max() > ROUNDING:
        return False
    kept = (_is_base(module.weight, card, module.name, "weight"), _is_base(module.bias, card, module.name, "bias"))
    return all(kept) and _are_base_rows(module, weights)


def _is_base(values: Values | None, card: Card, name: str, parameter: str) -> bool:
    return values is None or compare_copy(values, card.base_tensor(name, parameter)) is Verdict.EQUAL


def _are_base_rows(module: ModuleAdapter, weights: WeightRows | None) -> bool:
    if module.rows is None:
        return True
    rows = module.rows.load()
    return weights is not None and all(
        np.array_equal(weights.rows(module.name, index, index + 1)[0], row)
        for index, row in zip(module.indices, rows, strict=True)
    )
