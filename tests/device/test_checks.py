"""A file on the device is believed only while nothing touched it since its bytes were hashed."""

import os

import pytest

from device.checks import Checks
from device.store import DeviceStore
from device.uses import Uses
from registry.digest import Descriptor

DATA = b"some bytes of a foundation"


@pytest.fixture
def store(tmp_path):
    return DeviceStore.create(tmp_path / "device")


@pytest.fixture
def blob(store):
    blob = Descriptor.of(DATA)
    store.path(blob.digest).write_bytes(DATA)
    return blob


def test_a_sound_file_has_no_damage(store, blob):
    assert Checks(store).damage(blob) is None


def test_a_missing_file_is_called_missing(store):
    damage = Checks(store).damage(Descriptor.of(b"absent"))
    assert damage is not None
    assert str(damage).endswith("is missing")


def test_a_truncated_file_names_both_sizes(store, blob):
    store.path(blob.digest).write_bytes(DATA[:-5])
    damage = Checks(store).damage(blob)
    assert str(damage) == f"{blob.digest.short} is truncated: {len(DATA) - 5} bytes instead of {len(DATA)}"


def test_a_flipped_bit_names_the_digest_that_is_there(store, blob):
    changed = b"S" + DATA[1:]
    store.path(blob.digest).write_bytes(changed)
    damage = Checks(store).damage(blob)
    assert damage.actual == Descriptor.of(changed).digest
    error = damage.error("the foundation")
    assert error.values["expected"] == blob.to_json()
    assert error.values["actual"]["digest"] == str(Descriptor.of(changed).digest)


def test_a_write_after_the_check_is_noticed_by_the_next_process(store, blob):
    checks = Checks(store)
    assert checks.damage(blob) is None
    checks.save()
    path = store.path(blob.digest)
    before = path.stat()
    path.write_bytes(b"S" + DATA[1:])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # the change time still tells
    assert Checks(store).damage(blob) is not None


def test_a_file_that_was_vouched_for_is_hashed_again_only_on_request(store):
    """Bytes that rotted beneath the file system: nothing that it reports has changed."""
    blob = Descriptor.of(DATA)
    store.path(blob.digest).write_bytes(b"S" + DATA[1:])
    checks = Checks(store)
    checks.vouch(blob.digest)
    checks.save()
    assert Checks(store).damage(blob) is None
    assert Checks(store).damage(blob, again=True) is not None


def test_found_damage_is_not_forgotten_by_the_next_process(store):
    blob = Descriptor.of(DATA)
    store.path(blob.digest).write_bytes(b"S" + DATA[1:])
    checks = Checks(store)
    checks.vouch(blob.digest)
    assert checks.damage(blob, again=True) is not None
    checks.save()
    assert Checks(store).damage(blob) is not None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"x": 1}', b'{"x": [1, 2, 3]}', b"\xff"])
def test_a_damaged_memory_of_checks_costs_time_only(store, blob, content):
    (store.root / "checked.json").write_bytes(content)
    assert Checks(store).damage(blob) is None


@pytest.mark.parametrize("text", ["{", "[1]", '{"a": [Infinity, 1, 1, 1]}', '{"a": 1}', "[" * 100_000, "\x00"])
def test_a_damaged_table_of_checks_costs_time_only(store, blob, text):
    (store.root / "checked.json").write_text(text)
    assert Checks(store).damage(blob) is None
    (store.root / "used.json").write_text(text)
    assert Uses(store).last(blob.digest) == 0.0
