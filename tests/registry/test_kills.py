"""Killed at any moment, not only between two steps on the disk: nothing told is lost, and the next one goes on."""

from __future__ import annotations

import os
import random
import signal
import threading
from functools import partial
from pathlib import Path

import pytest

from registry.service import Registry
from tests.registry.files import Pair
from tests.registry.stock import NOW, Stock, copied


def work(home: Path, pair: Pair, run: int, told: int) -> None:
    """Publish, release and collect until the end; each version and sequence is told once it is there."""
    stock = Stock(Registry.open(home, actor="tester", clock=lambda: NOW), pair)
    template = stock.registry.templates(stock.registry.foundation("f1").file.digest)[1]
    for step in range(10_000):
        version = stock.publish("robot", template, f"run {run} step {step}").version.version
        os.write(told, f"robot@{version}\n".encode())
        stock.registry.create_release("stable", ["pirate@1.0.0", f"robot@{version}"])
        os.write(told, f"{stock.registry.channel('stable').sequence}\n".encode())
        stock.registry.blobs.put_bytes(b"orphan %d %d" % (run, step))
        stock.registry.keeper().collect(grace=0)


def killed(home: Path, pair: Pair, run: int, seconds: float) -> list[str]:
    """Work in a forked process for so many seconds, then kill it; answers what it had told."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work(home, pair, run, writer)
        finally:
            os._exit(1)
    os.close(writer)
    threading.Timer(seconds, partial(os.kill, child, signal.SIGKILL)).start()
    with os.fdopen(reader) as lines:
        told = lines.read().splitlines()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    return told


@pytest.mark.parametrize("runs", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_whatever_is_killed_whenever_what_was_told_stays_and_the_registry_is_clean(stocked_home, tmp_path, pair, runs):
    home = copied(stocked_home, tmp_path / "home", pair).registry.home
    chance = random.Random(runs)  # noqa: S311 - any moment will do, the same ones each time
    told = 0
    for run in range(runs):
        lines = killed(home, pair, run, chance.uniform(0.01, 0.4))
        again = Registry.open(home)
        report = again.verify()
        assert report.clean, report.damage
        versions = again.versions("robot") if "robot" in again.adapters() else ()
        assert {line for line in lines if "@" in line} <= {f"robot@{version.version}" for version in versions}
        sequences = [int(line) for line in lines if "@" not in line]
        assert again.channel("stable").sequence >= max(sequences, default=0)
        told += len(lines)
    assert told > runs // 10
