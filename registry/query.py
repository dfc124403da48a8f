"""The device manifest query: what one device would do about a registry's channels, from the documents as issued.

    answer = planned(registry, ["stable", "beta"], DeviceState.from_bytes(data), now=now)
    answer.download, answer.reasons          # see registry.plan

The command line and the server answer with it; a device computes the same from the manifests that it verified.
"""

from __future__ import annotations

from collections.abc import Sequence

from registry.device_state import DeviceState
from registry.manifest import Manifest
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
