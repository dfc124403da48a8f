"""Signing: what each profile lets through, and what it stops. Attacks are played against the real clients."""

import json
import shutil
import stat
import time

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key
from tuf.api.exceptions import DownloadHTTPError
from tuf.api.metadata import Metadata
from tuf.ngclient import FetcherInterface, Updater

from registry.blobs import LocalStore
from registry.device_state import ChannelState, DeviceState
from registry.digest import Descriptor, Digest
from registry.errors import Conflict, FormatError, InputError, IntegrityError, NotFound, Unavailable
from registry.manifest import Arm, Manifest, ReleasePin
from registry.offer import stale
from registry.plan import plan
from registry.published import check_not_behind, signed_version
from registry.signing import light
from registry.signing.ceremony import (
    RootKeys,
    create_development,
    init,
    open_root,
    renew_root,
    rotate,
    rotate_root,
)
from registry.signing.keys import file_uri, generate, read_public, read_signer, write_private
from registry.signing.metadata import DAYS, Keys, keys_of, make_root, parse_root, version
from registry.signing.store import Elsewhere, KeyStore
from registry.signing.tree import signed
from registry.signing.trust import Trust, fingerprint, first_root, verified_light
from registry.site import Changes, Directory, Tree, manifest_path, pinned_path, publish

NOW = int(time.time())
DAY = 86400
UUID = "123e4567-e89b-42d3-a456-426614174000"
PASSPHRASE = b"correct horse"


def manifest(channel="stable", sequence=1, registry=UUID, issued=NOW):
    pin = ReleasePin(1, Descriptor(Digest.of(b"release"), 10))
    arms = (Arm(1, 10_000),)
    return Manifest(registry, channel, sequence, issued, issued + 30 * DAY, 60, "0" * 32, arms, (pin,)).to_bytes()


