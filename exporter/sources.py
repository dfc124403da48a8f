"""Where a recorded foundation came from, found again: its checkpoint, or the factory of its module. Torch-free itself.

with open_source(registry, foundation, None, progress) as source:
    job = Job(source, recipe_for(registry, foundation), context, progress)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter.base import Checkpoint, fingerprint, read_base
from exporter.computed import CONFIG, CONFIGS, computed
from exporter.parts import base_files, read_files
from exporter.quiet import quiet
from exporter.recipe import Recipe
from exporter.tokenizer import GENERATION, read_object
from registry.artifacts import Base, Foundation, Tensor
from registry.errors import Conflict, IntegrityError, NotFound, PtdockError, Unavailable
from registry.service import Registry

if TYPE_CHECKING:
    from exporter.module_export import ModuleSource

Progress = Callable[[str], None]


def no_progress(_phase: str) -> None:
    """Says nothing."""


def recipe_for(registry: Registry, foundation: Foundation) -> Recipe:
    """The recipe of what is exported beside a foundation from now on, by this installation.

    A module's graph is that of its newest base program: its factory may have changed since the first.
    """
    recipe = Recipe.like(foundation.recipe)
    if recipe.module is None:
        return recipe
    programs = [each for each in registry.templates(foundation.file.digest) if not each.structure["modules"]]
    return replace(recipe, graph=programs[-1].graph) if programs else recipe


@contextmanager
def open_source(
    registry: Registry, foundation: Foundation, base: Path | None, progress: Progress
) -> Iterator[Checkpoint | ModuleSource]:
    """What a foundation was exported from, its tensors compared: `base`, or what is recorded.

    Raises NotFound when it is not where it was, IntegrityError when it has other tensors, Conflict when its config or a
    factory says something else by now, Unavailable without torch.
    """
    recipe = recipe_for(registry, foundation)
    if recipe.module:
        yield _module(foundation, recipe.module, recipe.graph, progress)
        return
    with _checkpoint(registry, foundation, base, progress) as checkpoint:
        yield checkpoint


def load_module(spec: str, progress: Progress) -> ModuleSource:
    """Call the factory `package.module:factory`. Raises InputError, and Unavailable without torch."""
    load_exporter(spec, progress)
    from exporter.module_export import load_module as load  # noqa: PLC0415  imports torch

    progress("calling the factory")
    with quiet():
        return load(spec)


def _module(foundation: Foundation, spec: str, graph: int, progress: Progress) -> ModuleSource:
    source = load_module(spec, progress)
    _check_fingerprint(spec, source.tensors, foundation, "let the factory answer the model that was exported")
    if source.graph != graph:
        raise Conflict(
            f"the module of {spec} computes something else than the foundation's base program",
            hint=f"record what it computes now: ptdock foundation export --module {spec} --name NAME",
            expected=graph,
            actual=source.graph,
        )
    return source


def _checkpoint(registry: Registry, foundation: Foundation, base: Path | None, progress: Progress) -> Checkpoint:
    """The checkpoint that a foundation came from, its tensor digests compared. Raises NotFound, IntegrityError."""
    recorded = registry.base(foundation.base)
    directory = base or Path(recorded.hint)
    if base is None and not directory.is_dir():
        raise NotFound(
            f"the checkpoint of this foundation is no longer at {directory}",
            hint="say where it is now: --base DIR",
            path=str(directory),
        )
    progress("hashing the checkpoint")
    checkpoint = read_base(directory)
    try:
        hint = "give the checkpoint that the foundation was exported from: --base DIR"
        _check_fingerprint(directory, checkpoint.tensors, foundation, hint)
        _check_config(checkpoint, registry, recorded)
    except PtdockError:
        checkpoint.weights.close()
        raise
    return checkpoint


def _check_config(checkpoint: Checkpoint, registry: Registry, recorded: Base) -> None:
    """Raise Conflict for config files that mean something else: with equal weights a program would compute another."""
    files, kept = read_files(checkpoint.files), base_files(registry.blobs, recorded, CONFIGS)
    if computed(files) != computed(kept):
        now, then = (read_object(each, CONFIG) | read_object(each, GENERATION) for each in (files, kept))
        fields = sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))
        raise Conflict(
            f"{checkpoint.directory / CONFIG} says something else than when the foundation was exported: "
            f"{', '.join(fields)}",
            hint=f"put the recorded one back: it is the blob {recorded.files[CONFIG].digest} of this store",
            fields=fields,
        )


def _check_fingerprint(where: object, tensors: tuple[Tensor, ...], foundation: Foundation, hint: str) -> None:
    found = fingerprint(tensors)
    if found != foundation.base:
        raise IntegrityError(
            f"{where} holds another model: its fingerprint is {found.short}, "
            f"the foundation came from {foundation.base.short}",
            hint=hint,
            expected=str(foundation.base),
            actual=str(found),
        )


def load_exporter(what: str, progress: Progress = no_progress) -> Any:
    """Import the torch half, late. Raises Unavailable where the [export] extra is not installed."""
    _check_exporter(what)
    if "exporter.export" not in sys.modules:  # it takes seconds, once
        progress("loading PyTorch")
    with quiet():
        from exporter import export  # noqa: PLC0415  torch takes seconds to import

    return export


def _check_exporter(what: str) -> None:
    if find_spec("torch") is None or find_spec("executorch") is None:
        raise Unavailable(
            f"{what}: needs torch and executorch",
            hint="pip install 'ptdock[export]', or export it on a machine that has them",
        )


def check_prover(what: str) -> None:
    """Raise Unavailable where the [export] or the [prove] extra is not installed."""
    _check_exporter(what)
    if find_spec("peft") is None or find_spec("transformers") is None:
        raise Unavailable(f"{what}: needs transformers and peft", hint="pip install 'ptdock[export,prove]'")


def load_prover(what: str, progress: Progress = no_progress) -> Any:
    """Import exporter.proof, late. Raises Unavailable where the [export] or the [prove] extra is not installed."""
    check_prover(what)
    load_exporter(what, progress)
    with quiet():
        from exporter import proof  # noqa: PLC0415  peft takes seconds to import

    return proof
