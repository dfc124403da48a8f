"""Attacks on a published tree, played end to end: a real registry's site, changed on its way, against real clients.

The TUF profile is `device.sync`; the light profile is what docs/signing.md asks of a phone with one public key.
docs/signing.md lists what each stops; what the light profile lets through is played here too.
"""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from registry.device_state import ActiveSet, ChannelState, DeviceState
from registry.digest import Descriptor, Digest
from registry.errors import FormatError, IntegrityError, NotFound, PtdockError, Unavailable
from registry.manifest import Manifest
from registry.plan import pins, plan
from registry.release import ReleaseDocument
from registry.signing.ceremony import RootKeys, open_root
from registry.signing.metadata import make_root
from registry.signing.trust import verified_light
from registry.site import blob_path, manifest_path, pinned_path
from tests.registry.live import DAY, Live, live


class LightPhone:
    """A phone without TUF: one public key, the sequence that it saw last, and its own plan."""

    def __init__(self, key: bytes, clock) -> None:
        self.key = key
        self.clock = clock
        self.state = DeviceState("light phone")

    def sync(self, site: Path) -> int | None:
        """Follow the site; answers the release that runs then. Raises what stopped it."""
        manifest = Manifest.from_bytes(verified_light(reading(site), "stable", self.key))
        releases = {pin.digest: ReleaseDocument.from_bytes(fetched(site, pin)) for pin in pins([manifest], self.state)}
        answer = plan([manifest], releases, self.state, now=int(self.clock()), root=1)
        for reason in answer.refused:
            raise (Unavailable if reason.code == "expired" else IntegrityError)(reason.text)
        for each in answer.download:
            fetched(site, each.file)
        active = answer.activate[0].set if answer.activate else None
        self._remember(manifest, active, (*self.state.holds, *(each.file for each in answer.download)))
        running = self.state.channels["stable"].active
        return running.release if running else None

    def _remember(self, manifest: Manifest, active: ActiveSet | None, holds: tuple[Descriptor, ...]) -> None:
        before = self.state.channels.get("stable")
        seen = ChannelState(
            manifest.registry, 1, manifest.sequence, manifest.issued, active or (before.active if before else None)
        )
        self.state = replace(self.state, holds=tuple(dict.fromkeys(holds)), channels={"stable": seen})


def reading(site: Path):
    def read(path: str, limit: int) -> bytes:
        try:
            with open(site / path, "rb") as file:
                data = file.read(limit + 1)
        except FileNotFoundError:
            raise NotFound(f"no {path}") from None
        if len(data) > limit:
            raise FormatError(f"{path} is larger than {limit} bytes")
        return data

    return read


def fetched(site: Path, file: Descriptor) -> bytes:
    """A blob, read to its pinned size and no further."""
    with open(site / blob_path(file.digest), "rb") as source:
        data = source.read(file.size)
    if Digest.of(data) != file.digest:
        raise IntegrityError(f"{file.digest} is not what was pinned")
    return data


class World:
    """A registry that offered release 1 and now offers release 2, both sites, and a phone of each profile."""

    def __init__(self, shop: Live, folder: Path) -> None:
        self.shop, self.folder = shop, folder
        self.registry = shop.registry
        self.desk = self.registry.signed_site()
        self.registry.create_channel("beta")
        self.registry.create_release("beta", ["json@1.0.0"])
        self.registry.create_release("stable", ["pirate@1.0.0"])
        self.first = self.copied("first")
        self.registry.create_release("stable", ["pirate@1.0.0", "json@1.0.0"])
        self.site = self.copied("now")
        self.light = LightPhone(self.desk.store.light_key, shop.clock)

    def copied(self, name: str) -> Path:
        """The site as it is, as real files that an attacker may change."""
        return Path(shutil.copytree(self.registry.site, self.folder / name))

    def tuf(self, site: Path, phone: str = "phone") -> int | None:
        """Let the TUF phone follow a site."""
        return self.shop.active(phone, site)

    def both(self, site: Path) -> tuple[int | None, int | None]:
        return self.tuf(site), self.light.sync(site)

    def refused(self, site: Path, kind: type[PtdockError] | tuple[type[PtdockError], ...] = IntegrityError) -> None:
        """Neither phone takes anything from a site; both run on what they ran."""
        before = self.light.state
        with pytest.raises(kind):
            self.tuf(site)
        with pytest.raises(kind):
            self.light.sync(site)
        assert self.light.state == before


