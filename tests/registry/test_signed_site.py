"""The signed site of a real registry: signed at every change, published elsewhere, renewed, and stopped when behind."""

import shutil
from pathlib import Path

import pytest

from registry import files
from registry.errors import Conflict, InputError, NotFound
from registry.manifest import Manifest
from registry.signing.ceremony import RootKeys, open_root
from registry.signing.metadata import version
from registry.signing.trust import Trust, verified_light
from registry.site import Directory, pinned_path
from tests.registry.live import DAY, Live, live

WORD = b"correct horse"


@pytest.fixture
def shop(stocked_home, tmp_path, pair) -> Live:
    return live(stocked_home, tmp_path / "home", pair)


@pytest.fixture
def registry(shop):
    return shop.registry


@pytest.fixture
def desk(registry):
    return registry.signed_site()


def reading(site: Path):
    """Reads a site as `Trust` wants it."""

    def read(path, limit):
        data = Directory(site).read(path)
        if data is None:
            raise NotFound(f"no {path}")
        assert len(data) <= limit
        return data

    return read


def timestamp(site: Path) -> int:
    return version((site / "metadata" / "timestamp.json").read_bytes())


def real_keys(desk, tmp_path, **fields):
    """Real keys instead of the development ones; answers the root's signers."""
    return open_root(desk.init_keys(RootKeys(tmp_path / "safe", WORD, **fields), {}), WORD)


def test_a_fresh_registry_has_development_keys_and_making_it_again_keeps_them(registry, desk):
    root = desk.store.root
    assert desk.store.keys.development
    assert registry.root_version == 1
    registry.init(registry.home)
    assert desk.store.roots() == [root]


def test_both_profiles_read_what_a_release_offers(registry, desk, tmp_path):
    registry.create_release("stable", ["pirate@1.0.0"])
    read = reading(registry.site)
    verified = Trust(tmp_path / "phone", desk.store.root).verified(read, ["stable"])
    assert verified.manifests["stable"] == registry.manifest("stable")
    assert (verified.root, verified.development) == (1, True)
    assert verified_light(read, "stable", desk.store.light_key) == registry.manifest("stable")


def test_writing_the_site_again_signs_nothing_again(registry):
    registry.create_release("stable", ["pirate@1.0.0"])
    steps = []
    with files.observed(steps.append):
        registry.refresh_site()
    assert steps == []


def test_a_registry_without_keys_says_what_was_done_and_how_to_go_on(registry, desk):
    shutil.rmtree(desk.store.directory)
    with pytest.raises(NotFound, match="release 1 is recorded and offered, but the site was not written") as caught:
        registry.create_release("stable", ["pirate@1.0.0"])
    assert "ptdock keys init" in caught.value.hint
    assert registry.channel("stable").sequence == 1


def test_a_site_is_published_elsewhere_once_and_a_change_touches_only_what_changed(registry, desk, tmp_path):
    registry.create_release("stable", ["pirate@1.0.0"])
    www = Directory(tmp_path / "www")
    first = desk.publish(www)
    assert first.written[-1] == "metadata/timestamp.json"
    assert desk.publish(www).written == ()
    registry.create_release("stable", ["pirate@1.0.0", "json@1.0.0"])
    changes = desk.publish(www)
    assert len([path for path in changes.written if path.startswith("blobs/")]) == 2  # json's program, the release
    assert [path for path in changes.written if not path.startswith("blobs/")] == [
        pinned_path("stable", registry.manifest("stable")),
        "targets/v1/stable.json.sig",
        "targets/v1/stable.json",
        "metadata/2.targets.json",
        "metadata/2.snapshot.json",
        "metadata/timestamp.json",
    ]
    assert changes.removed == ()
    assert same_tree(registry.site, tmp_path / "www")


def test_widening_a_rollout_sends_the_manifest_and_its_signatures_again_and_nothing_else(registry, desk, tmp_path):
    registry.create_release("stable", ["pirate@1.0.0"])
    registry.create_release("stable", ["json@1.0.0"], share_bp=1000)
    www = Directory(tmp_path / "www")
    desk.publish(www)
    registry.rollout("stable").widen(5000)
    changes = desk.publish(www)
    assert changes.written == (
        pinned_path("stable", registry.manifest("stable")),
        "targets/v1/stable.json.sig",
        "targets/v1/stable.json",
        "metadata/3.targets.json",
        "metadata/3.snapshot.json",
        "metadata/timestamp.json",
    )
    assert sum((www.root / path).stat().st_size for path in changes.written) < 5000


