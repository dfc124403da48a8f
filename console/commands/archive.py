"""`ptdock save` and `ptdock load`: adapters with everything they need, from one store to another in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console import render
from console.app import App, pass_app
from console.options import PATH
from console.verbs import Verb

if TYPE_CHECKING:
    from registry.archive.contents import Contents
    from registry.archive.loading import Loaded

_NOUNS = ("bases", "foundations", "templates", "versions", "builds", "proofs")


@click.command(cls=Verb)
@click.argument("archive", type=PATH)
@click.argument("refs", nargs=-1, metavar="[NAME[@V]...]")
@click.option("--foundation", "named", multiple=True, metavar="NAME", help="Save this foundation too, or alone.")
@pass_app
def save(app: App, archive: Path, refs: tuple[str, ...], named: tuple[str, ...]) -> None:
    """Write adapters and all they need into one file.

    Everything, or the adapters named, each with its sources, builds, foundations and templates. The file is a tar of an
    OCI image layout. Releases and channels stay: they are this store's own.
    """
    with app.progress() as progress:
        progress(f"writing {archive}")
        contents, file = app.registry().keeper().save(archive, refs, named, progress.bytes)
    document = {"archive": str(archive), **file.to_json(), **_counts(contents)}
    app.answer(document, f"wrote {render.bold(render.clean(archive))} ({render.size(file.size)}): {_listed(document)}")


@click.command(cls=Verb)
@click.argument("archive", type=PATH)
@pass_app
def load(app: App, archive: Path) -> None:
    """Take such a file in, whole or not at all; twice is once.

    Every name, size, digest and link in it is checked before anything of it is recorded.
    """
    with app.progress() as progress:
        progress(f"reading {archive}")
        loaded = app.registry().keeper().load(archive, progress.bytes)
    app.answer(_loaded(archive, loaded), _loaded_text(loaded))


def _counts(contents: Contents) -> dict[str, int]:
    return {**{noun: len(getattr(contents, noun)) for noun in _NOUNS}, "blobs": len(contents.blobs())}


def _loaded(archive: Path, loaded: Loaded) -> dict[str, Any]:
    contents = loaded.contents
    return {
        "archive": str(archive),
        "registry": contents.registry,
        **_counts(contents),
        "added": dict(loaded.added),
        "notes": list(loaded.notes),
    }


def _loaded_text(loaded: Loaded) -> str:
    added = {noun: count for noun, count in loaded.added.items() if count}
    head = f"{render.good('loaded')}: {_listed(added)}" if added else "everything in it was here already"
    return "\n".join([head, *(f"{render.doubtful('note')}    {render.clean(note)}" for note in loaded.notes)])


def _listed(counts: dict[str, Any]) -> str:
    return ", ".join(render.plural(counts[noun], noun.removesuffix("s")) for noun in _NOUNS if counts.get(noun))