@pytest.fixture
def world(stocked_home, tmp_path, pair) -> World:
    return World(live(stocked_home, tmp_path / "home", pair), tmp_path)


def changed(path: Path, data: bytes | None = None) -> None:
    """Change one byte of a file, or give it other bytes."""
    original = path.read_bytes()
    path.chmod(0o644)
    middle = len(original) // 2
    path.write_bytes(
        original[:middle] + bytes([original[middle] ^ 1]) + original[middle + 1 :] if data is None else data
    )


def test_what_is_published_reaches_both(world):
    assert world.both(world.site) == (3, 3)


def test_a_replayed_older_site_is_refused_by_who_saw_the_newer_one(world):
    world.both(world.site)
    world.refused(world.first)


def test_a_fresh_device_takes_a_replay_until_it_expires_and_not_after(world):
    """What no profile can stop without a clock, and what the docs say so of."""
    assert world.both(world.first) == (2, 2)
    world.shop.clock.now += 31 * DAY
    other = LightPhone(world.light.key, world.shop.clock)
    with pytest.raises(Unavailable, match="expired"):
        other.sync(world.first)


def test_a_frozen_site_stops_changes_when_it_expires_and_nothing_that_runs(world):
    """TUF's client looks at the real clock, so what it reads was signed forty days ago instead."""
    assert world.both(world.first) == (2, 2)
    world.shop.clock.now -= 40 * DAY
    world.desk._write(world.desk.here, above=50)
    frozen = world.copied("frozen")
    with pytest.raises(Unavailable, match="expired"):
        world.tuf(frozen)
    assert world.tuf(world.first) == 2
    world.shop.clock.now += 71 * DAY
    with pytest.raises(Unavailable, match="expired"):
        world.light.sync(frozen)
    assert world.light.state.channels["stable"].active.release == 2


@pytest.mark.parametrize("role", ["snapshot", "targets"])
def test_a_mixed_snapshot_is_refused_by_tuf(world, role):
    old = (world.first / "metadata" / f"2.{role}.json").read_bytes()
    changed(world.site / "metadata" / f"3.{role}.json", old)
    with pytest.raises(IntegrityError):
        world.tuf(world.site)


def test_the_light_profile_lets_an_old_channel_stand_beside_a_new_one(world):
    """Channels are signed one by one: the docs say that this is not stopped for a device that never saw the newer."""
    for suffix in ("", ".sig"):
        path = f"{manifest_path('stable')}{suffix}"
        changed(world.site / path, (world.first / path).read_bytes())
    assert world.light.sync(world.site) == 2
    assert world.tuf(world.site) == 3


def test_a_tampered_manifest_is_refused(world):
    data = world.registry.manifest("stable")
    for path in (manifest_path("stable"), pinned_path("stable", data)):
        changed(world.site / path, data.replace(b'"share_bp":10000', b'"share_bp":09999'))
    world.refused(world.site, (IntegrityError, FormatError))


def test_a_tampered_release_is_refused(world):
    changed(world.site / blob_path(world.registry.release(3).document.digest))
    world.refused(world.site)


def test_a_tampered_foundation_or_program_is_refused_and_the_old_set_runs_on(world):
    assert world.both(world.first) == (2, 2)
    changed(world.site / blob_path(world.registry.build("json@1.0.0").file.digest))
    world.refused(world.site)


