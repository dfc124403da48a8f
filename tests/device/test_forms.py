"""An adapter that travels as factors arrives as the published program, byte for byte, or as the program itself."""

import zlib
from dataclasses import replace

import pytest

from device.checks import Checks
from device.forms import write_program
from device.installed import locate
from device.manage import status
from device.source import DirectorySource
from device.store import DeviceStore
from device.sync import Options, sync
from registry.device_state import DeviceState
from registry.digest import Descriptor
from registry.errors import FormatError, IntegrityError
from registry.release import Factors
from registry.relink import pack

OPTIONS = Options(facts=DeviceState("phone-1"), clock=lambda: 1_780_000_100)


def pull(site, phone, **options):
    return sync(DirectorySource(site.root), ["stable"], phone, replace(OPTIONS, **options))


def offer(site, number, **adapters):
    site.release(number, site.line(adapters))
    site.offer(number)


def digest(data):
    return Descriptor.of(data).digest


def test_the_program_that_is_written_is_the_published_one(site, phone, parts):
    pirate = parts(1)
    offer(site, 1, pirate=pirate)
    site.blob_file(pirate.program).unlink()  # it cannot have been fetched
    result = pull(site, phone)
    assert {each.kind for each in result.plan.download} >= {"template", "table", "factors"}
    assert locate(phone, "pirate").program.path.read_bytes() == pirate.program


def test_a_further_adapter_of_the_structure_costs_its_trained_factors(site, phone, parts):
    offer(site, 1, pirate=parts(1))
    pull(site, phone)
    offer(site, 2, pirate=parts(1), robot=parts(2))
    result = pull(site, phone)
    assert result.fetched == 2 * 4096 + site.pins[2].file.size
    assert locate(phone, "robot").program.path.read_bytes() == parts(2).program


def test_a_device_that_cannot_read_factors_fetches_the_program(site, phone, parts):
    offer(site, 1, pirate=parts(1))
    result = pull(site, phone, facts=DeviceState("phone-1", encodings=("something-else",)))
    assert "factors" not in {each.kind for each in result.plan.download}
    assert locate(phone, "pirate").program.path.read_bytes() == parts(1).program


def test_a_program_that_was_dropped_is_written_at_first_use(site, phone, parts):
    offer(site, 1, pirate=parts(1))
    pull(site, phone)
    store = DeviceStore(phone)
    store.remove(digest(parts(1).program))
    assert status(phone, verify=True).damage == ()
    assert locate(phone, "pirate").program.path.read_bytes() == parts(1).program
    assert pull(site, phone).fetched == 0


def test_a_damaged_program_is_written_again_from_sound_factors(site, phone, parts):
    offer(site, 1, pirate=parts(1))
    pull(site, phone)
    path = DeviceStore(phone).path(digest(parts(1).program))
    path.chmod(0o644)
    path.write_bytes(b"x" + parts(1).program[1:])
    assert locate(phone, "pirate").program.path.read_bytes() == parts(1).program


def test_neither_form_whole_is_damage(site, phone, parts):
    offer(site, 1, pirate=parts(1))
    pull(site, phone)
    store = DeviceStore(phone)
    store.remove(digest(parts(1).program))
    store.remove(digest(parts(1).factors))
    ((what, _),) = status(phone).damage
    assert what == "adapter pirate@1.0.0"
    with pytest.raises(IntegrityError, match=r"the factors of adapter pirate@1\.0\.0"):
        locate(phone, "pirate")
    pull(site, phone)
    assert locate(phone, "pirate").program.path.read_bytes() == parts(1).program


def wrong(site, parts, **changes):
    """An entry whose parts do not make its program."""
    good = parts(1)
    entry = site.entry("pirate", good)
    made = {name: site.put(data) for name, data in changes.items()}
    fields = {"file": entry.factors.file, "template": entry.factors.template, "table": entry.factors.table}
    return replace(entry, factors=Factors(**(fields | made)))


def resized(parts):
    other = parts(1, 100)
    return {"table": other.table, "file": other.factors, "template": other.template}


def retabled(old, new):
    return lambda parts: {"table": zlib.compress(zlib.decompress(parts(1).table).replace(old, new))}


WRONG = {
    "other factors": lambda parts: {"file": parts(2).factors},
    "short factors": lambda parts: {"file": parts(1).factors[:-2]},
    "another size": resized,
    "no table": lambda _: {"table": zlib.compress(b"{}")},
    "a plain table": lambda _: {"table": b"{}"},
    "no json": lambda _: {"table": zlib.compress(b"\xff")},
    "no zlib": lambda _: {"template": b"not compressed"},
    "a bomb": lambda _: {"template": pack(bytes(20_000_000))},
    "overlapping sites": retabled(b'"keys":[64,128]', b'"keys":[64,100]'),
    "a site outside": retabled(b'"keys":[64,128]', b'"keys":[64,99999999]'),
    "a negative site": retabled(b'"keys":[64,128]', b'"keys":[-64,128]'),
}


@pytest.mark.parametrize("name", WRONG)
def test_parts_that_do_not_make_the_program_are_refused_and_leave_nothing(site, phone, parts, name):
    entry = wrong(site, parts, **WRONG[name](parts))
    store = DeviceStore.create(phone)
    for blob in (entry.factors.file, entry.factors.template, entry.factors.table):
        store.put(blob.digest, (site.root / "blobs" / "sha256" / blob.digest.hex).read_bytes())
    before = set(store.held())
    with pytest.raises((FormatError, IntegrityError)):
        write_program(store, Checks(store), entry)
    assert set(store.held()) == before


@pytest.mark.parametrize("name", WRONG)
def test_such_a_release_still_installs_by_fetching_the_program(site, phone, parts, name):
    entry = wrong(site, parts, **WRONG[name](parts))
    line = replace(site.line({}), adapters=(entry,))
    site.release(1, line)
    site.offer(1)
    heard = []
    pull(site, phone, note=heard.append)
    assert locate(phone, "pirate").program.path.read_bytes() == parts(1).program
    if name != "a bomb":  # it weighs more than the program, so the plan does not take it
        assert any("fetching the program itself" in note for note in heard)
