"""`ptdock release`: immutable, numbered sets of builds that a channel offers."""

from __future__ import annotations

import click

from console import documents, render
from console.app import App, pass_app
from console.options import COUNT, share_bp
from console.verbs import Noun
from registry.artifacts import Line, Release, ReleaseResult
from registry.rollout import percent


@click.group(cls=Noun)
def release() -> None:
    """Immutable, numbered sets of builds that channels offer."""


@release.command()
@click.option("--channel", required=True, help="The channel that offers it.")
@click.option("--adapter", "adapters", multiple=True, required=True, metavar="NAME@V", help="A version; repeatable.")
@click.option("--line", "lines", multiple=True, metavar="FOUNDATION", help="A foundation, best first; repeatable.")
@click.option(
    "--share",
    callback=share_bp,
    default="100%",
    show_default=True,
    metavar="PERCENT",
    help="The share of devices, such as 10%.",
)
@click.option("--allow-holes", is_flag=True, help="Let a line lack adapters; the release records it.")
@click.option("--draft", is_flag=True, help="Make the release, offer it to nobody yet.")
@pass_app
def create(
    app: App,
    channel: str,
    adapters: tuple[str, ...],
    lines: tuple[str, ...],
    share: int,
    allow_holes: bool,
    draft: bool,
) -> None:
    """Make a release of adapter versions and offer it to devices."""
    result = app.registry().create_release(
        channel, adapters, lines=lines or None, share_bp=share, allow_holes=allow_holes, draft=draft
    )
    app.answer(documents.released(result), _result_text(result))


@release.command("list")
@pass_app
def list_(app: App) -> None:
    """List the releases, oldest first."""
    found = app.registry().releases()
    rows = [(each.number, render.when(each.created), len(each.lines), _adapters_line(each)) for each in found]
    app.answer(
        [documents.release(each) for each in found],
        render.table(("release", "made (UTC)", "lines", "adapters"), rows, right={0, 2}),
    )


@release.command()
@click.argument("number", type=COUNT)
@pass_app
def show(app: App, number: int) -> None:
    """Show a release: its lines, and the builds on each."""
    registry = app.registry()
    found = registry.release(number)
    names = registry.foundation_names()
    lines = [_line_text(line, documents.names_of(names, line.foundation)) for line in found.lines]
    head = render.fields(
        [("release", found.number), ("made", f"{render.when(found.created)} UTC"), ("document", found.document.digest)]
    )
    app.answer(documents.release(found), "\n\n".join([head, *lines]))


def _line_text(line: Line, names: list[str]) -> str:
    rows = [
        (name, build.version, render.size(build.file.size), build.file.digest)
        for name, build in sorted(line.builds.items())
    ]
    head = f"on {render.bold(', '.join(names) or str(line.foundation))}"
    return head + "\n" + render.table(("adapter", "version", "size", "digest"), rows, right={2})


def _adapters_line(release: Release) -> str:
    versions = {(name, build.version) for line in release.lines for name, build in line.builds.items()}
    return ", ".join(f"{name}@{version}" for name, version in sorted(versions))


def _result_text(result: ReleaseResult) -> str:
    number = render.bold(f"release {result.release.number}")
    what = f"{number}: {_adapters_line(result.release)}"
    if result.manifest is None:
        return f"{what}\n{render.dim('a draft: nobody is offered it')}"
    arm = next(arm for arm in result.channel.arms if arm.release == result.release.number)
    return f"{what}\noffered to {percent(arm.share_bp)} of {result.channel.name}, sequence {result.channel.sequence}"
