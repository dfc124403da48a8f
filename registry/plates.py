"""A template, opened: its hollow program and its table, ready to be filled, and to be held against programs.

A template is checked once, filled with sample factors: every key of that program must be in its foundation. A build's
program then needs no reading: where it equals its template in every byte outside of the factors' places, it asks for
exactly what the template asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from registry.artifacts import ExternalTensor, Template
from registry.digest import Digest
from registry.errors import IntegrityError
from registry.formats.pte import read_pte
from registry.links import check_inline, check_links
from registry.relink import relink, unpack
from registry.relocation import RelocationTable


@dataclass(frozen=True, slots=True)
class Plate:
    """A template as bytes, and the places that each program fills with its own factors and their keys."""

    hollow: bytes = field(repr=False)
    table: RelocationTable

    def fill(self, factors: bytes | memoryview, digests: Sequence[Digest] | None = None) -> bytes:
        """The program with these factors, whose digests may be known. Raises FormatError for another size."""
        return relink(self.hollow, self.table, factors, digests)

    def outline(self) -> Outline:
        """What all programs of this template have in common."""
        parts, at = [], 0
        for offset, length in (*sorted(self.table.sites()), (self.table.program_size, 0)):
            if at < offset:
                parts.append((at, offset, self.hollow[at:offset]))
            at = offset + length
        return Outline(self.table.program_size, self.table.factor_bytes, tuple(parts))


@dataclass(frozen=True, slots=True)
class Outline:
    """What is the same in all programs of a template: sizes, and where each run of equal bytes starts and ends."""

    size: int
    factor_bytes: int
    parts: tuple[tuple[int, int, bytes], ...] = field(repr=False)

    def check(self, program: memoryview) -> None:
        """Raise IntegrityError unless a program is its template everywhere but in the factors' places."""
        if len(program) != self.size:
            raise IntegrityError(f"no program of its template: it has {len(program)} bytes, not {self.size}")
        for start, end, part in self.parts:
            if bytes(program[start:end]) != part:  # views are compared byte by byte, at a tenth of the speed
                raise IntegrityError(f"no program of its template: bytes {start} to {end} differ")


def open_plate(template: Template, read: Callable[[Digest], bytes]) -> Plate:
    """Read a template's blobs. Raises what `read` raises, FormatError, and IntegrityError for another program."""
    stored, empty = read(template.hollow.digest), not template.structure.get("modules")
    hollow = stored if empty else unpack(stored, template.program_size)
    if (Digest.of(hollow), len(hollow)) != (template.digest, template.program_size):
        raise IntegrityError(f"the template's program has {len(hollow)} bytes and the digest {Digest.of(hollow)}")
    table = RelocationTable(len(hollow), (), ()) if empty else RelocationTable.from_bytes(read(template.table.digest))
    return Plate(hollow, table)


def check_plate(plate: Plate, tensors: Sequence[ExternalTensor]) -> None:
    """Raise IntegrityError unless a program of this template finds all of its keys, in itself or in the foundation."""
    program = plate.fill(sample(plate.table))
    pte = read_pte(program)
    check_inline(pte, program)
    check_links(pte, tensors)


def sample(table: RelocationTable) -> bytes:
    """Factors that are all different, so that a program that is filled with them names each of them once."""
    pieces = (
        (index.to_bytes(4, "little") * (slot.size // 4 + 1))[: slot.size] for index, slot in enumerate(table.slots, 1)
    )
    return b"".join(pieces)
