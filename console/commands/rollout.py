"""The verbs of a rollout, under `ptdock release`: what moves a channel, and who is where."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console import arms, documents
from console.app import App, pass_app
from console.options import COUNT, PATH, moment, read_file, share_bp
from console.verbs import Verb

if TYPE_CHECKING:
    from registry.artifacts import ReleaseResult
    from registry.budget import Budget, Cohort
    from registry.costing import Offered
    from registry.rollout import Arms
    from registry.service import Registry

CHANNEL = click.option("--channel", required=True, help="The channel.")
SHARE = click.option(
    "--share",
    callback=share_bp,
    default="100%",
    show_default=True,
    metavar="PERCENT",
    help="The share of devices, such as 10%.",
)
FLEET = click.option("--fleet", type=PATH, metavar="FILE", help="The fleet: cohorts with their counts (JSON).")
REVOKED = click.option(
    "--allow-revoked", is_flag=True, help="Even if it holds revoked builds, which devices leave out."
)
_which = click.option("--release", "number", type=COUNT, help="Which release; by default the newest of the channel.")


@click.command(cls=Verb)
@click.argument("number", type=COUNT)
@CHANNEL
@SHARE
@REVOKED
@pass_app
def start(app: App, number: int, channel: str, share: int, allow_revoked: bool) -> None:
    """Offer a recorded release, such as a draft, to a share of the devices."""
    _tell(app, app.registry().rollout(channel).start(number, share, allow_revoked=allow_revoked))


@click.command(cls=Verb)
@CHANNEL
@click.option("--share", callback=share_bp, required=True, metavar="PERCENT", help="The new share, such as 50%.")
@_which
@pass_app
def widen(app: App, channel: str, share: int, number: int | None) -> None:
    """Grow a release's share; nobody leaves it, others enter."""
    _tell(app, app.registry().rollout(channel).widen(share, number))


@click.command(cls=Verb)
@CHANNEL
@pass_app
def complete(app: App, channel: str) -> None:
    """Give the newest release to every device but the holdout, and retire the older ones."""
    _tell(app, app.registry().rollout(channel).complete())


@click.command(cls=Verb)
@CHANNEL
@_which
@pass_app
def halt(app: App, channel: str, number: int | None) -> None:
    """Offer a release to no further device; those that run it keep it."""
    _tell(app, app.registry().rollout(channel).halt(number))


@click.command(cls=Verb)
@CHANNEL
@_which
@pass_app
def resume(app: App, channel: str, number: int | None) -> None:
    """Undo `halt`."""
    _tell(app, app.registry().rollout(channel).resume(number))


@click.command(cls=Verb)
@CHANNEL
@click.option("--to", "number", type=COUNT, help="Which release; by default the one before the newest.")
@REVOKED
@pass_app
def rollback(app: App, channel: str, number: int | None, allow_revoked: bool) -> None:
    """Offer an earlier release again in place of what came after it.

    The sequence grows all the same, so devices take it as news.
    """
    _tell(app, app.registry().rollout(channel).rollback(number, allow_revoked=allow_revoked))


@click.command(cls=Verb)
@click.option("--from", "source", required=True, metavar="CHANNEL", help="The channel that offers it now.")
@click.option("--to", "channel", required=True, metavar="CHANNEL", help="The channel that shall.")
@click.option("--release", "number", type=COUNT, help="Which release; by default the live one.")
@SHARE
@REVOKED
@pass_app
def promote(app: App, source: str, channel: str, number: int | None, share: int, allow_revoked: bool) -> None:
    """Offer on one channel what another one offers."""
    _tell(app, app.registry().rollout(channel).promote(source, share, number=number, allow_revoked=allow_revoked))


@click.command(cls=Verb)
@CHANNEL
@click.option("--device", required=True, metavar="ID", help="The device's id.")
@click.option("--active", type=COUNT, metavar="N", help="The release that it runs: a halted one keeps it.")
@click.option("--at", callback=moment, metavar="DATE", help="At that time instead of now.")
@pass_app
def who(app: App, channel: str, device: str, active: int | None, at: int | None) -> None:
    """Say which release a device is offered, and why."""
    found = app.registry().rollout(channel).who(device, active=active, at=at)
    document = {
        "channel": channel,
        "device": device,
        "active": active,
        "bucket": found.bucket,
        "release": found.release,
        "arm": found.arm,
        "reason": found.reason,
        "sequence": found.sequence,
        "issued": found.issued,
    }
    since = datetime.fromtimestamp(found.issued, UTC)
    app.answer(document, f"{found.reason}\n(sequence {found.sequence}, issued {since:%Y-%m-%d %H:%M} UTC)")


@click.command(cls=Verb)
@CHANNEL
@click.option(
    "--release", "number", type=COUNT, help="As if this release were started or widened; by default as it is."
)
@SHARE
@FLEET
@pass_app
def budget(app: App, channel: str, number: int | None, share: int, fleet: Path | None) -> None:
    """Say what a step costs a fleet: egress, download per device, peak disk, and who cannot take it."""
    from console.release_text import budget_text
    from registry import rollout

    registry = app.registry()
    now = registry.channel(channel).arms
    if number is not None:
        known = any(arm.release == number for arm in now)
        now = rollout.widen(now, number, share) if known else rollout.start(now, number, share)
    found = budget_of(registry, now, fleet, {})
    app.answer(found.to_json(), budget_text(found, fleet=fleet is not None))


def budget_of(registry: Registry, after: Arms, fleet: Path | None, beside: dict[int, Offered]) -> Budget:
    """What these arms cost; `beside` are releases that are not recorded."""
    from registry.budget import budget as budget_for
    from registry.query import offered

    cohorts = _cohorts(fleet, [arm.release for arm in after if arm.release not in {None, *beside}])
    numbers = {arm.release for arm in after} | {cohort.release for cohort in cohorts}
    releases = {number: offered(registry, number) for number in numbers if number is not None and number not in beside}
    return budget_for(after, {**releases, **beside}, cohorts, registry.blobs.read)


def _cohorts(fleet: Path | None, running: list[Any]) -> tuple[Cohort, ...]:
    from registry.budget import Fleet, imagined

    if fleet is None:
        return imagined(running)
    return Fleet.from_bytes(read_file(fleet, hint="cohorts with name, count, release and free_disk (JSON)")).cohorts


def _tell(app: App, result: ReleaseResult) -> None:
    arms.remarks(app, result)
    app.answer(documents.rolled(result), arms.rolled(result))


COMMANDS = (start, widen, complete, halt, resume, rollback, promote, who, budget)
