"""`ptdock manifest` and `ptdock plan`: what a channel says, and what one device would do about it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from console import render
from console.app import App, pass_app
from console.options import COUNT, DEVICE_HINT, PATH, read_file
from console.verbs import Verb

if TYPE_CHECKING:
    from registry.plan import Plan
    from registry.release import AdapterEntry


@click.command(cls=Verb)
@click.argument("channel")
@click.option("--sequence", type=COUNT, help="An earlier manifest instead of the newest.")
@pass_app
def manifest(app: App, channel: str, sequence: int | None) -> None:
    """Print a channel's manifest, as devices read it.

    The answer is the document itself, byte for byte, with --json and without.
    """
    click.echo(app.registry().manifest(channel, sequence), nl=sys.stdout.isatty())


@click.command(cls=Verb)
@click.argument("channels", nargs=-1, required=True, metavar="CHANNEL...")
@click.option("--device", "file", type=PATH, required=True, metavar="FILE", help="The device's state (- reads it).")
@click.option("--delete-first", is_flag=True, help="Let the device delete what it runs when it cannot hold both.")
@pass_app
def plan(app: App, channels: tuple[str, ...], file: Path, delete_first: bool) -> None:
    """Show what one device would do, and why.

    What it downloads, keeps, activates and deletes follows from the channels' manifests and the device's state.
    """
    from registry.device_state import DeviceState
    from registry.query import planned

    state = DeviceState.from_bytes(read_file(file, hint=DEVICE_HINT))
    answer = planned(app.registry(), channels, state, now=int(time.time()), delete_first=delete_first)
    app.answer(answer.to_json(), plan_text(answer))


def plan_text(answer: Plan) -> str:
    """A plan for people: what is downloaded, what changes, and why."""
    parts = []
    if answer.download:
        rows = [
            (each.kind, each.adapter or "", render.size(each.file.size), each.file.digest) for each in answer.download
        ]
        parts.append(render.table(("download", "adapter", "size", "digest"), rows, right={2}))
    changes = [
        ("activate", f"{each.channel}: release {each.set.release}, {_adapters(each.set.line.adapters)}")
        for each in answer.activate
    ]
    changes += [
        ("deactivate", f"{each.channel}: {each.adapter}@{each.version} ({each.why})") for each in answer.deactivate
    ]
    totals = [
        ("delete", render.plural(len(answer.delete), "file") if answer.delete else None),
        ("bytes", render.size(answer.bytes)),
        ("peak disk", render.size(answer.peak_disk)),
    ]
    parts.append(render.fields([*changes, *totals]))
    parts.append(render.findings([(each.level, each.channel, each.text, "") for each in answer.reasons]))
    return "\n\n".join(part for part in parts if part)


def _adapters(entries: tuple[AdapterEntry, ...]) -> str:
    return ", ".join(f"{entry.name}@{entry.version}" for entry in entries) or "no adapters"
