"""`ptdock channel`: the only mutable names; each says which releases are offered to which share of devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from console import arms, documents, render
from console.app import App, pass_app
from console.options import any_share_bp, duration, span
from console.verbs import Noun
from registry.artifacts import Channel
from registry.manifest import Arm
from registry.rollout import percent

if TYPE_CHECKING:
    from registry.service import Registry


@click.group(cls=Noun)
def channel() -> None:
    """What devices follow."""


_poll = click.option("--poll", callback=duration, metavar="4h", help="How often a device should ask; by default 4h.")
_lifetime = click.option(
    "--lifetime", callback=duration, metavar="30d", help="How long a manifest is good; by default 30d."
)
_proof = click.option("--require-proof/--no-require-proof", default=None, help="Take proven builds only.")
_lineage = click.option(
    "--require-lineage", multiple=True, metavar="KEY", help="Take versions with this lineage only; repeatable."
)
_coverage = click.option(
    "--min-coverage",
    callback=any_share_bp,
    metavar="PERCENT",
    help="Widen a release only when its poorest line has so many of its adapters.",
)
_hook = click.option("--on-release", "hook", metavar="COMMAND", help="Run this with each release's JSON on its input.")


@channel.command()
@click.argument("name")
@_poll
@_lifetime
@_proof
@_lineage
@_coverage
@_hook
@pass_app
def create(app: App, /, name: str, hook: str | None, **options: Any) -> None:
    """Make a channel."""
    registry = app.registry()
    made = registry.create_channel(name, **_settings(options))
    if hook:
        registry.rollout(name).hooks.set(name, hook)
    app.answer(_document(registry, made), f"made channel {render.bold(name)}")


@channel.command("set")
@click.argument("name")
@click.option("--holdout", callback=any_share_bp, metavar="PERCENT", help="Devices that always keep what they have.")
@_poll
@_lifetime
@_proof
@_lineage
@click.option("--no-require-lineage", is_flag=True, help="Take versions with any lineage again.")
@_coverage
@_hook
@pass_app
def set_(
    app: App, /, name: str, holdout: int | None, no_require_lineage: bool, hook: str | None, **options: Any
) -> None:
    """Change what a channel demands and tells."""
    registry = app.registry()
    steering = registry.rollout(name)
    settings = _settings(options) | ({"require_lineage": None} if no_require_lineage else {})
    changed = steering.configure(holdout, **settings)
    if hook is not None:
        steering.hooks.set(name, hook)
    app.answer(_document(registry, changed), _channel_text(registry, changed))


def _settings(options: dict[str, Any]) -> dict[str, Any]:
    """The settings that were given, by the names that the registry knows."""
    named = {
        "poll_seconds": options["poll"],
        "lifetime_seconds": options["lifetime"],
        "require_proof": options["require_proof"],
        "require_lineage": list(options["require_lineage"]) or None,
        "min_coverage_bp": options["min_coverage"],
    }
    return {name: value for name, value in named.items() if value is not None}


@channel.command("list")
@pass_app
def list_(app: App) -> None:
    """List the channels."""
    registry = app.registry()
    found = registry.channels()
    rows = [(each.name, each.sequence, arms.line(each.arms)) for each in found]
    app.answer(
        [_document(registry, each) for each in found], render.table(("channel", "sequence", "offers"), rows, right={1})
    )


@channel.command()
@click.argument("name")
@pass_app
def show(app: App, name: str) -> None:
    """Show which release is offered to which share of devices."""
    registry = app.registry()
    found = registry.channel(name)
    app.answer(_document(registry, found), _channel_text(registry, found))


@channel.command()
@click.argument("name")
@pass_app
def delete(app: App, name: str) -> None:
    """Withdraw a channel.

    Its manifests are kept, and its sequence goes on if the name is used again.
    """
    app.registry().delete_channel(name)
    app.answer({"name": name, "deleted": True}, f"withdrew channel {render.bold(name)}")


@channel.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--target", metavar="TARGET", help="Where it is published; by default this store's own site.")
@pass_app
def advance(app: App, names: tuple[str, ...], target: str | None) -> None:
    """Go past what is published, when this store is behind it: a restored backup.

    Each channel, by default all, that is behind offers its arms again under a higher sequence than the published one.
    """
    from registry.targets import open_target

    desk = app.registry().signed_site()
    advanced = desk.advance(names, open_target(target) if target else desk.here)
    text = "\n".join(f"{render.bold(each.name)}: sequence {each.sequence}" for each in advanced)
    app.answer([documents.channel(each) for each in advanced], text or "no channel is behind what is published")


def _document(registry: Registry, found: Channel) -> dict[str, Any]:
    hook = registry.rollout(found.name).hooks.get(found.name)
    return {**documents.channel(found), "on_release": list(hook) or None}


def _channel_text(registry: Registry, found: Channel) -> str:
    """The channel's settings, and its arms as bars with what each offers."""
    hook = registry.rollout(found.name).hooks.get(found.name)
    settings = found.settings
    demands = [
        "proven builds" if settings.get("require_proof") else "",
        f"lineage {', '.join(settings['require_lineage'])}" if settings.get("require_lineage") else "",
        f"coverage {percent(settings['min_coverage_bp'])}" if settings.get("min_coverage_bp") else "",
    ]
    facts = [
        ("sequence", found.sequence),
        ("poll", span(settings["poll_seconds"])),
        ("lifetime", span(settings["lifetime_seconds"])),
        ("demands", ", ".join(filter(None, demands))),
        ("on_release", " ".join(hook)),
    ]

    def counts(arm: Arm) -> str:
        if arm.release is None:
            return ""
        release = registry.release(arm.release)
        return f"{render.plural(len(release.refs), 'adapter')}, {render.plural(len(release.lines), 'line')}"

    return f"{render.bold(found.name)}\n{render.fields(facts)}\n{arms.bars(found.arms, counts)}"
