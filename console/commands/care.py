"""`ptdock repair` and `ptdock adapter verify`: make again what was lost, and see that it would come out the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console import render
from console.app import App, pass_app
from console.options import PATH, foundation_option
from console.verbs import Verb
from registry.errors import IntegrityError

if TYPE_CHECKING:
    from exporter.repair import Lost, Repairs
    from exporter.stored import Comparison

_DIRECTORY = click.Path(path_type=Path, exists=True, file_okay=False)


@click.command(cls=Verb)
@click.option("--fast", is_flag=True, help="Look at sizes only: find what is missing or cut.")
@click.option(
    "--from", "places", multiple=True, type=_DIRECTORY, metavar="DIR", help="Another store or a published site."
)
@click.option("--base", type=PATH, metavar="DIR", help="Where the checkpoint is now.")
@pass_app
@click.pass_context
def repair(context: click.Context, app: App, fast: bool, places: tuple[Path, ...], base: Path | None) -> None:
    """Make lost and damaged files again, from what is left.

    Programs from their templates and factors, factors from programs or sources; the rest from the site, other stores,
    the checkpoint. Exit code 7 when something cannot be made again.
    """
    from exporter.repair import repair as mend

    registry = app.registry()
    with app.progress() as progress:
        done = mend(registry, places=places, base=base, fast=fast, progress=progress, hashed=progress.bytes)
        if done.mended:
            progress("writing the site")
            registry.refresh_site()
    app.answer(_repairs(done), _repairs_text(done))
    if done.lost:
        context.exit(IntegrityError.exit_code)


def _repairs(done: Repairs) -> dict[str, Any]:
    return {
        "mended": [{"digest": str(each.digest), "size": each.size, "how": each.how} for each in done.mended],
        "lost": [_lost(each) for each in done.lost],
    }


def _lost(each: Lost) -> dict[str, Any]:
    return {
        "digest": each.damage.subject,
        "message": each.damage.message,
        "dependants": list(each.damage.dependants),
        "aside": str(each.aside) if each.aside else None,
    }


def _repairs_text(done: Repairs) -> str:
    lines = [f"{render.good('mended')}  {each.digest}: {render.clean(each.how)}" for each in done.mended]
    for each in done.lost:
        lines.append(
            f"{render.bad('lost')}    {render.clean(each.damage.subject)}: {render.clean(each.damage.message)}"
        )
        lines.append(f"        needed: {render.clean('; '.join(each.damage.dependants))}")
        if each.aside:
            lines.append(f"        what is left of it is in {render.clean(each.aside)}")
    if done.lost:
        lines.append(render.dim("look for them with --from: another store, a published site, an unpacked archive"))
    return "\n".join(lines) or render.good("nothing to mend")


@click.command(cls=Verb)
@click.argument("ref", metavar="NAME@V")
@foundation_option(required=False)
@click.option("--rebuild", is_flag=True, help="Check, fold and relink its stored source, and compare.")
@pass_app
@click.pass_context
def verify(context: click.Context, app: App, ref: str, foundation: str | None, rebuild: bool) -> None:
    """Check a version's files and links; with --rebuild, make its build again and compare.

    Exit code 7 when a byte differs.
    """
    from exporter.stored import compare

    registry = app.registry()
    with app.progress() as progress:
        progress("rebuilding" if rebuild else "checking")
        found = compare(registry, registry.build(ref, foundation), rebuild_too=rebuild)
    app.answer(_comparison(found), _comparison_text(found))
    if not found.sound:
        context.exit(IntegrityError.exit_code)


def _comparison(found: Comparison) -> dict[str, Any]:
    return {
        "name": found.build.adapter,
        "version": found.build.version,
        **found.build.file.to_json(),
        "foundation": str(found.build.foundation),
        "sound": found.sound,
        "faults": list(found.faults),
        "rebuilt": {role: str(digest) for role, digest in found.rebuilt.items()} if found.rebuilt else None,
        "findings": [finding.to_json() for finding in found.findings],
    }


def _comparison_text(found: Comparison) -> str:
    ref = f"{found.build.adapter}@{found.build.version}"
    lines = [f"{render.bad('differs')}  {render.clean(fault)}" for fault in found.faults]
    made = ", made again byte for byte" if found.rebuilt else ""
    verdict = f"{render.good('sound')}: {ref} is {found.build.file.digest}{made}"
    return "\n".join([*lines, verdict] if found.sound else lines)
