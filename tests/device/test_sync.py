"""A sync takes all of a set or nothing of it, and never anything that was not pinned."""

import json
import os
import shutil
import threading
from dataclasses import replace

import pytest

from device.collect import gc
from device.manage import describe, rollback, status
from device.source import DirectorySource, manifest_path
from device.store import DeviceStore
from device.sync import Options, sync
from registry import files
from registry.device_state import DeviceState
from registry.digest import Descriptor
from registry.errors import Conflict, FormatError, InputError, IntegrityError, NotFound, PtdockError, Unavailable
from registry.manifest import Arm
from registry.site import blob_path

NOW = 1_780_000_100
OPTIONS = Options(facts=DeviceState("phone-1"), clock=lambda: NOW)


def pull(site, phone, *channels, **options):
    return sync(DirectorySource(site.root), channels or ["stable"], phone, replace(OPTIONS, **options))


def active(phone, channel="stable"):
    return DeviceStore(phone).known_state().channels[channel].active


def running(phone, channel="stable"):
    """What is active, by content: adapter name to the bytes of its program."""
    store, current = DeviceStore(phone), active(phone, channel)
    return {entry.name: store.path(entry.file.digest).read_bytes() for entry in current.line.adapters}


def publish(site, number=1, channel="stable", foundation=b"foundation", **adapters):
    data = {name: text.encode() for name, text in adapters.items()}
    site.release(number, site.line(data, foundation=foundation))
    return site.offer(number, channel)


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)


def test_the_first_sync_fetches_everything_once_and_activates_it(site, phone):
    publish(site, pirate="arr", json="{}")
    result = pull(site, phone)
    assert result.channels[0].outcome == "activated"
    assert result.channels[0].adapters == {"pirate": "1.0.0", "json": "1.0.0"}
    assert result.poll_seconds == 14_400
    assert running(phone) == {"pirate": b"arr", "json": b"{}"}
    # The tokenizer and the adapter are both "{}": one blob.
    assert result.plan.bytes == len(b"foundation") + len(b"base program") + len(b"arr") + len(b"{}")


def test_syncing_again_fetches_nothing(site, phone):
    publish(site, pirate="arr")
    pull(site, phone)
    before = (phone / "state.json").read_bytes()
    result = pull(site, phone)
    assert (result.channels[0].outcome, result.fetched) == ("unchanged", 0)
    assert (phone / "state.json").read_bytes() == before


def test_a_further_adapter_costs_its_own_bytes_only(site, phone):
    publish(site, pirate="arr")
    pull(site, phone)
    publish(site, 2, pirate="arr", robot="beep boop")
    result = pull(site, phone)
    document = site.pins[2].file.size
    assert result.fetched == len(b"beep boop") + document
    assert running(phone) == {"pirate": b"arr", "robot": b"beep boop"}


def test_the_device_keeps_its_id_and_its_facts(site, phone):
    publish(site, pirate="arr")
    pull(site, phone, facts=DeviceState("phone-1", executorch="1.5.1", wants=("pirate",)))
    pull(site, phone, facts=None)
    state = DeviceStore(phone).known_state()
    assert (state.id, state.executorch, state.wants) == ("phone-1", "1.5.1", ("pirate",))


def test_a_new_device_invents_an_id_and_keeps_it_though_the_sync_fails(site, phone):
    with pytest.raises(NotFound):
        sync(DirectorySource(site.root.parent), ["stable"], phone)
    first = DeviceStore(phone).known_state().id
    publish(site, pirate="arr")
    sync(DirectorySource(site.root), ["stable"], phone, Options(clock=lambda: NOW))
    assert DeviceStore(phone).known_state().id == first


def test_only_wanted_adapters_are_fetched(site, phone):
    publish(site, pirate="arr", json="[]")
    pull(site, phone, facts=DeviceState("phone-1", wants=("json",)))
    assert running(phone) == {"json": b"[]"}
    assert Descriptor.of(b"arr").digest not in DeviceStore(phone).held()


