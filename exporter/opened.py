"""A published adapter opened for looking at: what its build holds, what it was trained as. Torch-free.

    adapter = opened(registry, registry.build("pirate@1.2.0"))
    adapter.parts["model.layers.0.self_attn.q_proj"].factors["lora_A"].shape     # (8, 576)

Factors are the folded ones, read from their blob by the template's relocation table; the config and the digests of the
trained tensors are read from the stored source.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exporter.card import Card
from exporter.compare import Part
from exporter.linker import card_of
from exporter.peft.fields import FILE as CONFIG
from exporter.peft.tensors import read_tensors
from exporter.structure import Structure, split_factor
from registry import canonical
from registry.artifacts import Build, Source, Version
from registry.digest import Digest
from registry.relocation import RelocationTable
from registry.service import Registry

_NUMPY: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2")}


@dataclass(frozen=True, slots=True)
class Opened:
    """One build: `parts` by module, those of `dead` modules without factors; `config` is adapter_config.json."""

    version: Version
    build: Build
    structure: Structure
    source: Source
    parts: Mapping[str, Part] = field(repr=False)
    config: Mapping[str, Any] = field(repr=False)

    @property
    def dead(self) -> tuple[str, ...]:
        """The modules that the program never uses."""
        return tuple(name for name, part in self.parts.items() if not part.factors)


def opened(registry: Registry, build: Build, card: Card | None = None) -> Opened:
    """Open a build; `card` is that of its foundation, when it is at hand.

    Raises NotFound for a blob that the store has lost, IntegrityError for one that is damaged.
    """
    version = registry.version(f"{build.adapter}@{build.version}")
    template = registry.template_of(build)
    table = RelocationTable.from_bytes(registry.blobs.read(template.table.digest))
    structure = Structure.from_json(template.structure)
    card = card or card_of(registry, registry.foundation(build.foundation))
    factors = _factors(table, registry.blobs.read(build.factors.digest), structure.shapes(card))
    source = registry.source(version)
    config = canonical.loads(registry.blobs.read(source.files[CONFIG].digest), what=CONFIG)
    parts = {
        name: Part(name, card.modules[name], shape, factors.get(name, {})) for name, shape in structure.modules.items()
    }
    return Opened(version, build, structure, source, parts, config)


def _factors(
    table: RelocationTable, blob: bytes, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, dict[str, NDArray[Any]]]:
    """The factors by module and suffix, as views of their blob."""
    found: dict[str, dict[str, NDArray[Any]]] = defaultdict(dict)
    start = 0
    for slot in table.slots:
        kind = _NUMPY[slot.dtype]
        values = np.frombuffer(blob, kind, slot.size // kind.itemsize, start)
        for name in slot.names:
            module, suffix = split_factor(name)
            found[module][suffix] = values.reshape(shapes[name])
        start += slot.size
    return found


@dataclass(frozen=True, slots=True)
class Mark:
    """What tells a trained tensor from another of its name."""

    dtype: str
    shape: tuple[int, ...]
    digest: Digest


def trained_tensors(registry: Registry, source: Source) -> dict[str, Mark] | None:
    """The tensors of a source by name, an initial adapter's behind `initial/`; None where a file is a pickle."""
    found: dict[str, Mark] = {}
    for file, descriptor in source.files.items():
        if file.endswith(".bin"):
            return None
        if file.endswith(".safetensors"):
            folder = file.rpartition("/")[0]
            for name, stored in read_tensors(registry.blobs.path(descriptor.digest)).items():
                found[f"{folder}/{name}" if folder else name] = Mark(stored.dtype, stored.shape, Digest.of(stored.raw))
    return found
