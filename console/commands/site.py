"""`ptdock site`: the signed static tree that any web server, CDN or bucket can serve."""

from __future__ import annotations

import click

from console import render
from console.app import App, pass_app
from console.verbs import Noun
from registry.site import Changes


@click.group(cls=Noun)
def site() -> None:
    """The signed static tree, for any web server or bucket."""


@site.command()
@click.argument("target", metavar="TARGET")
@pass_app
def publish(app: App, target: str) -> None:
    """Make TARGET hold what the channels offer: a directory, or s3://bucket/prefix.

    Only what changed is touched, in an order that no reader can trip over. It stops when this store is behind what is
    published there; `ptdock channel advance --target TARGET` goes past it.
    """
    from registry.targets import open_target

    with app.progress() as progress:
        progress(f"publishing to {target}")
        changes = app.registry().signed_site().publish(open_target(target))
    app.answer(document(target, changes), _text(target, changes))


def document(target: str, changes: Changes) -> dict[str, object]:
    """What a publication did; schemas/site.json describes it."""
    return {"target": target, "written": list(changes.written), "removed": list(changes.removed)}


def _text(target: str, changes: Changes) -> str:
    """The documents that changed by name, the blobs by count: there may be thousands."""
    if not changes.written and not changes.removed:
        return f"{render.clean(target)} is up to date"
    rows = [("wrote", path) for path in _documents(changes.written)]
    rows += [("removed", path) for path in _documents(changes.removed)]
    blobs = [len(paths) - len(_documents(paths)) for paths in (changes.written, changes.removed)]
    counts = f"{render.plural(blobs[0], 'blob')} written, {blobs[1]} removed"
    return "\n".join(part for part in (render.table(("", "document"), rows), counts) if part)


def _documents(paths: tuple[str, ...]) -> list[str]:
    return [path for path in paths if not path.startswith("blobs/")]
