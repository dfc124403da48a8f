"""`ptdock adapter rebase`, `foundation coverage` and `foundation diff`: from one foundation to the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console import documents, render
from console.app import App, pass_app
from console.options import COUNT, PATH
from console.stream import stream
from console.verbs import Verb
from registry.digest import Digest
from registry.errors import AdapterRefused

if TYPE_CHECKING:
    from exporter.rebase import Step
    from registry.artifacts import ExternalTensor
    from registry.catalog.matrix import Coverage
    from registry.updating import Difference


@click.command(cls=Verb)
@click.argument("refs", nargs=-1, metavar="[NAME[@V]...]")
@click.option("--from", "source", required=True, metavar="F1", help="The foundation that they have builds on.")
@click.option("--to", "target", required=True, metavar="F2", help="The foundation to build on: of the same base.")
@click.option("--base", type=PATH, metavar="DIR", help="Where the checkpoint is now; only a new structure needs it.")
@click.option("--context", type=COUNT, help="Positions; by default those of F2's base program.")
@pass_app
@click.pass_context
def rebase(
    running: click.Context,
    app: App,
    refs: tuple[str, ...],
    source: str,
    target: str,
    base: Path | None,
    context: int | None,
) -> None:
    """Build adapters of one foundation on another of the same base.

    All of them, or those named, from their stored sources, under the versions that they have. What is built already is
    passed over, so the command can be repeated. Exit code 4 when the gate refused any.
    """
    from exporter.rebase import rebase as steps_of

    registry = app.registry()
    done: list[Step] = []
    with app.progress() as progress:
        for step in steps_of(registry, source, target, refs, base=base, context=context, progress=progress):
            done.append(step)
            if step.outcome in {"skipped", "refused"}:
                progress.note(f"{step.outcome}  {step.ref}: {render.clean(step.reason)}")
    counts = Counter(step.outcome for step in done)
    document = {
        "from": str(registry.foundation(source).file.digest),
        "to": str(registry.foundation(target).file.digest),
        **{outcome: counts[outcome] for outcome in ("built", "unchanged", "skipped", "refused")},
        "adapters": [step_document(step) for step in done],
    }
    app.answer(document, ", ".join(f"{counts[each]} {each}" for each in counts) or "nothing to build")
    if counts["refused"]:
        running.exit(AdapterRefused.exit_code)


def step_document(step: Step) -> dict[str, Any]:
    """What came of one version, as JSON."""
    name, _, version = step.ref.partition("@")
    return {
        "name": name,
        "version": version,
        "outcome": step.outcome,
        "digest": str(step.program) if step.program else None,
        "reason": step.reason,
        "findings": list(step.findings),
    }


@click.command(cls=Verb)
@click.argument("name", required=False)
@click.option("--missing", is_flag=True, help="Only versions that lack a build on some foundation.")
@pass_app
def coverage(app: App, name: str | None, missing: bool) -> None:
    """Show which versions have a build on which foundation."""
    registry = app.registry()
    if name is not None:
        registry.versions(name)  # says which adapters there are when it is none
    names = registry.foundation_names()
    columns = {each.file.digest: documents.names_of(names, each.file.digest) for each in registry.foundations()}
    found = (
        each
        for each in registry.keeper().coverage(name)
        if not missing or any(not each.builds.get(digest) for digest in columns)
    )
    head = {"foundations": [{"digest": str(digest), "names": called} for digest, called in columns.items()]}
    if app.json:
        stream(app, head, "versions", ((_covered(each), "") for each in found))
        return
    app.answer(None, _matrix(found, columns))


def _covered(each: Coverage) -> dict[str, Any]:
    builds = {str(digest): "built" if usable else "revoked" for digest, usable in each.builds.items()}
    return {"name": each.adapter, "version": each.version, "yanked": each.yanked, "builds": builds}


def _matrix(found: Iterable[Coverage], columns: Mapping[Digest, Sequence[str]]) -> str:
    header = ("adapter", "version", *(", ".join(called) or digest.short for digest, called in columns.items()), "")
    signs = {True: "built", False: "revoked", None: "-"}
    rows = [
        (each.adapter, each.version, *(signs[each.builds.get(digest)] for digest in columns), _yanked(each))
        for each in found
    ]
    return render.table(header, rows)


def _yanked(each: Coverage) -> str:
    return f"yanked: {each.yanked}" if each.yanked is not None else ""


@click.command(cls=Verb)
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@pass_app
def diff(app: App, before: str, after: str) -> None:
    """Show which tensors differ, and what an update from A to B costs a device."""
    from registry.updating import difference

    registry = app.registry()
    one, other = registry.foundation(before), registry.foundation(after)
    with app.progress() as progress:
        progress.phase("comparing", one.file.size + other.file.size)
        found = difference(registry.blobs, one, other, progress.bytes)
    document = {
        "from": str(one.file.digest),
        "to": str(other.file.digest),
        "same": one.file.digest == other.file.digest,
        "changed": [{**_tensor(new), "before": _tensor(old)} for old, new in found.changed],
        "removed": [_tensor(each) for each in found.removed],
        "added": [_tensor(each) for each in found.added],
        "update_bytes": found.fetch,
        "size": found.size,
    }
    app.answer(document, _difference_text(found))


def _tensor(tensor: ExternalTensor) -> dict[str, Any]:
    return {
        "names": list(tensor.names),
        "key": tensor.key,
        "digest": str(tensor.digest),
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "size": tensor.size,
    }


def _difference_text(found: Difference) -> str:
    rows = [(_label(new), "changed", _layout(old, new), render.size(new.size)) for old, new in found.changed]
    rows += [(_label(each), "removed", _layout(each, each), render.size(each.size)) for each in found.removed]
    rows += [(_label(each), "added", _layout(each, each), render.size(each.size)) for each in found.added]
    share = 100 * found.fetch / found.size if found.size else 0
    cost = f"an update fetches {render.size(found.fetch)} of {render.size(found.size)} ({share:.1f} %)"
    once = list(dict.fromkeys(rows))  # a tied weight has two keys, one for each that asks for it
    table = render.table(("tensor", "", "is", "size"), once, right={3})
    return f"{table}\n\n{cost}" if rows else f"{render.good('no tensor differs')}; {cost}"


def _label(tensor: ExternalTensor) -> str:
    return render.several(tensor.names) or tensor.key


def _layout(old: ExternalTensor, new: ExternalTensor) -> str:
    texts = [f"{each.dtype} {list(each.shape)}" for each in (old, new)]
    return texts[1] if texts[0] == texts[1] else " → ".join(texts)
