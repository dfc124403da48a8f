"""Links: foundations against their tables, templates against foundations, programs against their templates.

A template is filled with sample factors once, and every key of that program is looked for in its foundation. A build's
program then needs no reading: where it equals its template in every byte outside of the factors' places, it asks for
exactly what the template asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from registry.artifacts import ExternalTensor, Foundation, Template
from registry.catalog import foundations, records
from registry.catalog.records import Program
from registry.digest import Digest
from registry.errors import IntegrityError
from registry.formats import mapped
from registry.formats.ptd import read_ptd
from registry.formats.pte import read_pte
from registry.links import check_inline, check_links
from registry.relink import relink, unpack
from registry.relocation import RelocationTable
from registry.verification.inspection import Inspection


@dataclass(frozen=True, slots=True)
class _Plate:
    """A template as bytes, and the places where it is not a program's own."""

    hollow: memoryview
    table: RelocationTable


def check_foundations(inspection: Inspection) -> None:
    """Every foundation with its templates and their builds."""
    for digest in foundations.digests(inspection.session):
        table = foundations.foundation(inspection.session, digest)
        if table is None:
            continue  # a broken reference, which the rows' own check has named
        if inspection.sound(table.file):
            _check_foundation(inspection, table)
        for template in foundations.templates(inspection.session, digest):
            _check_template(inspection, template, table.tensors)


def _check_foundation(inspection: Inspection, table: Foundation) -> None:
    digest = table.file.digest
    dependants = foundations.dependants(inspection.session, digest)
    with inspection.finding("foundation", str(digest), dependants):
        entries = read_ptd(mapped(inspection.store.path(digest))).entries
        if {(e.key, e.offset, e.size) for e in entries} != {(t.key, t.offset, t.size) for t in table.tensors}:
            raise IntegrityError("its file lists other tensors than its table")
        for tensor in table.tensors:
            _check_tensor(inspection, digest, tensor)


def _check_tensor(inspection: Inspection, foundation: Digest, tensor: ExternalTensor) -> None:
    """A row's digest against its key, a hash of the bytes; where that covers the layout too, the bytes decide."""
    known = tensor.key.removeprefix("scale_")
    if tensor.key.startswith("tensor_"):
        if inspection.fast:
            return
        span = (tensor.offset, tensor.offset + tensor.size)
        known = Digest.of_chunks(inspection.store.chunks(foundation, *span)).hex
    if len(known) == 64 and known != tensor.digest.hex:
        raise IntegrityError(f"its table says that {tensor.key} has the digest {tensor.digest}")


def _check_template(inspection: Inspection, template: Template, tensors: Sequence[ExternalTensor]) -> None:
    subject = _subject(template)
    row = foundations.template_id(inspection.session, template)
    programs = records.programs(inspection.session, row) if row is not None else iter(())
    plate: _Plate | None = None
    if inspection.sound(template.hollow) and inspection.sound(template.table):
        with inspection.finding("template", subject, inspection.dependants(template.hollow.digest)):
            plate = _plate(inspection, template)
            program = relink(bytes(plate.hollow), plate.table, sample(plate.table))
            pte = read_pte(program)
            check_inline(pte, program)
            check_links(pte, tensors)
    inspection.builds += not template.structure.get("modules")
    for build in programs:
        inspection.builds += 1
        if plate is not None and inspection.sound(build.file):
            with inspection.finding("link", build.ref, inspection.dependants(build.file.digest)):
                _check_program(inspection, build, plate)


def _subject(template: Template) -> str:
    if not template.structure.get("modules"):
        return f"the base program of {template.foundation}"
    return f"the template {template.digest} of {template.foundation}"


def _plate(inspection: Inspection, template: Template) -> _Plate:
    """The hollow program and its table. Raises FormatError, and IntegrityError when it is not what is recorded."""
    read = inspection.store.read
    stored, empty = read(template.hollow.digest), not template.structure.get("modules")
    hollow = stored if empty else unpack(stored, template.program_size)
    if (Digest.of(hollow), len(hollow)) != (template.digest, template.program_size):
        raise IntegrityError(f"its program has {len(hollow)} bytes and the digest {Digest.of(hollow)}")
    table = RelocationTable(len(hollow), (), ()) if empty else RelocationTable.from_bytes(read(template.table.digest))
    return _Plate(memoryview(hollow), table)


def sample(table: RelocationTable) -> bytes:
    """Factors that are all different, so that a program that is filled with them names each of them once."""
    pieces = (
        (index.to_bytes(4, "little") * (slot.size // 4 + 1))[: slot.size] for index, slot in enumerate(table.slots, 1)
    )
    return b"".join(pieces)


def _check_program(inspection: Inspection, build: Program, plate: _Plate) -> None:
    """Raise IntegrityError unless a program is its template everywhere but in the factors' places."""
    if build.file.size != plate.table.program_size or build.factors.size != plate.table.factor_bytes:
        raise IntegrityError(f"{build.file.digest} is no program of its template: the sizes differ")
    program = mapped(inspection.store.path(build.file.digest))
    for start, end in _gaps(plate.table):
        if program[start:end] != plate.hollow[start:end]:
            raise IntegrityError(f"{build.file.digest} is no program of its template: bytes {start} to {end} differ")


def _gaps(table: RelocationTable) -> Iterator[tuple[int, int]]:
    """The spans of a program that hold no factor and no factor's key."""
    at = 0
    for offset, length in sorted(table.sites()):
        if at < offset:
            yield at, offset
        at = offset + length
    if at < table.program_size:
        yield at, table.program_size
