"""`ptdock release`: immutable, numbered sets of builds that a channel offers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console import arms, documents, release_text, render
from console.app import App, pass_app
from console.commands import rollout
from console.options import COUNT, PATH, byte_count, read_file
from console.verbs import Noun
from registry.rollout import percent

if TYPE_CHECKING:
    from registry.artifacts import ReleaseResult
    from registry.composing import Contents
    from registry.rolling import Preview, Rollout
    from registry.service import Registry


_DIGITS = 18  # of a number that every reader holds


@click.group(cls=Noun)
def release() -> None:
    """Immutable, numbered sets of builds that channels offer."""


for _command in rollout.COMMANDS:
    release.add_command(_command)


def _app_build(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    """`android=512`, by platform."""
    found = {}
    for value in values:
        platform, equals, build = value.partition("=")
        if not (platform and equals and build.isascii() and build.isdecimal() and len(build) <= _DIGITS):
            raise click.BadParameter(f"{value[:100]!r} is not an app's build: write android=512")
        found[platform] = int(build)
    return found


@release.command()
@rollout.CHANNEL
@click.option("--adapter", "adapters", multiple=True, metavar="NAME@V", help="A version; repeatable.")
@click.option("--base", metavar="N|live", help="Another release to begin with; live: the channel's.")
@click.option("--set", "sets", multiple=True, metavar="NAME@V", help="With --base: this version instead; repeatable.")
@click.option("--drop", multiple=True, metavar="NAME", help="With --base: without this adapter; repeatable.")
@click.option("--from", "file", type=PATH, metavar="FILE", help="A file that says all this (JSON; - reads it).")
@click.option("--line", "lines", multiple=True, metavar="FOUNDATION", help="A foundation, best first; repeatable.")
@click.option("--ram", callback=byte_count, metavar="SIZE", help="The least memory of a device, such as 3GB.")
@click.option(
    "--app", "builds", multiple=True, callback=_app_build, metavar="PLATFORM=N", help="The app's least build."
)
@click.option("--on-demand", multiple=True, metavar="NAME", help="Fetched at first use; repeatable.")
@click.option("--prefetch", multiple=True, metavar="NAME", help="With --base: no longer on demand; repeatable.")
@rollout.SHARE
@click.option("--allow-holes", is_flag=True, help="Let a line lack adapters; the release records it.")
@click.option("--draft", is_flag=True, help="Make the release, offer it to nobody yet.")
@click.option("--dry-run", is_flag=True, help="Say what it changes and costs; make nothing.")
@rollout.FLEET
@pass_app
def create(app: App, /, channel: str, share: int, draft: bool, dry_run: bool, fleet: Path | None, **asked: Any) -> None:
    """Make a release of adapter versions and offer it to devices.

    The adapters are named (--adapter), or those of another release with changes (--base, --set, --drop), or a file's.
    """
    registry = app.registry()
    steering = registry.rollout(channel)
    contents = _contents(steering, asked)
    if dry_run:
        _preview(app, registry, steering.preview(contents, share), fleet)
        return
    result = steering.create(contents, share, draft=draft)
    arms.remarks(app, result)
    app.answer({**_document(registry, result.release.number), **documents.rolled(result)}, _result_text(result))


def _contents(steering: Rollout, asked: dict[str, Any]) -> Contents:
    """What the options ask for."""
    from registry.composing import Contents, LineSpec
    from registry.lines import Needs

    if (asked["sets"] or asked["drop"] or asked["prefetch"]) and asked["base"] is None:
        raise click.UsageError("--set, --drop and --prefetch change another release: name it with --base")
    contents = _read(asked["file"]) if asked["file"] else Contents()
    lines = tuple(LineSpec(name) for name in asked["lines"]) or contents.lines
    return replace(
        contents,
        refs=(*contents.refs, *asked["adapters"], *asked["sets"]),
        lines=lines,
        base=_base(steering, asked["base"]),
        live=asked["base"] == "live",
        drop=asked["drop"],
        needs=Needs(asked["ram"], asked["builds"]),
        on_demand=(*contents.on_demand, *asked["on_demand"]),
        prefetch=asked["prefetch"],
        allow_holes=asked["allow_holes"],
    )


def _read(file: Path) -> Contents:
    from registry.request import read_contents

    return read_contents(read_file(file, hint="a release as `ptdock release show N --json` prints it"))


def _base(steering: Rollout, base: str | None) -> int | None:
    if base is None:
        return None
    if base == "live":
        return steering.live()
    if base.isascii() and base.isdecimal() and 0 < int(base) < 1 << 31:
        return int(base)
    raise click.UsageError(f"--base {base}: write a release's number, or live")


def _preview(app: App, registry: Registry, preview: Preview, fleet: Path | None) -> None:
    """What a release would change and cost."""
    from registry.comparing import compare
    from registry.costing import Offered
    from registry.query import offered

    number = preview.release.number
    new = Offered(preview.release.document, preview.document)
    before = next((arm.release for arm in preview.before if arm.release is not None), None)
    difference = compare(offered(registry, before) if before else None, new, registry.blobs.read)
    cost = rollout.budget_of(registry, preview.after, fleet, {number: new})
    document = {
        "dry_run": True,
        "release": number,
        **preview.release.document.to_json(),
        "document": preview.document.to_json(),
        "arms": [arm.to_json() for arm in preview.after],
        "warnings": list(preview.warnings),
        "diff": difference.to_json(),
        "budget": cost.to_json(),
    }
    names = registry.foundation_names()
    parts = [
        release_text.difference_text(difference, names),
        arms.bars(preview.after),
        release_text.budget_text(cost, fleet=fleet is not None) if fleet or len(preview.after) > 1 else "",
        *(f"{render.doubtful('warning')}: {render.clean(warning)}" for warning in preview.warnings),
        render.dim("a dry run: nothing was made"),
    ]
    app.answer(document, "\n\n".join(part for part in parts if part))


@release.command("list")
@pass_app
def list_(app: App) -> None:
    """List the releases, oldest first."""
    from registry.query import Standing, standings

    registry = app.registry()
    standing = standings(registry)
    found = [(each.number, each, standing.get(each.number, Standing())) for each in registry.releases()]
    adapters = release_text.adapters_line
    rows = [
        (number, render.when(each.created), len(each.lines), release_text.standing_line(where), adapters(each.refs))
        for number, each, where in found
    ]
    app.answer(
        [documents.release_head(each, where) for _, each, where in found],
        render.table(("release", "made (UTC)", "lines", "state", "adapters"), rows, right={0, 2}),
    )


@release.command()
@click.argument("number", type=COUNT)
@pass_app
def show(app: App, number: int) -> None:
    """Show a release: where it stands, its lines, and the builds on each."""
    from registry.query import Standing, offered, standings

    registry = app.registry()
    found, document = registry.release(number), offered(registry, number).document
    standing = standings(registry).get(number, Standing())
    text = release_text.release_text(found, document.lines, standing, registry.foundation_names())
    app.answer(documents.release(found, document, standing), text)


def _document(registry: Registry, number: int) -> dict[str, Any]:
    from registry.query import Standing, offered, standings

    standing = standings(registry).get(number, Standing())
    return documents.release(registry.release(number), offered(registry, number).document, standing)


@release.command()
@click.argument("before", type=COUNT)
@click.argument("after", type=COUNT)
@pass_app
def diff(app: App, before: int, after: int) -> None:
    """Say what changes from one release to another, in bytes for a device in each state."""
    from registry.comparing import compare
    from registry.query import offered

    registry = app.registry()
    found = compare(offered(registry, before), offered(registry, after), registry.blobs.read)
    app.answer(found.to_json(), release_text.difference_text(found, registry.foundation_names()))


def _result_text(result: ReleaseResult) -> str:
    number = render.bold(f"release {result.release.number}")
    what = f"{number}: {release_text.adapters_line(result.release.refs)}"
    if result.manifest is None:
        return f"{what}\n{render.dim('a draft: nobody is offered it')}"
    arm = next(arm for arm in result.channel.arms if arm.release == result.release.number)
    return f"{what}\noffered to {percent(arm.share_bp)} of {result.channel.name}, sequence {result.channel.sequence}"
