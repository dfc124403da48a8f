"""`ptdock foundation upgrade`: a foundation's programs, made again by the ExecuTorch that is installed here.

    done = upgrade(registry, "smollm2", UpgradeOptions())        # base programs and templates
    for step in relinked(registry, done):                        # every build, on the new templates
        print(step.ref, step.outcome)

ExecuTorch guarantees a program on the version that wrote it and on the next minor one, so apps of another version get
builds of their own; those that are there stay for the old apps. The `.ptd` depends on no version as long as its bytes
come out the same, which each export of it is held to. Everything that is done already is passed over, so an upgrade
that was stopped goes on where it was.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter.foundation import ExportOptions, check_room, record_foundation, tensors_of
from exporter.linker import Linker, card_of
from exporter.publish import PublishOptions
from exporter.quiet import quiet
from exporter.rebase import Step, built
from exporter.recipe import Recipe
from exporter.sources import Progress, load_exporter, no_progress, open_source, recipe_for
from exporter.structure import Structure
from exporter.templates import export_structure, find_template, record_base_program
from registry.artifacts import Build, ExternalTensor, Foundation, Template, Version
from registry.catalog.matrix import Coverage
from registry.digest import Digest
from registry.errors import Conflict, InputError
from registry.service import Registry

if TYPE_CHECKING:
    from exporter import export as torch_export

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class UpgradeOptions:
    """`base` says where the checkpoint is now; `replace_name` lets the name mean another `.ptd`, if one comes out."""

    base: Path | None = None
    replace_name: bool = False


@dataclass(frozen=True, slots=True)
class Renewed:
    """A template of the installed ExecuTorch, and the newest `before` it; `fresh` when it was exported just now."""

    template: Template
    before: Template
    fresh: bool

    @property
    def same(self) -> bool:
        """Whether the program is byte for byte the one before: then its builds are good for both."""
        return _same(self.template, self.before)


@dataclass(frozen=True, slots=True)
class Upgraded:
    """A foundation whose programs are all there in the installed ExecuTorch's form; `after` differs if the `.ptd` did.

    `templates` are in the order in which those before them were recorded, so what was the newest still is.
    """

    before: Foundation
    after: Foundation
    executorch: str
    templates: tuple[Renewed, ...]

    @property
    def kept(self) -> bool:
        """Whether the `.ptd` is the one that was there."""
        return self.before.file.digest == self.after.file.digest


def upgrade(registry: Registry, ref: str, options: UpgradeOptions, progress: Progress = no_progress) -> Upgraded:
    """Export the base programs and templates of a foundation (a name or digest) that this ExecuTorch has not made yet.

    Raises Conflict when another `.ptd` comes out, unless `replace_name`: then the name means that one from now on.
    Raises NotFound, what `open_source` raises, InputError for a foundation without a name, Unavailable without the
    [export] extra.
    """
    found = registry.foundation(ref)
    target = _Target(_name(registry, ref, found), recipe_for(registry, found), options)
    if "executorch" not in target.recipe.libraries:
        load_exporter("foundation upgrade", progress)
    old = _before(registry.templates(found.file.digest), target.recipe)
    missing = [each for each in old if _find(registry, found, each, target.recipe) is None]
    after = found
    if missing:
        with registry.export_lock(lambda: progress("waiting for another export of this store")):
            after = _export(registry, found, missing, target, progress)
    renewed = (_renewed(registry, after, each, target.recipe, fresh=each in missing) for each in old)
    return Upgraded(found, after, target.recipe.libraries["executorch"], tuple(renewed))


@dataclass(frozen=True, slots=True)
class _Target:
    name: str
    recipe: Recipe
    options: UpgradeOptions


def _name(registry: Registry, ref: str, found: Foundation) -> str:
    names = [name for name, meant in registry.foundation_names().items() if meant == found.file.digest]
    if not names:
        raise InputError(
            f"{found.file.digest} has no name any more: another foundation took it",
            hint="upgrade that one, and bring the adapters along: ptdock adapter rebase",
        )
    return ref if ref in names else names[0]


def _before(templates: Sequence[Template], recipe: Recipe) -> list[Template]:
    """The newest template of each structure and context that something else than this installation made."""
    found: dict[tuple[Digest, int], Template] = {}
    for each in templates:
        if (each.executorch, each.graph) != (recipe.libraries["executorch"], recipe.graph):
            found[each.structure_digest, each.context] = each
    return list(found.values())


def _find(registry: Registry, foundation: Foundation, like: Template, recipe: Recipe) -> Template | None:
    return find_template(registry, foundation, Structure.from_json(like.structure), like.context, recipe)


def _renewed(registry: Registry, after: Foundation, before: Template, recipe: Recipe, *, fresh: bool) -> Renewed:
    template = _find(registry, after, before, recipe)
    if template is None:
        raise AssertionError("upgrade exports every template that is missing")
    return Renewed(template, before, fresh)


def _export(
    registry: Registry, found: Foundation, missing: Sequence[Template], target: _Target, progress: Progress
) -> Foundation:
    """Whatever is missing, the base programs first: what they ask for decides which foundation it is."""
    after = found
    torch_export = load_exporter("foundation upgrade", progress)
    with open_source(registry, found, target.options.base, progress) as source:
        check_room(registry.home, source.tensors, target.recipe)
        for like in sorted(missing, key=lambda each: bool(each.structure["modules"])):
            if _find(registry, after, like, target.recipe) is not None:  # the export that this one waited for
                continue
            structure = Structure.from_json(like.structure)
            progress(f"{structure.describe()}, context {like.context}")
            job = torch_export.Job(source, target.recipe, like.context, progress)
            if structure.modules:
                export_structure(registry, after, structure, card_of(registry, after), job)
            else:
                after = _export_base(registry, found, source, job, target)
    return after


def _export_base(registry: Registry, found: Foundation, source: Any, job: torch_export.Job, to: _Target) -> Foundation:
    """A base program, and the foundation that it was exported with: `found`, or the one that takes its name."""
    torch_export = load_exporter("foundation upgrade", job.progress)
    with tempfile.TemporaryDirectory(dir=registry.home, prefix="export-") as work:
        with quiet():
            made = torch_export.export_base(job, Path(work))
        job.progress("comparing the foundation")
        if Digest.of_file(made.foundation) != found.file.digest and not to.options.replace_name:
            raise _another_file(found, tensors_of(made, made.foundation), to)
        options = ExportOptions(recipe=to.recipe, replace_name=to.options.replace_name)
        after = record_foundation(registry, source, made, options, to.name)
        record_base_program(registry, after, made, job)
    return after


def _another_file(found: Foundation, tensors: Sequence[ExternalTensor], target: _Target) -> Conflict:
    """Says what changed, and the two ways on."""
    keys = {tensor.key for tensor in found.tensors}
    changed = sorted({name for tensor in tensors if tensor.key not in keys for name in tensor.names or (tensor.key,)})
    listed = ", ".join(changed[:_SHOWN]) + (f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else "")
    what = f"{len(changed)} of its tensors differ: {listed}" if changed else "the same tensors in another layout"
    executorch = target.recipe.libraries["executorch"]
    return Conflict(
        f"ExecuTorch {executorch} makes another .ptd of this checkpoint than {target.name}: {what}",
        hint=f"devices would fetch it anew: let {target.name} mean it with --replace-name, or keep both: "
        "ptdock foundation export BASE --name OTHER, then ptdock adapter rebase",
        changed=changed,
        executorch=executorch,
    )


def relinked(registry: Registry, done: Upgraded, progress: Progress = no_progress) -> Iterator[Step]:
    """Every build of the foundation through the new template of its structure and context, from its stored source.

    What is there already, or would be the same bytes, is "unchanged"; versions that are yanked and builds that are
    revoked are "skipped". What the gate refuses today is told and does not stop the others.
    """
    templates = {(each.template.structure_digest, each.template.context): each.template for each in done.templates}
    if not templates:
        return
    wanted = [each for each in registry.keeper().coverage() if done.before.file.digest in each.builds]
    linker = Linker(registry, done.after)
    for number, each in enumerate(wanted, 1):
        progress(f"{number} of {len(wanted)}: {each.ref}")
        for build, through in _builds(registry, each, done):
            template = templates[through.structure_digest, through.context]
            yield _without_work(registry, each, build, through, template) or built(
                linker, each, PublishOptions(str(done.after.file.digest), "", context=template.context)
            )


def _builds(registry: Registry, each: Coverage, done: Upgraded) -> list[tuple[Build, Template]]:
    """The newest build for each structure and context that is no work of the installed ExecuTorch, oldest first."""
    ours = {(done.executorch, renewed.template.graph) for renewed in done.templates} if done.kept else set()
    found: dict[tuple[Digest, int], tuple[Build, Template]] = {}
    for build in registry.builds(each.ref):
        if build.foundation == done.before.file.digest:
            through = registry.template_of(build)
            if (through.executorch, through.graph) not in ours:
                found.pop((through.structure_digest, through.context), None)
                found[through.structure_digest, through.context] = build, through
    return list(found.values())


def _without_work(
    registry: Registry, each: Coverage, build: Build, through: Template, template: Template
) -> Step | None:
    if each.yanked is not None:
        return Step(each.ref, "skipped", reason=f"yanked: {each.yanked}")
    if build.revoked is not None:
        return Step(each.ref, "skipped", reason=f"revoked: {build.revoked}")
    if _same(template, through):
        return Step(each.ref, "unchanged", build.file.digest)
    version: Version = registry.version(each.ref)
    there = registry.keeper().standing(each.adapter, each.version, version.source, template)
    return Step(each.ref, "unchanged", there.build.file.digest) if there else None


def _same(one: Template, other: Template) -> bool:
    """Whether two templates give the same program to the same factors, on one foundation."""
    return (one.foundation, one.digest, one.table) == (other.foundation, other.digest, other.table)
