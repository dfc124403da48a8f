"""`ptdock device`: the reference client, on a directory that plays the phone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console import render
from console.app import App, json_text, pass_app
from console.options import COUNT, DEVICE_HINT, PATH, directory_option, read_file
from console.verbs import Noun
from registry.errors import IntegrityError, PtdockError

if TYPE_CHECKING:
    from device.manage import Status
    from device.run import Answer, Chat
    from device.sync import SyncResult
    from registry.device_state import ActiveSet, DeviceState


@click.group(cls=Noun)
def device() -> None:
    """The reference device client: a directory plays the phone."""


@device.command()
@click.argument("words", nargs=-1, required=True, metavar="[SOURCE] CHANNEL...")
@directory_option("The device's directory; made when absent.")
@click.option("--facts", type=PATH, metavar="FILE", help="Who the device is: a device state as `plan` takes it.")
@click.option("--delete-first", is_flag=True, help="Delete what runs when the disk cannot hold old and new.")
@click.option("--root", type=PATH, metavar="FILE", help="The registry's root to trust, for a source elsewhere.")
@click.option("--demand", multiple=True, metavar="ADAPTER", help="Fetch an adapter that is delivered on demand.")
@pass_app
def sync(app: App, /, words: tuple[str, ...], directory: Path, root: Path | None, **choices: Any) -> None:
    """Bring a device to what its channels offer.

    SOURCE is a site's directory or address, by default this store's own site.
    """
    from device.source import open_source
    from device.sync import Options
    from device.sync import sync as sync_device

    source, channels = split_source(words, app.home)
    if not channels:
        raise click.UsageError("no channel is named after the source")
    with app.progress() as progress:
        progress(f"syncing {', '.join(channels)}")
        options = Options(
            facts=_facts(choices["facts"]),
            delete_first=choices["delete_first"],
            root=root.read_bytes() if root else None,
            demand=choices["demand"],
            self_test=_replay if find_spec("executorch") else None,
            note=progress.note,
            progress=progress.reached,
        )
        address = source if source is not None else _own_site(app, channels)
        with _telling(app):
            result = sync_device(open_source(address, progress.note), channels, directory, options)
    app.answer(_sync_document(result), _sync_text(result))


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
def _telling(app: App) -> Iterator[None]:
    """When one of several channels fails, say what became of the others; the failure itself is told as ever."""
    try:
        yield
    except PtdockError as error:
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
    channels = [
        f"{render.bold(each.channel)}: {render.good(each.outcome)}, release {each.release or '-'}"
        + "".join(f", {name}@{version}" for name, version in sorted(each.adapters.items()))
        for each in result.channels
    ]
    notes = [(each.level, each.channel, each.text, "") for each in result.plan.reasons if each.level != "note"]
    parts = [
        render.table(("fetched", "adapter", "size", "digest"), downloads, right={2}),
        render.findings(notes),
        *channels,
        f"{render.size(result.fetched)} fetched",
    ]
    return "\n".join(part for part in parts if part)


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


@device.command()
@click.argument("adapter")
@click.argument("prompt")
@directory_option("The device's directory.")
@click.option("--channel", help="Which channel's adapter, where several have one of that name.")
@click.option("--max-new-tokens", type=COUNT, default=128, show_default=True, help="When to stop.")
@pass_app
def run(app: App, adapter: str, prompt: str, directory: Path, channel: str | None, max_new_tokens: int) -> None:
    """Let an adapter answer a prompt, in ExecuTorch's runtime.

    ADAPTER - is the base without an adapter.
    """
    chat = _load(app, directory, None if adapter == "-" else adapter, channel)
    answer = chat.answer(prompt, max_new_tokens=max_new_tokens, on_token=_speak(app))
    app.answer(_answer_document(chat, answer), "")
    if not app.json:
        click.echo()
    app.note(render.dim(_answer_note(chat, answer)))


def _load(app: App, directory: Path, adapter: str | None, channel: str | None) -> Chat:
    """Load an installed adapter; what is missing is said before torch is imported, which takes seconds."""
    from device.installed import locate
    from exporter.quiet import quiet

    locate(directory, adapter, channel)
    with app.progress() as progress:
        progress("loading")
        with quiet():
            from device.run import Chat

            return Chat.open(directory, adapter, channel)


def _speak(app: App) -> Any:
    """Prints the answer as it comes, unless one document is asked for."""
    return None if app.json else lambda text: click.echo(text, nl=False)


def _answer_document(chat: Chat, answer: Answer) -> dict[str, Any]:
    return {
        "adapter": chat.installed.adapter,
        "version": chat.installed.version,
        "channel": chat.installed.channel,
        "release": chat.installed.release,
        "program": str(chat.installed.program.digest),
        "foundation": str(chat.installed.foundation.digest),
        "text": answer.text,
        "tokens": list(answer.tokens),
        "prompt_tokens": answer.prompt_tokens,
        "load_seconds": chat.load_seconds,
        "prefill_seconds": answer.prefill_seconds,
        "decode_seconds": answer.decode_seconds,
    }


def _answer_note(chat: Chat, answer: Answer) -> str:
    who = f"{chat.installed.adapter}@{chat.installed.version}" if chat.installed.adapter else "the base program"
    later = len(answer.tokens) - 1  # the first one belongs to the prefill
    rate = f", then {later / answer.decode_seconds:.1f} tokens/s" if later > 0 and answer.decode_seconds else ""
    return f"{who}, loaded in {render.seconds(chat.load_seconds)}, {len(answer.tokens)} tokens{rate}"
