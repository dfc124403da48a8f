"""Plans: pure, deterministic, explained; never more than the disk holds, never a set that is not whole."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from registry.device_state import App, ChannelState, DeviceState
from registry.digest import Descriptor, Digest
from registry.errors import FormatError, InputError, NotFound
from registry.manifest import Arm, Manifest, ReleasePin
from registry.plan import pins, plan
from registry.release import AdapterEntry, Factors, FoundationEntry, Line, ReleaseDocument, Requires, Tokenizer

NOW = 1_780_000_000
UUID = "123e4567-e89b-42d3-a456-426614174000"
REQUIRES = Requires((1, 5), (1, 6), ("XnnpackBackend",), ("llama::custom_sdpa",))
PHONE = DeviceState("phone-1", "1.5.1", backends=("XnnpackBackend",))


def pin(text, size):
    return Descriptor(Digest.of(text.encode()), size)


def adapter(name, version="1.0.0", size=20, **fields):
    return AdapterEntry(name, version, pin(f"{name}@{version}", size), **fields)


def line(foundation="f1", size=1000, adapters=(), requires=REQUIRES, **fields):
    return Line(
        FoundationEntry(pin(foundation, size)), pin(f"{foundation} base", 10), requires, tuple(adapters), **fields
    )


def factors(name, size=5, template="r8"):
    return Factors(pin(f"{name} factors", size), pin(f"{template} template", 4), pin(f"{template} table", 1))


def document(number, *lines, holes=False):
    return ReleaseDocument(number, lines, holes=holes)


def descriptor(release):
    return Descriptor.of(release.to_bytes())


def manifest(*releases, channel="stable", arms=None, sequence=1, **fields):
    """A manifest that offers the first of these releases to everyone, unless `arms` says otherwise."""
    values = {
        "registry": UUID,
        "channel": channel,
        "sequence": sequence,
        "issued": NOW - 100,
        "expires": NOW + 1000,
        "poll_seconds": 60,
        "salt": "0" * 32,
        "arms": arms or (Arm(releases[0].release, 10_000),),
        "releases": tuple(ReleasePin(each.release, descriptor(each)) for each in releases),
    }
    return Manifest(**values | fields)


def known(*releases):
    return {descriptor(each).digest: each for each in releases}


def planned(device, *releases, now=NOW, root=0, delete_first=False, **fields):
    manifests = [manifest(*releases, **fields)]
    return plan(manifests, known(*releases), device, now=now, root=root, delete_first=delete_first)


def synced(device, answer, manifests):
    """The device after it did what a plan says: its free disk changes by what came and went."""
    held = set(device.holds) - set(answer.delete) | {each.file for each in answer.download}
    change = sum(each.size for each in held) - sum(each.size for each in device.holds)
    channels = dict(device.channels)
    for each in manifests:
        before = channels.get(each.channel)
        old = before or ChannelState(each.registry, 0, each.sequence, each.issued)
        channels[each.channel] = replace(old, sequence=each.sequence, issued=each.issued)
    for switch in answer.activate:
        old = channels[switch.channel]
        channels[switch.channel] = replace(old, active=switch.set, previous=old.active)
    free = None if device.free_disk is None else device.free_disk - change
    return replace(device, holds=tuple(sorted(held, key=str)), free_disk=free, channels=channels)


def after_sync(device, *releases, **fields):
    manifests = [manifest(*releases, **fields)]
    return synced(device, plan(manifests, known(*releases), device, now=NOW), manifests)


def names(answer):
    return [(each.kind, each.adapter) for each in answer.download]


def codes(answer, level=None):
    return [reason.code for reason in answer.reasons if level in {None, reason.level}]


def running(device, channel="stable"):
    return {entry.name: entry.version for entry in device.channels[channel].active.line.adapters}


PIRATE, JSON = adapter("pirate", size=20), adapter("json", size=30)
FIRST = document(1, line(adapters=[PIRATE, JSON], tokenizer=Tokenizer("hf-json", pin("tokenizer", 3))))


# What a device fetches, and in which order


def test_a_fresh_device_fetches_the_foundation_and_base_first_and_then_adapter_by_adapter():
    answer = planned(PHONE, FIRST)
    assert names(answer) == [
        ("foundation", None),
        ("base", None),
        ("tokenizer", None),
        ("adapter", "pirate"),
        ("adapter", "json"),
    ]
    assert (answer.bytes, answer.peak_disk, answer.order) == (1063, 1063, "beside")
    assert [each.set.line for each in answer.activate] == [FIRST.lines[0]]
    assert (answer.keep, answer.delete, answer.deactivate, answer.refused) == ((), (), (), ())


def test_a_device_that_has_the_foundation_fetches_the_adapter_alone_with_exact_bytes():
    phone = after_sync(PHONE, document(1, line(adapters=[JSON])))
    answer = planned(phone, document(2, line(adapters=[JSON, PIRATE])), sequence=2)
    assert names(answer) == [("adapter", "pirate")]
    assert answer.bytes == 20
    assert set(answer.keep) == set(phone.holds)


def test_a_device_that_is_up_to_date_does_nothing_and_says_so():
    phone = after_sync(PHONE, FIRST)
    answer = planned(phone, FIRST)
    assert (answer.download, answer.activate, answer.deactivate, answer.delete, answer.bytes) == ((), (), (), (), 0)
    assert set(answer.keep) == set(phone.holds)
    assert codes(answer) == ["arm", "up-to-date"]


def test_a_lost_file_of_the_running_set_is_fetched_again_without_a_switch():
    phone = after_sync(PHONE, FIRST)
    phone = replace(phone, holds=tuple(each for each in phone.holds if each != PIRATE.file))
    answer = planned(phone, FIRST)
    assert names(answer) == [("adapter", "pirate")]
    assert answer.activate == ()
    assert codes(answer, "warning") == ["repair"]


def test_the_parts_of_an_adapter_come_beside_it_and_shared_ones_once():
    chat = pin("chat", 2)
    both = [replace(each, prompt=chat, self_test=pin(f"{each.name} test", 1)) for each in (PIRATE, JSON)]
    answer = planned(PHONE, document(1, line(adapters=both, prompt=pin("plain chat", 2))))
    assert names(answer) == [
        ("foundation", None),
        ("base", None),
        ("prompt", None),
        ("adapter", "pirate"),
        ("prompt", "pirate"),
        ("self-test", "pirate"),
        ("adapter", "json"),
        ("self-test", "json"),
    ]


def test_a_device_that_wants_some_adapters_gets_those_and_hears_which_are_not_offered():
    answer = planned(replace(PHONE, wants=("json", "robot")), FIRST)
    assert [each.adapter for each in answer.download if each.adapter] == ["json"]
    assert [entry.name for entry in answer.activate[0].set.line.adapters] == ["json"]
    assert "robot" in next(each.text for each in answer.reasons if each.code == "not-offered")


def test_an_on_demand_adapter_comes_when_it_is_asked_for_and_is_then_updated_like_others():
    lazy = replace(PIRATE, delivery="on-demand")
    release = document(1, line(adapters=[lazy, JSON]))
    phone = after_sync(PHONE, release)
    assert running(phone) == {"json": "1.0.0"}
    assert "on-demand" in codes(planned(phone, release))
    phone = after_sync(replace(phone, on_demand=("pirate",)), release)
    assert running(phone) == {"pirate": "1.0.0", "json": "1.0.0"}
    newer = document(2, line(adapters=[adapter("pirate", "1.1.0", delivery="on-demand"), JSON]))
    assert running(after_sync(replace(phone, on_demand=()), newer, sequence=2)) == {"pirate": "1.1.0", "json": "1.0.0"}


def test_the_plan_does_not_depend_on_the_order_of_what_is_held_or_known():
    phone = after_sync(PHONE, FIRST)
    newer = document(2, line(adapters=[adapter("pirate", "1.1.0"), JSON]))
    expected = planned(phone, newer, FIRST, sequence=2).to_json()
    shuffled = list(phone.holds)
    random.Random(1).shuffle(shuffled)  # noqa: S311 - not a secret
    again = planned(replace(phone, holds=tuple(shuffled)), newer, FIRST, sequence=2).to_json()
    for part in ("keep", "delete"):
        assert sorted(map(str, again.pop(part))) == sorted(map(str, expected.pop(part)))
    assert again == expected


# Adapters as factors


def test_a_device_that_asks_for_factors_fetches_template_and_table_once():
    entries = [adapter(name, size=20, factors=factors(name)) for name in ("a", "b")]
    release = document(1, line(adapters=entries))
    answer = planned(replace(PHONE, encodings=("factors",)), release)
    assert names(answer)[2:] == [("template", "a"), ("table", "a"), ("factors", "a"), ("factors", "b")]
    assert answer.bytes == 1010 + 4 + 1 + 5 + 5
    assert answer.peak_disk == answer.bytes + 20  # room to write one program at a time
    assert planned(PHONE, release).bytes == 1010 + 40


def test_factors_are_left_where_the_program_weighs_less():
    release = document(1, line(adapters=[adapter("a", size=9, factors=factors("a"))]))
    assert names(planned(replace(PHONE, encodings=("factors",)), release))[2:] == [("adapter", "a")]


def test_programs_written_from_factors_are_kept_while_there_is_room_and_give_way_when_not():
    entries = [adapter(name, size=20, factors=factors(name)) for name in ("a", "b", "c")]
    phone = after_sync(replace(PHONE, encodings=("factors",)), document(1, line(adapters=entries)))
    assert planned(phone, document(1, line(adapters=entries))).download == ()
    phone = replace(phone, holds=(*phone.holds, *(entry.file for entry in entries)))
    newer = document(2, line(adapters=[*entries, adapter("d", size=30)]))
    roomy = planned(phone, newer, sequence=2)
    assert (roomy.order, roomy.delete) == ("beside", ())
    tight = planned(replace(phone, free_disk=1), newer, sequence=2)
    assert (tight.order, names(tight)) == ("room-first", [("adapter", "d")])
    assert len(tight.delete) == 2
    assert set(tight.delete) < {entry.file for entry in entries}


def test_a_program_that_is_held_stays_a_program():
    entry = adapter("a", size=20, factors=factors("a"))
    phone = after_sync(PHONE, document(1, line(adapters=[entry])))
    answer = planned(replace(phone, encodings=("factors",)), document(1, line(adapters=[entry])))
    assert (answer.download, answer.delete) == ((), ())


# Requirements


@pytest.mark.parametrize(
    ("device", "code"),
    [
        (replace(PHONE, executorch="1.4.9"), "runtime-too-old"),
        (replace(PHONE, backends=("CoreML",)), "backend-missing"),
        (replace(PHONE, operators=("aten::add.out",)), "operator-missing"),
        (replace(PHONE, ram_bytes=99), "ram"),
        (replace(PHONE, app=App("android", 511)), "app-build"),
    ],
)
def test_a_requirement_that_is_not_met_refuses_the_line_before_any_download(device, code):
    requires = replace(REQUIRES, ram_bytes=100, app={"android": 512})
    answer = planned(device, document(1, line(adapters=[PIRATE], requires=requires)))
    assert (answer.download, answer.activate) == ((), ())
    assert codes(answer) == ["arm", code, "no-line"]
    assert [each.code for each in answer.refused] == ["no-line"]


@pytest.mark.parametrize(
    "device",
    [
        DeviceState("unknown in every respect"),
        replace(PHONE, operators=("llama::custom_sdpa",), ram_bytes=100, app=App("android", 512)),
        replace(PHONE, app=App("ios", 1)),
        replace(PHONE, executorch="1.6.0"),
    ],
)
def test_a_device_that_meets_or_does_not_state_a_requirement_is_offered_the_line(device):
    requires = replace(REQUIRES, ram_bytes=100, app={"android": 512})
    answer = planned(device, document(1, line(adapters=[PIRATE], requires=requires)))
    assert len(answer.activate) == 1
    assert codes(answer, "warning") == []


def test_a_runtime_beyond_the_guarantee_is_offered_with_a_warning():
    answer = planned(replace(PHONE, executorch="1.8.0"), FIRST)
    assert len(answer.activate) == 1
    assert codes(answer, "warning") == ["beyond-guarantee"]
    assert "guaranteed up to 1.6, the app has 1.8.0" in next(
        each.text for each in answer.reasons if each.level == "warning"
    )


def test_the_first_line_whose_requirements_are_met_is_taken():
    first = line("big", adapters=[PIRATE], requires=replace(REQUIRES, minimum=(1, 6)))
    release = document(1, first, line("small", adapters=[PIRATE]))
    assert planned(PHONE, release).activate[0].set.line == release.lines[1]
    assert planned(replace(PHONE, executorch="1.6.0"), release).activate[0].set.line == first


# Disk


def test_a_quota_below_the_peak_of_the_switch_refuses_before_any_download_and_offers_deletion():
    phone = after_sync(replace(PHONE, quota=2000), document(1, line("f1", adapters=[PIRATE])))
    newer = document(2, line("f2", adapters=[PIRATE]))
    answer = planned(phone, newer, sequence=2)
    assert (answer.download, answer.activate, answer.delete, answer.bytes) == ((), (), (), 0)
    assert codes(answer) == ["arm", "no-room", "delete-first-fits"]
    assert "needs 2040 bytes at the peak of the switch, there is room for 2000" in answer.refused[0].text
    assert "1030 bytes at the peak" in answer.reasons[-1].text


def test_the_delete_first_order_is_taken_only_when_it_is_asked_for():
    phone = after_sync(replace(PHONE, quota=2000), document(1, line("f1", adapters=[PIRATE])))
    newer = document(2, line("f2", adapters=[PIRATE]))
    answer = planned(phone, newer, sequence=2, delete_first=True)
    assert (answer.order, answer.bytes, answer.peak_disk) == ("delete-first", 1010, 1030)
    assert {each.size for each in answer.delete} == {1000, 10}
    assert answer.activate[0].set.line == newer.lines[0]


def test_no_deletion_is_offered_when_even_that_would_not_fit():
    answer = planned(replace(PHONE, free_disk=1000), FIRST)
    assert codes(answer) == ["arm", "no-room"]
    assert answer.download == ()


def test_what_no_active_set_needs_gives_way_to_a_switch_that_needs_the_room():
    phone = after_sync(replace(PHONE, free_disk=1100), document(1, line(adapters=[PIRATE])))
    junk = pin("left over", 60)
    phone = replace(phone, holds=(*phone.holds, junk), free_disk=10)
    answer = planned(phone, document(2, line(adapters=[PIRATE, JSON])), sequence=2)
    assert (answer.order, answer.delete) == ("room-first", (junk,))
    assert (names(answer), answer.peak_disk) == ([("adapter", "json")], 1060)


def test_what_is_left_over_goes_after_the_switch_when_there_is_room():
    junk = pin("left over", 60)
    answer = planned(replace(PHONE, holds=(junk,)), FIRST)
    assert (answer.order, answer.delete, answer.peak_disk) == ("beside", (junk,), 1123)


def test_a_device_without_room_for_the_first_line_takes_the_next_and_moves_up_when_room_comes():
    release = document(1, line("big", 1000, [PIRATE]), line("small", 100, [PIRATE]))
    phone = after_sync(replace(PHONE, free_disk=500), release)
    assert phone.channels["stable"].active.line == release.lines[1]
    roomy = replace(phone, free_disk=2000)
    assert planned(roomy, release).activate[0].set.line == release.lines[0]


def test_a_device_stays_on_its_line_when_a_better_one_does_not_fit_beside_it():
    small = line("small", 600, [PIRATE])
    phone = after_sync(replace(PHONE, free_disk=1100), document(1, small))
    release = document(2, line("big", 1000, [PIRATE, JSON]), line("small", 600, [PIRATE, JSON]))
    answer = planned(phone, release, sequence=2)
    assert answer.activate[0].set.line == release.lines[1]
    assert "stays-on-line" in codes(answer)
    forced = planned(phone, release, sequence=2, delete_first=True)
    assert forced.activate[0].set.line == release.lines[0]


def test_free_space_never_makes_a_device_leave_a_better_line_for_a_smaller_one():
    lines = [line("big", 1000, [PIRATE]), line("small", 100, [PIRATE])]
    phone = replace(after_sync(replace(PHONE, free_disk=1100), document(1, *lines)), free_disk=5)
    newer = [line("big", 1000, [adapter("pirate", "1.1.0")]), line("small", 100, [adapter("pirate", "1.1.0")])]
    answer = planned(phone, document(2, *newer), sequence=2)
    assert codes(answer, "refused") == ["no-room"]
    assert answer.download == ()


# Rollout, expiry, downgrade


def test_a_device_whose_arm_offers_nothing_keeps_what_it_has():
    phone = after_sync(PHONE, FIRST)
    answer = planned(phone, FIRST, arms=(Arm(None, 10_000),))
    assert (answer.download, answer.activate, answer.delete) == ((), (), ())
    assert set(answer.keep) == set(phone.holds)


def test_a_halted_release_is_kept_by_its_runners_and_not_taken_by_others():
    newer = document(2, line(adapters=[adapter("pirate", "1.1.0")]))
    arms = (Arm(2, 5000, "halted"), Arm(1, 5000))
    phone = PHONE  # in bucket 3135 under this salt
    assert pins([manifest(newer, FIRST, arms=arms)], phone) == (descriptor(FIRST),)
    runner = after_sync(phone, newer)
    assert pins([manifest(newer, FIRST, arms=arms, sequence=2)], runner) == (descriptor(newer),)


def test_an_expired_manifest_changes_nothing_and_keeps_the_running_set():
    phone = after_sync(PHONE, FIRST)
    newer = document(2, line(adapters=[PIRATE]))
    answer = planned(phone, newer, sequence=2, now=NOW + 1001, revoked=(PIRATE.file.digest,))
    assert codes(answer) == ["expired"]
    assert (answer.download, answer.activate, answer.deactivate, answer.delete) == ((), (), (), ())
    assert len(planned(phone, newer, sequence=2, now=NOW + 1000).activate) == 1


def test_the_clock_is_never_taken_to_be_before_what_a_verified_manifest_stated():
    phone = after_sync(PHONE, FIRST)
    state = replace(phone.channels["stable"], issued=NOW + 2000)
    answer = planned(replace(phone, channels={"stable": state}), FIRST, sequence=2, now=0)
    assert codes(answer) == ["expired"]


@pytest.mark.parametrize(
    ("seen", "given", "taken"),
    [((0, 5), (0, 4), False), ((0, 5), (0, 5), True), ((1, 5), (2, 1), True), ((2, 1), (1, 99), False)],
)
def test_a_manifest_is_older_by_root_first_and_then_by_sequence(seen, given, taken):
    phone = replace(PHONE, channels={"stable": ChannelState(UUID, *seen, NOW - 100)})
    answer = planned(phone, FIRST, root=given[0], sequence=given[1])
    assert bool(answer.activate) is taken
    assert ("older" in codes(answer, "refused")) is not taken


def test_another_registry_s_manifest_is_refused():
    phone = after_sync(PHONE, FIRST)
    other = "00000000-0000-4000-8000-000000000000"
    assert codes(planned(phone, FIRST, registry=other), "refused") == ["another-registry"]


def test_a_release_that_the_device_went_back_from_is_not_taken_again():
    phone = after_sync(PHONE, FIRST)
    newer = document(2, line(adapters=[PIRATE]))
    state = replace(phone.channels["stable"], refused=(descriptor(newer).digest,))
    answer = planned(replace(phone, channels={"stable": state}), newer, sequence=2)
    assert (codes(answer), answer.activate) == (["arm", "went-back"], ())


# Revocation


def test_a_revoked_build_is_deactivated_and_the_base_program_answers_where_nothing_came_before():
    phone = after_sync(PHONE, FIRST)
    answer = planned(phone, FIRST, sequence=2, revoked=(PIRATE.file.digest,))
    assert [(each.adapter, each.why) for each in answer.deactivate] == [("pirate", "revoked")]
    assert [entry.name for entry in answer.activate[0].set.line.adapters] == ["json"]
    assert answer.download == ()


def test_a_revoked_build_falls_back_to_the_version_that_ran_before_it():
    newer = document(2, line(adapters=[adapter("pirate", "1.1.0"), JSON]))
    phone = after_sync(after_sync(PHONE, FIRST), newer, sequence=2)
    revoked = (newer.lines[0].adapters[0].file.digest,)
    fallen = after_sync(phone, newer, sequence=3, revoked=revoked)
    assert running(fallen) == {"pirate": "1.0.0", "json": "1.0.0"}
    assert codes(planned(fallen, newer, sequence=3, revoked=revoked))[-1] == "up-to-date"


def test_a_revoked_build_never_falls_back_to_one_of_another_foundation():
    newer = document(2, line("f2", adapters=[adapter("pirate", "1.1.0"), JSON]))
    phone = after_sync(after_sync(PHONE, FIRST), newer, sequence=2)
    fallen = after_sync(phone, newer, sequence=3, revoked=(newer.lines[0].adapters[0].file.digest,))
    assert running(fallen) == {"json": "1.0.0"}


def test_a_release_that_brings_a_revoked_build_leaves_the_running_version_in_place():
    phone = after_sync(PHONE, FIRST)
    newer = document(2, line(adapters=[adapter("pirate", "1.1.0"), JSON, adapter("robot")]))
    revoked = (newer.lines[0].adapters[0].file.digest,)
    answer = planned(phone, newer, sequence=2, revoked=revoked)
    assert names(answer) == [("adapter", "robot")]
    assert {entry.name: entry.version for entry in answer.activate[0].set.line.adapters} == {
        "pirate": "1.0.0",
        "json": "1.0.0",
        "robot": "1.0.0",
    }


def test_a_revoked_build_is_never_offered_to_a_fresh_device_even_by_another_channel():
    releases = {**known(FIRST)}
    manifests = [manifest(FIRST), manifest(FIRST, channel="beta", revoked=(PIRATE.file.digest,))]
    answer = plan(manifests, releases, PHONE, now=NOW)
    assert [each.adapter for each in answer.download if each.adapter] == ["json"]
    assert all([entry.name for entry in each.set.line.adapters] == ["json"] for each in answer.activate)


def test_a_device_that_keeps_what_it_has_still_drops_what_is_revoked():
    phone = after_sync(PHONE, FIRST)
    answer = planned(phone, FIRST, sequence=2, arms=(Arm(None, 10_000),), revoked=(JSON.file.digest,))
    assert [(each.adapter, each.why) for each in answer.deactivate] == [("json", "revoked")]
    assert answer.activate[0].set.release == 1


# Several channels, and what is deleted


def test_channels_share_files_and_each_switches_by_itself():
    beta = document(
        2, line(adapters=[PIRATE, adapter("robot")], requires=replace(REQUIRES, minimum=(1, 9), guaranteed=(1, 9)))
    )
    other = document(3, line(adapters=[PIRATE, adapter("poet")]))
    manifests = [manifest(FIRST), manifest(beta, channel="beta"), manifest(other, channel="other")]
    answer = plan(manifests, known(FIRST, beta, other), PHONE, now=NOW)
    assert [each.channel for each in answer.activate] == ["stable", "other"]
    assert answer.bytes == 1063 + 20
    assert [(each.channel, each.adapter) for each in answer.download][-1] == ("other", "poet")
    assert [each.channel for each in answer.refused] == ["beta"]


def test_a_channel_without_room_stays_while_the_others_switch():
    first, second = document(1, line("f1", adapters=[PIRATE])), document(2, line("f2", adapters=[PIRATE]))
    manifests = [manifest(first), manifest(second, channel="beta")]
    answer = plan(manifests, known(first, second), replace(PHONE, free_disk=1500), now=NOW)
    assert [each.channel for each in answer.activate] == ["stable"]
    assert [each.channel for each in answer.refused] == ["beta"]


def test_files_of_a_channel_that_is_not_asked_about_are_kept():
    phone = after_sync(PHONE, document(1, line(adapters=[JSON])), channel="beta")
    answer = planned(phone, document(2, line(adapters=[PIRATE])))
    assert answer.delete == ()
    assert JSON.file in answer.keep


def test_the_set_before_stays_to_go_back_to_and_the_one_before_that_goes():
    phone = after_sync(PHONE, FIRST)
    phone = after_sync(phone, document(2, line(adapters=[adapter("pirate", "1.1.0"), JSON])), sequence=2)
    assert PIRATE.file in phone.holds
    phone = after_sync(phone, document(3, line(adapters=[adapter("pirate", "1.2.0"), JSON])), sequence=3)
    assert PIRATE.file not in phone.holds
    assert adapter("pirate", "1.1.0").file in phone.holds


def test_a_withdrawn_or_replaced_adapter_is_deactivated_with_the_reason():
    phone = after_sync(PHONE, FIRST)
    answer = planned(phone, document(2, line(adapters=[adapter("pirate", "1.1.0")])), sequence=2)
    assert [(each.adapter, each.version, each.why) for each in answer.deactivate] == [
        ("pirate", "1.0.0", "replaced"),
        ("json", "1.0.0", "withdrawn"),
    ]


# Wrong calls


def test_a_release_document_that_is_not_given_is_asked_for_by_digest():
    with pytest.raises(NotFound, match="release 1"):
        plan([manifest(FIRST)], {}, PHONE, now=NOW)


def test_a_pin_whose_document_has_another_number_is_refused():
    lying = replace(manifest(FIRST), arms=(Arm(7, 10_000),), releases=(ReleasePin(7, descriptor(FIRST)),))
    with pytest.raises(FormatError, match="pins release 7, its document says 1"):
        plan([lying], known(FIRST), PHONE, now=NOW)


def test_two_manifests_of_one_channel_are_refused():
    with pytest.raises(InputError, match="two manifests of the channel stable"):
        plan([manifest(FIRST), manifest(FIRST)], known(FIRST), PHONE, now=NOW)


# Laws, on generated devices and releases


@st.composite
def worlds(draw):
    """Some releases over shared foundations and adapters, manifests of two channels, and a device with some room."""
    releases = []
    for number in range(1, 4):
        pairs = st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 2))
        chosen = draw(st.lists(pairs, unique_by=lambda pair: pair[0], max_size=3))
        versions = [adapter(each, f"1.{minor}.0", 7 + 23 * minor, factors=factors(each)) for each, minor in chosen]
        foundations = draw(st.lists(st.sampled_from([("f1", 300), ("f2", 90), ("f3", 200)]), unique=True, min_size=1))
        releases.append(document(number, *(line(*each, adapters=versions) for each in foundations)))
    device = DeviceState(
        "d",
        free_disk=draw(st.integers(0, 1200)),
        quota=draw(st.none() | st.integers(100, 1200)),
        encodings=draw(st.sampled_from([(), ("factors",)])),
        holds=tuple(pin(f"junk {i}", 40) for i in range(draw(st.integers(0, 2)))),
    )
    steps = draw(st.lists(st.tuples(st.sampled_from(["stable", "beta"]), st.integers(0, 2)), min_size=1, max_size=5))
    return releases, device, steps, draw(st.booleans())


@settings(max_examples=300, deadline=None)
@given(worlds())
def test_every_plan_keeps_the_laws_and_doing_it_comes_to_rest(world):
    releases, device, steps, delete_first = world
    table = known(*releases)
    for sequence, (channel, index) in enumerate(steps, start=1):
        manifests = [manifest(releases[index], channel=channel, sequence=sequence)]
        for _ in range(len(releases[index].lines) + 1):  # a step may make room for a better line, never for a worse
            answer = plan(manifests, table, device, now=NOW, delete_first=delete_first)
            assert answer == plan(manifests, table, device, now=NOW, delete_first=delete_first)
            check_laws(device, answer)
            device = synced(device, answer, manifests)
        assert (answer.download, answer.activate, answer.deactivate) == ((), (), ())


def check_laws(device, answer):
    held = sum(each.size for each in device.holds)
    coming = sum(each.file.size for each in answer.download)
    assert set(answer.keep) | set(answer.delete) == set(device.holds)
    assert not set(answer.keep) & set(answer.delete)
    assert not {each.file for each in answer.download} & set(device.holds)
    assert answer.bytes == coming
    limits = [held + device.free_disk, *([device.quota] if device.quota is not None else [])]
    if answer.download:
        assert answer.peak_disk <= min(limits)
        freed = sum(each.size for each in answer.delete) if answer.order != "beside" else 0
        assert held - freed + coming <= answer.peak_disk
    there = set(answer.keep) | {each.file for each in answer.download}
    for each in answer.activate:
        whole = {each.set.line.foundation.file, each.set.line.base}
        assert whole <= there
        for entry in each.set.line.adapters:
            parts = entry.factors
            assert entry.file in there or {parts.file, parts.template, parts.table} <= there
    if answer.order != "delete-first":
        for name, state in device.channels.items():
            active = state.active
            assert active is None or active.line.foundation.file in there, name
