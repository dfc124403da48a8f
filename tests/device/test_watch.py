"""A device asks as often as its channels wish, and less often while something is wrong."""

import itertools

import pytest

from device.source import DirectorySource
from device.sync import Options, SyncResult
from device.watch import FIRST_RETRY, LONGEST, pause, watch
from registry.device_state import DeviceState
from registry.errors import NotFound, Unavailable

OPTIONS = Options(facts=DeviceState("phone-1"), clock=lambda: 1_780_000_100)


def test_it_waits_as_the_channels_wish_and_sooner_after_a_trouble(site, tmp_path):
    (site.root).mkdir()
    slept = []
    rounds = watch(DirectorySource(site.root), ["stable"], tmp_path / "phone", OPTIONS, slept.append)
    assert [type(each) for each in itertools.islice(rounds, 3)] == [NotFound] * 3
    site.release(1, site.line({"pirate": b"arr"}))
    site.offer(1, poll_seconds=100_000)
    assert isinstance(next(rounds), SyncResult)
    assert next(rounds).channels[0].outcome == "unchanged"
    expected = [FIRST_RETRY, 2 * FIRST_RETRY, 4 * FIRST_RETRY, 100_000]
    assert slept == [pytest.approx(seconds, rel=0.11) for seconds in expected]


def test_a_failure_after_a_success_begins_with_the_short_wait_again(site, tmp_path):
    site.release(1, site.line({"pirate": b"arr"}))
    site.offer(1)
    slept = []
    rounds = watch(DirectorySource(site.root), ["stable"], tmp_path / "phone", OPTIONS, slept.append)
    next(rounds)
    (site.root / "targets" / "v1" / "stable.json").write_bytes(b"")
    next(rounds)
    next(rounds)
    assert slept[1] == pytest.approx(FIRST_RETRY, rel=0.11)


def test_a_server_that_asks_for_a_wait_gets_it():
    assert pause(Unavailable("busy", retry_after=7200), 1, 0.5) == 7200
    assert pause(Unavailable("busy", retry_after=1), 1, 0.5) == FIRST_RETRY
    assert pause(Unavailable("busy"), 50, 0.5) == LONGEST


def test_waits_are_spread():
    assert pause(Unavailable("busy"), 1, 0.0) == pytest.approx(0.9 * FIRST_RETRY)
    assert pause(Unavailable("busy"), 1, 1.0) == pytest.approx(1.1 * FIRST_RETRY)
