"""Processes that publish, release and read one registry at the same time, and write down what they were told."""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from registry.errors import Conflict
from registry.manifest import Manifest
from tests.registry.files import Pair
from tests.registry.places import Place
from tests.registry.stock import Stock

PUBLISHERS, RELEASERS, READERS = 3, 2, 3
CHANNELS = ("stable", "beta")


@dataclass
class Told:
    """What the members of a crowd were told, as JSON can hold it."""

    published: list[tuple[str, str, str, str]] = field(default_factory=list)
    """Adapter, version, what it was made from, and the outcome: `version`, `unchanged` or `immutable`."""
    released: list[tuple[str, int, int]] = field(default_factory=list)
    """Channel, release and sequence."""
    reads: list[float] = field(default_factory=list)
    """How many seconds each read took."""
    faults: list[str] = field(default_factory=list)


def gather(place: Place, pair: Pair, seconds: float, notes: Path) -> Told:
    """Let the crowd work for so many seconds; answers what all of them were told."""
    begin = time.time() + 0.5
    works = [*[publish] * PUBLISHERS, *[release] * RELEASERS, *[read] * READERS]
    children = []
    for member, work in enumerate(works):
        child = os.fork()
        if child == 0:
            _member(lambda: work(place, pair, member, _until(begin, seconds)), notes / f"{member}.json")  # noqa: B023
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    told = Told()
    for path in sorted(notes.iterdir()):
        for name, lines in json.loads(path.read_text()).items():
            getattr(told, name).extend(tuple(line) if isinstance(line, list) else line for line in lines)
    return told


def _member(work: Callable[[], Told], notes: Path) -> None:
    """Work in a forked process, which ends here."""
    told = Told()
    try:
        told = work()
    except Exception:  # noqa: BLE001 - whatever it is, the parent shows it
        told.faults.append(traceback.format_exc())
    finally:
        notes.write_text(json.dumps(told.__dict__))
        os._exit(0)


def _until(begin: float, seconds: float) -> Iterable[int]:
    """0, 1, 2, … from `begin` on for so many seconds, and at least thrice; nobody begins earlier than the others."""
    time.sleep(max(0.0, begin - time.time()))
    return takewhile(lambda turn: turn < 3 or time.time() < begin + seconds, count())


def publish(place: Place, pair: Pair, member: int, turns: Iterable[int]) -> Told:
    """Publish to an adapter of one's own, to one that all share, and a version that all others publish too."""
    stock, told = place.stock(pair), Told()
    template = stock.registry.templates(stock.registry.foundation("f1").file.digest)[1]

    def put(adapter: str, text: str, version: str | None = None) -> None:
        try:
            done = stock.publish(adapter, template, text, version)
        except Conflict as error:
            outcome = "immutable" if "is immutable" in error.message else error.message
            told.published.append((adapter, str(version), text, outcome))
        else:
            told.published.append((adapter, done.version.version, text, done.outcome))

    for turn in turns:
        put(f"own-{member}", f"own {member} {turn}")
        put("shared", f"shared {member} {turn}")
        put("same", f"same {turn}", f"1.0.{turn}")
        put("contested", f"contested {member} {turn}", f"1.0.{turn}")
    return told


def release(place: Place, pair: Pair, member: int, turns: Iterable[int]) -> Told:
    """Move both channels in turn."""
    stock, told = place.stock(pair), Told()
    for turn in turns:
        channel = CHANNELS[(turn + member) % 2]
        done = stock.registry.create_release(channel, ["pirate@1.0.0", "json@1.0.0"])
        told.released.append((channel, done.release.number, done.channel.sequence))
    return told


def read(place: Place, pair: Pair, member: int, turns: Iterable[int]) -> Told:  # noqa: ARG001 - a reader is like another
    """Look at everything that moves; each look must fit together."""
    stock, told = place.stock(pair), Told()
    for _ in turns:
        for look in (_look_at_a_channel, _look_at_versions):
            began = time.monotonic()
            look(stock)
            told.reads.append(time.monotonic() - began)
    return told


def _look_at_a_channel(stock: Stock) -> None:
    said = Manifest.from_bytes(stock.registry.manifest("stable"))
    assert {pin.release for pin in said.releases} == {arm.release for arm in said.arms if arm.release}
    assert stock.registry.release(said.releases[0].release).document == said.releases[0].file


def _look_at_versions(stock: Stock) -> None:
    versions: Any = stock.registry.versions("pirate")
    assert [version.version for version in versions] == ["1.0.0"]
    assert stock.registry.adapters()[-1] >= "pirate"