@pytest.mark.parametrize("which", [b"foundation", b"base program", b"arr"])
def test_a_flipped_bit_at_the_source_leaves_the_last_good_set(site, phone, which):
    publish(site, pirate="old")
    pull(site, phone)
    publish(site, 2, foundation=b"Foundation" if which == b"foundation" else b"foundation", pirate="arr")
    target = b"Foundation" if which == b"foundation" else which
    gc(phone)
    DeviceStore(phone).remove(Descriptor.of(target).digest)
    flip(site.blob_file(target))
    with pytest.raises(IntegrityError, match="other bytes") as caught:
        pull(site, phone)
    assert caught.value.values["channels"][0]["outcome"] == "failed"
    assert active(phone).release == 1
    assert Descriptor.of(target).digest not in DeviceStore(phone).held()


def test_a_damaged_release_document_changes_nothing(site, phone):
    publish(site, pirate="old")
    pull(site, phone)
    publish(site, 2, pirate="new")
    flip(site.root / blob_path(site.pins[2].file.digest))
    with pytest.raises(IntegrityError):
        pull(site, phone)
    assert running(phone) == {"pirate": b"old"}


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff", b'{"schema":1', b'{"schema":99}'])
def test_a_manifest_that_is_none_changes_nothing(site, phone, content):
    publish(site, pirate="old")
    pull(site, phone)
    (site.root / manifest_path("stable")).write_bytes(content)
    with pytest.raises(FormatError):
        pull(site, phone)
    assert running(phone) == {"pirate": b"old"}


def test_an_older_manifest_is_refused_as_an_attack(site, phone):
    publish(site, 1, pirate="old")
    old = (site.root / manifest_path("stable")).read_bytes()
    publish(site, 2, pirate="new")
    pull(site, phone)
    (site.root / manifest_path("stable")).write_bytes(old)
    with pytest.raises(IntegrityError, match="older") as caught:
        pull(site, phone)
    assert caught.value.values["reason"] == "older"
    assert running(phone) == {"pirate": b"new"}


def test_an_older_manifest_is_refused_even_if_the_newer_one_could_not_be_completed(site, phone):
    publish(site, 1, pirate="old")
    old = (site.root / manifest_path("stable")).read_bytes()
    publish(site, 2, pirate="new")
    site.blob_file(b"new").unlink()
    with pytest.raises(NotFound):
        pull(site, phone)
    (site.root / manifest_path("stable")).write_bytes(old)
    with pytest.raises(IntegrityError, match="older"):
        pull(site, phone)


def test_a_manifest_of_another_registry_is_refused(site, phone):
    publish(site, pirate="old")
    pull(site, phone)
    site.release(2, site.line({"pirate": b"new"}))
    site.offer(2, registry="00000000-0000-0000-0000-000000000000")
    with pytest.raises(IntegrityError, match="registry"):
        pull(site, phone)
    assert running(phone) == {"pirate": b"old"}


def test_a_manifest_of_another_channel_is_refused(site, phone):
    publish(site, pirate="old", channel="beta")
    (site.root / manifest_path("stable")).write_bytes((site.root / manifest_path("beta")).read_bytes())
    with pytest.raises(IntegrityError, match="answers channel beta for stable"):
        pull(site, phone)


def test_an_expired_manifest_stops_changes_and_not_the_running_set(site, phone):
    publish(site, pirate="old")
    pull(site, phone)
    publish(site, 2, pirate="new")
    with pytest.raises(Unavailable, match="expired"):
        pull(site, phone, clock=lambda: NOW + 365 * 86_400)
    assert running(phone) == {"pirate": b"old"}
    pull(site, phone)
    assert running(phone) == {"pirate": b"new"}


def test_a_clock_that_is_a_year_behind_does_not_matter(site, phone):
    publish(site, pirate="old")
    pull(site, phone, clock=lambda: NOW - 365 * 86_400)
    assert running(phone) == {"pirate": b"old"}


def test_an_unknown_channel_is_not_found(site, phone):
    publish(site, pirate="old")
    with pytest.raises(NotFound, match="other"):
        pull(site, phone, "other")


@pytest.mark.parametrize("name", ["../stable", "a/b", "", "Stable", "stable.", "/etc/passwd"])
def test_a_channel_that_is_a_path_is_refused(site, phone, name):
    publish(site, pirate="old")
    with pytest.raises(InputError):
        pull(site, phone, name)


