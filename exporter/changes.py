"""What changed between two published adapters: config, tensors, structure, weights, lineage. Torch-free.

changed = changes(registry, *builds_of(registry, "pirate@1.0.0", "pirate@1.1.0"))
changed.to_json()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from exporter.compare import Figures, Move, Part, differences, distance, measure
from exporter.foundation_rows import FoundationRows
from exporter.opened import Mark, Opened, opened, trained_tensors
from exporter.structure import Structure
from registry.artifacts import Build
from registry.digest import Digest
from registry.errors import NotFound
from registry.service import Registry

_APART = "no foundation in common: their weights are not compared"
_PICKLED = "the weights of one are a pickle, which is not read: tensors are not compared"


@dataclass(frozen=True, slots=True)
class ModuleChange:
    """One module before and after, None where the adapter leaves it alone; `moved` is how far after is from before."""

    name: str
    before: Figures | None
    after: Figures | None
    moved: Move | None

    def to_json(self) -> dict[str, Any]:
        """The figures of both sides."""
        return {
            "name": self.name,
            "before": self.before.to_json() if self.before else None,
            "after": self.after.to_json() if self.after else None,
            "moved": self.moved.to_json() if self.moved else None,
        }


@dataclass(frozen=True, slots=True)
class Changes:
    """Two adapters side by side.

    `config`, `structure`, `lineage` and `files` hold what differs, by name, as {"before", "after"}; `tensors` the
    names of trained tensors by what became of them, None where they cannot be read.
    """

    before: Opened
    after: Opened
    config: Mapping[str, Any]
    structure: Mapping[str, Any]
    lineage: Mapping[str, Any]
    files: Mapping[str, Any]
    tensors: Mapping[str, Sequence[str]] | None
    modules: tuple[ModuleChange, ...] = field(repr=False)
    notes: tuple[str, ...]

    @property
    def same_program(self) -> bool:
        """Whether both are the very same `.pte`."""
        return self.before.build.file == self.after.build.file

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "before": _side(self.before),
            "after": _side(self.after),
            "same_program": self.same_program,
            "config": self.config,
            "structure": self.structure,
            "tensors": self.tensors,
            "files": self.files,
            "lineage": self.lineage,
            "modules": [each.to_json() for each in self.modules],
            "notes": list(self.notes),
        }


def figures(registry: Registry, adapter: Opened) -> tuple[Figures, ...]:
    """The figures of every module that an adapter changes, by name."""
    rows = FoundationRows(registry, registry.foundation(adapter.build.foundation))
    return tuple(measure(part, rows) for part in adapter.parts.values())


def builds_of(registry: Registry, first: str, second: str, foundation: str | None = None) -> tuple[Build, Build]:
    """A build of each version: on `foundation`, by default on the newest that both have, else the newest of each.

    Raises NotFound for an unknown version, and for one without a build on the foundation that was asked for.
    """
    wanted = registry.foundation(foundation).file.digest if foundation else None
    sides = [newest_builds(registry.builds(ref)) for ref in (first, second)]
    shared = [digest for digest in sides[1] if digest in sides[0] and wanted in (None, digest)]
    if shared:
        return sides[0][shared[-1]], sides[1][shared[-1]]
    if wanted is not None:
        lacking = next(ref for ref, side in zip((first, second), sides, strict=True) if wanted not in side)
        raise NotFound(f"{lacking} has no build on that foundation", hint="publish it on that foundation first")
    return list(sides[0].values())[-1], list(sides[1].values())[-1]


def newest_builds(builds: Sequence[Build]) -> dict[Digest, Build]:
    """The newest build on each foundation, revoked ones only where no other is left; the newest foundation last."""
    ranked = sorted(enumerate(builds), key=lambda each: (each[1].revoked is None, each[0]))
    found: dict[Digest, Build] = {}
    for _, build in ranked:
        found.pop(build.foundation, None)
        found[build.foundation] = build
    return found


def changes(registry: Registry, first: Build, second: Build) -> Changes:
    """Compare two builds. Raises NotFound and IntegrityError for blobs that are lost or damaged."""
    before, after = opened(registry, first), opened(registry, second)
    marks = [trained_tensors(registry, side.source) for side in (before, after)]
    modules = _modules(registry, before, after)
    said = [change.moved.note for change in modules if change.moved]
    return Changes(
        before,
        after,
        config=differences(before.config, after.config),
        structure=_structures(before.structure, after.structure),
        lineage=differences(before.version.lineage, after.version.lineage),
        files=differences(_files(before), _files(after)),
        tensors=None if marks[0] is None or marks[1] is None else _fates(marks[0], marks[1]),
        modules=modules,
        notes=(
            *([_APART] if first.foundation != second.foundation else []),
            *([_PICKLED] if None in marks else []),
            *dict.fromkeys(note for note in said if note),
        ),
    )


def _modules(registry: Registry, before: Opened, after: Opened) -> tuple[ModuleChange, ...]:
    ones, twos = ({each.part.name: each for each in figures(registry, side)} for side in (before, after))
    rows = FoundationRows(registry, registry.foundation(after.build.foundation))
    together = before.build.foundation == after.build.foundation
    found = []
    for name in sorted(ones.keys() | twos.keys()):
        one, two = ones.get(name), twos.get(name)
        module = (before if one else after).parts[name].module
        plain = Part(name, module)
        moved = distance(before.parts.get(name, plain), after.parts.get(name, plain), rows) if together else None
        found.append(ModuleChange(name, one, two, moved))
    return tuple(found)


def _structures(before: Structure, after: Structure) -> dict[str, Any]:
    """What differs: modules by name, and the groups of equal factors."""
    sides = [structure.to_json() for structure in (before, after)]
    equal = {"equal factors": sides[0]["equal"]}, {"equal factors": sides[1]["equal"]}
    return {**differences(sides[0]["modules"], sides[1]["modules"]), **differences(*equal)}


def _fates(before: Mapping[str, Mark], after: Mapping[str, Mark]) -> dict[str, list[str]]:
    both = sorted(before.keys() & after.keys())
    return {
        "added": sorted(after.keys() - before.keys()),
        "removed": sorted(before.keys() - after.keys()),
        "reshaped": [n for n in both if (before[n].dtype, before[n].shape) != (after[n].dtype, after[n].shape)],
        "changed": [
            n
            for n in both
            if (before[n].dtype, before[n].shape) == (after[n].dtype, after[n].shape) and before[n] != after[n]
        ],
        "equal": [n for n in both if before[n] == after[n]],
    }


def _files(side: Opened) -> dict[str, str]:
    return {name: str(file.digest) for name, file in (*side.source.files.items(), *side.source.attachments.items())}


def _side(side: Opened) -> dict[str, Any]:
    return {
        "name": side.build.adapter,
        "version": side.build.version,
        "foundation": str(side.build.foundation),
        "digest": str(side.build.file.digest),
        "size": side.build.file.size,
        "factors": side.build.factors.to_json(),
        "structure": side.structure.describe(),
        "created": side.version.created,
    }
