"""From a checkpoint to a foundation, its base program, and templates. Imports torch: import it only to export.

job = Job(read_base(directory), Recipe(), context=2048, progress=print)
made = export_base(job, work)                          # the one source of the .ptd
template = export_template(job, structure, card)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from exporter.base import Checkpoint
from exporter.card import Card
from exporter.decoder_export import DecoderModel
from exporter.lora import attach
from exporter.lower import Example, Lowered, Progress, lower
from exporter.perplexity import perplexity, text_ids
from exporter.quantize import quantize, stored, unwrap, weight_names
from exporter.recipe import Recipe
from exporter.relocation import locate
from exporter.structure import FactorSpec, Structure
from registry.relocation import RelocationTable, Slot

DTYPES = {"F32": torch.float32, "F16": torch.float16}


class Model(Protocol):
    """What is exported: a checkpoint's decoder (exporter.decoder_export), or any module (exporter.module_export)."""

    @property
    def kv_cache_bytes(self) -> int:
        """Bytes of the key and value caches, 0 without any."""
        ...

    def build(self, progress: Progress) -> nn.Module:
        """A new module that holds the base's weights, in eval mode and without gradients."""
        ...

    def example(self) -> Example:
        """How to trace it."""
        ...

    def table(self, module: nn.Module) -> dict[str, Any]:
        """`architecture`, `max_positions`, `modules` and `tied` of the module table (registry.artifacts.Foundation)."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """What is exported, how, for how many positions; `progress` gets each phase's name as it begins."""

    source: Checkpoint | Model
    recipe: Recipe
    context: int
    progress: Progress

    @property
    def model(self) -> Model:
        """What stands in the source. Raises InputError for an architecture or a context that cannot be."""
        if isinstance(self.source, Checkpoint):
            return DecoderModel(self.source, self.context, self.recipe.dtype)
        return self.source


@dataclass(frozen=True, slots=True)
class ExportedBase:
    """A foundation file, the base program, the names of its keys, and the module table for the gate."""

    foundation: Path
    program: bytes
    names: Mapping[str, tuple[str, ...]]
    modules: Mapping[str, Any]
    kv_cache_bytes: int


@dataclass(frozen=True, slots=True)
class ExportedTemplate:
    """A program full of placeholders, and the table that says where they stand."""

    program: bytes
    table: RelocationTable
    kv_cache_bytes: int


def export_base(job: Job, directory: Path) -> ExportedBase:
    """Export the base without adapters. The `.ptd` is written into `directory`. Raises InputError."""
    model = job.model
    module = model.build(job.progress)
    table = {**model.table(module), **_quantize_measured(job, module)}
    lowered = _lower(job, module, frozenset(), directory)
    if lowered.foundation is None:
        raise AssertionError("lower writes the foundation that it was asked for")
    dead = [name for name in table["modules"] if not lowered.unused.isdisjoint(weight_names(name))]
    modules = {"schema": 1, "factor_dtype": job.recipe.factor_dtype, "dead": dead, **table}
    return ExportedBase(lowered.foundation, lowered.program, lowered.names, modules, model.kv_cache_bytes)


def export_template(job: Job, structure: Structure, card: Card) -> ExportedTemplate:
    """Export the base with a structure full of unique random placeholders. Raises InputError."""
    slots, content = placeholders(structure, card)
    program = export_adapter(job, structure, _tensors(slots, content, structure.shapes(card)))
    return ExportedTemplate(program, locate(program, slots, content), job.model.kv_cache_bytes)


def export_adapter(
    job: Job, structure: Structure, factors: Mapping[str, torch.Tensor], directory: Path | None = None
) -> bytes:
    """The full export of one adapter: what relinking must equal byte for byte. `factors` are the folded ones.

    With `directory`, what the program asks for is written there, for a program that no store has a foundation for.
    """
    module = job.model.build(job.progress)
    _quantize(job, module)
    owned = attach(module, structure, factors)
    return _lower(job, module, owned, directory).program


def placeholders(structure: Structure, card: Card) -> tuple[list[Slot], list[bytes]]:
    """One slot for each distinct factor, and unique bytes for it: random, the same at every export.

    Factors that the structure declares equal share a slot, because an export stores equal bytes once.
    """
    specs = {spec.name: spec for spec in structure.factors(card)}
    twin = {name: group[0] for group in structure.equal for name in group}
    names: dict[str, list[str]] = {}
    for name in specs:
        names.setdefault(twin.get(name, name), []).append(name)
    random = np.random.Generator(np.random.PCG64(list(structure.digest.raw)))
    slots, content = [], []
    for first, shared in names.items():
        spec = specs[first]
        data = _random_bytes(random, spec)
        slots.append(Slot(tuple(shared), spec.dtype, spec.shape, len(data), (), ()))
        content.append(data)
    return slots, content


def _random_bytes(random: np.random.Generator, spec: FactorSpec) -> bytes:
    kind = np.float16 if spec.dtype == "F16" else np.float32
    return random.uniform(-1.0, 1.0, spec.shape).astype(kind).tobytes()


def _tensors(slots: list[Slot], content: list[bytes], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    """The placeholders by factor, each in its own shape: factors of several shapes may have equal bytes."""
    return {
        name: torch.frombuffer(bytearray(data), dtype=DTYPES[slot.dtype]).reshape(shapes[name])
        for slot, data in zip(slots, content, strict=True)
        for name in slot.names
    }


def _quantize_measured(job: Job, module: nn.Module) -> dict[str, Any]:
    """`_quantize`, and for a decoder with a tokenizer the table's member `perplexity`: before, after, on how much."""
    checkpoint = job.source if job.recipe.quantized and isinstance(job.source, Checkpoint) else None
    ids = text_ids(checkpoint.files, job.context) if checkpoint else None
    if ids is None:
        _quantize(job, module)
        return {}
    job.progress("measuring")
    before = perplexity(module, ids)
    _quantize(job, module)
    job.progress("measuring")
    return {"perplexity": {"tokens": len(ids), "before": before, "after": perplexity(module, ids)}}


def _quantize(job: Job, module: nn.Module) -> None:
    """Always before factors are attached, so that the base program and every template ask for the same bytes."""
    if job.recipe.quantized:
        job.progress("quantizing")
        quantize(module, job.recipe.quantized)


def _lower(job: Job, module: nn.Module, factors: frozenset[str], directory: Path | None) -> Lowered:
    unwrap(module)
    with torch.no_grad():
        return lower(
            module,
            job.model.example(),
            factors=factors,
            foundation_dir=directory,
            progress=job.progress,
            packed=stored(module),
        )
