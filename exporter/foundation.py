"""Makes foundations and templates in a registry: the place where a checkpoint meets the store. Torch-free itself.

    made = export_foundation(registry, Path("build/smollm2"), "smollm2", ExportOptions(context=512))

Content goes into the store first, rows follow in one transaction each, so a crash leaves at worst orphan blobs.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from exporter import tokenizer
from exporter.architecture import check_tensors, spec_for
from exporter.base import BaseSource, Checkpoint, fingerprint, read_base, tensor_table
from exporter.computed import CONFIG, CONFIGS, computed
from exporter.finetune import NotRetargetableError, find_twin, retarget_foundation
from exporter.parts import base_files, module_document, read_files
from exporter.prompt import prompt_of
from exporter.quiet import quiet
from exporter.recipe import Recipe
from exporter.sources import Progress, load_exporter, no_progress
from exporter.structure import Structure
from exporter.templates import find_template, record_base_program
from registry import canonical
from registry.artifacts import Base, ExternalTensor, Foundation, Template, Tensor
from registry.digest import Descriptor, Digest
from registry.errors import Conflict, InputError, NotFound, Unavailable
from registry.formats import mapped
from registry.formats.ptd import read_ptd
from registry.formats.pte import read_pte
from registry.founding import check_files
from registry.links import foundation_tensors
from registry.names import check_name
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
    checkpoint = _as_recorded(registry, checkpoint)
    files = read_files(checkpoint.files)
    context = options.context or min(2048, computed(files).spec.max_positions)
    check_tensors(spec_for(checkpoint.config, context), checkpoint.tensors)
    known = registry.find_foundation(fingerprint(checkpoint.tensors), options.recipe.to_json())
    program = known and find_template(registry, known, Structure(), context, options.recipe)
    if known is not None and program:
        foundation = registry.add_foundation(known, name, replace_name=options.replace_name)
        record_base(registry, checkpoint)
        return Exported(name, foundation, program, fresh=False, seconds=time.monotonic() - started)
    _check_name_is_free(registry, checkpoint, name, options)
    _check_files(registry, checkpoint)
    retargeted = _retarget(registry, checkpoint, name, options, context, progress)
    if retargeted is not None:
        return replace(retargeted, seconds=time.monotonic() - started)
    _check_ground(registry, checkpoint, options.recipe)
    check_readable(files)
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
    except (NotRetargetableError, NotFound) as reason:  # what the store has lost of another base is no obstacle
        progress(f"a full export: {reason.message}")
        return None
    record_base(registry, checkpoint, like=registry.base(twin.base))
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


def _as_recorded(registry: Registry, checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with the config files that its base is recorded with, where both say the same to a program.

    Another version of transformers saves the same model with other fields.
    """
    with suppress(NotFound, InputError):
        known = registry.base(fingerprint(checkpoint.tensors))
        recorded = base_files(registry.blobs, known, CONFIGS)
        if CONFIG in recorded and computed(recorded) == computed(read_files(checkpoint.files)):
            others = {name: path for name, path in checkpoint.files.items() if name not in CONFIGS}
            kept = {name: registry.blobs.path(known.files[name].digest) for name in CONFIGS if name in known.files}
            return replace(checkpoint, files=others | kept)
    return checkpoint


def _check_files(registry: Registry, checkpoint: Checkpoint) -> None:
    """Say before the export, not after it, that this base is recorded with another config or tokenizer."""
    try:
        known = registry.base(fingerprint(checkpoint.tensors))
    except NotFound:
        return
    check_files(known, {name: Descriptor.of(path.read_bytes()) for name, path in checkpoint.files.items()})


def _check_ground(registry: Registry, checkpoint: Checkpoint, recipe: Recipe) -> None:
    """Say before the export, not after it, that its place cannot be recorded or the disk not hold the foundation."""
    try:
        checkpoint.hint.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{checkpoint.directory}: the path is not UTF-8, so it cannot be recorded", hint="rename it in UTF-8"
        ) from None
    check_room(registry.home, checkpoint.tensors, recipe)


def check_readable(files: tokenizer.Files) -> None:
    """Say before the export, not after it, that a tokenizer's files are none. Raises FormatError."""
    tokenizer.describe(files)
    prompt_of(files)


def check_room(home: Path, tensors: Iterable[Tensor], recipe: Recipe) -> None:
    """Raise Unavailable where the disk cannot hold the foundation; what quantizing saves is known only afterwards."""
    if recipe.quantized:
        return
    distinct = {tensor.digest: math.prod(tensor.shape) for tensor in tensors}
    need = sum(distinct.values()) * (2 if recipe.dtype == "F16" else 4)
    free = shutil.disk_usage(home).free
    if free < need:
        raise Unavailable(
            f"no space for the foundation: it needs {need / 1e6:,.1f} MB, {free / 1e6:,.1f} MB are free in {home}",
            hint="free some space, or choose a store on another disk: ptdock --home DIR …",
            need=need,
            free=free,
        )


def record_base(registry: Registry, source: BaseSource, like: Base | None = None) -> Base:
    """Store a base's tensor table, config and tokenizer files, and record it with a hint where it stands.

    Where the tokenizer's files are those of `like`, so is the prompt.
    """
    put, read = registry.blobs.put_bytes, read_files(source.files)
    files = {name: put(data) for name, data in read.items()}
    table = put(tensor_table(source.tensors))
    if like is not None and like.prompt is not None and _tokenizer(files) == _tokenizer(like.files):
        return registry.add_base(Base(fingerprint(source.tensors), table, files, source.hint, like.prompt))
    prompt = prompt_of(read)
    kept = put(prompt.to_bytes()) if prompt else None
    return registry.add_base(Base(fingerprint(source.tensors), table, files, source.hint, kept))


def _tokenizer(files: Mapping[str, Descriptor]) -> dict[str, Descriptor]:
    return {name: file for name, file in files.items() if name in tokenizer.FILES}


def record_foundation(
    registry: Registry,
    source: BaseSource,
    made: torch_export.ExportedBase,
    options: ExportOptions,
    name: str,
) -> Foundation:
    """Store the `.ptd` and record it under `name`; every key is checked against its bytes. Raises Conflict."""
    file = registry.blobs.put_file(made.foundation, move=True)
    tensors = tensors_of(made, registry.blobs.path(file.digest))
    foundation = Foundation(
        file=file,
        base=fingerprint(source.tensors),
        recipe=options.recipe.to_json(),
        modules=_module_table(registry, file.digest, module_document(made.modules, read_files(source.files))),
        tensors=tensors,
    )
    return registry.add_foundation(foundation, name, replace_name=options.replace_name)


def tensors_of(made: torch_export.ExportedBase, file: Path) -> tuple[ExternalTensor, ...]:
    """The tensor table of an exported `.ptd`, which stands in `file` now. Raises IntegrityError."""
    data = mapped(file)
    return foundation_tensors(read_ptd(data), data, made.names, read_pte(made.program).layouts)


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
