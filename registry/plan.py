"""What one device must download, keep, activate, deactivate and delete: a pure function.

    answer = plan([manifest], {pin.file.digest: release}, device, now=1_780_000_000)
    answer.download      # in order: foundation and base program first, then adapter by adapter
    answer.activate      # the sets to switch to once everything of each is there
    answer.reasons       # why, in sentences with stable codes

A set is switched to only when the device can hold it beside what it runs; where it cannot, nothing is downloaded
and the reason says whether the delete-first order would fit, which only `delete_first=True` takes. The command
line, the server and the device client use this one function, and a device obeys only its own answer.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from registry import canonical
from registry.device_state import ActiveSet, DeviceState
from registry.digest import Descriptor, Digest
from registry.disk import Disk, Download
from registry.documents import SCHEMA
from registry.errors import InputError
from registry.manifest import Manifest
from registry.offer import Reason, View, chosen, offer, stale
from registry.release import ReleaseDocument
from registry.switch import Switch, decide

Order = Literal["beside", "room-first", "delete-first"]


@dataclass(frozen=True, slots=True)
class Activation:
    """The set that a channel switches to, once every file of it is there."""

    channel: str
    set: ActiveSet

    def to_json(self) -> dict[str, Any]:
        """As it stands in the plan's document."""
        line = self.set.line
        builds = [
            {"name": each.name, "version": each.version, "digest": str(each.file.digest)} for each in line.adapters
        ]
        return {
            "channel": self.channel,
            "release": self.set.release,
            "foundation": str(line.foundation.file.digest),
            "base": str(line.base.digest),
            "adapters": builds,
        }


@dataclass(frozen=True, slots=True)
class Deactivation:
    """A build that stops being active; `why` is `revoked`, `replaced` (by another of that name) or `withdrawn`."""

    channel: str
    adapter: str
    version: str
    digest: Digest
    why: str

    def to_json(self) -> dict[str, str]:
        """As it stands in the plan's document."""
        what = {"channel": self.channel, "adapter": self.adapter, "version": self.version}
        return {**what, "digest": str(self.digest), "why": self.why}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a device does, in the order of the fields, and why.

    `keep` and `delete` part what the device holds. `bytes` is what `download` weighs; `peak_disk` the most bytes
    that the device's store has on the way. `order` says when to delete: `beside` after the switch, `room-first`
    before the downloads (only what nothing active needs), `delete-first` likewise, with the channels that switch
    deactivated until they are complete.
    """

    device: str
    order: Order
    download: tuple[Download, ...]
    keep: tuple[Descriptor, ...]
    activate: tuple[Activation, ...]
    deactivate: tuple[Deactivation, ...]
    delete: tuple[Descriptor, ...]
    bytes: int
    peak_disk: int
    reasons: tuple[Reason, ...]

    @property
    def refused(self) -> tuple[Reason, ...]:
        """Why something that a channel offers is not taken."""
        return tuple(reason for reason in self.reasons if reason.level == "refused")

    def to_json(self) -> dict[str, Any]:
        """The plan as a document; `schemas/plan.json` describes it."""
        return {
            "schema": SCHEMA,
            "device": self.device,
            "order": self.order,
            "download": [each.to_json() for each in self.download],
            "keep": [each.to_json() for each in self.keep],
            "activate": [each.to_json() for each in self.activate],
            "deactivate": [each.to_json() for each in self.deactivate],
            "delete": [each.to_json() for each in self.delete],
            "bytes": self.bytes,
            "peak_disk": self.peak_disk,
            "reasons": [each.to_json() for each in self.reasons],
        }

    def to_bytes(self) -> builtins.bytes:
        """The document's only bytes (canonical JSON)."""
        return canonical.dumps(self.to_json())


def plan(
    manifests: Sequence[Manifest],
    releases: Mapping[Digest, ReleaseDocument],
    device: DeviceState,
    *,
    now: int,
    root: int = 0,
    delete_first: bool = False,
) -> Plan:
    """What the device does about these channels' manifests.

    `releases` holds, by the digest of its bytes, at least every document that `pins` names; `now` is seconds since
    1970; `root` the version of the root of trust that verified the manifests (0: unsigned). Channels of the device
    that have no manifest here stay as they are. Raises NotFound for a document that is missing, InputError for two
    manifests of one channel.
    """
    _check_channels(manifests)
    disk = Disk(device)
    view = _view(manifests, device, disk.held, now=now, root=root)
    offers = [offer(manifest, releases, view) for manifest in manifests]
    switches = [decide(each, device, disk, delete_first=delete_first) for each in offers]
    return _assembled(switches, device, disk, view)


