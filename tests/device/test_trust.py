"""A device takes what its root of trust vouches for, and from the first root on nothing else."""

import shutil
import time
from dataclasses import replace

import pytest

from device.http import HttpSource, Patience
from device.source import DirectorySource, manifest_path
from device.store import DeviceStore
from device.sync import Options, sync
from registry.device_state import DeviceState
from registry.errors import FormatError, InputError, IntegrityError, NotFound, Unavailable
from registry.manifest import Manifest
from registry.signing.ceremony import create_development
from registry.signing.store import KeyStore
from registry.signing.tree import signed
from registry.signing.trust import fingerprint
from registry.site import Tree, pinned_path

NOW = int(time.time())
DAY = 86_400
OPTIONS = Options(facts=DeviceState("phone-1"))


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Development keys, made once."""
    folder = tmp_path_factory.mktemp("keys") / "keys"
    create_development(KeyStore(folder), now=NOW)
    return folder


class Signed:
    """The `site` fixture's tree, signed."""

    def __init__(self, site, folder):
        self.site = site
        self.store = KeyStore(folder)

    def offer(self, number, channel="stable", *, now=NOW, **adapters):
        self.site.release(number, self.site.line({name: text.encode() for name, text in adapters.items()}))
        self.site.offer(number, channel, issued=now, expires=now + 30 * DAY)
        self.sign(now=now)

    def sign(self, now=NOW):
        root = self.site.root
        manifests = [path.read_bytes() for path in (root / "targets" / "v1").glob("*.json")]
        documents = {pinned_path(Manifest.from_bytes(data).channel, data): data for data in manifests}
        documents |= {manifest_path(Manifest.from_bytes(data).channel): data for data in manifests}
        for path, data in signed(self.store, Tree(documents, ()), now=now).documents.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(data)

    @property
    def root(self):
        return self.store.roots()[0]


@pytest.fixture
def registry(site, keys, tmp_path):
    shutil.copytree(keys, tmp_path / "keys")
    return Signed(site, tmp_path / "keys")


def pull(site, phone, **options):
    return sync(DirectorySource(site.root), ["stable"], phone, replace(OPTIONS, **options))


def active(phone):
    return DeviceStore(phone).known_state().channels["stable"].active.release


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_directory_is_trusted_on_first_use_and_its_fingerprint_told(registry, site, phone):
    registry.offer(1, pirate="arr")
    notes = []
    pull(site, phone, note=notes.append)
    assert str(fingerprint(registry.root)) in notes[0]
    assert DeviceStore(phone).known_state().channels["stable"].root == 1
    registry.offer(2, pirate="arr arr")
    again = []
    pull(site, phone, note=again.append)
    assert (active(phone), again) == (2, [])


def test_a_pinned_root_is_taken_as_it_is(registry, site, phone):
    registry.offer(1, pirate="arr")
    notes = []
    pull(site, phone, root=registry.root, note=notes.append)
    assert (active(phone), notes) == (1, [])


def test_another_registrys_root_lets_nothing_through(registry, site, phone, tmp_path):
    registry.offer(1, pirate="arr")
    other = KeyStore(tmp_path / "other")
    create_development(other, now=NOW)
    with pytest.raises(IntegrityError):
        pull(site, phone, root=other.roots()[0])
    assert DeviceStore(phone).held() == {}


def test_what_is_no_root_cannot_be_pinned(registry, site, phone):
    registry.offer(1, pirate="arr")
    with pytest.raises(FormatError):
        pull(site, phone, root=b"{}")


def test_a_signed_device_takes_nothing_unsigned(registry, site, phone):
    registry.offer(1, pirate="arr")
    pull(site, phone)
    shutil.rmtree(site.root / "metadata")
    site.release(2, site.line({"pirate": b"evil"}))
    site.offer(2)
    with pytest.raises(NotFound, match="signed metadata"):
        pull(site, phone)
    assert active(phone) == 1


def test_a_manifest_that_was_changed_in_place_is_not_followed(registry, site, phone):
    """The unsigned copy is for others; the device reads the one that the signed list names."""
    registry.offer(1, pirate="arr")
    pull(site, phone)
    registry.offer(2, pirate="arr arr")
    for path in (site.root / "targets").glob("*.json"):
        flip(path)
    with pytest.raises(IntegrityError):
        pull(site, phone)
    assert active(phone) == 1


def test_metadata_that_was_seen_newer_is_not_taken_older(registry, site, phone, tmp_path):
    registry.offer(1, pirate="arr")
    shutil.copytree(site.root, tmp_path / "before")
    registry.offer(2, pirate="arr arr")
    pull(site, phone)
    with pytest.raises(IntegrityError):
        sync(DirectorySource(tmp_path / "before"), ["stable"], phone, OPTIONS)
    assert active(phone) == 2


def test_expired_metadata_stops_changes_and_not_the_running_set(registry, site, phone):
    registry.offer(1, pirate="arr")
    pull(site, phone)
    old = NOW - 400 * DAY
    shutil.rmtree(site.root / "metadata")
    registry.offer(2, now=old, pirate="arr arr")
    with pytest.raises((Unavailable, IntegrityError)):
        pull(site, phone)
    assert active(phone) == 1


def test_a_channel_that_is_not_signed_fails_alone(registry, site, phone):
    registry.offer(1, pirate="arr")
    with pytest.raises(NotFound, match="no channel beta"):
        sync(DirectorySource(site.root), ["beta", "stable"], phone, OPTIONS)
    assert active(phone) == 1


@pytest.mark.parametrize("address", ["http://192.0.2.1", "https://registry.example", "http://10.0.0.1:8000/site"])
def test_an_address_beyond_this_machine_needs_a_pinned_root(phone, address):
    with pytest.raises(InputError, match="whom to trust"):
        sync(HttpSource(address, patience=Patience(attempts=1)), ["stable"], phone, OPTIONS)


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1"])
def test_a_loopback_address_is_near(address):
    assert HttpSource(address).near
