"""Foundations of fine-tunes: finds a recorded foundation of the same architecture and retargets it. Torch-free.

The layout of one export serves every set of weights with the same config, tensor shapes and pattern of equal
tensors (exporter.retarget). Base program and templates come along, so the fine-tune's adapters need no export either.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from exporter.base import Checkpoint, fingerprint
from exporter.computed import CONFIGS, Computed, computed
from exporter.derivation import Derivations, base_tensors
from exporter.parts import base_files, module_document, read_files
from exporter.recipe import Recipe, installed_versions
from exporter.retarget import NotRetargetableError, Retargeted, retarget
from registry import canonical
from registry.artifacts import Foundation, Template
from registry.digest import Digest
from registry.errors import InputError, IntegrityError, NotFound
from registry.plates import Plate, check_plate, open_plate
from registry.relink import pack
from registry.service import Registry

Progress = Callable[[str], None]


def find_twin(registry: Registry, checkpoint: Checkpoint, recipe: Recipe, context: int) -> Foundation | None:
    """The newest recorded foundation whose export can serve this checkpoint, with a base program for `context`."""
    wanted = computed(read_files(checkpoint.files))
    for known in reversed(registry.foundations()):
        if _same_recipe(known.recipe, recipe) and known.base != fingerprint(checkpoint.tensors):
            # What the store has lost of another base, or does not understand any more, is no obstacle to this one.
            with suppress(NotFound, InputError, IntegrityError):
                if _serves(registry, known, checkpoint, context) and _computed(registry, known) == wanted:
                    return known
    return None


def _computed(registry: Registry, known: Foundation) -> Computed:
    return computed(base_files(registry.blobs, registry.base(known.base), CONFIGS))


def _serves(registry: Registry, known: Foundation, checkpoint: Checkpoint, context: int) -> bool:
    """Whether there is a base program for `context`, and tensors of the same names and shapes."""
    bases = [each for each in _templates(registry, known) if not each.structure["modules"] and each.context == context]
    if not bases:
        return False
    held = base_tensors(registry, registry.base(known.base))
    return {name: shape for name, (_, shape) in held.items()} == {each.name: each.shape for each in checkpoint.tensors}


def retarget_foundation(
    registry: Registry, known: Foundation, checkpoint: Checkpoint, progress: Progress
) -> tuple[Foundation, tuple[Template, ...]]:
    """Store the fine-tune's `.ptd`, base programs and templates; answers them, not recorded yet.

    Raises NotRetargetableError where only a full export would do.
    """
    progress("writing the foundation")
    store, derive = registry.blobs, Derivations.of(registry, known)
    with tempfile.TemporaryDirectory(dir=registry.home, prefix="export-") as work, ThreadPoolExecutor(1) as aside:
        path = Path(work) / "foundation.ptd"
        made = retarget(store.path(known.file.digest), known, derive, checkpoint.weights, checkpoint.tensors, path)
        kept = aside.submit(store.put_file, path, move=True)  # hashing and syncing leave Python to others
        progress("relinking base program and templates")
        templates = [_retarget_template(registry, made, each) for each in _templates(registry, known)]
        modules = canonical.loads(store.read(known.modules.digest), what="module table")
        document = store.put_bytes(module_document(modules, read_files(checkpoint.files)))
        file = kept.result()
    base = fingerprint(checkpoint.tensors)
    foundation = replace(known, file=file, base=base, modules=document, tensors=made.tensors)
    return foundation, tuple(replace(template, foundation=file.digest) for template in templates)


def _retarget_template(registry: Registry, made: Retargeted, template: Template) -> Template:
    """The same hollow program, asking for the fine-tune's tensors. Raises IntegrityError when a link is missing."""
    plate = open_plate(template, registry.blobs.read)
    new = Plate(made.hollow(plate), plate.table)
    check_plate(new, made.tensors)
    stored = pack(new.hollow) if template.structure["modules"] else new.hollow
    return replace(template, digest=Digest.of(new.hollow), hollow=registry.blobs.put_bytes(stored))


def _templates(registry: Registry, known: Foundation) -> tuple[Template, ...]:
    """Those of the installed ExecuTorch; without one, of the newest on record."""
    found = registry.templates(known.file.digest)
    wanted = installed_versions().get("executorch", found[-1].executorch if found else "")
    return tuple(template for template in found if template.executorch == wanted)


def _same_recipe(document: Mapping[str, Any], recipe: Recipe) -> bool:
    wanted = recipe.to_json()
    same = all(document[name] == wanted[name] for name in ("dtype", "backend", "quantization", "graph"))
    return same and (not recipe.libraries or document["libraries"] == wanted["libraries"])


__all__ = ["NotRetargetableError", "find_twin", "retarget_foundation"]
