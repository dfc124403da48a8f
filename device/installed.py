"""Which files an adapter runs with on this device, each checked before it is handed out. No torch."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from device.checks import Checks
from device.doctor import File
from device.forms import write_program
from device.sets import active_sets, files_of
from device.store import DeviceStore
from device.uses import Uses
from registry.device_state import ActiveSet
from registry.digest import Descriptor
from registry.errors import FormatError, InputError, NotFound, Unavailable
from registry.prompt import Prompt
from registry.release import AdapterEntry, ReleaseDocument


@dataclass(frozen=True, slots=True)
class Installed:
    """What a runtime loads: a program, the foundation that it asks for, the tokenizer's bytes, the prompt format.

    `adapter` and `version` are None for the base program. Every file was checked against its digest.
    """

    channel: str
    release: int
    adapter: str | None
    version: str | None
    program: File
    foundation: File
    tokenizer: bytes | None
    prompt: Prompt | None


def locate(directory: Path, adapter: str | None, channel: str | None = None) -> Installed:
    """The checked files of an installed adapter, or of the base program when `adapter` is None.

    `channel` is needed only where several channels of this device have such an adapter. Raises NotFound, listing
    what is installed, InputError for an ambiguous name, IntegrityError for a missing or damaged file. A program that is
    kept as factors is written first.
    """
    store = DeviceStore(directory)
    try:
        name, active, entry = _choose(active_sets(store.known_state()), adapter, channel)
    except NotFound as error:
        raise _on_demand(store, adapter, channel) or error from None
    line = active.line
    checks = Checks(store)
    if entry and entry.factors and checks.damage(entry.file):
        with store.locked(lambda _: None):
            write_program(store, checks, entry)
    titles = files_of(active)

    def sound(blob: Descriptor) -> File:
        damage = checks.damage(blob)
        if damage is not None:
            raise damage.error(titles[blob])
        return File(store.path(blob.digest), titles[blob], blob.digest)

    prompt = (entry and entry.prompt) or line.prompt
    program = entry.file if entry else line.base
    found = Installed(
        channel=name,
        release=active.release,
        adapter=entry.name if entry else None,
        version=entry.version if entry else None,
        program=sound(program),
        foundation=sound(line.foundation.file),
        tokenizer=sound(line.tokenizer.file).path.read_bytes() if line.tokenizer else None,
        prompt=Prompt.from_bytes(sound(prompt).path.read_bytes()) if prompt else None,
    )
    Uses(store).mark(program.digest, time.time())
    with suppress(Unavailable):  # a device without room to remember its checks runs all the same
        checks.save()
    return found


def _on_demand(store: DeviceStore, adapter: str | None, channel: str | None) -> NotFound | None:
    """The better answer for an adapter that a release offers and this device did not fetch yet."""
    for name, active in sorted(active_sets(store.known_state()).items()):
        if channel in (None, name) and adapter in _offered(store, active):
            return NotFound(
                f"adapter {adapter} of channel {name} is fetched on demand, and was not yet",
                hint=f"ptdock device sync {name} --demand {adapter} --dir DIR",
                channel=name,
                adapter=adapter,
            )
    return None


def _offered(store: DeviceStore, active: ActiveSet) -> set[str]:
    """The adapters of delivery `on-demand` on a set's line, where its release document is here."""
    try:
        document = ReleaseDocument.from_bytes(store.path(active.document.digest).read_bytes())
    except (OSError, FormatError):
        return set()
    lines = [line for line in document.lines if line.foundation.file == active.line.foundation.file]
    return {entry.name for line in lines for entry in line.adapters if entry.delivery == "on-demand"}


def _choose(
    sets: Mapping[str, ActiveSet], adapter: str | None, channel: str | None
) -> tuple[str, ActiveSet, AdapterEntry | None]:
    if channel is not None and channel not in sets:
        raise NotFound(f"channel {channel} is not active here", hint=f"active: {', '.join(sorted(sets)) or 'none'}")
    among = {channel: sets[channel]} if channel is not None else sets
    if not among:
        raise NotFound("nothing is active on this device", hint="ptdock device sync CHANNEL --dir DIR")
    found = [(name, each, each.adapter(adapter) if adapter else None) for name, each in sorted(among.items())]
    if adapter:
        found = [each for each in found if each[2]]
    if not found:
        here = sorted({entry.name for each in among.values() for entry in each.line.adapters})
        raise NotFound(f"adapter {adapter} is not installed here", hint=f"installed: {', '.join(here) or 'none'}")
    if len({(each.line.foundation.file, entry.file if entry else each.line.base) for _, each, entry in found}) > 1:
        raise InputError(
            f"{f'adapter {adapter}' if adapter else 'a base program'} is active in several channels, not the same one",
            hint=f"choose one with --channel: {', '.join(name for name, _, _ in found)}",
        )
    return found[0]
