"""What a release costs a device: the device's own plan, asked for a device that is imagined.

    phone = running(Offered(pin, release_11), facts)        # it took release 11 whole
    costs(phone, Offered(pin, release_12)).plain.bytes      # what the step to release 12 downloads

Two figures for each device: `plain` fetches programs, `factors` lets the device write them from trained factors. Sizes
are bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from registry.device_state import ENCODINGS, ChannelState, DeviceState
from registry.digest import Descriptor, Digest
from registry.errors import NotFound
from registry.manifest import WHOLE, Arm, Manifest, ReleasePin
from registry.plan import Plan, plan
from registry.release import FoundationEntry, Line, ReleaseDocument
from registry.segments import SegmentTable

Read = Callable[[Digest], bytes]
"""Answers a blob's bytes. Raises NotFound."""

_CHANNEL = "imagined"
_NOBODY = "00000000-0000-0000-0000-000000000000"
_NOW = 1


@dataclass(frozen=True, slots=True)
class Offered:
    """A release as devices get it: where its document is, and what it says."""

    file: Descriptor
    document: ReleaseDocument


@dataclass(frozen=True, slots=True)
class Cost:
    """What one step costs one device in one encoding.

    `bytes` is the download with every file whole; `pieces` the same when an unchanged piece of a foundation is copied
    from the one that the device holds. `peak_disk` is the most that its store has on the way. `refused` says why it
    would not take the release, as codes of `registry.offer.Reason`.
    """

    bytes: int
    pieces: int
    peak_disk: int
    refused: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As it stands in the documents of `release diff` and `release budget`."""
        figures = {"bytes": self.bytes, "pieces": self.pieces, "peak_disk": self.peak_disk}
        return {**figures, "refused": list(self.refused)}


@dataclass(frozen=True, slots=True)
class Costs:
    """Both figures of one step."""

    plain: Cost
    factors: Cost

    def to_json(self) -> dict[str, Any]:
        """As it stands in the documents."""
        return {"plain": self.plain.to_json(), "factors": self.factors.to_json()}


def costs(before: Offered | None, after: Offered | None, facts: DeviceState, read: Read) -> Costs:
    """What a device pays that took `before` whole (None: a fresh one) and is offered `after` (None: nothing).

    `facts` is the device; what it holds beside and its free disk are as they are before the step.
    """
    each = [_cost(running(before, replace(facts, encodings=names)), after, read) for names in ((), ENCODINGS)]
    return Costs(*each)


def running(release: Offered | None, facts: DeviceState) -> DeviceState:
    """The device after it took a release whole, with the free disk and the quota that `facts` state."""
    if release is None:
        return facts
    answer = _plan(release, replace(facts, free_disk=None, quota=None))
    holds = dict.fromkeys([*facts.holds, *(each.file for each in answer.download), release.file])
    active = answer.activate[0].set if answer.activate else None
    followed = ChannelState(_NOBODY, 0, 1, _NOW, active)
    return replace(facts, holds=tuple(holds), channels={_CHANNEL: followed})


def _cost(device: DeviceState, release: Offered | None, read: Read) -> Cost:
    if release is None:
        return Cost(0, 0, sum(each.size for each in device.holds))
    answer = _plan(release, device)
    refused = tuple(dict.fromkeys(reason.code for reason in answer.refused))
    document = 0 if release.file in device.holds else release.file.size
    total = answer.bytes + document
    return Cost(total, total - _saved(answer, device, read), answer.peak_disk, refused)


def _plan(release: Offered, device: DeviceState) -> Plan:
    number = release.document.release
    manifest = Manifest(
        registry=_NOBODY,
        channel=_CHANNEL,
        sequence=2,
        issued=_NOW,
        expires=_NOW + 1,
        poll_seconds=1,
        salt="0" * 32,
        arms=(Arm(number, WHOLE),),
        releases=(ReleasePin(number, release.file),),
    )
    return plan([manifest], {release.file.digest: release.document}, device, now=_NOW)


def _saved(answer: Plan, device: DeviceState, read: Read) -> int:
    """The bytes of a new foundation that the device copies from the one that it runs."""
    state = device.channels.get(_CHANNEL)
    before = state.active.line.foundation if state and state.active else None
    after = answer.activate[0].set.line.foundation if answer.activate else None
    fetched = any(each.kind == "foundation" for each in answer.download)
    if not (fetched and before and after):
        return 0
    old, new = _table(before, read), _table(after, read)
    if old is None or new is None or after.segments is None:
        return 0
    known = {piece.digest for piece in old.pieces}
    return max(0, sum(piece.size for piece in new.pieces if piece.digest in known) - after.segments.size)


def _table(entry: FoundationEntry, read: Read) -> SegmentTable | None:
    try:
        return SegmentTable.from_bytes(read(entry.segments.digest)) if entry.segments else None
    except NotFound:
        return None


def alone(release: Offered, line: Line) -> Offered:
    """The release with one of its lines only: what a device on that line knows of it."""
    return replace(release, document=replace(release.document, lines=(line,)))


def kinds(lines: Iterable[Line]) -> dict[str, tuple[str, ...]]:
    """The versions of each adapter that these lines hold, by name."""
    found: dict[str, dict[str, None]] = {}
    for line in lines:
        for entry in line.adapters:
            found.setdefault(entry.name, {})[entry.version] = None
    return {name: tuple(versions) for name, versions in sorted(found.items())}
