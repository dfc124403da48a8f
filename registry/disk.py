"""The room that a plan takes on a device: what a set needs, what is held already, and whether it fits.

Sizes are bytes. Tables are keyed by raw digests, because a plan touches many thousands of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from registry.device_state import ActiveSet, DeviceState
from registry.digest import Descriptor
from registry.release import AdapterEntry, Factors, Line

Sizes = dict[bytes, int]


class Download(NamedTuple):
    """One file to fetch: what it is (`kind`), for which channel, and for which adapter (None: for all of them)."""

    file: Descriptor
    kind: str
    channel: str
    adapter: str | None

    def to_json(self) -> dict[str, Any]:
        """As it stands in the plan's document."""
        adapter = {"adapter": self.adapter} if self.adapter else {}
        return {**self.file.to_json(), "kind": self.kind, "channel": self.channel, **adapter}


@dataclass(slots=True)
class Needs:
    """What a set takes: `uses` are all files that it runs from, `download` those to fetch, in order.

    An adapter that is there as factors becomes a program when it is first used, and can be dropped again: the set
    needs room for the largest such program, which `uses` counts; those that are held already are `spare`.
    `incoming` are the files that come onto the disk, that largest program among them.
    """

    uses: Sizes = field(default_factory=dict)
    download: list[Download] = field(default_factory=list)
    spare: set[bytes] = field(default_factory=set)
    incoming: Sizes = field(default_factory=dict)


class Disk:
    """One device's store while a plan is made: what is held, what is needed by which channel, what comes.

    `limit` is the most bytes that the store may have; `running` maps each channel to the files that it needs.
    """

    def __init__(self, device: DeviceState) -> None:
        self.held: Sizes = {each.digest.raw: each.size for each in device.holds}
        self.total = sum(self.held.values())
        free = math.inf if device.free_disk is None else self.total + device.free_disk
        self.limit = min(free, math.inf if device.quota is None else device.quota)
        self._factors = "factors" in device.encodings
        self.active = {
            name: self.needs(name, state.active) for name, state in device.channels.items() if state.active is not None
        }
        self.running = {name: each.uses for name, each in self.active.items()}
        self.spare = set[bytes]().union(*(each.spare for each in self.active.values()))
        self.planned: Sizes = {}
        self._coming = 0

    def needs(self, channel: str, active: ActiveSet) -> Needs:
        """What a set needs here: foundation and base program first, then adapter by adapter."""
        line = active.line
        collector = _Collector(
            channel, self.held, _cheaper_as_factors(line, self.held) if self._factors else frozenset()
        )
        collector.add(line.foundation.file, "foundation", None)
        collector.add(line.base, "base", None)
        if line.tokenizer:
            collector.add(line.tokenizer.file, "tokenizer", None)
        if line.prompt:
            collector.add(line.prompt, "prompt", None)
        for entry in line.adapters:
            collector.add_adapter(entry)
        return collector.collected()

    def fits_beside(self, needs: Needs) -> bool:
        """Whether a set can be completed while every active set stays."""
        return (
            not needs.download
            or self.total + self._coming + self._new(needs) <= self.limit
            or self.peak_beside(needs) <= self.limit
        )

    def fits_alone(self, channel: str, needs: Needs) -> bool:
        """Whether a set fits when its channel's active set is deleted first."""
        return self.peak_alone(channel, needs) <= self.limit

    def peak_beside(self, needs: Needs) -> int:
        """The bytes of all active sets and this one, when nothing else is kept."""
        return _united([*self.running.values(), needs.uses])

    def peak_alone(self, channel: str, needs: Needs) -> int:
        """The bytes of this set and the other channels' active ones."""
        others = [uses for name, uses in self.running.items() if name != channel]
        return _united([*others, needs.uses])

    def take(self, channel: str, needs: Needs, *, alone: bool) -> None:
        """Plan a set's downloads; `alone` gives up the channel's active set."""
        self._coming += self._new(needs)
        self.planned.update(needs.incoming)
        self.spare |= needs.spare
        before = {} if alone else self.running.get(channel, {})
        self.running[channel] = {**before, **needs.uses}

    def peak(self, *, room_first: bool) -> int:
        """The most bytes that the store has when the planned sets come, after or before all else is deleted."""
        return _united(list(self.running.values())) if room_first else self.total + self._coming

    def _new(self, needs: Needs) -> int:
        """The bytes that a set adds to what is planned."""
        return sum(size for raw, size in needs.incoming.items() if raw not in self.planned)


class _Collector:
    """Adds up a set's needs, each file once."""

    def __init__(self, channel: str, held: Mapping[bytes, int], as_factors: frozenset[bytes]) -> None:
        self._needs = Needs()
        self._programs: Sizes = {}
        self._channel = channel
        self._held = held
        self._as_factors = as_factors

    def add(self, file: Descriptor, kind: str, adapter: str | None) -> None:
        raw = file.digest.raw
        uses = self._needs.uses
        if raw not in uses:
            uses[raw] = file.size
            if raw not in self._held:
                self._needs.incoming[raw] = file.size
                self._needs.download.append(Download(file, kind, self._channel, adapter))

    def add_adapter(self, entry: AdapterEntry) -> None:
        """The program, or what makes it, and then what goes with it."""
        if entry.factors is None:
            self.add(entry.file, "adapter", entry.name)
        else:
            self._add_form(entry, entry.factors)
        if entry.prompt:
            self.add(entry.prompt, "prompt", entry.name)
        if entry.self_test:
            self.add(entry.self_test, "self-test", entry.name)

    def _add_form(self, entry: AdapterEntry, parts: Factors) -> None:
        forms = ((parts.template, "template"), (parts.table, "table"), (parts.file, "factors"))
        if parts.template.digest.raw in self._as_factors and (
            entry.file.digest.raw not in self._held or all(file.digest.raw in self._held for file, _ in forms)
        ):
            for file, kind in forms:
                self.add(file, kind, entry.name)
            self._programs[entry.file.digest.raw] = entry.file.size
        else:
            self.add(entry.file, "adapter", entry.name)

    def collected(self) -> Needs:
        """What was added, and room for the largest program that is written from factors."""
        needs, programs = self._needs, self._programs
        if programs:
            largest = max(programs, key=lambda raw: (programs[raw], raw))
            needs.uses.setdefault(largest, programs[largest])
            if needs.download and largest not in self._held:
                needs.incoming[largest] = programs[largest]
            needs.spare.update(raw for raw in programs if raw in self._held)
        return needs


def _cheaper_as_factors(line: Line, held: Mapping[bytes, int]) -> frozenset[bytes]:
    """The templates whose adapters weigh no more to fetch as factors, template and table included."""
    cost: dict[bytes, int] = {}
    for entry in line.adapters:
        parts = entry.factors
        if parts is None:
            continue
        template = parts.template.digest.raw
        if template not in cost:
            cost[template] = _missing(parts.template, held) + _missing(parts.table, held)
        if entry.file.digest.raw not in held:
            cost[template] += _missing(parts.file, held) - entry.file.size
    return frozenset(template for template, difference in cost.items() if difference <= 0)


def _missing(file: Descriptor, held: Mapping[bytes, int]) -> int:
    return 0 if file.digest.raw in held else file.size


def _united(tables: list[Sizes]) -> int:
    """The bytes of all files in these tables, each once."""
    union: Sizes = {}
    for table in tables:
        union.update(table)
    return sum(union.values())
