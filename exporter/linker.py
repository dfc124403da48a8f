"""What makes programs of adapters on one foundation, and holds what all of them share. Torch-free.

    linker = Linker(registry, registry.foundation("smollm2"))
    adapter = linker.check(directory, Gate()).accept()
    folded = linker.fold(adapter)
    linked = linker.link(template, adapter, folded)     # the `.pte`, the factors, what devices may also want

Publishing one adapter, a thousand of them, or one again from its stored source all go this way, so they all give the
same bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from exporter import parts
from exporter.card import Card
from exporter.fold import Folded, fold
from exporter.foundation_rows import FoundationRows
from exporter.peft.adapter import NormalizedAdapter
from exporter.peft.effects import NO_EFFECT
from exporter.peft.gate import Checked, check
from exporter.structure import Structure
from registry import canonical
from registry.artifacts import Base, Foundation, Template
from registry.digest import Descriptor, Digest
from registry.errors import NotFound
from registry.formats.pte import read_pte
from registry.links import check_inline, check_links
from registry.plates import Plate, open_plate
from registry.relocation import RelocationTable
from registry.service import Registry

_PLATES = 4  # unpacked templates that are kept: tens of megabytes each


@dataclass(frozen=True, slots=True)
class Gate:
    """How the gate is to read a directory; see exporter.peft.gate.check."""

    allow_pickle: bool = False
    adapter_name: str | None = None
    initial: Path | None = None
    base_fingerprint: Digest | None = None


@dataclass(frozen=True, slots=True)
class Linked:
    """A program and what it was made from; `parts` by role (registry.artifacts.PARTS); `dead` factors do nothing.

    `unsaid` is whether the adapter has a chat format of its own that no prompt document can say, `nil` whether it
    changes nothing.
    """

    program: bytes = field(repr=False)
    factors: bytes = field(repr=False)
    parts: Mapping[str, bytes] = field(repr=False)
    dead: tuple[str, ...]
    unsaid: bool = False
    nil: bool = False

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a build keeps about its factors, and about a chat format that devices will not have."""
        prompt = "its own chat format is more than text around each turn: devices will prompt as they do for the base"
        dead = (f"{name} has no effect: the program never uses it" for name in self.dead)
        return (*([NO_EFFECT] if self.nil else []), *([prompt] if self.unsaid else []), *dead)


class Linker:
    """One foundation with its card, its weights and the templates that were used last."""

    def __init__(self, registry: Registry, foundation: Foundation) -> None:
        self.registry = registry
        self.foundation = foundation
        self.card = card_of(registry, foundation)
        self._rows = FoundationRows(registry, foundation)
        self._plates: dict[Digest, Plate] = {}
        self._checked: set[Digest] = set()
        self._lock = threading.Lock()

    def check(self, directory: Path, gate: Gate, known: Mapping[str, Descriptor] | None = None) -> Checked:
        """Everything that is wrong with an adapter, or the adapter. Raises InputError for what is no directory.

        `known` are its files as an earlier check found them (exporter.peft.gate.check).
        """
        return check(
            directory,
            self.card,
            allow_pickle=gate.allow_pickle,
            adapter_name=gate.adapter_name,
            initial=gate.initial,
            base_fingerprint=gate.base_fingerprint,
            known=known,
        )

    def fold(self, adapter: NormalizedAdapter) -> Folded:
        """The factors that programs hold. Raises AdapterRefused for values that no program can hold."""
        return fold(adapter, self.card, self._rows)

    def link(self, template: Template, adapter: NormalizedAdapter, folded: Folded) -> Linked:
        """The program, its links checked against the foundation. Raises IntegrityError."""
        plate = self._plate(template)
        used = [folded.tensors[slot.names[0]] for slot in plate.table.slots]
        factors = b"".join(factor.data for factor in used)
        program = plate.fill(factors, [factor.digest for factor in used])
        if template.table.digest not in self._checked:
            # Filling writes nothing but factors and the hashes that name them, so what holds for one holds for all.
            self.check_program(program)
            self._checked.add(template.table.digest)
        made = self._parts(plate.table, adapter, folded, factors)
        unsaid = "prompt" not in made and parts.chats_otherwise(self.registry.blobs, self._base, adapter)
        return Linked(program, factors, made, plate.table.dead, unsaid=unsaid, nil=folded.nil)

    def check_program(self, program: bytes) -> None:
        """Raise IntegrityError unless every key of a program is in the foundation or hashes its own bytes."""
        pte = read_pte(program)
        check_inline(pte, program)
        check_links(pte, self.foundation.tensors)

    def own_prompt(self, adapter: NormalizedAdapter) -> bytes | None:
        """The adapter's own chat format as a document, None where it chats as its base does."""
        return parts.own_prompt(self.registry.blobs, self._base, adapter)

    def _plate(self, template: Template) -> Plate:
        with self._lock:
            return self._opened(template)

    def _opened(self, template: Template) -> Plate:
        found = self._plates.pop(template.table.digest, None)
        if found is None:
            found = open_plate(template, self.registry.blobs.read)
        self._plates[template.table.digest] = found  # the one that was used last stands last
        if len(self._plates) > _PLATES:
            del self._plates[next(iter(self._plates))]
        return found

    @cached_property
    def _base(self) -> Base:
        return self.registry.base(self.foundation.base)

    def _parts(
        self, table: RelocationTable, adapter: NormalizedAdapter, folded: Folded, factors: bytes
    ) -> dict[str, bytes]:
        found = {}
        prompt = self.own_prompt(adapter)
        if prompt is not None:
            found["prompt"] = prompt
        wire = parts.wire_form(table, adapter, folded, factors)
        if wire is not None:
            found["wire"], found["wire_table"] = wire
        return found


def card_of(registry: Registry, foundation: Foundation) -> Card:
    """What the gate must know of a recorded foundation."""
    modules = canonical.loads(registry.blobs.read(foundation.modules.digest), what="module table")
    base = registry.base(foundation.base)
    table = canonical.loads(registry.blobs.read(base.tensors.digest), what="tensor table")
    structures = [Structure.from_json(template.structure) for template in registry.templates(foundation.file.digest)]
    names = [name for name, digest in registry.foundation_names().items() if digest == foundation.file.digest]
    return Card.from_json(
        {
            **modules,
            "base": str(foundation.base),
            "foundation": str(foundation.file.digest),
            "name": names[0] if names else None,
            "tensors": {
                name: {"dtype": dtype, "shape": shape, "digest": digest} for name, dtype, shape, digest in table
            },
            "structures": [{"digest": str(s.digest), "text": s.describe()} for s in structures if s.modules],
            "quantization": foundation.recipe["quantization"],
        }
    )


def default_context(registry: Registry, foundation: Foundation) -> int:
    """The context length of the foundation's newest base program. Raises NotFound when there is none."""
    bases = [t for t in registry.templates(foundation.file.digest) if not t.structure["modules"]]
    if not bases:
        raise NotFound("this foundation has no base program", hint="ptdock foundation export DIR --name NAME")
    return bases[-1].context