def test_no_channel_is_no_sync(site, phone):
    publish(site, pirate="old")
    with pytest.raises(InputError, match="no channel"):
        sync(DirectorySource(site.root), [], phone)


def test_one_channels_failure_does_not_hold_up_another(site, phone):
    publish(site, 1, channel="beta", pirate="beta")
    publish(site, 2, channel="stable", pirate="stable")
    site.blob_file(b"beta").unlink()
    with pytest.raises(NotFound):
        pull(site, phone, "beta", "stable")
    assert running(phone) == {"pirate": b"stable"}
    assert DeviceStore(phone).known_state().channels["beta"].active is None


def test_channels_share_their_foundation(site, phone):
    publish(site, 1, channel="beta", pirate="beta")
    publish(site, 2, channel="stable", pirate="stable")
    result = pull(site, phone, "beta", "stable")
    assert [each.file for each in result.plan.download].count(Descriptor.of(b"foundation")) == 1
    assert running(phone, "beta") == {"pirate": b"beta"}
    assert running(phone, "stable") == {"pirate": b"stable"}


def test_syncing_one_channel_leaves_the_other_ones_files(site, phone):
    publish(site, 1, channel="beta", pirate="beta")
    publish(site, 2, channel="stable", pirate="stable")
    pull(site, phone, "beta", "stable")
    publish(site, 3, channel="stable", foundation=b"Foundation", pirate="newer")
    pull(site, phone, "stable")
    publish(site, 4, channel="stable", foundation=b"Foundation", pirate="newest")
    pull(site, phone, "stable")
    assert running(phone, "beta") == {"pirate": b"beta"}
    assert status(phone, verify=True).damage == ()


@pytest.mark.parametrize("damage", ["truncate", "flip", "delete"])
def test_damage_on_the_device_is_found_and_mended(site, phone, damage):
    publish(site, pirate="arr")
    pull(site, phone)
    path = DeviceStore(phone).path(Descriptor.of(b"foundation").digest)
    if damage == "flip":
        flip(path)
    elif damage == "truncate":
        path.chmod(0o644)
        path.write_bytes(b"found")
    else:
        path.unlink()
    ((what, found),) = status(phone, verify=True).damage
    assert what == "the foundation"
    assert found.expected == Descriptor.of(b"foundation")
    result = pull(site, phone)
    assert (result.channels[0].outcome, result.fetched) == ("repaired", len(b"foundation"))
    assert path.read_bytes() == b"foundation"
    assert status(phone, verify=True).damage == ()


def test_a_revoked_build_leaves_at_once_though_the_next_set_cannot_be_fetched(site, phone):
    publish(site, 1, pirate="bad", json="[]")
    pull(site, phone)
    site.release(2, site.line({"pirate": b"good", "json": b"[]"}))
    site.offer(2, revoked=(Descriptor.of(b"bad").digest,))
    site.blob_file(b"good").unlink()
    with pytest.raises(NotFound):
        pull(site, phone)
    assert running(phone) == {"json": b"[]"}


def test_a_revoked_build_does_not_come_back_by_a_rollback(site, phone):
    publish(site, 1, pirate="bad", json="[]")
    pull(site, phone)
    site.release(2, site.line({"pirate": b"good", "json": b"[]"}))
    site.offer(2, revoked=(Descriptor.of(b"bad").digest,))
    pull(site, phone)
    assert running(phone) == {"pirate": b"good", "json": b"[]"}
    rollback(phone)
    assert running(phone) == {"json": b"[]"}


def test_a_rollback_activates_the_set_before_and_the_next_sync_does_not_undo_it(site, phone):
    publish(site, 1, pirate="old")
    pull(site, phone)
    publish(site, 2, pirate="new")
    pull(site, phone)
    assert rollback(phone).release == 1
    assert running(phone) == {"pirate": b"old"}
    result = pull(site, phone)
    assert result.channels[0].outcome == "unchanged"
    assert "went-back" in [reason.code for reason in result.plan.reasons]
    assert running(phone) == {"pirate": b"old"}
    publish(site, 3, pirate="newest")
    pull(site, phone)
    assert running(phone) == {"pirate": b"newest"}


