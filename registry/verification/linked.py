"""Links: foundations against their tables, templates against foundations, programs against their templates."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from registry.artifacts import ExternalTensor, Foundation, Template
from registry.catalog import foundations, records, retold
from registry.catalog.records import Program
from registry.digest import Digest
from registry.errors import IntegrityError
from registry.formats import mapped
from registry.formats.ptd import read_ptd
from registry.plates import Outline, check_plate, open_plate
from registry.verification.inspection import Inspection


def check_foundations(inspection: Inspection) -> None:
    """Every foundation with its templates and their builds."""
    pinned = retold.pinned_tables(inspection.session)
    for digest in foundations.digests(inspection.session):
        table = foundations.foundation(inspection.session, digest)
        if table is None:
            continue  # a broken reference, which the rows' own check has named
        if inspection.sound(table.file):
            _check_foundation(inspection, table, hashing=not inspection.fast and digest not in pinned)
        for template in foundations.templates(inspection.session, digest):
            _check_template(inspection, template, table.tensors)


def _check_foundation(inspection: Inspection, table: Foundation, *, hashing: bool) -> None:
    digest = table.file.digest
    with inspection.finding("foundation", str(digest), partial(foundations.dependants, inspection.session, digest)):
        entries = read_ptd(mapped(inspection.store.path(digest))).entries
        if {(e.key, e.offset, e.size) for e in entries} != {(t.key, t.offset, t.size) for t in table.tensors}:
            raise IntegrityError("its file lists other tensors than its table")
        for tensor in table.tensors:
            _check_tensor(inspection, digest, tensor, hashing=hashing)


def _check_tensor(inspection: Inspection, foundation: Digest, tensor: ExternalTensor, *, hashing: bool) -> None:
    """A row's digest against its key, a hash of the bytes. A key that covers the layout too is no hash of them alone.

    Then the log decides, which pins the table; with `hashing`, for a log of earlier versions, the bytes do.
    """
    known = tensor.key.removeprefix("scale_")
    if tensor.key.startswith("tensor_"):
        if not hashing:
            return
        span = (tensor.offset, tensor.offset + tensor.size)
        known = Digest.of_chunks(inspection.store.chunks(foundation, *span)).hex
    if len(known) == 64 and known != tensor.digest.hex:
        raise IntegrityError(f"its table says that {tensor.key} has the digest {tensor.digest}")


def _check_template(inspection: Inspection, template: Template, tensors: Sequence[ExternalTensor]) -> None:
    subject = _subject(template)
    row = foundations.template_id(inspection.session, template)
    programs = records.programs(inspection.session, row) if row is not None else iter(())
    outline: Outline | None = None
    if inspection.sound(template.hollow) and inspection.sound(template.table):
        with inspection.finding("template", subject, partial(inspection.dependants, template.hollow.digest)):
            plate = open_plate(template, inspection.store.read)
            outline = plate.outline()
            check_plate(plate, tensors)
    inspection.builds += not template.structure.get("modules")
    for build in programs:
        inspection.builds += 1
        if outline is not None and inspection.sound(build.file):
            with inspection.finding("link", build.ref, partial(inspection.dependants, build.file.digest)):
                _check_build(inspection, build, outline)


def _subject(template: Template) -> str:
    if not template.structure.get("modules"):
        return f"the base program of {template.foundation}"
    return f"the template {template.digest} of {template.foundation}"


def _check_build(inspection: Inspection, build: Program, outline: Outline) -> None:
    if build.factors.size != outline.factor_bytes:
        raise IntegrityError(f"its factors have {build.factors.size} bytes, its template {outline.factor_bytes}")
    outline.check(mapped(inspection.store.path(build.file.digest)))
