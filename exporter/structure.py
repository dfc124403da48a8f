"""Structures: which modules an adapter changes, how, and which of its factors are byte-equal.

    structure = Structure({"model.layers.0.self_attn.q_proj": ModuleStructure(lora=8)})
    structure.factors(card)   # lora_A (8, 576), lora_B (576, 8) in canonical order
    structure.describe()      # "rank 8 on q_proj (1 module)"

Adapters of one structure share a template. Scalings are no part of it (they are folded into the factors), equality
is: an export stores equal tensors once, so placeholders must repeat in the same pattern. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from exporter.card import Card, Module
from exporter.reading import Document
from registry import canonical
from registry.digest import Digest
from registry.errors import FormatError, InputError

FACTOR_SUFFIXES = (
    "lora_A",
    "lora_B",
    "lora_B.bias",
    "dora_scale",
    "bias",
    "weight",
    "lora_embedding_A",
    "lora_embedding_B",
    "rows",
)


@dataclass(frozen=True, slots=True)
class FactorSpec:
    """One factor tensor: `<module>.<suffix>`, its shape and its dtype (F32 or F16)."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class ModuleStructure:
    """What an adapter brings to one module.

    `lora` and `embedding` are ranks, 0 for none; `rows` are token indices in ascending order. `lora_bias` is a bias
    after `lora_B`, `dora` a scale per output, `bias` and `weight` are full replacements of the base's.
    """

    lora: int = 0
    lora_bias: bool = False
    dora: bool = False
    bias: bool = False
    weight: bool = False
    embedding: int = 0
    rows: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The members that are set."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items() if value}

    @classmethod
    def from_json(cls, entry: Document) -> ModuleStructure:
        """Read one module's entry. Raises FormatError."""
        unknown = set(entry.names()) - {known.name for known in fields(cls)}
        if unknown:
            raise FormatError(f"{entry.where}: unknown member {min(unknown)!r}", hint="upgrade ptdock")
        structure = cls(
            lora=entry.optional_count("lora") or 0,
            lora_bias=entry.has("lora_bias") and entry.flag("lora_bias"),
            dora=entry.has("dora") and entry.flag("dora"),
            bias=entry.has("bias") and entry.flag("bias"),
            weight=entry.has("weight") and entry.flag("weight"),
            embedding=entry.optional_count("embedding") or 0,
            rows=entry.part("rows").counts() if entry.has("rows") else (),
        )
        if structure == cls():
            raise FormatError(f"{entry.where}: the module has neither LoRA nor a replacement")
        if list(structure.rows) != sorted(set(structure.rows)):
            raise FormatError(f"{entry.where}.rows: token indices must ascend")
        if (structure.lora_bias or structure.dora) and not structure.lora:
            raise FormatError(f"{entry.where}: 'lora_bias' and 'dora' need 'lora'")
        return structure

    def shapes(self, module: Module) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Suffix and shape of each factor on this module."""
        if self.lora:
            yield "lora_A", (self.lora, module.inputs)
            yield "lora_B", (module.outputs, self.lora)
        if self.lora_bias:
            yield "lora_B.bias", (module.outputs,)
        if self.dora:
            yield "dora_scale", (module.outputs,)
        if self.bias:
            yield "bias", (module.outputs,)
        if self.weight:
            yield "weight", module.weight_shape
        if self.embedding:
            yield "lora_embedding_A", (self.embedding, module.inputs)
            yield "lora_embedding_B", (module.outputs, self.embedding)
        if self.rows:
            yield "rows", (len(self.rows), module.weight_shape[-1])


@dataclass(frozen=True)
class Structure:
    """Modules by name, and the groups (two or more) of factors with equal bytes. The empty one is the base program."""

    modules: Mapping[str, ModuleStructure] = field(default_factory=dict)
    equal: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "modules", dict(sorted(self.modules.items())))
        object.__setattr__(self, "equal", tuple(sorted(tuple(sorted(group)) for group in self.equal)))

    def to_json(self) -> dict[str, Any]:
        """The document of the structure; `from_json` is its inverse."""
        return {
            "schema": 1,
            "modules": {name: module.to_json() for name, module in self.modules.items()},
            "equal": [list(group) for group in self.equal],
        }

    @classmethod
    def from_json(cls, document: Any) -> Structure:
        """Read a structure document. Raises FormatError, also for equal groups that overlap or name no factor."""
        top = Document(document, "structure")
        top.schema(1)
        modules = {name: ModuleStructure.from_json(entry) for name, entry in top.entries("modules")}
        structure = cls(modules, tuple(group.texts() for group in top.items("equal")))
        members = Counter(name for group in structure.equal for name in group)
        stray = set(members) - set(structure.factor_names())
        if stray or any(count > 1 for count in members.values()) or any(len(group) < 2 for group in structure.equal):
            raise FormatError("structure.equal: groups of two or more factors of this structure, each factor once")
        return structure

    @cached_property
    def digest(self) -> Digest:
        """The digest of the canonical document."""
        return Digest.of(canonical.dumps(self.to_json()))

    def with_equal(self, groups: Iterable[Sequence[str]]) -> Structure:
        """The same modules with these groups of equal factors."""
        return replace(self, equal=tuple(tuple(group) for group in groups))

    def factor_names(self) -> tuple[str, ...]:
        """The names of all factors, sorted."""
        return tuple(
            sorted(f"{name}.{suffix}" for name, module in self.modules.items() for suffix in _suffixes(module))
        )

    def factors(self, card: Card) -> tuple[FactorSpec, ...]:
        """All factors in canonical order (by name). Raises InputError for a module that the card does not have."""
        specs = []
        for name, structure in self.modules.items():
            module = card.modules.get(name)
            if module is None:
                raise InputError(f"the structure names {name}, which {card.architecture} does not have")
            specs += [
                FactorSpec(f"{name}.{suffix}", shape, card.factor_dtype) for suffix, shape in structure.shapes(module)
            ]
        return tuple(sorted(specs, key=lambda spec: spec.name))

    def shapes(self, card: Card) -> dict[str, tuple[int, ...]]:
        """The shape of each factor by name: those that share a slot of a relocation table may differ in theirs."""
        return {spec.name: spec.shape for spec in self.factors(card)}

    def describe(self) -> str:
        """One line for people: `rank 8 on q_proj, v_proj (60 modules)` and what comes with it."""
        if not self.modules:
            return "the base program"
        parts = [*_rank_lines(self.modules), *_extra_lines(self.modules)]
        if self.equal:
            parts.append(f"{len(self.equal)} group{'s' * (len(self.equal) > 1)} of equal factors")
        return "; ".join(parts)


def split_factor(name: str) -> tuple[str, str]:
    """Module and suffix of a factor's name. Raises InputError."""
    for suffix in FACTOR_SUFFIXES:
        module = name.removesuffix(f".{suffix}")
        if module and module != name:
            return module, suffix
    raise InputError(f"{name!r} is no factor's name")