def test_there_is_nothing_to_roll_back_to_after_the_first_sync(site, phone):
    publish(site, pirate="old")
    pull(site, phone)
    with pytest.raises(Conflict, match="no earlier set"):
        rollback(phone)


def test_a_rollback_onto_damaged_files_changes_nothing(site, phone):
    publish(site, 1, pirate="old")
    pull(site, phone)
    publish(site, 2, pirate="new")
    pull(site, phone)
    flip(DeviceStore(phone).path(Descriptor.of(b"old").digest))
    with pytest.raises(IntegrityError, match=r"adapter pirate@1\.0\.0"):
        rollback(phone)
    assert running(phone) == {"pirate": b"new"}


def test_a_rollback_names_its_channel_where_several_are_followed(site, phone):
    publish(site, 1, channel="beta", pirate="beta")
    publish(site, 2, channel="stable", pirate="stable")
    pull(site, phone, "beta", "stable")
    with pytest.raises(InputError, match="which channel") as caught:
        rollback(phone)
    assert "beta, stable" in caught.value.hint
    with pytest.raises(NotFound):
        rollback(phone, "gamma")


def test_only_the_active_and_the_previous_set_stay_on_the_disk(site, phone):
    for number, text in enumerate(["one", "two", "three"], start=1):
        publish(site, number, pirate=text)
        pull(site, phone)
    held = DeviceStore(phone).held()
    assert Descriptor.of(b"one").digest not in held
    assert {Descriptor.of(b"two").digest, Descriptor.of(b"three").digest} <= set(held)


def test_collecting_leaves_what_is_active_and_takes_the_rest(site, phone):
    publish(site, pirate="arr")
    pull(site, phone)
    store = DeviceStore(phone)
    stray = Descriptor.of(b"stray")
    store.path(stray.digest).write_bytes(b"stray")
    store.partial(stray.digest).write_bytes(b"st")
    assert gc(phone) == {stray.digest: 7}
    assert status(phone, verify=True).damage == ()
    assert gc(phone) == {}


def test_collecting_takes_what_an_old_crash_left_and_not_what_is_being_written(site, phone):
    publish(site, pirate="arr")
    pull(site, phone)
    old, new = phone / ("0" * 32), phone / ("1" * 32)
    old.touch()
    new.touch()
    os.utime(old, (NOW - 7200, 1))
    gc(phone)
    assert not old.exists()
    assert new.exists()


def test_a_switch_that_the_disk_cannot_hold_is_refused_with_the_figures(site, phone):
    publish(site, 1, pirate="a" * 1000)
    pull(site, phone)
    publish(site, 2, foundation=b"F" * 5000, pirate="b" * 1000)
    small = DeviceState("phone-1", quota=7000)
    with pytest.raises(Unavailable, match=r"needs \d+ bytes") as caught:
        pull(site, phone, facts=small)
    assert caught.value.values["reason"] == "no-room"
    assert running(phone) == {"pirate": b"a" * 1000}


def test_deleting_first_makes_room_when_it_is_asked_for(site, phone):
    publish(site, 1, foundation=b"f" * 5000, pirate="a" * 1000)
    pull(site, phone)
    publish(site, 2, foundation=b"F" * 5000, pirate="b" * 1000)
    result = pull(site, phone, facts=DeviceState("phone-1", quota=7000), delete_first=True)
    assert result.plan.order == "delete-first"
    assert running(phone) == {"pirate": b"b" * 1000}
    assert Descriptor.of(b"f" * 5000).digest not in DeviceStore(phone).held()
    assert DeviceStore(phone).known_state().channels["stable"].previous is None


def test_a_runtime_that_is_too_old_is_told_so(site, phone):
    publish(site, pirate="arr")
    with pytest.raises(Unavailable, match="meets no line"):
        pull(site, phone, facts=DeviceState("phone-1", executorch="1.2.0"))


def test_an_arm_that_keeps_what_you_have_changes_nothing(site, phone):
    publish(site, 1, pirate="old")
    pull(site, phone)
    site.offer(1, arms=(Arm(None, 10_000),))
    assert pull(site, phone).channels[0].outcome == "unchanged"
    assert running(phone) == {"pirate": b"old"}