class World:
    """A registry's keys, its site as a table of documents, and devices that read it."""

    def __init__(self, folder):
        self.folder = folder
        self.store = KeyStore(folder / "keys")
        create_development(self.store, now=NOW)
        self.documents = {}
        self.publish()

    def publish(self, *manifests, now=NOW, above=0):
        given = manifests or (manifest(),)
        documents = {pinned_path(Manifest.from_bytes(data).channel, data): data for data in given}
        documents |= {manifest_path(Manifest.from_bytes(data).channel): data for data in given}
        kept = {path: data for path, data in self.documents.items() if path.startswith("targets/")}
        self.documents = kept | signed(self.store, Tree(documents, ()), now=now, above=above).documents

    def read(self, path, limit):
        """As a source reads: bounded, and an absent file is an error."""
        data = self.documents.get(path)
        if data is None:
            raise NotFound(f"no {path}")
        if len(data) > limit:
            raise FormatError(f"{path} is larger than {limit} bytes")
        return data

    def device(self, name="phone", root=None):
        return Trust(self.folder / name, root or self.store.roots()[0])

    def ask(self, device=None, channel="stable"):
        return (device or self.device()).verified(self.read, [channel]).manifests[channel]

    def keys(self, **fields):
        """Real keys in place of the development ones; answers the root's signers."""
        paths = init(self.store, RootKeys(self.folder / "safe", PASSPHRASE, **fields), now=NOW)
        return open_root(paths, PASSPHRASE)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Development keys and what they signed, made once: each test works on a copy."""
    folder = tmp_path_factory.mktemp("made")
    World(folder)
    return folder


@pytest.fixture
def world(made, tmp_path):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return World(tmp_path)


def refused(world, device=None, kind=IntegrityError):
    with pytest.raises(kind) as caught:
        world.ask(device)
    return caught.value


# What is signed, and that both profiles read it


def test_both_profiles_answer_the_manifest_that_the_registry_signed(world):
    assert world.ask() == manifest()
    assert verified_light(world.read, "stable", world.store.light_key) == manifest()


class Table(FetcherInterface):
    """Lets a plain TUF client read the documents at an address."""

    def __init__(self, documents):
        self.documents = documents

    def _fetch(self, url):
        data = self.documents.get(url.removeprefix("https://site/"))
        if data is None:
            raise DownloadHTTPError("absent", 404)
        return iter([data])


def test_a_plain_tuf_client_downloads_a_channel_s_manifest_from_the_published_paths(world, tmp_path):
    trusted, targets = tmp_path / "tuf", tmp_path / "targets"
    trusted.mkdir()
    updater = Updater(
        str(trusted),
        "https://site/metadata/",
        str(targets),
        "https://site/targets/",
        fetcher=Table(world.documents),
        bootstrap=world.store.root,
    )
    info = updater.get_targetinfo("stable.json")
    assert info is not None
    with open(updater.download_target(info), "rb") as file:
        assert file.read() == manifest()


def test_the_light_signature_is_plain_ecdsa_in_der(world):
    key = load_pem_public_key(world.store.light_key)
    assert isinstance(key.curve, ec.SECP256R1)
    key.verify(world.documents["targets/v1/stable.json.sig"], manifest(), ec.ECDSA(SHA256()))


def test_publishing_again_signs_nothing_again(world):
    before = dict(world.documents)
    world.publish()
    assert world.documents == before


def test_a_change_makes_one_new_version_of_each_and_keeps_what_readers_may_still_ask_for(world):
    world.publish(manifest(sequence=2))
    metadata = [path.removeprefix("metadata/") for path in world.documents if path.startswith("metadata/")]
    assert sorted(metadata) == [
        "1.root.json",
        "1.snapshot.json",
        "1.targets.json",
        "2.snapshot.json",
        "2.targets.json",
        "timestamp.json",
    ]
    assert list(world.documents)[-1] == "metadata/timestamp.json"
    for sequence in (3, 4, 5):
        world.publish(manifest(sequence=sequence))
    assert "metadata/2.targets.json" not in world.documents
    assert "metadata/3.targets.json" in world.documents
    assert world.ask() == manifest(sequence=5)


def test_a_client_that_read_an_earlier_timestamp_still_finds_what_it_points_to(world):
    earlier = world.documents["metadata/timestamp.json"]
    world.publish(manifest(sequence=2))
    world.documents["metadata/timestamp.json"] = earlier
    assert world.ask() == manifest(sequence=1)


def test_metadata_past_half_its_life_is_renewed_and_nothing_else(world):
    later = NOW + DAYS["timestamp"] * DAY // 2 + 1
    before = dict(world.documents)
    world.publish(now=later)
    changed = {path for path in world.documents if world.documents[path] != before.get(path)}
    assert changed == {"metadata/timestamp.json"}
    assert version(world.documents["metadata/timestamp.json"]) == 2


def test_the_versions_of_a_registry_that_was_behind_go_above_what_is_published(world):
    world.publish(manifest(sequence=2), above=7)
    assert {version(world.documents[path]) for path in ("metadata/8.targets.json", "metadata/timestamp.json")} == {8}
    published = world.documents
    names = [path.removeprefix("metadata/") for path in published if path.startswith("metadata/")]
    assert signed_version(names, published.get) == 8


def test_a_store_that_signs_behind_what_is_published_stops(world):
    world.publish(manifest(sequence=2))
    published = dict(world.documents)
    behind = {path: data for path, data in published.items() if path != "metadata/timestamp.json"}
    behind["metadata/timestamp.json"] = published["metadata/timestamp.json"].replace(b'"version":2', b'"version":1')
    with pytest.raises(Conflict, match="signed metadata 2 is published, this store is at 1"):
        check_not_behind(behind, published.get)
    with pytest.raises(Conflict, match="this tree is unsigned"):
        check_not_behind({}, published.get)
    check_not_behind(published, published.get)


def test_a_signed_tree_is_published_once_and_never_replaced_by_an_unsigned_one(world):
    blobs, target = LocalStore.create(world.folder / "store"), Directory(world.folder / "site")
    tree = Tree(world.documents, ())
    assert signed(world.store, tree, now=NOW) == tree
    unsigned = Tree({pinned_path("stable", manifest()): manifest(), manifest_path("stable"): manifest()}, ())
    assert publish(tree, target, blobs).written[-1] == "metadata/timestamp.json"
    assert publish(tree, target, blobs) == Changes((), ())
    with pytest.raises(Conflict, match="this tree is unsigned"):
        publish(unsigned, target, blobs)
    read = Trust(world.folder / "phone", world.store.root).verified(
        lambda path, _: target.read(path) or absent(), ["stable"]
    )
    assert read.manifests == {"stable": manifest()}


def absent():
    raise NotFound("absent")


# Attacks on the TUF profile


def test_an_old_site_replayed_to_a_device_that_saw_a_newer_one_is_refused(world):
    old = dict(world.documents)
    device = world.device()
    world.publish(manifest(sequence=2))
    assert world.ask(device) == manifest(sequence=2)
    world.documents = old
    assert "version" in refused(world, device).message


@pytest.mark.parametrize("role", ["snapshot", "targets"])
def test_an_old_snapshot_or_targets_behind_a_new_timestamp_is_refused(world, role):
    old = world.documents[f"metadata/1.{role}.json"]
    world.publish(manifest(sequence=2))
    world.documents[f"metadata/2.{role}.json"] = old
    refused(world)


def test_a_frozen_site_is_refused_once_its_metadata_expires_and_the_reason_says_so(world):
    world.store = KeyStore(world.folder / "old")
    create_development(world.store, now=NOW - 40 * DAY)
    world.publish(now=NOW - 40 * DAY)
    error = refused(world, kind=Unavailable)
    assert "expired" in error.message
    assert "keys refresh" in error.hint


def test_a_tampered_manifest_is_refused(world):
    path = pinned_path("stable", manifest())
    world.documents[path] = manifest().replace(b'"poll_seconds":60', b'"poll_seconds":61')
    refused(world)


@pytest.mark.parametrize("path", ["metadata/timestamp.json", "metadata/1.snapshot.json", "metadata/1.targets.json"])
def test_metadata_with_one_changed_byte_is_refused(world, path):
    data = world.documents[path]
    at = data.index(b'"expires":"2') + len('"expires":"2')
    world.documents[path] = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    refused(world)


@pytest.mark.parametrize(
    "path", ["metadata/timestamp.json", "metadata/1.targets.json", "manifest", "metadata/2.root.json"]
)
def test_endless_data_is_cut_off_at_the_signed_or_the_known_length(world, path):
    asked = []
    read = world.read
    where = pinned_path("stable", manifest()) if path == "manifest" else path

    def endless(name, limit):
        asked.append((name, limit))
        if name == where:
            raise FormatError(f"{name} is larger than {limit} bytes")
        return read(name, limit)

    with pytest.raises(IntegrityError):
        world.device().verified(endless, ["stable"])
    assert max(limit for _, limit in asked) <= 5_000_000


def test_what_a_rotated_key_signs_is_refused(world):
    root = world.keys()
    world.publish(manifest(sequence=2))
    stolen = {role: world.store.signer(role) for role in ("timestamp", "snapshot", "targets")}
    before = dict(world.documents)
    rotate(world.store, ["timestamp"], root, now=NOW)
    world.publish(manifest(sequence=2))
    device = world.device()
    assert world.ask(device) == manifest(sequence=2)
    forged = Metadata.from_bytes(before["metadata/timestamp.json"])
    forged.signed.version = 50
    forged.sign(stolen["timestamp"])
    world.documents["metadata/timestamp.json"] = forged.to_bytes()
    refused(world, device)
    refused(world, world.device("fresh phone"))


def test_a_stolen_online_key_is_worth_nothing_after_a_new_root_even_for_high_versions(world):
    root = world.keys()
    world.publish(manifest(sequence=2), above=1_000_000)
    device = world.device()
    world.ask(device)
    rotate(world.store, ["targets", "snapshot", "timestamp"], root, now=NOW)
    world.publish(manifest(sequence=1))
    assert world.ask(device) == manifest(sequence=1)
    assert device.verified(world.read, ["stable"]).root == 3


def test_a_root_that_too_few_keys_signed_is_neither_made_nor_believed(world):
    signers = world.keys(count=3, threshold=2)
    before = world.store.roots()
    with pytest.raises(IntegrityError, match="too few of the root's keys"):
        rotate(world.store, ["timestamp"], signers[:1], now=NOW)
    assert world.store.roots() == before
    world.publish()
    device = world.device()
    world.ask(device)
    forged = make_root(world.store.keys, signers[:1], number=3, now=NOW)
    world.documents["metadata/3.root.json"] = forged
    refused(world, device)
    rotate(world.store, ["timestamp"], signers[1:], now=NOW)
    world.publish()
    assert world.ask(device) == manifest()


def test_another_registry_s_site_is_refused(world):
    other = World(world.folder / "other")
    device = world.device()
    world.ask(device)
    world.documents = other.documents
    refused(world, device)


def test_another_channel_s_manifest_is_refused_wherever_it_stands(world):
    world.publish(manifest(), manifest("beta"))
    world.documents[pinned_path("stable", manifest())] = manifest("beta")
    refused(world)


def test_a_channel_that_is_not_signed_is_not_found(world):
    with pytest.raises(NotFound, match="no channel beta"):
        world.ask(channel="beta")
    with pytest.raises(InputError, match="not a usable channel name"):
        world.ask(channel="../x")


def test_an_unsigned_site_says_that_it_is_one(world):
    del world.documents["metadata/timestamp.json"]
    assert "signed" in refused(world, kind=NotFound).message


def test_a_site_that_cannot_be_read_is_unavailable(world):
    def broken(path, limit):
        raise Unavailable(f"no route to {path} ({limit})")

    with pytest.raises(Unavailable, match="no route"):
        world.device().verified(broken, ["stable"])


# First trust


def test_trust_on_first_use_goes_on_from_the_first_root_without_the_pin(world):
    root = first_root(world.read)
    assert fingerprint(root) == Digest.of(world.store.root)
    world.device(root=root).verified(world.read, ["stable"])
    again = Trust(world.folder / "phone").verified(world.read, ["stable"])
    assert (again.root, again.development) == (1, True)


def test_without_any_root_nothing_is_trusted(world):
    with pytest.raises(NotFound, match="no root is trusted here") as caught:
        Trust(world.folder / "empty").verified(world.read, ["stable"])
    assert "--root FILE" in caught.value.hint


def test_a_pinned_file_that_is_no_root_is_refused(world):
    for data in (b"{}", b"", world.documents["metadata/timestamp.json"]):
        with pytest.raises(FormatError):
            Trust(world.folder / "phone", data)


def test_devices_follow_every_root_from_the_development_one_on(world):
    device = world.device()
    world.ask(device)
    signers = world.keys()
    paths = rotate_root(world.store, RootKeys(world.folder / "new safe", b"other"), signers, now=NOW)
    signers = open_root(paths, b"other")
    rotate(world.store, ["targets"], signers, now=NOW)
    renew_root(world.store, signers, now=NOW + DAY)
    world.publish(manifest(sequence=2))
    verified = device.verified(world.read, ["stable"])
    assert (verified.root, verified.development) == (5, False)
    assert verified.manifests == {"stable": manifest(sequence=2)}


# The light profile


def test_the_light_profile_refuses_a_changed_manifest_or_signature(world):
    path = manifest_path("stable")
    world.documents[path] = manifest(sequence=2)
    with pytest.raises(IntegrityError, match="does not match this key"):
        verified_light(world.read, "stable", world.store.light_key)
    world.publish(manifest(), manifest("beta"))
    world.documents[f"{path}.sig"] = world.documents[f"{manifest_path('beta')}.sig"]
    with pytest.raises(IntegrityError):
        verified_light(world.read, "stable", world.store.light_key)
    world.documents[f"{path}.sig"] = b"\x00" * 10
    with pytest.raises(IntegrityError):
        verified_light(world.read, "stable", world.store.light_key)


def test_the_light_profile_refuses_another_channel_s_signed_manifest(world):
    world.publish(manifest(), manifest("beta"))
    for suffix in ("", ".sig"):
        world.documents[manifest_path("stable") + suffix] = world.documents[manifest_path("beta") + suffix]
    with pytest.raises(IntegrityError, match="the manifest of beta stands where stable's should"):
        verified_light(world.read, "stable", world.store.light_key)


def test_the_light_profile_refuses_another_registry_s_key_and_a_rotated_one(world):
    other = World(world.folder / "other")
    with pytest.raises(IntegrityError):
        verified_light(other.read, "stable", world.store.light_key)
    old = world.store.light_key
    rotate(world.store, ["light"], world.keys(), now=NOW)
    world.publish()
    with pytest.raises(IntegrityError):
        verified_light(world.read, "stable", old)
    assert verified_light(world.read, "stable", world.store.light_key) == manifest()


def test_the_light_profile_stops_endless_signatures_and_missing_ones(world):
    world.documents["targets/v1/stable.json.sig"] = b"0" * 1000
    with pytest.raises(FormatError, match="larger than 256"):
        verified_light(world.read, "stable", world.store.light_key)
    del world.documents["targets/v1/stable.json.sig"]
    with pytest.raises(NotFound):
        verified_light(world.read, "stable", world.store.light_key)


def test_the_light_profile_takes_p256_alone(world):
    private, _ = generate("root")
    pem = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    with pytest.raises(FormatError, match="ECDSA on P-256"):
        light.verify(pem, b"", b"")
    with pytest.raises(FormatError, match="not a public key"):
        light.verify(b"junk", b"", b"")
    assert world.store.light_key.startswith(b"-----BEGIN PUBLIC KEY-----")


def test_a_replay_passes_the_light_signature_and_is_stopped_by_the_sequence(world):
    old = {path: world.documents[path] for path in ("targets/v1/stable.json", "targets/v1/stable.json.sig")}
    world.publish(manifest(sequence=2))
    world.documents |= old
    replayed = Manifest.from_bytes(verified_light(world.read, "stable", world.store.light_key))
    seen = DeviceState("d", channels={"stable": ChannelState(UUID, 0, 2, NOW)})
    assert [each.code for each in plan([replayed], {}, seen, now=NOW).refused] == ["older"]
    assert stale(replayed, seen.channels["stable"], 1, NOW) is None  # a new root lets the sequence restart


# Keys


def test_development_keys_say_so_in_the_root_and_real_ones_do_not(world):
    assert world.store.keys.development
    world.keys()
    assert not world.store.keys.development
    assert [path.name for path in (world.store.directory / "root").iterdir()] == []


def test_making_keys_twice_is_making_them_once(world):
    before = world.store.root
    create_development(world.store, now=NOW + 5)
    assert world.store.root == before
    world.keys()
    with pytest.raises(Conflict, match="has its keys"):
        world.keys()


def test_private_keys_are_readable_by_their_owner_alone_and_the_root_only_with_its_passphrase(world):
    world.keys()
    assert stat.S_IMODE(world.store.directory.stat().st_mode) == 0o700
    private = [*world.folder.rglob("*.pem")]
    assert len(private) == 5
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}
    [root] = (world.folder / "safe").iterdir()
    assert b"ENCRYPTED" in root.read_bytes()
    with pytest.raises(InputError, match="does not open"):
        open_root([root], b"wrong")
    with pytest.raises(InputError, match="is encrypted"):
        read_signer(root)


def test_the_old_private_keys_are_deleted_when_they_are_rotated(world):
    root = world.keys()
    before = {path.name for path in (world.store.directory / "online").iterdir()}
    rotate(world.store, ["snapshot", "light"], root, now=NOW)
    after = {path.name for path in (world.store.directory / "online").iterdir()}
    assert len(after) == 4
    assert sorted(name.partition("-")[0] for name in before - after) == ["light", "snapshot"]
    world.publish()
    assert world.ask() == manifest()


def test_a_key_may_live_elsewhere_by_uri(world):
    signers = world.keys()
    private, public = generate("timestamp")
    away = world.folder / "hsm" / "timestamp.pem"
    write_private(away, private, None)
    elsewhere = {"timestamp": Elsewhere(file_uri(str(away)), public)}
    rotate(world.store, ["timestamp"], signers, elsewhere, now=NOW)
    world.publish(manifest(sequence=2))
    assert world.ask() == manifest(sequence=2)
    away.unlink()
    with pytest.raises(NotFound, match="no private key"):
        world.publish(manifest(sequence=3))


def test_a_signer_that_holds_another_key_than_the_root_names_is_refused(world):
    _, public = generate("timestamp")
    private, _ = generate("timestamp")
    away = world.folder / "wrong.pem"
    write_private(away, private, None)
    rotate(world.store, ["timestamp"], world.keys(), {"timestamp": Elsewhere(file_uri(str(away)), public)}, now=NOW)
    with pytest.raises(InputError, match="another key than the root names"):
        world.publish(manifest(sequence=2))


def test_an_unknown_kind_of_key_is_refused_with_its_uri(world):
    _, public = generate("timestamp")
    rotate(world.store, ["timestamp"], world.keys(), {"timestamp": Elsewhere("nokms:key", public)}, now=NOW)
    with pytest.raises(InputError, match="nokms:key"):
        world.publish(manifest(sequence=2))


def test_only_online_roles_rotate(world):
    signers = world.keys()
    for roles in (["root"], ["nonsense"], []):
        with pytest.raises(InputError, match="cannot rotate"):
            rotate(world.store, roles, signers, now=NOW)


@pytest.mark.parametrize(("count", "threshold"), [(1, 2), (0, 0), (2, 0)])
def test_a_threshold_needs_as_many_keys(world, count, threshold):
    with pytest.raises(InputError, match="cannot give"):
        RootKeys(world.folder / "safe", PASSPHRASE, count, threshold)


def test_a_root_key_needs_a_passphrase(world):
    with pytest.raises(InputError, match="needs a passphrase"):
        RootKeys(world.folder / "safe", b"")


def test_the_status_tells_each_role_s_days_and_keys(world):
    world.keys(count=3, threshold=2)
    world.publish()
    status = {each.role: each for each in world.store.status()}
    assert list(status) == ["root", "targets", "snapshot", "timestamp", "light"]
    assert (len(status["root"].keys), status["root"].threshold, status["root"].version) == (3, 2, 2)
    assert status["timestamp"].days_left(NOW + DAY) == 29
    assert status["root"].days_left(NOW) == 365
    assert status["light"].days_left(NOW) is None


def test_without_keys_everything_says_how_to_make_them(tmp_path):
    with pytest.raises(NotFound, match="no keys") as caught:
        signed(KeyStore(tmp_path), Tree({}, ()), now=NOW)
    assert "ptdock keys init" in caught.value.hint


def test_a_root_of_another_tool_is_named_as_such(world):
    fields = json.loads(world.store.root)
    del fields["signed"]["x-ptdock-light"]
    with pytest.raises(FormatError, match="no key for the light profile"):
        keys_of(parse_root(json.dumps(fields).encode()))


def test_public_keys_are_read_from_pem(world):
    assert read_public(world.store.light_key).keyid == world.store.keys.online["light"].keyid
    with pytest.raises(FormatError, match="not a public key"):
        read_public(b"junk")


def test_the_root_names_what_it_was_made_of(world):
    signers = world.keys(count=2, threshold=2)
    keys = world.store.keys
    made = make_root(Keys(keys.root, 2, keys.online), signers, number=9, now=NOW)
    assert keys_of(parse_root(made)) == keys
