"""`ptdock gc`: delete what nothing needs any more, and say of everything else what needs it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from console import render
from console.app import App, pass_app
from console.options import duration
from console.stream import stream
from console.verbs import Verb

if TYPE_CHECKING:
    from registry.collecting import Collected
    from registry.digest import Descriptor
    from registry.reachability import Item

_LOOSE = "nothing refers to it"


def _grace(context: click.Context, option: click.Parameter, value: str) -> int:
    """A duration, or 0 for none."""
    return 0 if value == "0" else duration(context, option, value) or 0


@click.command(cls=Verb)
@click.option("--dry-run", is_flag=True, help="Change nothing; say of each blob what keeps it, or why it goes.")
@click.option(
    "--grace",
    metavar="TIME",
    default="24h",
    show_default=True,
    envvar="PTDOCK_GC_GRACE",
    show_envvar=True,
    callback=_grace,
    help="How long what nothing needs stays condemned before it is deleted.",
)
@pass_app
def gc(app: App, dry_run: bool, grace: int) -> None:
    """Delete what nothing needs any more.

    That is: orphans of interrupted commands, and files that were replaced. What channels offer, can go back to or
    devices may still hold stays, and so does every version with all it needs.
    """
    from registry import reserve

    if dry_run:
        keeper = app.registry().keeper()
        unfinished = [str(path) for path in keeper.unfinished()]
        head = {"dry_run": True, "grace_seconds": grace, "unfinished": unfinished}
        stream(app, head, "objects", _explained(keeper.survey()))
        return
    with reserve.lent(app.home), app.progress() as progress:
        progress("looking for what nothing needs")
        done = app.registry().keeper().collect(grace=grace)
    app.answer(_document(done, grace), _text(done, grace))


def _explained(items: Iterable[Item]) -> Iterator[tuple[dict[str, Any], str]]:
    for item in items:
        goes = None if item.kept_by else _why(item)
        document = {**item.blob.to_json(), "kept_by": item.kept_by, "goes": goes, "condemned_at": item.condemned_at}
        verdict = render.good("keep") if item.kept_by else render.doubtful("goes")
        yield document, f"{verdict}  {item.blob.digest}  {render.size(item.blob.size):>9}  {item.kept_by or goes}"


def _why(item: Item) -> str:
    if item.condemned_at is not None:
        return f"{_LOOSE}; condemned at {render.when(item.condemned_at)} UTC"
    return _LOOSE if item.recorded else f"{_LOOSE}; it was never recorded"


def _document(done: Collected, grace: int) -> dict[str, Any]:
    return {
        "dry_run": False,
        "grace_seconds": grace,
        "kept": done.kept,
        "kept_bytes": done.kept_bytes,
        "condemned": _blobs(done.condemned),
        "waiting": _blobs(done.waiting),
        "deleted": _blobs(done.deleted),
        "taken_back": _blobs(done.taken_back),
        "unfinished": [str(path) for path in done.unfinished],
    }


def _blobs(some: Iterable[Descriptor]) -> list[dict[str, object]]:
    return [blob.to_json() for blob in some]


def _text(done: Collected, grace: int) -> str:
    return render.fields(
        [
            ("kept", f"{render.plural(done.kept, 'blob')} ({render.size(done.kept_bytes)})"),
            ("condemned", _counted(done.condemned, f", to be deleted in {grace / 3600:g} h")),
            ("waiting", _counted(done.waiting)),
            ("deleted", _counted(done.deleted)),
            ("taken back", _counted(done.taken_back)),
            ("cleared", render.plural(len(done.unfinished), "unfinished file") if done.unfinished else None),
        ]
    )


def _counted(some: tuple[Descriptor, ...], beside: str = "") -> str | None:
    if not some:
        return None
    return f"{render.plural(len(some), 'blob')} ({render.size(sum(blob.size for blob in some))}){beside}"