def test_two_syncs_at_once_take_turns(site, phone):
    publish(site, pirate="arr" * 1_000_000)
    results, waits = [], []

    def one():
        results.append(pull(site, phone, note=waits.append))

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result.channels[0].outcome for result in results) == ["activated", "unchanged"]
    assert status(phone, verify=True).damage == ()


def test_a_damaged_pointer_is_told_and_mended_by_deleting_it(site, phone):
    publish(site, pirate="arr")
    pull(site, phone)
    pointer = phone / "state.json"
    pointer.chmod(0o644)
    pointer.write_bytes(pointer.read_bytes()[:-10])
    with pytest.raises(IntegrityError, match=r"state\.json is damaged"):
        pull(site, phone)
    pointer.unlink()
    assert pull(site, phone).fetched == 0
    assert running(phone) == {"pirate": b"arr"}


def test_a_device_directory_that_is_a_file_is_refused(site, phone):
    publish(site, pirate="arr")
    phone.write_text("no directory")
    with pytest.raises(InputError, match="is a file"):
        pull(site, phone)
    with pytest.raises(NotFound, match="not a device directory"):
        status(phone)


def test_what_a_device_says_of_itself_can_be_planned_from(site, phone):
    publish(site, pirate="arr")
    pull(site, phone)
    document = describe(phone)
    assert DeviceState.from_bytes(document.to_bytes()) == document
    assert Descriptor.of(b"foundation") in document.holds


def test_status_is_json(site, phone):
    publish(site, pirate="arr")
    pull(site, phone)
    flip(DeviceStore(phone).path(Descriptor.of(b"arr").digest))
    answer = json.loads(json.dumps(status(phone, verify=True).to_json()))
    assert answer["channels"]["stable"]["active"]["release"] == 1
    assert answer["damage"][0]["what"] == "adapter pirate@1.0.0"
    assert answer["damage"][0]["digest"] == str(Descriptor.of(b"arr").digest)


@pytest.mark.parametrize("spoil", ["digest", "not-found", "format"])
def test_a_failure_has_a_code_for_programs(site, phone, spoil):
    publish(site, pirate="arr")
    if spoil == "digest":
        flip(site.blob_file(b"arr"))
    elif spoil == "not-found":
        site.blob_file(b"arr").unlink()
    else:
        (site.root / manifest_path("stable")).write_bytes(b"{}")
    with pytest.raises(PtdockError) as caught:
        pull(site, phone)
    (channel,) = caught.value.values["channels"]
    assert (channel["outcome"], channel["code"]) == ("failed", spoil)


def test_a_download_that_nobody_wants_any_more_is_dropped(site, phone):
    publish(site, pirate="arr")
    store = DeviceStore.create(phone)
    store.partial(Descriptor.of(b"another").digest).write_bytes(b"ano")
    pull(site, phone)
    assert store.unfinished() == {}


def test_progress_ends_at_the_total(site, phone):
    publish(site, pirate="arr" * 100_000)
    heard = []
    pull(site, phone, progress=lambda done, total: heard.append((done, total)))
    assert heard[-1][0] == heard[-1][1] == len(b"foundation") + len(b"base program") + 300_000 + len(b"{}")


def test_a_crash_at_any_step_leaves_the_old_set_or_the_new_one_whole(site, phone, tmp_path, power_cut):
    publish(site, 1, pirate="old", json="[]")
    pull(site, phone)
    publish(site, 2, pirate="new", json="[]", foundation=b"Foundation")
    seen = []
    rehearsal = tmp_path / "rehearsal"
    shutil.copytree(phone, rehearsal)
    with files.observed(seen.append):
        pull(site, rehearsal)
    assert len(seen) > 20
    for last in range(len(seen)):
        crashed = tmp_path / f"crash-{last}"
        shutil.copytree(phone, crashed)
        with files.observed(power_cut(last)), pytest.raises(KeyboardInterrupt):
            pull(site, crashed)
        assert running(crashed) in ({"pirate": b"old", "json": b"[]"}, {"pirate": b"new", "json": b"[]"})
        assert status(crashed, verify=True).damage == ()
        pull(site, crashed)
        assert running(crashed) == {"pirate": b"new", "json": b"[]"}
