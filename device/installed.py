"""Which files an adapter runs with on this device, each checked before it is handed out. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from device.checks import Checks
from device.doctor import File
from device.forms import write_program
from device.sets import active_sets, files_of
from device.store import DeviceStore
from registry.device_state import ActiveSet
from registry.digest import Descriptor
from registry.errors import InputError, NotFound, Unavailable
from registry.prompt import Prompt
from registry.release import AdapterEntry


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
    name, active, entry = _choose(active_sets(store.known_state()), adapter, channel)
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
    found = Installed(
        channel=name,
        release=active.release,
        adapter=entry.name if entry else None,
        version=entry.version if entry else None,
        program=sound(entry.file if entry else line.base),
        foundation=sound(line.foundation.file),
        tokenizer=sound(line.tokenizer.file).path.read_bytes() if line.tokenizer else None,
        prompt=Prompt.from_bytes(sound(prompt).path.read_bytes()) if prompt else None,
    )
    with suppress(Unavailable):  # a device without room to remember its checks runs all the same
        checks.save()
    return found


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
