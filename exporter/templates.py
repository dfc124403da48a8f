"""Templates of foundations: found in the store, or exported and recorded. Torch-free itself.

    template = add_template(registry, foundation, structure, card, context=2048)

A template belongs to one ExecuTorch version; the base program is the template of the empty structure.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from exporter.card import Card
from exporter.quiet import quiet
from exporter.recipe import Recipe
from exporter.sources import Progress, load_exporter, no_progress, open_source, recipe_for
from exporter.specs import spec_of
from exporter.structure import Structure
from registry.artifacts import Foundation, Runtime, Template
from registry.digest import Digest
from registry.errors import IntegrityError, Unavailable
from registry.formats.pte import Pte, read_pte
from registry.links import check_links
from registry.relink import hollow, pack
from registry.relocation import RelocationTable
from registry.service import Registry

if TYPE_CHECKING:
    from exporter import export as torch_export

LIFTED_BYTES = 4096
"""Scalars such as a norm's epsilon stay in the program on purpose; anything larger would be a weight."""

_LISTED = 20


def record_base_program(
    registry: Registry,
    foundation: Foundation,
    made: torch_export.ExportedBase,
    job: torch_export.Job,
) -> Template:
    """The base program is the template of the empty structure: nothing to fill, stored plain."""
    pte = read_pte(made.program)
    check_links(pte, foundation.tensors)
    file = registry.blobs.put_bytes(made.program)
    table = registry.blobs.put_bytes(RelocationTable(len(made.program), (), ()).to_bytes())
    return registry.add_template(
        Template(
            digest=file.digest,
            foundation=foundation.file.digest,
            structure=Structure().to_json(),
            context=job.context,
            graph=job.recipe.graph,
            executorch=job.recipe.libraries["executorch"],
            hollow=file,
            table=table,
            program_size=len(made.program),
            runtime=runtime_of(pte, job.recipe),
            kv_cache_bytes=made.kv_cache_bytes,
        )
    )


def runtime_of(pte: Pte, recipe: Recipe) -> Runtime:
    """ExecuTorch guarantees a program on the version that wrote it and on the next minor one; never on an older."""
    major, minor = (int(part) for part in recipe.libraries["executorch"].split(".")[:2])
    return Runtime((major, minor), (major, minor + 1), pte.backends, pte.operators)


def find_template(
    registry: Registry, foundation: Foundation, structure: Structure, context: int, recipe: Recipe
) -> Template | None:
    """The recorded template for the recipe's ExecuTorch, or, where none is installed, for the newest one on record."""
    document = structure.to_json()
    executorch = recipe.libraries.get("executorch")
    if executorch is not None:
        return registry.find_template(foundation.file.digest, document, context, recipe.graph, executorch)
    fitting = [
        template
        for template in registry.templates(foundation.file.digest)
        if template.structure == document and template.context == context and template.graph == recipe.graph
    ]
    return fitting[-1] if fitting else None


def add_template(
    registry: Registry,
    foundation: Foundation,
    structure: Structure,
    card: Card,
    *,
    context: int,
    base: Path | None = None,
    progress: Progress = no_progress,
) -> Template:
    """Find the template of a structure, or export it from the checkpoint (`base`, by default the recorded hint).

    Raises what `open_source` raises, and Unavailable without the [export] extra: "structure not exported yet", with
    those that are, and the command that makes this one.
    """
    recipe = recipe_for(registry, foundation)
    found = find_template(registry, foundation, structure, context, recipe)
    if found is not None:
        return found
    try:
        torch_export = load_exporter("a new structure", progress)
    except Unavailable:
        raise _not_exported(registry, foundation, structure, card, context) from None
    with registry.export_lock(lambda: progress("waiting for another export of this store")):
        found = find_template(registry, foundation, structure, context, recipe)
        if found is not None:  # the export that this one waited for
            return found
        with open_source(registry, foundation, base, progress) as source:
            job = torch_export.Job(source, recipe, context, progress)
            return export_structure(registry, foundation, structure, card, job)


def export_structure(
    registry: Registry, foundation: Foundation, structure: Structure, card: Card, job: torch_export.Job
) -> Template:
    """Export the template of a structure and record it. The caller holds the export lock. Raises IntegrityError."""
    torch_export = load_exporter("a new structure", job.progress)
    with quiet():
        made = torch_export.export_template(job, structure, card)
    return record_template(registry, foundation, structure, made, job)


def _not_exported(
    registry: Registry, foundation: Foundation, structure: Structure, card: Card, context: int
) -> Unavailable:
    """Names what a machine without torch can publish, and the command that makes this structure known."""
    templates = [each for each in registry.templates(foundation.file.digest) if each.structure["modules"]]
    known = [f"{Structure.from_json(each.structure).describe()}, context {each.context}" for each in templates]
    spec, name = spec_of(structure, card), card.name or foundation.file.digest
    command = f"ptdock template add --foundation {name} --structure {spec} --context {context}" if spec else None
    make = f"`{command}`" if command else "publish one adapter of it"
    return Unavailable(
        f"structure not exported yet: {structure.describe()}, context {context}; "
        f"known here: {'; '.join(dict.fromkeys(known[-_LISTED:])) or 'none'}",
        hint=f"where the checkpoint and the [export] extra are, {make} once; then no adapter of it needs torch",
        structure=structure.describe(),
        spec=spec,
        command=command,
        known=known,
    )


def record_template(
    registry: Registry,
    foundation: Foundation,
    structure: Structure,
    made: torch_export.ExportedTemplate,
    job: torch_export.Job,
) -> Template:
    """Store a template hollow, and record it. Raises IntegrityError for a base weight that is inside of it."""
    pte = read_pte(made.program)
    check_links(pte, foundation.tensors)
    check_no_base_inside(pte, made.program, foundation, made.table)
    empty = hollow(made.program, made.table)
    return registry.add_template(
        Template(
            digest=Digest.of(empty),
            foundation=foundation.file.digest,
            structure=structure.to_json(),
            context=job.context,
            graph=job.recipe.graph,
            executorch=job.recipe.libraries["executorch"],
            hollow=registry.blobs.put_bytes(pack(empty)),
            table=registry.blobs.put_bytes(made.table.to_bytes()),
            program_size=len(made.program),
            runtime=runtime_of(pte, job.recipe),
            kv_cache_bytes=made.kv_cache_bytes,
        )
    )


def check_no_base_inside(pte: Pte, program: bytes, foundation: Foundation, table: RelocationTable) -> None:
    """Raises IntegrityError when a base weight stands inside the adapter's program."""
    sites = {offset for slot in table.slots for offset in slot.data}
    names = {tensor.key: tensor.names for tensor in foundation.tensors}
    for part in pte.inline:
        if part.offset not in sites:
            owner = names.get(part.key, (part.key,))[0]
            raise IntegrityError(f"{owner} ({part.size} bytes) is inside the adapter", key=part.key, size=part.size)
    for constant in pte.constants:
        if constant.offset not in sites and constant.size > LIFTED_BYTES:
            digest = Digest.of(memoryview(program)[constant.offset :][: constant.size])
            known = (tensor.names[0] for tensor in foundation.tensors if tensor.digest == digest)
            owner = constant.name or next(known, "a constant")
            raise IntegrityError(f"{owner} ({constant.size} bytes) is inside the adapter", size=constant.size)
