"""`ptdock device sync` and `device watch`: fetch what channels offer, once or again and again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console import failures, render
from console.app import App, pass_app
from console.options import DEVICE_HINT, FC, PATH, directory_option, read_file
from console.verbs import Verb
from registry.errors import PtdockError

if TYPE_CHECKING:
    from console.progress import Progress
    from device.result import ChannelResult, Options
    from device.sync import SyncResult
    from registry.device_state import DeviceState

    Reporter = Callable[[SyncResult | PtdockError], None]


def _sync_options(command: FC) -> FC:
    """What a sync is told, once or again and again."""
    options = (
        click.argument("words", nargs=-1, required=True, metavar="[SOURCE] CHANNEL..."),
        directory_option("The device's directory; made when absent."),
        click.option("--facts", type=PATH, metavar="FILE", help="Who the device is, as `plan` takes it."),
        click.option("--delete-first", is_flag=True, help="Delete what runs when the disk cannot hold old and new."),
        click.option("--root", type=PATH, metavar="FILE", help="The registry's root to trust, for a source elsewhere."),
        click.option("--report", is_flag=True, help="Tell the server how it went: a code, no name, no address."),
        click.option("--demand", multiple=True, metavar="ADAPTER", help="Fetch it, though it is delivered on demand."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command(cls=Verb)
@_sync_options
@pass_app
def sync(app: App, /, words: tuple[str, ...], directory: Path, **choices: Any) -> None:
    """Bring a device to what its channels offer.

    SOURCE is a site's directory or address, by default this store's own site.
    """
    from device.source import open_source
    from device.sync import sync as sync_device

    address, channels = _addressed(app, words)
    report = _reporter(app, address, directory, wanted=choices["report"])
    with app.progress() as progress:
        progress(f"syncing {', '.join(channels)}")
        options = _options(progress, choices)
        source = open_source(address or _own_site(app, channels), progress.note)
        with _telling(app, report):
            result = sync_device(source, channels, directory, options)
    report(result)
    app.answer(_sync_document(result), _sync_text(result))


@click.command(cls=Verb)
@_sync_options
@pass_app
def watch(app: App, /, words: tuple[str, ...], directory: Path, **choices: Any) -> None:
    """Sync again and again, as often as the channels wish, until it is interrupted.

    What fails is told and tried again, sooner. With --json each sync is a document on a line of its own.
    """
    from device.source import open_source
    from device.watch import watch as watch_device

    address, channels = _addressed(app, words)
    report = _reporter(app, address, directory, wanted=choices["report"])
    with app.progress() as progress:
        options = _options(progress, choices)
        source = open_source(address or _own_site(app, channels), progress.note)
        for result in watch_device(source, channels, directory, options):
            _tell(app, result)
            report(result)


def _tell(app: App, result: SyncResult | PtdockError) -> None:
    """One sync of many: a document on one line, or a line of text."""
    if app.json:
        document = failures.document(result) if isinstance(result, PtdockError) else _sync_document(result)
        click.echo(json.dumps(document, default=str))
    elif isinstance(result, PtdockError):
        app.note(f"{render.bad('error')}: {render.clean(result.message)}")
    else:
        click.echo("\n".join([*map(_channel_text, result.channels), f"{render.size(result.fetched)} fetched"]))


def _addressed(app: App, words: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """The source, None for this store's own site, and at least one channel."""
    source, channels = split_source(words, app.home)
    if not channels:
        raise click.UsageError("no channel is named after the source")
    return source, channels


def _reporter(app: App, address: str | None, directory: Path, *, wanted: bool) -> Reporter:
    """What tells the server of a sync's outcome, where that is wanted."""
    if not wanted:
        return lambda _: None
    if address is None or "://" not in address:
        raise click.UsageError("--report needs a server: name its address as the source")
    from device.health import send

    def report(outcome: SyncResult | PtdockError) -> None:
        send(address, directory, outcome, app.note)

    return report


def _options(progress: Progress, choices: dict[str, Any]) -> Options:
    from device.sync import Options

    root = choices["root"]
    return Options(
        facts=_facts(choices["facts"]),
        delete_first=choices["delete_first"],
        root=root.read_bytes() if root else None,
        demand=choices["demand"],
        self_test=_replay if find_spec("executorch") else None,
        note=progress.note,
        progress=progress.reached,
    )


def _own_site(app: App, channels: Sequence[str]) -> Path:
    """The site of this store. Raises NotFound, naming a channel, when nothing was offered yet and there is none."""
    registry = app.registry()
    if not registry.site.is_dir():
        for channel in channels:
            registry.manifest(channel)
    return registry.site


def _replay(*arguments: Any) -> None:
    """Run a set's self-tests; torch is imported only where there are any."""
    from device.selftest import replay

    replay(*arguments)


@contextmanager
def _telling(app: App, report: Reporter) -> Iterator[None]:
    """When one of several channels fails, say what became of the others; the failure itself is told as ever."""
    try:
        yield
    except PtdockError as error:
        report(error)
        found = error.values.get("channels", [])
        if len(found) > 1:
            rows = [(each["channel"], each["outcome"], each["release"] or "-") for each in found]
            app.note(render.table(("channel", "outcome", "release"), rows, right={2}))
        raise


def split_source(words: tuple[str, ...], home: Path) -> tuple[str | None, tuple[str, ...]]:
    """SOURCE, if the first word is one, and the channels.

    A source is an address or a path: it has a slash or starts with a dot. A bare word is a source only if others
    follow, it is a directory, and the store's site has no such channel.
    """
    first, *rest = words
    if "/" in first or "\\" in first or first.startswith("."):
        return first, tuple(rest)
    is_channel = (home / "site" / "targets" / "v1" / f"{first}.json").exists()
    if rest and Path(first).is_dir() and not is_channel:
        return first, tuple(rest)
    return None, words


def _facts(file: Path | None) -> DeviceState | None:
    from registry.device_state import DeviceState

    return None if file is None else DeviceState.from_bytes(read_file(file, hint=DEVICE_HINT))


def _sync_document(result: SyncResult) -> dict[str, Any]:
    return {
        "device": result.device,
        "channels": [each.to_json() for each in result.channels],
        "fetched": result.fetched,
        "poll_seconds": result.poll_seconds,
        "plan": result.plan.to_json(),
    }


def _sync_text(result: SyncResult) -> str:
    downloads = [
        (each.kind, each.adapter or "", render.size(each.file.size), each.file.digest) for each in result.plan.download
    ]
    notes = [(each.level, each.channel, each.text, "") for each in result.plan.reasons if each.level != "note"]
    parts = [
        render.table(("fetched", "adapter", "size", "digest"), downloads, right={2}),
        render.findings(notes),
        *map(_channel_text, result.channels),
        f"{render.size(result.fetched)} fetched",
    ]
    return "\n".join(part for part in parts if part)


def _channel_text(each: ChannelResult) -> str:
    adapters = "".join(f", {name}@{version}" for name, version in sorted(each.adapters.items()))
    told = render.bad(each.outcome) if each.error else render.good(each.outcome)
    return f"{render.bold(each.channel)}: {told}, release {each.release or '-'}{adapters}"
