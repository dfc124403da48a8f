"""Whether one channel's device switches, and to which set: the first candidate that its disk can hold.

A device leaves its line only for one that it can complete beside it, and what it holds counts as room; so free
space never makes it flap between two lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from registry.device_state import ActiveSet, DeviceState
from registry.disk import Disk, Download, Needs
from registry.offer import Level, Offer, Reason, beyond_guarantee


@dataclass(frozen=True, slots=True)
class Switch:
    """What was decided for one channel: its set before and after, and what to fetch.

    `emptied` says that the set before must be deleted first; `reasons` are all that led here.
    """

    channel: str
    before: ActiveSet | None
    after: ActiveSet | None
    reasons: Sequence[Reason]
    download: Sequence[Download] = ()
    emptied: bool = False

    @property
    def changed(self) -> bool:
        """Whether the channel runs another set afterwards."""
        return not same(self.before, self.after)


@dataclass(frozen=True, slots=True)
class _Candidate:
    set: ActiveSet
    needs: Needs
    beside: bool  # whether it fits while every active set stays

    @property
    def line(self) -> str:
        return self.set.line.foundation.file.digest.short


def decide(answer: Offer, device: DeviceState, disk: Disk, *, delete_first: bool) -> Switch:
    """Take the best candidate that can be completed and enter it into `disk`, or stay and say why."""
    return _Decision(answer, device, disk, delete_first=delete_first).made()


def same(one: ActiveSet | None, other: ActiveSet | None) -> bool:
    """Whether two sets run the same builds of the same release; cheaper than comparing the lines whole."""
    if one is None or other is None:
        return one is other
    if one.line is other.line:
        return one.document == other.document
    a, b = one.line, other.line
    heads = (one.document, a.foundation.file, a.base) == (other.document, b.foundation.file, b.base)
    return heads and [each.file.digest.raw for each in a.adapters] == [each.file.digest.raw for each in b.adapters]


class _Decision:
    """One channel's decision while it is made."""

    def __init__(self, answer: Offer, device: DeviceState, disk: Disk, *, delete_first: bool) -> None:
        self._answer = answer
        self._channel = answer.channel
        state = device.channels.get(answer.channel)
        self._before = state.active if state else None
        self._device = device
        self._disk = disk
        self._delete_first = delete_first
        self._reasons = list(answer.reasons)

    def made(self) -> Switch:
        target = self._target([self._weighed(each) for each in self._answer.candidates])
        if target is None:
            return Switch(self._channel, self._before, self._answer.current, self._reasons)
        self._disk.take(self._channel, target.needs, alone=not target.beside)
        self._conclude(target)
        return Switch(self._channel, self._before, target.set, self._reasons, target.needs.download, not target.beside)

    def _weighed(self, candidate: ActiveSet) -> _Candidate:
        """A candidate and what it needs; for the running set that is known already."""
        running = self._disk.active.get(self._channel) if same(self._before, candidate) else None
        needs = running or self._disk.needs(self._channel, candidate)
        return _Candidate(candidate, needs, self._disk.fits_beside(needs))

    def _target(self, candidates: list[_Candidate]) -> _Candidate | None:
        disk, channel = self._disk, self._channel
        fitting = [each for each in candidates if each.beside or disk.fits_alone(channel, each.needs)]
        if not fitting:
            for each in candidates:
                self._no_room(each, disk.peak_alone(channel, each.needs))
            return None
        best = fitting[0]
        if best.beside or self._delete_first:
            return best
        staying = self._staying(best, fitting[1:])
        if staying is None:
            self._offer_deletion(best)
        return staying

    def _staying(self, best: _Candidate, others: list[_Candidate]) -> _Candidate | None:
        """The candidate on the line that runs, when the better one does not fit beside it."""
        running = self._before.line.foundation.file if self._before else None
        for each in others:
            if each.set.line.foundation.file == running and each.beside:
                self._say("note", "stays-on-line", f"{best.line} is preferred, but does not fit beside {each.line}")
                return each
        return None

    def _offer_deletion(self, best: _Candidate) -> None:
        self._no_room(best, self._disk.peak_beside(best.needs))
        alone = self._disk.peak_alone(self._channel, best.needs)
        self._say("note", "delete-first-fits", f"deleting the running set first would fit: {alone} bytes at the peak")

    def _no_room(self, candidate: _Candidate, peak: int) -> None:
        which = f"release {candidate.set.release} on foundation {candidate.line}"
        room = f"{self._disk.limit:.0f}"
        self._say(
            "refused", "no-room", f"{which} needs {peak} bytes at the peak of the switch, there is room for {room}"
        )

    def _conclude(self, target: _Candidate) -> None:
        """Say what the channel comes to."""
        warning = beyond_guarantee(target.set.line.requires, self._device)
        if warning:
            self._say("warning", "beyond-guarantee", warning)
        weight = sum(each.file.size for each in target.needs.download)
        count = len(target.set.line.adapters)
        adapters = "1 adapter" if count == 1 else f"{count} adapters"
        text = f"release {target.set.release} on foundation {target.line}, {adapters}"
        if not same(self._before, target.set):
            self._say("note", "switch", f"{text}: {weight} bytes to fetch")
        elif weight:
            self._say("warning", "repair", f"{text}: active, but {weight} bytes of it are missing")
        else:
            self._say("note", "up-to-date", f"{text}: active already")

    def _say(self, level: Level, code: str, text: str) -> None:
        self._reasons.append(Reason(self._channel, level, code, text))
