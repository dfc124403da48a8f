"""The device manifest query: what one device would do about a registry's channels, from the documents as issued.

    answer = planned(registry, ["stable", "beta"], DeviceState.from_bytes(data), now=now)
    answer.download, answer.reasons          # see registry.plan

The command line and the server answer with it; a device computes the same from the manifests that it verified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from registry.costing import Offered
from registry.device_state import DeviceState
from registry.manifest import Arm, Manifest
from registry.plan import Plan, pins, plan
from registry.release import ReleaseDocument
from registry.service import Registry


def planned(
    registry: Registry, channels: Sequence[str], device: DeviceState, *, now: int, delete_first: bool = False
) -> Plan:
    """The plan for a device, from the channels' newest manifests; `now` is seconds since 1970.

    Raises NotFound for an unknown channel or one that offers nothing yet, InputError for a channel named twice.
    """
    manifests = [Manifest.from_bytes(registry.manifest(channel)) for channel in channels]
    read = registry.blobs.read
    releases = {pin.digest: ReleaseDocument.from_bytes(read(pin.digest)) for pin in pins(manifests, device)}
    return plan(manifests, releases, device, now=now, root=registry.root_version, delete_first=delete_first)


def offered(registry: Registry, number: int) -> Offered:
    """A recorded release as devices get it. Raises NotFound."""
    file = registry.release(number).document
    return Offered(file, ReleaseDocument.from_bytes(registry.blobs.read(file.digest)))


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a release stands: the arms that offer it now, by channel, and whether a channel ever did."""

    arms: tuple[tuple[str, Arm], ...] = ()
    ever: bool = False

    @property
    def state(self) -> str:
        """`draft` (never offered), `offered` or `retired`."""
        return "offered" if self.arms else "retired" if self.ever else "draft"


def standings(registry: Registry) -> dict[int, Standing]:
    """Where every release that was ever offered stands, by its number; all others are drafts."""
    arms: dict[int, list[tuple[str, Arm]]] = {}
    for channel in registry.channels():
        for arm in channel.arms:
            if arm.release is not None:
                arms.setdefault(arm.release, []).append((channel.name, arm))
    return {number: Standing(tuple(arms.get(number, ())), ever=True) for number in registry.ever_offered()}
