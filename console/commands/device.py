"""`ptdock device`: the reference client, on a directory that plays the phone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from console import render
from console.app import App, json_text, pass_app
from console.commands import answering, syncing
from console.options import directory_option
from console.verbs import Noun
from registry.errors import IntegrityError

if TYPE_CHECKING:
    from pathlib import Path

    from device.manage import Status
    from registry.device_state import ActiveSet


@click.group(cls=Noun)
def device() -> None:
    """The reference device client: a directory plays the phone."""


for _command in (syncing.sync, syncing.watch, answering.run, answering.swap):
    device.add_command(_command)


@device.command()
@directory_option("The device's directory.")
@click.option("--verify", is_flag=True, help="Hash every file again.")
@pass_app
@click.pass_context
def status(context: click.Context, app: App, directory: Path, verify: bool) -> None:
    """Say what is active, and whether its files are sound.

    Exit code 7 when one is damaged.
    """
    from device.manage import status as status_of

    with app.progress() as progress:
        progress("checking the files")
        found = status_of(directory, verify=verify, progress=progress.bytes)
    app.answer(found.to_json(), _status_text(found))
    if found.damage:
        context.exit(IntegrityError.exit_code)


def _status_text(status: Status) -> str:
    rows = [
        (name, channel.sequence, which, each.release, _versions(each), each.line.foundation.file.digest.short)
        for name, channel in sorted(status.state.channels.items())
        for which, each in (("active", channel.active), ("previous", channel.previous))
        if each
    ]
    damage = [("error", what, str(each), "sync again") for what, each in status.damage]
    held = f"{render.plural(len(status.blobs), 'file')}, {render.size(sum(status.blobs.values()))}"
    unfinished = render.size(sum(status.unfinished.values())) if status.unfinished else None
    parts = [
        render.fields([("device", status.state.id), ("holds", held), ("unfinished", unfinished)]),
        render.table(("channel", "sequence", "set", "release", "adapters", "foundation"), rows, right={1, 3}),
        render.findings(damage),
    ]
    return "\n\n".join(part for part in parts if part)


def _versions(active: ActiveSet) -> str:
    return ", ".join(f"{entry.name}@{entry.version}" for entry in active.line.adapters) or "none"


@device.command()
@directory_option("The device's directory.")
def describe(directory: Path) -> None:
    """Print the device's state, as `ptdock plan` takes it."""
    from device.manage import describe as describe_device

    click.echo(json_text(describe_device(directory).to_json()))


@device.command()
@directory_option("The device's directory.")
@click.option("--channel", help="Which channel, where the device follows several.")
@pass_app
def rollback(app: App, directory: Path, channel: str | None) -> None:
    """Go back to the previous set.

    The release that is left is not taken again by a sync.
    """
    from device.manage import rollback as roll_back

    active = roll_back(directory, channel, app.note)
    app.answer(active.to_json(), f"active: release {active.release}, {_versions(active)}")


@device.command()
@directory_option("The device's directory.")
@click.option("--quota", type=click.IntRange(min=0), metavar="BYTES", help="Then delete what can be had again, too.")
@pass_app
def gc(app: App, directory: Path, quota: int | None) -> None:
    """Delete what neither an active nor a previous set needs."""
    from device.collect import gc as collect

    gone = collect(directory, quota, app.note)
    document = {"deleted": [{"digest": str(digest), "size": size} for digest, size in sorted(gone.items())]}
    app.answer(document, f"deleted {render.plural(len(gone), 'file')}, {render.size(sum(gone.values()))}")
