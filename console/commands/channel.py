"""`ptdock channel`: the only mutable names; each says which releases are offered to which share of devices."""

from __future__ import annotations

import click

from console import documents, render
from console.app import App, pass_app
from console.options import duration
from console.verbs import Noun
from registry.artifacts import Channel
from registry.manifest import WHOLE, Arm
from registry.rollout import percent


@click.group(cls=Noun)
def channel() -> None:
    """What devices follow."""


@channel.command()
@click.argument("name")
@click.option("--poll", callback=duration, metavar="4h", help="How often a device should ask; by default 4h.")
@click.option("--lifetime", callback=duration, metavar="30d", help="How long a manifest is good; by default 30d.")
@pass_app
def create(app: App, name: str, poll: int | None, lifetime: int | None) -> None:
    """Make a channel."""
    settings = {"poll_seconds": poll, "lifetime_seconds": lifetime}
    made = app.registry().create_channel(name, **{key: value for key, value in settings.items() if value is not None})
    app.answer(documents.channel(made), f"made channel {render.bold(name)}")


@channel.command("list")
@pass_app
def list_(app: App) -> None:
    """List the channels."""
    found = app.registry().channels()
    rows = [(each.name, each.sequence, _arms_line(each)) for each in found]
    app.answer(
        [documents.channel(each) for each in found], render.table(("channel", "sequence", "offers"), rows, right={1})
    )


@channel.command()
@click.argument("name")
@pass_app
def show(app: App, name: str) -> None:
    """Show which release is offered to which share of devices."""
    found = app.registry().channel(name)
    app.answer(documents.channel(found), _channel_text(found))


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


def _arms_line(channel: Channel) -> str:
    return ", ".join(f"{_arm_name(arm)} {percent(arm.share_bp)}" for arm in channel.arms)


def _arm_name(arm: Arm) -> str:
    if arm.release is None:
        return "held out" if arm.holdout else "as they are"
    return f"release {arm.release}" + (" (halted)" if arm.state == "halted" else "")


def _channel_text(channel: Channel) -> str:
    """The arms as bars, in the order in which devices are assigned to them."""
    names = [_arm_name(arm) for arm in channel.arms]
    width = max(map(len, names))
    lines = [f"{render.bold(channel.name)}  sequence {channel.sequence}"]
    for arm, name in zip(channel.arms, names, strict=True):
        style = render.doubtful if arm.state == "halted" else render.good if arm.release else render.dim
        lines.append(f"{name.ljust(width)}  {style(render.bar(arm.share_bp / WHOLE))}  {percent(arm.share_bp):>7}")
    return "\n".join(lines)
