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

FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
_FIRST = frozenset(parts[0] for parts in FUSED.values())
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


def fused_modules(card: Card) -> dict[str, tuple[str, ...]]:
    """Names that a fused model would have for modules that this base has split: qkv_proj → q_proj, k_proj, v_proj."""
    found = {}
    for name in card.modules:
        parent, dot, last = name.rpartition(".")
        for fused, parts in FUSED.items() if last in _FIRST else ():
            names = tuple(f"{parent}{dot}{part}" for part in parts)
            whole = f"{parent}{dot}{fused}"
            if last == parts[0] and whole not in card.modules and _can_fuse(names, card):
                found[whole] = names
    return found


def _can_fuse(names: tuple[str, ...], card: Card) -> bool:
    modules = [card.modules.get(name) for name in names]
    return all(module is not None and module.kind == "linear" for module in modules) and (
        len({module.inputs for module in modules if module}) == 1
    )


def site_module(name: str, card: Card, fused: Mapping[str, tuple[str, ...]]) -> tuple[Module, tuple[str, ...]]:
    """The module that an adapter's name means, of the foundation or fused, and the base modules behind it."""
    if name in card.modules:
        return card.modules[name], (name,)
    parts = [card.modules[part] for part in fused[name]]
    whole = Module("linear", parts[0].inputs, sum(part.outputs for part in parts), any(part.bias for part in parts))
    return whole, fused[name]


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