def pins(manifests: Sequence[Manifest], device: DeviceState) -> tuple[Descriptor, ...]:
    """The release documents that `plan` reads for this device, each once: all that it must fetch beforehand."""
    choices = [(manifest, chosen(manifest, device).release) for manifest in manifests]
    found = (manifest.pin(release).file for manifest, release in choices if release is not None)
    return tuple(dict.fromkeys(found))


def _check_channels(manifests: Sequence[Manifest]) -> None:
    names = [manifest.channel for manifest in manifests]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"two manifests of the channel {twice[0]}", hint="give one per channel", channel=twice[0])


def _view(
    manifests: Sequence[Manifest], device: DeviceState, held: Mapping[bytes, int], *, now: int, root: int
) -> View:
    """A clock that never runs behind a verified manifest, and the builds that any valid manifest revokes."""
    now = max([now, *(each.issued for each in device.channels.values()), *(each.issued for each in manifests)])
    valid = [each for each in manifests if not stale(each, device.channels.get(each.channel), root, now)]
    revoked = frozenset(digest.raw for manifest in valid for digest in manifest.revoked)
    return View(device, held, revoked, root, now)


def _assembled(switches: Sequence[Switch], device: DeviceState, disk: Disk, view: View) -> Plan:
    """The channels' decisions as one plan: each file is fetched once, and what nothing needs is deleted."""
    downloads: dict[bytes, Download] = {}
    for switch in switches:
        for each in switch.download:
            downloads.setdefault(each.file.digest.raw, each)
    order = _order(switches, disk)
    needed = _needed(switches, device, disk, order)
    reasons = dict.fromkeys(reason for switch in switches for reason in switch.reasons)
    return Plan(
        device=device.id,
        order=order,
        download=tuple(downloads.values()),
        keep=tuple(each for each in device.holds if each.digest.raw in needed),
        activate=tuple(Activation(each.channel, each.after) for each in switches if each.changed and each.after),
        deactivate=tuple(gone for each in switches if each.changed for gone in _deactivated(each, view.revoked)),
        delete=tuple(each for each in device.holds if each.digest.raw not in needed),
        bytes=sum(each.file.size for each in downloads.values()),
        peak_disk=disk.peak(room_first=order != "beside"),
        reasons=tuple(reasons),
    )


def _order(switches: Sequence[Switch], disk: Disk) -> Order:
    if any(switch.emptied for switch in switches):
        return "delete-first"
    return "room-first" if disk.planned and disk.peak(room_first=False) > disk.limit else "beside"


def _needed(switches: Sequence[Switch], device: DeviceState, disk: Disk, order: Order) -> set[bytes]:
    """What stays: all that active sets run from, their documents, and sets to go back to unless room is short.

    The set that a channel leaves is its next one to go back to; so the one before goes when the channel switches.
    """
    needed: set[bytes] = set().union(*disk.running.values())
    if order == "beside":
        needed |= disk.spare
    changed = {switch.channel for switch in switches if switch.changed}
    for switch in switches:
        needed.update(_documents(switch.before, switch.after))
    for name, state in device.channels.items():
        needed.update(_documents(state.active))
        if state.previous and order == "beside" and name not in changed:
            needed.update(disk.needs(name, state.previous).uses, _documents(state.previous))
    return needed


def _documents(*sets: ActiveSet | None) -> list[bytes]:
    return [each.document.digest.raw for each in sets if each]


def _deactivated(switch: Switch, revoked: frozenset[bytes]) -> Iterator[Deactivation]:
    """The builds that run before a switch and not after it."""
    after = {entry.name: entry for entry in switch.after.line.adapters} if switch.after else {}
    for entry in switch.before.line.adapters if switch.before else ():
        successor = after.get(entry.name)
        if successor is None or successor.file.digest.raw != entry.file.digest.raw:
            why = "replaced" if successor else "withdrawn"
            why = "revoked" if entry.file.digest.raw in revoked else why
            yield Deactivation(switch.channel, entry.name, entry.version, entry.file.digest, why)
