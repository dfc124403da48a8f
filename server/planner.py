"""The plan query over what is published: the site's own manifests and releases, as devices read them.

Release documents are immutable, so the last few stay parsed; manifests are read again each time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import lru_cache

from registry.device_state import DeviceState
from registry.digest import Digest
from registry.errors import NotFound
from registry.manifest import Manifest
from registry.plan import Plan, pins, plan
from registry.published import newest_root
from registry.release import ReleaseDocument
from registry.service import Registry
from registry.site import Directory, manifest_path

_PARSED = 64


class Planner:
    """Answers plans for devices; `clock` in seconds since 1970."""

    def __init__(self, registry: Registry, clock: Callable[[], float] = time.time) -> None:
        self._site = Directory(registry.site)
        self._clock = clock
        self._release = lru_cache(_PARSED)(lambda digest: ReleaseDocument.from_bytes(registry.blobs.read(digest)))
        self._manifest = lru_cache(_PARSED)(Manifest.from_bytes)

    def plan(self, channels: Sequence[str], device: DeviceState, *, delete_first: bool = False) -> Plan:
        """The plan. Raises NotFound for a channel that publishes nothing, InputError for one that is named twice."""
        manifests = [self._published(channel) for channel in channels]
        releases: dict[Digest, ReleaseDocument] = {
            pin.digest: self._release(pin.digest) for pin in pins(manifests, device)
        }
        root = newest_root(self._site.names("metadata"))
        return plan(manifests, releases, device, now=int(self._clock()), root=root, delete_first=delete_first)

    def _published(self, channel: str) -> Manifest:
        data = self._site.read(manifest_path(channel))
        if data is None:
            raise NotFound(f"no channel {channel!r} is published here", hint="has it offered a release?")
        return self._manifest(data)
