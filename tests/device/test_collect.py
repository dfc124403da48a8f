"""Under a quota what can be had again goes, least recently used first, and the active sets never."""

from dataclasses import replace

import pytest

from device.collect import gc
from device.installed import locate
from device.manage import rollback, status
from device.source import DirectorySource
from device.store import DeviceStore
from device.sync import Options, sync
from device.uses import Uses
from registry.device_state import DeviceState
from registry.digest import Descriptor
from registry.errors import Conflict, NotFound

OPTIONS = Options(facts=DeviceState("phone-1"), clock=lambda: 1_780_000_100)


def pull(site, phone, **options):
    return sync(DirectorySource(site.root), ["stable"], phone, replace(OPTIONS, **options))


def digest(data):
    return Descriptor.of(data).digest


def total(phone):
    return sum(DeviceStore(phone).held().values())


def test_programs_that_have_factors_go_least_recently_used_first(site, phone, parts):
    programs = {name: parts(seed) for seed, name in enumerate(["a", "b", "c"])}
    site.release(1, site.line(programs))
    site.offer(1)
    pull(site, phone)
    uses = Uses(DeviceStore(phone))
    for when, name in enumerate(["b", "c", "a"], start=1):
        uses.mark(digest(programs[name].program), 1000.0 * when)
    size = len(programs["a"].program)
    assert gc(phone, quota=total(phone) - 1) == {digest(programs["b"].program): size}
    assert gc(phone, quota=total(phone) - 1) == {digest(programs["c"].program): size}
    assert status(phone, verify=True).damage == ()
    assert locate(phone, "b").program.path.read_bytes() == programs["b"].program


def test_loading_counts_as_use(site, phone, parts):
    programs = {name: parts(seed) for seed, name in enumerate(["a", "b"])}
    site.release(1, site.line(programs))
    site.offer(1)
    pull(site, phone)
    locate(phone, "a")
    assert set(gc(phone, quota=total(phone) - 1)) == {digest(programs["b"].program)}


def test_then_the_previous_set_goes_and_the_active_one_stays(site, phone):
    site.release(1, site.line({"pirate": b"old" * 100}))
    site.offer(1)
    pull(site, phone)
    site.release(2, site.line({"pirate": b"new" * 100}))
    site.offer(2)
    pull(site, phone)
    notes = []
    gone = gc(phone, 0, notes.append)
    assert set(gone) == {digest(b"old" * 100), site.pins[1].file.digest}
    assert "over the quota of 0" in notes[0]
    assert status(phone, verify=True).damage == ()
    assert locate(phone, "pirate").program.path.read_bytes() == b"new" * 100
    with pytest.raises(Conflict):
        rollback(phone)


def test_a_quota_that_is_kept_changes_nothing(site, phone, parts):
    site.release(1, site.line({"a": parts(1)}))
    site.offer(1)
    pull(site, phone)
    assert gc(phone, quota=total(phone)) == {}


@pytest.mark.parametrize("content", [b"", b"[]", b'{"x": "y"}', b'{"x": NaN}', b"\xff"])
def test_a_damaged_memory_of_uses_costs_nothing(tmp_path, content):
    store = DeviceStore.create(tmp_path)
    (tmp_path / "used.json").write_bytes(content)
    assert Uses(store).last(digest(b"x")) == 0
    Uses(store).mark(digest(b"x"), 1000.0)
    assert Uses(store).last(digest(b"x")) == 1000.0


def test_an_adapter_on_demand_is_fetched_when_it_is_asked_for_and_stays(site, phone):
    line = site.line({"pirate": b"arr", "rare": b"seldom"}, rare={"delivery": "on-demand"})
    site.release(1, line)
    site.offer(1)
    pull(site, phone)
    with pytest.raises(NotFound, match="on demand") as caught:
        locate(phone, "rare")
    assert caught.value.values == {"channel": "stable", "adapter": "rare"}
    assert "rare" in caught.value.hint
    with pytest.raises(NotFound, match="not installed"):
        locate(phone, "absent")
    result = pull(site, phone, demand=("rare",))
    assert result.fetched == len(b"seldom")
    assert locate(phone, "rare").program.path.read_bytes() == b"seldom"
    site.release(2, site.line({"pirate": b"arr", "rare": b"seldom 2"}, rare={"delivery": "on-demand"}))
    site.offer(2)
    pull(site, phone, facts=None)
    assert locate(phone, "rare").program.path.read_bytes() == b"seldom 2"
