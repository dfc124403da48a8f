"""The values of an adapter: finite, small enough for the factors' dtype, and of any effect at all. Pure.

Only peaks are needed: scaling and the cast are monotonic, so if the largest magnitude survives, all do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from exporter.card import Card
from exporter.peft.adapter import ModuleAdapter, Values
from exporter.peft.findings import Findings
from exporter.peft.tensors import peak

NO_EFFECT = "no effect: the adapter computes what the base computes"
HINT = "was it trained, and saved after training?"
DIVERGED_HINT = "the training diverged: save an earlier step"
OVERFLOW_HINT = f"{DIVERGED_HINT}; or export a foundation in fp32"
PAIRS = (("lora_a", "lora_b"), ("embedding_a", "embedding_b"))
TINY = 2.0**-102
"""XNNPACK takes subnormal values, below 2^-126, for zero: of factors below this, some that matter in fp32's 24 bits."""
NEGLIGIBLE = 1e-20
SCALED = frozenset({"lora_b", "lora_bias", "embedding_b"})
_NUMPY: dict[str, type[np.floating[Any]]] = {"F32": np.float32, "F16": np.float16}


def check_effects(modules: Mapping[str, ModuleAdapter], card: Card, findings: Findings) -> None:
    """Look at every value once; errors name the tensor, warnings say what has no effect."""
    peaks = {name: _peaks(module, card, findings) for name, module in modules.items()}
    for name, found in peaks.items():
        _check_tiny(name, found, findings)
    idle = [name for name, module in modules.items() if not _acts(peaks[name], module)]
    dead = sorted(modules.keys() & set(card.dead))
    if dead:
        more = f" and {len(dead) - 1} more" if len(dead) > 1 else ""
        message = f"{dead[0]}{more}: the exported graph does not use it, so it has no effect"
        findings.warning("dead-module", dead[0], message, actual=dead)
    if set(modules) <= {*idle, *dead} and not findings.refused:
        findings.warning("no-effect", "adapter", NO_EFFECT, hint=HINT)


def _peaks(module: ModuleAdapter, card: Card, findings: Findings) -> dict[str, float]:
    """The largest magnitude of each tensor as it will be stored."""
    return {
        field: _stored_peak(values, module.scaling if field in SCALED else 1.0, card.factor_dtype, findings)
        for field, values in _tensors(module)
    }


def _tensors(module: ModuleAdapter) -> Iterator[tuple[str, Values]]:
    for entry in fields(module):
        value = getattr(module, entry.name)
        if isinstance(value, Values):
            yield entry.name, value


def _stored_peak(values: Values, scaling: float, dtype: str, findings: Findings) -> float:
    largest = peak(values)
    if not math.isfinite(largest):
        word = "NaN" if math.isnan(largest) else "infinity"
        message = f"{values.name}: holds {word}"
        findings.error("not-finite", values.name, message, hint=DIVERGED_HINT)
        return largest
    with np.errstate(over="ignore", under="ignore"):
        stored = float(_NUMPY[dtype](np.float32(abs(scaling)) * np.float32(largest)))
    if math.isinf(stored):
        scaled = f" times the scaling {scaling:g}" if scaling != 1 else ""
        message = f"{values.name}: {largest:g}{scaled} overflows {dtype}"
        limit = float(np.finfo(_NUMPY[dtype]).max)
        findings.error("overflow", values.name, message, expected=limit, actual=largest * scaling, hint=OVERFLOW_HINT)
    elif largest and scaling and not stored:
        findings.warning("underflow", values.name, f"{values.name}: every value vanishes in {dtype}", actual=largest)
    return stored


def _check_tiny(name: str, peaks: Mapping[str, float], findings: Findings) -> None:
    """Refuse a factor so small that its values are zero to a runtime, while the other one makes up for it."""
    for pair in PAIRS:
        small, large = sorted(peaks.get(field, 0.0) for field in pair)
        if 0 < small < TINY and small * large > NEGLIGIBLE:
            message = (
                f"{name}: a factor of at most {small:g} beside one of {large:g}: the runtime takes tiny values for zero"
            )
            findings.error("underflow", name, message, expected=TINY, actual=small, hint="scale both to like sizes")


def _acts(peaks: Mapping[str, float], module: ModuleAdapter) -> bool:
    """Whether anything but zero is added, or anything replaced."""
    if module.weight or module.bias or module.rows or module.magnitude or peaks.get("lora_bias"):
        return True
    return any(peaks.get(first) and peaks.get(second) for first, second in PAIRS)