def test_endless_blobs_are_cut_off_at_the_pinned_size(world):
    path = world.site / blob_path(world.registry.build("json@1.0.0").file.digest)
    changed(path, path.read_bytes() + bytes(1_000_000))
    assert world.both(world.site) == (3, 3)
    kept = world.shop.phones / "phone" / blob_path(Digest.parse(f"sha256:{path.name}"))
    assert kept.stat().st_size == world.registry.build("json@1.0.0").file.size
    changed(path, bytes(2_000_000))
    with pytest.raises(IntegrityError):
        world.tuf(world.site, "another phone")


def test_endless_metadata_and_manifests_are_cut_off_at_their_bounds(world):
    timestamp = world.site / "metadata" / "timestamp.json"
    changed(timestamp, timestamp.read_bytes() + b" " * 6_000_000)
    with pytest.raises(IntegrityError):
        world.tuf(world.site)
    manifest = world.site / manifest_path("stable")
    changed(manifest, manifest.read_bytes() + b" " * 5_000_000)
    with pytest.raises(FormatError, match="larger than"):
        world.light.sync(world.site)


def test_another_channels_manifest_is_refused_wherever_it_stands(world):
    beta = world.registry.manifest("beta")
    changed(world.site / pinned_path("stable", world.registry.manifest("stable")), beta)
    changed(world.site / manifest_path("stable"), beta)
    changed(world.site / f"{manifest_path('stable')}.sig", (world.site / f"{manifest_path('beta')}.sig").read_bytes())
    world.refused(world.site)


def test_another_registrys_site_is_refused(world, stocked_home, tmp_path, pair):
    world.both(world.site)
    other = World(live(stocked_home, tmp_path / "other" / "home", pair), tmp_path / "other")
    world.refused(other.site)


def real_keys(world, **fields):
    return open_root(world.desk.init_keys(RootKeys(world.folder / "safe", b"word", **fields), {}), b"word")


def test_what_rotated_keys_sign_is_refused_by_all_who_follow(world):
    """A thief keeps the online keys and signs on; the registry rotates all of them."""
    signers = real_keys(world)
    thief = world.folder / "thief"
    shutil.copytree(world.registry.home, thief)
    stolen = world.shop.again(thief)
    world.desk.rotate(["targets", "snapshot", "timestamp", "light"], signers, {})
    world.light = LightPhone(world.desk.store.light_key, world.shop.clock)  # an app that was built with the new key
    site = world.copied("rotated")
    assert world.both(site) == (3, 3)
    stolen.create_release("stable", ["json@1.0.0"])
    world.refused(stolen.site)
    forged = Path(shutil.copytree(stolen.site, world.folder / "forged"))
    shutil.copy(site / "metadata" / "3.root.json", forged / "metadata" / "3.root.json")
    world.refused(forged)


def test_an_app_with_the_old_light_key_takes_nothing_more_until_it_is_updated(world):
    old = world.light
    assert old.sync(world.site) == 3
    world.desk.rotate(["light"], real_keys(world), {})
    with pytest.raises(IntegrityError, match="does not match this key"):
        old.sync(world.copied("rotated"))
    assert world.tuf(world.copied("again")) == 3


def test_a_root_that_lacks_signatures_of_its_threshold_is_followed_by_nobody(world):
    signers = real_keys(world, count=3, threshold=2)
    site = world.copied("real")
    assert world.tuf(site) == 3
    thieves = make_root(world.desk.store.keys, signers[:1], number=3, now=int(world.shop.clock()))
    (site / "metadata" / "3.root.json").write_bytes(thieves)
    with pytest.raises(IntegrityError):
        world.tuf(site)
    (site / "metadata" / "3.root.json").unlink()
    assert world.tuf(site) == 3


def test_a_site_stripped_of_its_signatures_is_refused_by_who_saw_them(world):
    world.both(world.site)
    shutil.rmtree(world.site / "metadata")
    (world.site / f"{manifest_path('stable')}.sig").unlink()
    world.refused(world.site, NotFound)