def _suffixes(module: ModuleStructure) -> list[str]:
    return [suffix for suffix, _ in module.shapes(Module("linear", 0, 0, False))]


def _rank_lines(modules: Mapping[str, ModuleStructure]) -> Iterator[str]:
    kinds = Counter((module.lora, module.dora, module.lora_bias) for module in modules.values() if module.lora)
    for (rank, dora, lora_bias), count in sorted(kinds.items()):
        names = [name for name, m in modules.items() if (m.lora, m.dora, m.lora_bias) == (rank, dora, lora_bias)]
        method = ("DoRA " if dora else "") + f"rank {rank}" + (" with bias" if lora_bias else "")
        yield f"{method} on {_last_names(names)} ({count} module{'s' * (count > 1)})"


def _extra_lines(modules: Mapping[str, ModuleStructure]) -> Iterator[str]:
    for rank in sorted({module.embedding for module in modules.values()} - {0}):
        yield f"embedding rank {rank} on {_last_names(name for name, m in modules.items() if m.embedding == rank)}"
    for attribute, words in (("weight", "replaces the weight of"), ("bias", "replaces the bias of")):
        names = [name for name, module in modules.items() if getattr(module, attribute)]
        if names:
            yield f"{words} {_last_names(names)} ({len(names)} module{'s' * (len(names) > 1)})"
    rows = Counter((name.rpartition(".")[2], len(module.rows)) for name, module in modules.items() if module.rows)
    for (name, size), count in rows.items():
        yield f"{size} token row{'s' * (size > 1)} of {name}" + f" ({count} modules)" * (count > 1)


def _last_names(names: Iterable[str]) -> str:
    return ", ".join(sorted({name.rpartition(".")[2] for name in names}))
