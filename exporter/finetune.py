"""Foundations of fine-tunes: finds a recorded foundation of the same architecture and retargets it. Torch-free.

The layout of one export serves every set of weights with the same config, tensor shapes and pattern of equal
tensors (exporter.retarget). Base program and templates come along, so the fine-tune's adapters need no export either.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from exporter.architecture import decoder_spec
from exporter.base import Checkpoint, fingerprint
from exporter.parts import module_document, read_files
from exporter.recipe import Recipe, installed_versions
from exporter.retarget import NotRetargetableError, Retargeted, retarget
from registry import canonical
from registry.artifacts import Foundation, Template
from registry.digest import Digest
from registry.formats.pte import read_pte
from registry.links import check_links
from registry.relink import pack, relink, unpack
from registry.relocation import RelocationTable
from registry.service import Registry

_TOKENS = ("bos_token_id", "eos_token_id")  # constant methods of the program
Progress = Callable[[str], None]


def find_twin(registry: Registry, checkpoint: Checkpoint, recipe: Recipe, context: int) -> Foundation | None:
    """The newest recorded foundation whose export can serve this checkpoint, with a base program for `context`."""
    shapes = {(tensor.name, tensor.shape) for tensor in checkpoint.tensors}
    for known in reversed(registry.foundations()):
        if (
            known.base != fingerprint(checkpoint.tensors)
            and _same_recipe(known.recipe, recipe)
            and any(
                not template.structure["modules"] and template.context == context
                for template in _templates(registry, known)
            )
            and _shapes(registry, known) == shapes
            and _computes(_files(registry, known)) == _computes(read_files(checkpoint.files))
        ):
            return known
    return None


def retarget_foundation(
    registry: Registry, known: Foundation, checkpoint: Checkpoint, progress: Progress
) -> tuple[Foundation, tuple[Template, ...]]:
    """Store the fine-tune's `.ptd`, base programs and templates; answers them, not recorded yet.

    Raises NotRetargetableError where only a full export would do.
    """
    progress("writing the foundation")
    with tempfile.TemporaryDirectory(dir=registry.home, prefix="export-") as work:
        path = Path(work) / "foundation.ptd"
        made = retarget(registry.blobs.path(known.file.digest), known, checkpoint.weights, checkpoint.tensors, path)
        file = registry.blobs.put_file(path, move=True)
    modules = canonical.loads(registry.blobs.read(known.modules.digest), what="module table")
    foundation = replace(
        known,
        file=file,
        base=fingerprint(checkpoint.tensors),
        modules=registry.blobs.put_bytes(module_document(modules, read_files(checkpoint.files))),
        tensors=made.tensors,
    )
    progress("relinking base program and templates")
    templates = (_retarget_template(registry, made, foundation, each) for each in _templates(registry, known))
    return foundation, tuple(templates)


def _retarget_template(registry: Registry, made: Retargeted, foundation: Foundation, template: Template) -> Template:
    """The same hollow program, asking for the fine-tune's tensors. Raises IntegrityError when a link is missing."""
    blob = registry.blobs.read(template.hollow.digest)
    empty = not template.structure["modules"]
    program = made.program(blob if empty else unpack(blob, template.program_size))
    check_links(read_pte(_filled(registry, template, program)), foundation.tensors)
    return replace(
        template,
        digest=Digest.of(program),
        foundation=foundation.file.digest,
        hollow=registry.blobs.put_bytes(program if empty else pack(program)),
    )


def _filled(registry: Registry, template: Template, hollow: bytes) -> bytes:
    """The program with some factors: a hollow one has no keys to read where its own would stand."""
    table = RelocationTable.from_bytes(registry.blobs.read(template.table.digest))
    return relink(hollow, table, np.random.default_rng(0).bytes(table.factor_bytes))


def _templates(registry: Registry, known: Foundation) -> tuple[Template, ...]:
    """Those of the installed ExecuTorch; without one, of the newest on record."""
    found = registry.templates(known.file.digest)
    wanted = installed_versions().get("executorch", found[-1].executorch if found else "")
    return tuple(template for template in found if template.executorch == wanted)


def _same_recipe(document: Mapping[str, Any], recipe: Recipe) -> bool:
    wanted = recipe.to_json()
    same = all(document[name] == wanted[name] for name in ("dtype", "backend", "quantization", "graph"))
    return same and (not recipe.libraries or document["libraries"] == wanted["libraries"])


def _shapes(registry: Registry, known: Foundation) -> set[tuple[str, tuple[int, ...]]]:
    table = canonical.loads(registry.blobs.read(registry.base(known.base).tensors.digest), what="tensor table")
    return {(name, tuple(shape)) for name, _, shape, _ in table}


def _files(registry: Registry, known: Foundation) -> dict[str, bytes]:
    return {name: registry.blobs.read(file.digest) for name, file in registry.base(known.base).files.items()}


def _computes(files: Mapping[str, bytes]) -> tuple[Any, ...]:
    """What of the config files reaches the program: the architecture, and the tokens that its methods answer."""
    config = canonical.loads(files["config.json"], what="config.json")
    generation = canonical.loads(files.get("generation_config.json", b"{}"), what="generation_config.json")
    return (decoder_spec(config), *(generation.get(name, config.get(name)) for name in _TOKENS))


__all__ = ["NotRetargetableError", "find_twin", "retarget_foundation"]
