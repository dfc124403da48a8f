"""Fused projections: an adapter's module may stand for several of the base's. Pure.

A fused projection (`qkv_proj`, `gate_up_proj`) against a split base is split: the rows of B in the base's order, A as
it is, because every row of B(Ax) depends on its own row of B alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from exporter.card import Card, Module
from exporter.peft.adapter import ModuleAdapter
from exporter.peft.names import Part
from exporter.peft.tensors import Stored, rows_of

LORA_PARTS = frozenset({Part.A, Part.B, Part.B_BIAS, Part.MAGNITUDE, Part.EMBEDDING_A, Part.EMBEDDING_B, Part.VELORA})


@dataclass(frozen=True, slots=True)
class Site:
    """One module as the adapter names it, its tensors by part, and the base modules behind it (several if fused)."""

    name: str
    module: Module
    tensors: Mapping[Part, Stored]
    targets: tuple[str, ...]
    head: bool = False

    @property
    def adapted(self) -> bool:
        """Whether it has LoRA tensors."""
        return bool(LORA_PARTS & self.tensors.keys())


def site_module(name: str, card: Card) -> tuple[Module, tuple[str, ...]]:
    """The module that an adapter's name means, of the foundation or fused, and the base modules behind it."""
    if name in card.modules:
        return card.modules[name], (name,)
    parts = [card.modules[part] for part in card.fused[name]]
    whole = Module("linear", parts[0].inputs, sum(part.outputs for part in parts), any(part.bias for part in parts))
    return whole, card.fused[name]


def split(adapter: ModuleAdapter, site: Site, card: Card) -> Iterator[ModuleAdapter]:
    """The module adapters of the base modules behind a site: itself, or its rows in the base's order."""
    if site.targets == (site.name,):
        yield adapter
        return
    start = 0
    for name in site.targets:
        stop = start + card.modules[name].outputs
        cut: dict[str, Any] = {
            field: rows_of(values, start, stop)
            for field in ("lora_b", "lora_bias", "magnitude", "bias", "weight")
            if (values := getattr(adapter, field)) is not None
        }
        yield replace(adapter, name=name, **cut)
        start = stop
