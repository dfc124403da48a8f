"""Makes foundations and templates in a registry: the place where a checkpoint meets the store. Torch-free itself.

    made = export_foundation(registry, Path("build/smollm2"), "smollm2", ExportOptions(context=512))

Content goes into the store first, rows follow in one transaction each, so a crash leaves at worst orphan blobs.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.architecture import decoder_spec, spec_for
from exporter.base import BaseSource, Checkpoint, fingerprint, read_base, tensor_table
from exporter.card import Card
from exporter.finetune import NotRetargetableError, find_twin, retarget_foundation
from exporter.parts import module_document, read_files
from exporter.prompt import prompt_of
from exporter.quiet import quiet
from exporter.recipe import Recipe, installed_versions
from exporter.sources import Progress, load_exporter, no_progress, open_source, recipe_for
from exporter.specs import spec_of
from exporter.structure import Structure
from registry import canonical
from registry.artifacts import Base, Foundation, Runtime, Template
from registry.digest import Descriptor, Digest
from registry.errors import Conflict, IntegrityError, NotFound, Unavailable
from registry.formats import mapped
from registry.formats.ptd import read_ptd
from registry.formats.pte import Pte, read_pte
from registry.links import check_links, foundation_tensors
from registry.names import check_name
from registry.relink import hollow, pack
from registry.relocation import RelocationTable
from registry.service import Registry

if TYPE_CHECKING:
    from exporter import export as torch_export


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """How to export: `context` positions (None: the model's maximum, at most 2048), the recipe, structures ahead."""

    context: int | None = None
    recipe: Recipe = field(default_factory=Recipe)
    replace_name: bool = False


@dataclass(frozen=True, slots=True)
class Exported:
    """A recorded foundation and its base program; `fresh` is False when it was there already.

    `twin` is the foundation whose export served this one too, None where the checkpoint was exported.
    """

    name: str
    foundation: Foundation
    base_program: Template
    fresh: bool
    seconds: float
    twin: Digest | None = None


def export_foundation(
    registry: Registry, directory: Path, name: str, options: ExportOptions, progress: Progress = no_progress
) -> Exported:
    """Export the checkpoint in `directory` and record base, foundation and base program under `name`.

    An export that is recorded already (same tensors, same recipe, same context) is not repeated. Raises InputError
    for what is no supported checkpoint, Unavailable without the [export] extra or disk space, Conflict when the
    name means other bytes.
    """
    check_name(name, what="foundation")
    progress("hashing the checkpoint")
    with read_base(directory) as checkpoint:
        return _export_checkpoint(registry, checkpoint, name, options, progress)


def _export_checkpoint(
    registry: Registry, checkpoint: Checkpoint, name: str, options: ExportOptions, progress: Progress
) -> Exported:
    started = time.monotonic()
    context = options.context or min(2048, decoder_spec(checkpoint.config).max_positions)
    spec_for(checkpoint.config, context)
    known = registry.find_foundation(fingerprint(checkpoint.tensors), options.recipe.to_json())
    program = known and find_template(registry, known, Structure(), context, options.recipe)
    if known is not None and program:
        foundation = registry.add_foundation(known, name, replace_name=options.replace_name)
        record_base(registry, checkpoint)
        return Exported(name, foundation, program, fresh=False, seconds=time.monotonic() - started)
    _check_name_is_free(registry, checkpoint, name, options)
    retargeted = _retarget(registry, checkpoint, name, options, context, progress)
    if retargeted is not None:
        return replace(retargeted, seconds=time.monotonic() - started)
    torch_export = load_exporter("foundation export", progress)
    with (
        registry.export_lock(lambda: progress("waiting for another export of this store")),
        tempfile.TemporaryDirectory(dir=registry.home, prefix="export-") as work,
    ):
        job = torch_export.Job(checkpoint, options.recipe, context, progress)
        with quiet():
            made = torch_export.export_base(job, Path(work))
        progress("storing the foundation")
        record_base(registry, checkpoint)
        foundation = record_foundation(registry, checkpoint, made, options, name)
        program = record_base_program(registry, foundation, made, job)
    return Exported(name, foundation, program, fresh=True, seconds=time.monotonic() - started)


def _retarget(
    registry: Registry, checkpoint: Checkpoint, name: str, options: ExportOptions, context: int, progress: Progress
) -> Exported | None:
    """A fine-tune of a known architecture, without an export; None where only an export will do, with the reason."""
    twin = find_twin(registry, checkpoint, options.recipe, context)
    if twin is None:
        return None
    try:
        foundation, templates = retarget_foundation(registry, twin, checkpoint, progress)
    except NotRetargetableError as reason:
        progress(f"a full export: {reason.message}")
        return None
    record_base(registry, checkpoint)
    recorded = registry.add_foundation(foundation, name, replace_name=options.replace_name)
    added = [registry.add_template(template) for template in templates]
    program = next(each for each in added if not each.structure["modules"] and each.context == context)
    return Exported(name, recorded, program, fresh=True, seconds=0.0, twin=twin.file.digest)


def _check_name_is_free(registry: Registry, checkpoint: Checkpoint, name: str, options: ExportOptions) -> None:
    """Say before the export, not after it, that the name means another base or another kind of weights."""
    digest = registry.foundation_names().get(name)
    if digest is None or options.replace_name:
        return
    named = registry.foundation(digest)
    kinds = ("dtype", "quantization", "backend")
    wanted = options.recipe.to_json()
    if named.base == fingerprint(checkpoint.tensors) and all(named.recipe[k] == wanted[k] for k in kinds):
        return
    raise Conflict(
        f"the name {name!r} is used: it means {digest.short}, made of other weights or by another recipe",
        hint="choose another name, or pass --replace-name; builds stay linked to the old one by digest",
        name=name,
    )


def record_base(registry: Registry, source: BaseSource) -> Base:
    """Store a base's tensor table, config and tokenizer files, and record it with a hint where it stands."""
    files = {name: registry.blobs.put_bytes(path.read_bytes()) for name, path in source.files.items()}
    table = registry.blobs.put_bytes(tensor_table(source.tensors))
    prompt = prompt_of(read_files(source.files))
    return registry.add_base(
        Base(
            fingerprint(source.tensors),
            table,
            files,
            source.hint,
            registry.blobs.put_bytes(prompt.to_bytes()) if prompt else None,
        )
    )


def record_foundation(
    registry: Registry,
    source: BaseSource,
    made: torch_export.ExportedBase,
    options: ExportOptions,
    name: str,
) -> Foundation:
    """Store the `.ptd` and record it under `name`; every key is checked against its bytes. Raises Conflict."""
    file = registry.blobs.put_file(made.foundation, move=True)
    data = mapped(registry.blobs.path(file.digest))
    tensors = foundation_tensors(read_ptd(data), data, made.names, read_pte(made.program).layouts)
    foundation = Foundation(
        file=file,
        base=fingerprint(source.tensors),
        recipe=options.recipe.to_json(),
        modules=_module_table(registry, file.digest, module_document(made.modules, read_files(source.files))),
        tensors=tensors,
    )
    return registry.add_foundation(foundation, name, replace_name=options.replace_name)


def _module_table(registry: Registry, foundation: Digest, document: bytes) -> Descriptor:
    """Store a module table, or answer the one that is recorded for the same `.ptd`.

    Nothing but what was measured can differ: another machine, or another context, finds another perplexity.
    """
    try:
        known = registry.foundation(foundation).modules
    except NotFound:
        return registry.blobs.put_bytes(document)
    documents = registry.blobs.read(known.digest), document
    recorded, new = ({**canonical.loads(data, what="module table"), "perplexity": None} for data in documents)
    return known if recorded == new else registry.blobs.put_bytes(document)


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
    """The recorded template for what is installed here, or, without torch, for the newest ExecuTorch on record."""
    document = structure.to_json()
    executorch = installed_versions().get("executorch")
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
            with quiet():
                made = torch_export.export_template(job, structure, card)
            return _record_template(registry, foundation, structure, made, job)


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


def _record_template(
    registry: Registry,
    foundation: Foundation,
    structure: Structure,
    made: torch_export.ExportedTemplate,
    job: torch_export.Job,
) -> Template:
    pte = read_pte(made.program)
    check_links(pte, foundation.tensors)
    _check_no_base_inside(pte, made.program, foundation, made.table)
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


_LISTED = 20
LIFTED_BYTES = 4096
"""Scalars such as a norm's epsilon stay in the program on purpose; anything larger would be a weight."""


def _check_no_base_inside(pte: Pte, program: bytes, foundation: Foundation, table: RelocationTable) -> None:
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
