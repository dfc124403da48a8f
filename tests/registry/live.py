"""A registry whose clock can be moved and whose site devices can follow: signed now, with keys of its own."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from device.source import DirectorySource
from device.sync import Options, SyncResult, sync
from registry.device_state import DeviceState
from registry.manifest import Manifest
from registry.service import Registry
from tests.registry.files import Pair
from tests.registry.stock import Stock

DAY = 86400


class Clock:
    """Seconds since 1970; starts now, because TUF's clients look at the real clock."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


class Live(Stock):
    """A stocked registry (`tests.registry.stock.stocked`) on today's date, and phones that sync with its site."""

    def __init__(self, home: Path, pair: Pair) -> None:
        self.clock = Clock()
        shutil.rmtree(home / "keys")  # they were made at the stock's own date
        super().__init__(Registry.init(home, actor="tester", clock=self.clock), pair)
        self.phones = home.parent / "phones"

    def again(self, home: Path) -> Registry:
        """The registry in another home, such as a restored backup."""
        return Registry.open(home, actor="tester", clock=self.clock)

    def manifest(self, channel: str = "stable") -> Manifest:
        """The channel's newest manifest."""
        return Manifest.from_bytes(self.registry.manifest(channel))

    def sync(self, phone: str = "phone", site: Path | None = None, **options: object) -> SyncResult:
        """Let a phone, whose id is its name, sync the channel `stable`."""
        chosen = Options(facts=DeviceState(phone), clock=self.clock, **options)
        return sync(DirectorySource(site or self.registry.site), ["stable"], self.phones / phone, chosen)

    def active(self, phone: str = "phone", site: Path | None = None) -> int | None:
        """The release that a phone runs after a sync."""
        return self.sync(phone, site).channels[0].release


def live(home: Path, target: Path, pair: Pair) -> Live:
    """A live copy of a stocked home."""
    shutil.copytree(home, target)
    return Live(target, pair)
