"""Make room: what nothing needs goes, and under a quota what can be had again goes too, the active sets never."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from device.checks import Checks
from device.sets import files_of, forms_of, kept_sets
from device.store import DeviceStore
from device.uses import Uses
from registry import files
from registry.device_state import DeviceState
from registry.digest import Digest

GRACE_SECONDS = 3600
"""How old a temporary file is before it counts as left over, since a running process writes without the lock."""


def gc(directory: Path, quota: int | None = None, note: Callable[[str], None] = lambda _: None) -> dict[Digest, int]:
    """Delete files that no active or previous set needs, and unfinished downloads; answers them with their bytes.

    Over a `quota` in bytes go, until it is met: programs that can be written again from their factors, the least
    recently used first, and then the previous sets. Raises NotFound for a directory that was never synced.
    """
    store = DeviceStore(directory)
    store.known_state()
    with store.locked(note):
        state = store.known_state()
        gone = _unneeded(store, state)
        for digest, size in store.unfinished().items():
            gone[digest] = gone.get(digest, 0) + size
        _remove(store, gone)
        for path in store.leftovers(time.time() - GRACE_SECONDS):
            files.unlink(path)
        if quota is not None:
            gone |= _down_to(quota, store, state, note)
    return gone


def _unneeded(store: DeviceStore, state: DeviceState) -> dict[Digest, int]:
    sets = [each for channel in state.channels.values() for each in kept_sets(channel)]
    needed = {blob.digest for each in sets for blob in files_of(each)}
    return {digest: size for digest, size in store.held().items() if digest not in needed}


def _remove(store: DeviceStore, gone: dict[Digest, int]) -> None:
    for digest in gone:
        store.remove(digest)


def _down_to(quota: int, store: DeviceStore, state: DeviceState, note: Callable[[str], None]) -> dict[Digest, int]:
    held, gone = store.held(), dict[Digest, int]()
    total = sum(held.values())
    uses = Uses(store)
    for digest in sorted(_rewritable(store, state), key=uses.last):
        if total > quota:
            gone[digest] = held[digest]
            total -= held[digest]
    _remove(store, gone)
    if total > quota:
        channels = {name: replace(channel, previous=None) for name, channel in state.channels.items()}
        if channels != state.channels:
            state = replace(state, channels=channels)
            store.write_state(state)  # before its files go
        older = _unneeded(store, state)
        _remove(store, older)
        gone |= older
        total -= sum(older.values())
    if total > quota:
        note(f"{total} bytes are left, over the quota of {quota}: the active sets need them")
    return gone


def _rewritable(store: DeviceStore, state: DeviceState) -> Iterator[Digest]:
    """The programs that stand here and whose factors do too."""
    checks, held, seen = Checks(store), store.held(), set[Digest]()
    for channel in state.channels.values():
        for each in kept_sets(channel):
            for entry in each.line.adapters:
                digest = entry.file.digest
                if digest in seen or digest not in held or entry.factors is None:
                    continue
                seen.add(digest)
                if not any(checks.damage(blob) for blob in forms_of(entry)[1]):
                    yield digest
