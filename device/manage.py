"""What a device says of itself, and what it does without a source: status and rollback."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from device.activation import rolled_back
from device.checks import Checks, Damage
from device.sets import active_sets, kept_sets, needs_of, with_channel
from device.store import DeviceStore
from registry.device_state import ActiveSet, DeviceState
from registry.digest import Descriptor, Digest
from registry.errors import InputError, NotFound


@dataclass(frozen=True, slots=True)
class Status:
    """A device directory: its state, its files (bytes by digest), unfinished downloads, and what is damaged.

    `damage` pairs what a file is with what is wrong with it; without hashing it holds only what sizes tell.
    """

    state: DeviceState
    blobs: dict[Digest, int]
    unfinished: dict[Digest, int]
    damage: tuple[tuple[str, Damage], ...]

    def to_json(self) -> dict[str, Any]:
        """As the command line prints it."""
        channels = {name: channel.to_json() for name, channel in self.state.channels.items()}
        return {
            "device": self.state.id,
            "channels": channels,
            "files": len(self.blobs),
            "bytes": sum(self.blobs.values()),
            "unfinished_bytes": sum(self.unfinished.values()),
            "damage": [_damage_json(what, each) for what, each in self.damage],
        }


def status(directory: Path, *, verify: bool = False, progress: Callable[[int], None] | None = None) -> Status:
    """What is active here and whether its files are all there; with `verify` every file is hashed again.

    Damage that `verify` finds is remembered: the next sync fetches those files anew. `progress` hears the size of each
    file that was looked at. Raises NotFound for a directory that was never synced.
    """
    store = DeviceStore(directory)
    state, blobs, checks = store.known_state(), store.held(), Checks(store)
    looked: dict[Descriptor, Damage | None] = {}

    def damage_of(blob: Descriptor) -> Damage | None:
        if blob not in looked:
            looked[blob] = checks.damage(blob, again=verify)
            if progress:
                progress(blob.size)
        return looked[blob]

    needs = [need for channel in state.channels.values() for each in kept_sets(channel) for need in needs_of(each)]
    damage = [(need.what, found) for need in dict.fromkeys(needs) if (found := need.damage(damage_of))]
    if verify:
        known = {blob.digest for blob in looked}
        unused = [Descriptor(digest, size) for digest, size in blobs.items() if digest not in known]
        damage += [("an unused file", found) for blob in unused if (found := damage_of(blob))]
    checks.save()
    return Status(state, blobs, store.unfinished(), tuple(damage))


def describe(directory: Path) -> DeviceState:
    """The document that a plan is made from: the device's facts, channels, sound files and free room."""
    store = DeviceStore(directory)
    return surveyed(store, store.known_state(), Checks(store))


def surveyed(store: DeviceStore, state: DeviceState, checks: Checks) -> DeviceState:
    """A device's state with what its directory holds, sound files only, and the room that is left on its disk."""
    here = [Descriptor(digest, size) for digest, size in sorted(store.held().items())]
    holds = tuple(blob for blob in here if checks.damage(blob) is None)
    return replace(state, holds=holds, free_disk=shutil.disk_usage(store.root).free)


def rollback(directory: Path, channel: str | None = None, note: Callable[[str], None] = lambda _: None) -> ActiveSet:
    """Make a channel's previous set active again; the release that is left is not taken again by a sync.

    `channel` may be left out when the device follows one. Raises NotFound, InputError, Conflict without a previous
    set, IntegrityError when a file of it is missing or damaged: then nothing changes.
    """
    store = DeviceStore(directory)
    store.known_state()
    with store.locked(note):
        state = store.known_state()
        name = _only(state, channel)
        after, to = rolled_back(state.channels[name], name)
        checks = Checks(store)
        check_whole(to, checks)
        store.write_state(with_channel(state, name, after))
        checks.save()
    return to


def check_whole(active: ActiveSet, checks: Checks) -> None:
    """Raise IntegrityError unless everything that a set needs is here and sound."""
    for need in needs_of(active):
        damage = need.damage(checks.damage)
        if damage:
            raise damage.error(need.what)


def _damage_json(what: str, damage: Damage) -> dict[str, str]:
    return {"what": what, "digest": str(damage.expected.digest), "message": str(damage)}


def _only(state: DeviceState, channel: str | None) -> str:
    names = sorted(active_sets(state))
    hint = f"this device follows {', '.join(names) or 'none'}"
    if channel is not None and channel not in state.channels:
        raise NotFound(f"this device does not follow channel {channel}", hint=hint)
    if channel is None and len(names) != 1:
        raise InputError("which channel?", hint=hint)
    return channel or names[0]