def same_tree(one: Path, other: Path) -> bool:
    tables = [
        {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for root in (one, other)
    ]
    return tables[0] == tables[1]


def test_a_store_is_never_taken_for_a_site(registry, desk):
    registry.create_release("stable", ["pirate@1.0.0"])
    blobs = list(registry.blobs.descriptors())
    with pytest.raises(Conflict, match="a store of blobs is there"):
        desk.publish(Directory(registry.home))
    assert list(registry.blobs.descriptors()) == blobs


class Remote(Directory):
    """A directory that others read."""

    remote = True


def test_development_keys_are_refused_for_a_remote_target_until_there_are_real_ones(registry, desk, tmp_path):
    registry.create_release("stable", ["pirate@1.0.0"])
    with pytest.raises(Conflict, match="development keys") as caught:
        desk.publish(Remote(tmp_path / "www"))
    assert "ptdock keys init" in caught.value.hint
    assert not (tmp_path / "www").exists()
    real_keys(desk, tmp_path)
    assert desk.publish(Remote(tmp_path / "www")).written


def test_root_keys_are_not_kept_in_the_home(registry, desk):
    with pytest.raises(InputError, match="inside the registry's home"):
        desk.init_keys(RootKeys(registry.home / "keys" / "root", WORD), {})
    assert len(desk.store.roots()) == 1


def test_new_keys_sign_the_site_at_once_and_devices_follow(shop, registry, desk, tmp_path):
    registry.create_release("stable", ["pirate@1.0.0"])
    assert shop.active() == 1
    signers = real_keys(desk, tmp_path, count=2, threshold=2)
    assert desk.publish(desk.here).written == ()
    desk.rotate(["timestamp", "light"], signers, {})
    desk.renew_root(signers)
    desk.rotate_root(RootKeys(tmp_path / "new safe", WORD), signers)
    registry.create_release("stable", ["json@1.0.0"])
    assert shop.active() == 2
    assert registry.root_version == 5
    assert [event.subject for event in registry.events() if event.action == "keys.change"] == [
        "root 5",
        "root 4",
        "root 3",
        "root 2",
    ]


def test_a_development_root_is_replaced_and_not_rotated(desk, tmp_path):
    with pytest.raises(Conflict, match="development keys") as caught:
        desk.rotate_root(RootKeys(tmp_path / "safe", WORD), desk.store.root_signers())
    assert "keys init" in caught.value.hint


def test_a_manifest_past_half_of_its_life_is_issued_again_with_the_same_arms(shop, registry, desk):
    registry.create_channel("beta")
    registry.create_release("stable", ["pirate@1.0.0"])
    assert desk.renew().channels == ()
    shop.clock.now += 16 * DAY
    registry.create_release("beta", ["json@1.0.0"])
    before = shop.manifest()
    done = desk.renew()
    after = shop.manifest()
    assert [channel.name for channel in done.channels] == ["stable"]
    assert (after.sequence, after.arms, after.salt) == (before.sequence + 1, before.arms, before.salt)
    assert after.expires == int(shop.clock.now) + 30 * DAY
    assert desk.expiries() == {"beta": after.expires, "stable": after.expires}
    assert registry.events(1)[0].action == "channel.refresh"
    assert desk.renew().changes.written == ()


def test_renewing_needs_no_root_key(shop, registry, desk, tmp_path):
    registry.create_release("stable", ["pirate@1.0.0"])
    real_keys(desk, tmp_path)
    shutil.rmtree(tmp_path / "safe")
    before = timestamp(registry.site)
    shop.clock.now += 20 * DAY
    assert "metadata/timestamp.json" in desk.renew().changes.written
    assert timestamp(registry.site) == before + 1


def backup(registry, tmp_path) -> Path:
    """A copy of the home without its site, as backups are."""
    return Path(shutil.copytree(registry.home, tmp_path / "backup", ignore=shutil.ignore_patterns("site")))


def restored(shop, copy: Path, site: Path):
    """The registry of a backup, in front of the site that outlived it."""
    shutil.copytree(site, copy / "site")
    return shop.again(copy)


def test_a_restored_backup_is_noticed_and_goes_past_what_is_published(shop, registry, tmp_path):
    registry.create_release("stable", ["pirate@1.0.0"])
    copy = backup(registry, tmp_path)
    for _ in range(3):
        registry.create_release("stable", ["json@1.0.0"])
    assert shop.active() == 4
    old = restored(shop, copy, registry.site)

    with pytest.raises(Conflict, match="sequence 4 is published, this store is at 1") as caught:
        old.refresh_site()
    assert "channel advance stable" in caught.value.hint
    (advanced,) = old.signed_site().advance((), old.signed_site().here)

    assert advanced.sequence == 5
    assert old.refresh_site().written == ()
    assert shop.active(site=old.site) == 1
    assert old.events(1)[0].after["published"] == 4
    assert old.signed_site().advance(["stable"], old.signed_site().here) == ()
    assert old.create_release("stable", ["json@1.0.0"]).release.number == 5  # 2 to 4 are other bytes to devices
    assert shop.active(site=old.site) == 5
    with pytest.raises(NotFound, match="no release 3"):
        old.release(3)
    assert old.verify().clean


def test_a_change_of_a_restored_backup_says_that_it_is_behind(shop, registry, tmp_path):
    copy = backup(registry, tmp_path)
    registry.create_release("stable", ["pirate@1.0.0"])
    old = restored(shop, copy, registry.site)
    with pytest.raises(Conflict, match="release 1 is recorded and offered, but the site was not written: stable"):
        old.create_release("stable", ["json@1.0.0"])
    old.signed_site().advance(["stable"], old.signed_site().here)
    assert shop.sync(site=old.site).channels[0].adapters == {"json": "1.0.0"}


def test_a_backup_behind_by_signatures_alone_goes_past_them(shop, registry, desk, tmp_path):
    registry.create_release("stable", ["pirate@1.0.0"])
    copy = backup(registry, tmp_path)
    shop.clock.now += 16 * DAY
    registry.create_channel("beta")
    registry.create_release("beta", ["json@1.0.0"])
    www = Directory(tmp_path / "www")
    desk.publish(www)
    old = shop.again(copy)
    with pytest.raises(Conflict, match="signed metadata"):
        old.signed_site().publish(www)
    assert old.signed_site().advance((), www) == ()
    old.signed_site().publish(www)
    assert timestamp(www.root) == 3


def test_a_backup_from_before_the_keys_were_changed_never_publishes(shop, registry, desk, tmp_path):
    registry.create_release("stable", ["pirate@1.0.0"])
    copy = backup(registry, tmp_path)
    real_keys(desk, tmp_path)
    old = restored(shop, copy, registry.site)
    with pytest.raises(Conflict, match="root 2 is published there") as caught:
        old.refresh_site()
    assert "keys/" in caught.value.hint


def test_another_registrys_site_is_neither_overwritten_nor_gone_past(registry, desk, stocked_home, tmp_path, pair):
    other = live(stocked_home, tmp_path / "other" / "home", pair)
    registry.create_release("stable", ["pirate@1.0.0"])
    with other.registry.database.write() as session:
        session.connection().exec_driver_sql("DROP TRIGGER IF EXISTS registry_refuse_update")
        session.connection().exec_driver_sql("UPDATE registry SET uuid = '00000000-0000-4000-8000-000000000000'")
    other.registry.create_release("stable", ["json@1.0.0"])
    with pytest.raises(Conflict, match="registry 00000000"):
        desk.publish(other.registry.signed_site().here)
    with pytest.raises(Conflict, match="belongs to registry 00000000"):
        desk.advance(["stable"], other.registry.signed_site().here)
    assert Manifest.from_bytes((other.registry.site / "targets/v1/stable.json").read_bytes()).sequence == 1


def test_a_killed_publish_leaves_a_site_that_devices_can_follow(shop, registry, desk, tmp_path):
    registry.create_release("stable", ["pirate@1.0.0"])
    www = Directory(tmp_path / "www")
    desk.publish(www)
    registry.create_release("stable", ["json@1.0.0"])
    for stop in range(0, 100, 3):
        steps = iter(range(stop))

        def crash(_step, steps=steps):
            if next(steps, None) is None:
                raise KeyboardInterrupt

        site = Directory(tmp_path / f"www-{stop}")
        shutil.copytree(www.root, site.root)
        try:
            with files.observed(crash):
                desk.publish(site)
        except KeyboardInterrupt:
            assert shop.active(f"phone-{stop}", site.root) in {1, 2}
        else:
            break
    assert stop > 10
    assert shop.active("last", site.root) == 2
