"""What one release changes against another: adapters, foundations, and the bytes for a device in each state.

difference = compare(Offered(pin, release_11), Offered(pin, release_12), blobs.read)
difference.adapters, difference.states
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from registry.costing import Costs, Offered, Read, alone, costs, kinds
from registry.device_state import DeviceState
from registry.digest import Digest
from registry.release import Line


@dataclass(frozen=True, slots=True)
class AdapterChange:
    """An adapter that differs: its versions before and after (none: it was not there, or is not).

    `rebuilt`: the same versions, but another program on some foundation.
    """

    name: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    rebuilt: bool = False

    def to_json(self) -> dict[str, Any]:
        """As it stands in the document of `release diff`."""
        return {"name": self.name, "before": list(self.before), "after": list(self.after), "rebuilt": self.rebuilt}


@dataclass(frozen=True, slots=True)
class State:
    """A device's state before the step (`release` None: it holds nothing; else on `foundation`), and what it costs."""

    release: int | None
    foundation: Digest | None
    costs: Costs

    def to_json(self) -> dict[str, Any]:
        """As it stands in the document of `release diff`."""
        on = None if self.foundation is None else str(self.foundation)
        return {"release": self.release, "foundation": on, **self.costs.to_json()}


@dataclass(frozen=True, slots=True)
class Difference:
    """From release `before` to release `after`; `kept` adapters are the same on every line that both have."""

    before: int | None
    after: int
    adapters: tuple[AdapterChange, ...]
    kept: tuple[str, ...]
    foundations_added: tuple[Digest, ...]
    foundations_removed: tuple[Digest, ...]
    states: tuple[State, ...]

    def to_json(self) -> dict[str, Any]:
        """The document of `release diff`."""
        return {
            "before": self.before,
            "after": self.after,
            "adapters": [each.to_json() for each in self.adapters],
            "kept": list(self.kept),
            "foundations_added": [str(each) for each in self.foundations_added],
            "foundations_removed": [str(each) for each in self.foundations_removed],
            "states": [each.to_json() for each in self.states],
        }


def compare(before: Offered | None, after: Offered, read: Read) -> Difference:
    """The difference between two releases; `before` None: there was none."""
    old = before.document.lines if before else ()
    new = after.document.lines
    changes = tuple(_changes(old, new))
    changed = {each.name for each in changes}
    was, comes = _foundations(old), _foundations(new)
    return Difference(
        before=before.document.release if before else None,
        after=after.document.release,
        adapters=changes,
        kept=tuple(name for name in kinds(new) if name not in changed),
        foundations_added=tuple(each for each in comes if each not in was),
        foundations_removed=tuple(each for each in was if each not in comes),
        states=tuple(_states(before, after, read)),
    )


def _changes(old: tuple[Line, ...], new: tuple[Line, ...]) -> Iterator[AdapterChange]:
    before, after = kinds(old), kinds(new)
    programs = _programs(old)
    rebuilt = {place[1] for place, digest in _programs(new).items() if programs.get(place, digest) != digest}
    for name in sorted({*before, *after}):
        was, comes = before.get(name, ()), after.get(name, ())
        if sorted(was) != sorted(comes) or name in rebuilt:
            yield AdapterChange(name, was, comes, sorted(was) == sorted(comes))


def _programs(lines: tuple[Line, ...]) -> dict[tuple[Digest, str], Digest]:
    """Each adapter's program on each foundation."""
    return {(line.foundation.file.digest, entry.name): entry.file.digest for line in lines for entry in line.adapters}


def _foundations(lines: tuple[Line, ...]) -> list[Digest]:
    return [line.foundation.file.digest for line in lines]


def _states(before: Offered | None, after: Offered, read: Read) -> Iterator[State]:
    """A device that holds nothing, and one on each line of the release before."""
    device = DeviceState("imagined")
    yield State(None, None, costs(None, after, device, read))
    if before is not None:
        for line in before.document.lines:
            step = costs(alone(before, line), after, device, read)
            yield State(before.document.release, line.foundation.file.digest, step)
