"""Eight processes at once on one registry: nothing is lost, nobody fails, and readers never wait for writers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from tests.registry.crowd import CHANNELS, PUBLISHERS, RELEASERS, Told, gather
from tests.registry.files import Pair
from tests.registry.places import Kind, Place


@pytest.fixture
def place(kind: Kind, stocked_place: Place, pair: Pair, tmp_path: Path) -> Iterator[Place]:
    """A registry with something on each channel."""
    place = kind.copy(stocked_place, tmp_path / "home")
    registry = place.stock(pair).registry
    registry.create_channel("beta")
    for channel in CHANNELS:
        registry.create_release(channel, ["pirate@1.0.0"])
    registry.database.close()
    yield place
    kind.drop(tmp_path)


def check(place: Place, told: Told) -> None:
    """The laws; `told` is what the processes were answered."""
    registry = place.open()
    assert told.faults == []
    check_versions(registry, told)
    check_contests(told)
    check_releases(registry, told)
    report = registry.verify()
    assert report.damage == ()
    changes = sum(outcome in {"version", "build"} for *_, outcome in told.published)
    assert Counter(event.action for event in registry.events())["adapter.publish"] == changes + 2  # the stock's own


def check_versions(registry, told: Told) -> None:
    """Every publish that was answered is there, with its own source, and none has taken another one's number."""
    made: dict[tuple[str, str], str] = {}
    for adapter, version, text, outcome in told.published:
        if outcome == "version":
            assert (adapter, version) not in made
            made[adapter, version] = text
    assert len(made) > PUBLISHERS
    for (adapter, version), text in made.items():
        assert registry.version(f"{adapter}@{version}").lineage == {"run": text}
    for adapter in {adapter for adapter, _ in made}:
        numbers = sorted(int(version.split(".")[2]) for name, version in made if name == adapter)
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), f"{adapter} has a gap"
        assert len(registry.versions(adapter)) == len(numbers)


def check_contests(told: Told) -> None:
    """One version published by several: one winner; the others hear that nothing is new, or that it is immutable."""
    for adapter, otherwise in (("same", "unchanged"), ("contested", "immutable")):
        outcomes = defaultdict(list)
        for name, version, _, outcome in told.published:
            if name == adapter:
                outcomes[version].append(outcome)
        assert any(len(each) > 1 for each in outcomes.values())
        for each in outcomes.values():
            assert Counter(each) == Counter({"version": 1, otherwise: len(each) - 1} if len(each) > 1 else each)


def check_releases(registry, told: Told) -> None:
    """Every move of a channel has a sequence of its own, without gaps, and the manifest of each is kept."""
    assert len(told.released) >= RELEASERS
    numbers = [number for _, number, _ in told.released]
    assert len(set(numbers)) == len(numbers)
    for channel in CHANNELS:
        sequences = sorted(sequence for name, _, sequence in told.released if name == channel)
        assert sequences == list(range(2, len(sequences) + 2))
        assert registry.channel(channel).sequence == len(sequences) + 1
        for sequence in sequences:
            assert registry.manifest(channel, sequence)


def test_eight_processes_at_once_lose_nothing_and_never_fail(place, pair, tmp_path):
    (tmp_path / "notes").mkdir()

    told = gather(place, pair, 1.5, tmp_path / "notes")

    check(place, told)
    assert max(told.reads) < 5
    assert median(told.reads) < 0.5


@pytest.mark.slow
def test_eight_processes_for_a_minute_lose_nothing_and_never_fail(place, pair, tmp_path):
    (tmp_path / "notes").mkdir()

    told = gather(place, pair, 60, tmp_path / "notes")

    check(place, told)
    assert max(told.reads) < 5
    assert median(told.reads) < 0.5
