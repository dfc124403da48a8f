"""Rollouts as stories: what each verb does to devices that really sync, and what it refuses."""

import json
import shutil
import sys
from collections import Counter
from dataclasses import replace

import pytest

from registry.composing import Contents, LineSpec
from registry.errors import Conflict, InputError, IntegrityError, NotFound
from registry.lines import Needs
from registry.manifest import Arm
from registry.release import ReleaseDocument
from registry.rollout import bucket, choose
from tests.registry.live import DAY, Live, live

PHONES = [f"phone-{number}" for number in range(40)]


@pytest.fixture
def shop(stocked_home, tmp_path, pair) -> Live:
    made = live(stocked_home, tmp_path / "home", pair)
    made.registry.create_release("stable", ["pirate@1.0.0"])
    return made


@pytest.fixture
def registry(shop):
    return shop.registry


@pytest.fixture
def stable(registry):
    return registry.rollout("stable")


@pytest.fixture
def template(registry):
    return registry.templates(registry.foundation("f1").file.digest)[1]


def document(registry, number) -> ReleaseDocument:
    return ReleaseDocument.from_bytes(registry.blobs.read(registry.release(number).document.digest))


def offers(registry, running=None):
    """The release that each phone is offered, given what it runs."""
    channel = registry.channel("stable")
    running = running or {}
    return {phone: choose(channel.arms, bucket(channel.salt, phone), running.get(phone)).release for phone in PHONES}


def second_line(shop, *adapters):
    """Another foundation `f2`, with builds of these versions; answers its digest."""
    foundation = shop.foundation("f2", other=1)
    shop.template(foundation, rank=0)
    template = shop.template(foundation)
    for name, text in adapters:
        shop.publish(name, template, text, "1.0.0")
    return foundation.file.digest


# Stories


def test_a_rollout_grows_by_entrants_until_everyone_has_it(registry, stable):
    stable.create(Contents(["json@1.0.0"]), 1000)
    running, seen = offers(registry), []
    for share in (2000, 5000, 8000):
        stable.widen(share)
        after = offers(registry, running)
        assert all(after[phone] == 2 for phone in PHONES if running[phone] == 2)
        running = after
        seen.append(Counter(running.values())[2])
    stable.complete()
    assert seen == sorted(seen)
    assert 0 < seen[0] < seen[-1] < len(PHONES)
    assert registry.channel("stable").arms == (Arm(2, 10_000),)
    assert set(offers(registry).values()) == {2}


def test_devices_follow_a_rollout_a_halt_and_a_rollback(shop, registry, stable):
    def first_in(share):
        salt = registry.channel("stable").salt
        return next(phone for phone in map(str, range(1000)) if bucket(salt, phone) < share)

    stable.create(Contents(["json@1.0.0"]), 1000)
    early = first_in(1000)
    late = next(phone for phone in PHONES if 1000 <= bucket(registry.channel("stable").salt, phone) < 5000)
    assert (shop.active(early), shop.active(late)) == (2, 1)

    stable.halt()
    stable_arms = registry.channel("stable").arms
    assert stable_arms[0] == Arm(2, 1000, "halted")
    assert (shop.active(early), shop.active(late)) == (2, 1)
    newcomer = next(
        phone for phone in map(str, range(1000, 9000)) if bucket(registry.channel("stable").salt, phone) < 1000
    )
    assert shop.active(newcomer) == 1

    stable.resume()
    assert shop.active(newcomer) == 2
    stable.widen(5000)
    assert shop.active(late) == 2

    stable.rollback()
    assert registry.channel("stable").arms == (Arm(1, 10_000),)
    assert {shop.active(phone) for phone in (early, late, newcomer)} == {1}


def test_a_rollback_is_news_with_a_higher_sequence_and_older_manifests_stay_refused(shop, registry, stable, tmp_path):
    stable.create(Contents(["json@1.0.0"]))
    assert shop.active() == 2
    replayed = shutil.copytree(registry.site, tmp_path / "replayed")
    stable.rollback()
    assert shop.manifest().sequence == 3
    assert shop.manifest().pin(1).file == registry.release(1).document
    assert shop.active() == 1
    with pytest.raises(Exception, match=r"not to be trusted|older"):
        shop.sync(site=replayed)
    assert shop.active() == 1


def test_rolling_forward_is_a_new_release(shop, stable, template):
    stable.create(Contents(["json@1.0.0"]))
    shop.publish("json", template, "{fixed}", "1.0.1")
    stable.create(Contents(["json@1.0.1"], base=2))
    assert shop.sync().channels[0].adapters == {"json": "1.0.1"}
    assert shop.manifest().sequence == 3


def test_a_new_root_restarts_the_sequence_for_devices_that_follow_it(shop, registry, tmp_path):
    """Who stole the online keys counts to a million; a new root, and the registry goes on from where it was."""
    from registry.signing.ceremony import RootKeys, open_root

    desk = registry.signed_site()
    signers = open_root(desk.init_keys(RootKeys(tmp_path / "safe", b"word"), {}), b"word")
    stolen = live_copy(shop, tmp_path / "thief")
    with stolen.registry.database.write() as session:
        session.connection().exec_driver_sql("DROP TRIGGER manifests_refuse_update")
        session.connection().exec_driver_sql("DROP TRIGGER arms_refuse_update")
        session.connection().exec_driver_sql("PRAGMA defer_foreign_keys = ON")
        for table in ("manifests", "arms"):
            session.connection().exec_driver_sql(f"UPDATE {table} SET sequence = 1000000")  # noqa: S608
    stolen.registry.rollout("stable").create(Contents(["json@1.0.0"]))
    assert shop.active(site=stolen.registry.site) == 2
    with pytest.raises(Exception, match=r"not to be trusted|older"):
        shop.sync()
    desk.rotate(["targets", "snapshot", "timestamp"], signers, {})
    assert shop.active() == 1
    assert shop.manifest().sequence == 1


def live_copy(shop, home) -> Live:
    """Another registry with this one's keys and history, on the same clock."""
    shutil.copytree(shop.registry.home, home)
    other = object.__new__(Live)
    other.clock, other.pair, other.phones = shop.clock, shop.pair, shop.phones
    other.registry = shop.again(home)
    return other


def test_a_sequence_survives_its_channel_and_devices_follow_the_new_one(shop, registry, stable):
    stable.create(Contents(["json@1.0.0"]))
    assert shop.active() == 2
    registry.delete_channel("stable")
    registry.create_channel("stable")
    registry.create_release("stable", ["pirate@1.0.0"])
    assert shop.manifest().sequence == 4
    assert shop.active() == 3


def test_a_foundation_migrates_with_both_lines_and_is_not_widened_below_the_coverage(shop, registry, stable):
    """Old and new line during the overlap; what lacks a build keeps the rollout back until it is there."""
    registry.create_release("stable", ["pirate@1.0.0", "json@1.0.0"])
    f1, f2 = registry.foundation("f1").file.digest, second_line(shop, ("pirate", "arr"))
    stable.configure(min_coverage_bp=10_000)
    lines = [LineSpec("f2"), LineSpec("f1")]
    refs = ["pirate@1.0.0", "json@1.0.0"]

    with pytest.raises(Conflict, match="no build for json"):
        stable.create(Contents(refs, lines), 500)
    with pytest.raises(Conflict, match="covers 50 %") as caught:
        stable.create(Contents(refs, lines, allow_holes=True))
    assert caught.value.values["missing"] == ["json"]
    stable.create(Contents(refs, lines, allow_holes=True), 500)
    for verb in (lambda: stable.widen(5000), stable.complete):
        with pytest.raises(Conflict, match="demands 100 %"):
            verb()

    shop.publish("json", registry.templates(f2)[1], "{}", "1.0.0")
    stable.create(Contents(base=3), 1000)
    stable.widen(5000)
    stable.complete()
    assert [line.foundation for line in registry.release(4).lines] == [f2, f1]
    assert shop.active() == 4


def test_a_device_stays_on_its_line_until_all_of_the_new_one_is_there(shop, registry, stable):
    assert shop.active() == 1
    f2 = second_line(shop, ("pirate", "arr"))
    stable.create(Contents(["pirate@1.0.0"], [LineSpec("f2"), LineSpec("f1")]))
    hidden = registry.site / "blobs" / "sha256" / f2.hex
    hidden.rename(hidden.with_suffix(".hidden"))
    with pytest.raises(NotFound):
        shop.sync()
    assert shop.again(registry.home)
    from device.manage import describe

    state = describe(shop.phones / "phone").channels["stable"]
    assert state.active.line.foundation.file.digest == registry.foundation("f1").file.digest
    hidden.with_suffix(".hidden").rename(hidden)
    assert shop.active() == 2
    assert describe(shop.phones / "phone").channels["stable"].active.line.foundation.file.digest == f2


# What a release is made of


def test_a_release_is_another_one_with_changes(shop, registry, stable, template):
    shop.publish("robot", template, "beep")
    shop.publish("pirate", template, "arr arr")
    stable.create(
        Contents(["pirate@1.0.0", "json", "robot"], needs=Needs(3_000, {"android": 512}), on_demand=["robot"])
    )
    made = stable.create(Contents(["pirate@1.0.1"], base=2, drop=["json"])).release
    assert made.refs == ("pirate@1.0.1", "robot@1.0.0")
    (line,) = document(registry, made.number).lines
    assert (line.requires.ram_bytes, line.requires.app) == (3_000, {"android": 512})
    assert {entry.name: entry.delivery for entry in line.adapters} == {"pirate": "prefetch", "robot": "on-demand"}
    again = stable.create(Contents(base=made.number, prefetch=["robot"], needs=Needs(app={"android": 600}))).release
    (line,) = document(registry, again.number).lines
    assert (line.requires.ram_bytes, line.requires.app) == (3_000, {"android": 600})
    assert {entry.delivery for entry in line.adapters} == {"prefetch"}


def test_each_line_may_have_its_own_needs(shop, registry, stable):
    second_line(shop, ("pirate", "arr"))
    lines = [LineSpec("f2", Needs(ram_bytes=6_000)), LineSpec("f1")]
    stable.create(Contents(["pirate@1.0.0"], lines, needs=Needs(2_000, {"ios": 7})))
    assert [(line.requires.ram_bytes, line.requires.app) for line in document(registry, 2).lines] == [
        (6_000, {"ios": 7}),
        (2_000, {"ios": 7}),
    ]


@pytest.mark.parametrize(
    ("contents", "error", "message"),
    [
        (Contents(), InputError, "at least one adapter"),
        (Contents(base=9), NotFound, "no release 9"),
        (Contents(base=1, drop=["robot"]), NotFound, "robot: not in release 1"),
        (Contents(["pirate"], drop=["robot"]), InputError, "nothing to drop from"),
        (Contents(base=1, drop=["pirate"]), InputError, "at least one adapter"),
        (Contents(["pirate"], on_demand=["robot"]), InputError, "robot: not in the release"),
        (Contents(["pirate"], [LineSpec("f9")]), NotFound, "no foundation 'f9'"),
    ],
)
def test_contents_that_make_no_release_are_refused(registry, stable, contents, error, message):
    with pytest.raises(error, match=message):
        stable.create(contents)
    assert len(registry.releases()) == 1


def test_a_preview_is_what_would_be_made_and_makes_nothing(registry, stable):
    before = registry.events()
    preview = stable.preview(Contents(["json@1.0.0"]), 2500)
    assert registry.events() == before
    made = stable.create(Contents(["json@1.0.0"]), 2500)
    assert preview.release.document == made.release.document
    assert preview.after == made.channel.arms == (Arm(2, 2500), Arm(1, 7500))
    assert registry.events(1)[0].after["offer"] == {"channel": "stable", "share_bp": 2500}


def test_releases_pin_the_segments_of_their_foundations_once(registry, stable):
    stable.create(Contents(["json@1.0.0"]))
    first, second = (document(registry, number).lines[0].foundation for number in (1, 2))
    assert first.segments == second.segments
    assert (registry.site / "blobs" / "sha256" / first.segments.digest.hex).exists()
    assert registry.verify().clean


# The verbs, one by one


def test_a_draft_is_started_later(registry, stable):
    stable.create(Contents(["json@1.0.0"]), draft=True)
    assert registry.channel("stable").arms == (Arm(1, 10_000),)
    stable.start(2, 1000)
    assert registry.channel("stable").arms == (Arm(2, 1000), Arm(1, 9000))
    with pytest.raises(InputError, match="being rolled out already"):
        stable.start(2, 2000)
    with pytest.raises(NotFound, match="no release 7"):
        stable.start(7)


def test_a_promotion_offers_what_another_channel_offers(registry, stable):
    registry.create_channel("beta")
    registry.create_release("beta", ["json@1.0.0"])
    stable.promote("beta", 1000)
    assert registry.channel("stable").arms == (Arm(2, 1000), Arm(1, 9000))
    assert registry.events(1)[0].after["from"] == "beta"
    with pytest.raises(NotFound, match="beta never offered release 1"):
        stable.promote("beta", number=1)
    registry.create_channel("empty")
    with pytest.raises(Conflict, match="empty offers no release"):
        stable.promote("empty")


def test_a_halted_release_is_not_what_is_live(registry, stable):
    stable.create(Contents(["json@1.0.0"]), 1000)
    stable.halt()
    assert stable.live() == 1
    registry.create_channel("beta")
    assert registry.rollout("beta").promote("stable").release.number == 1


def test_doing_it_twice_is_doing_it_once(registry, stable):
    stable.create(Contents(["json@1.0.0"]), 1000)
    for verb in (stable.halt, stable.resume, lambda: stable.widen(3000), stable.complete):
        assert verb().manifest is not None
        sequence = registry.channel("stable").sequence
        again = verb()
        assert (again.manifest, again.channel.sequence) == (None, sequence)


def test_a_rollback_goes_to_what_was_offered_before_and_never_to_what_was_rolled_back_from(registry, stable):
    stable.create(Contents(["json@1.0.0"]))
    stable.create(Contents(["pirate@1.0.0", "json@1.0.0"]), 1000)
    stable.rollback()
    assert registry.channel("stable").arms == (Arm(2, 10_000),)
    stable.rollback()
    assert registry.channel("stable").arms == (Arm(1, 10_000),)
    with pytest.raises(Conflict, match="offered nothing before release 1"):
        stable.rollback()
    stable.rollback(3)
    assert registry.channel("stable").arms == (Arm(3, 10_000),)
    registry.create_channel("beta")
    with pytest.raises(Conflict, match="beta offers no release"):
        registry.rollout("beta").rollback()


def test_a_rollback_never_goes_by_itself_to_a_halted_release(registry, stable):
    stable.create(Contents(["json@1.0.0"]), 1000)
    stable.halt()
    stable.create(Contents(["pirate@1.0.0", "json@1.0.0"]), 500)
    stable.rollback()
    assert registry.channel("stable").arms == (Arm(1, 10_000),)
    stable.create(Contents(["json@1.0.0"]), 1000)
    stable.halt()
    stable.create(Contents(["pirate@1.0.0", "json@1.0.0"]))
    stable.rollback()
    assert registry.channel("stable").arms == (Arm(1, 10_000),)
    stable.halt()
    stable.create(Contents(["json@1.0.0"]))
    with pytest.raises(Conflict, match="offered nothing before release 6 that was not halted"):
        stable.rollback()
    stable.rollback(1)
    assert registry.channel("stable").arms == (Arm(1, 10_000),)


def test_a_rollback_goes_to_what_most_devices_had(registry, stable):
    stable.create(Contents(["json@1.0.0"]), 500)
    stable.create(Contents(["pirate@1.0.0", "json@1.0.0"]))
    stable.rollback()
    assert registry.channel("stable").arms == (Arm(1, 10_000),)


def test_of_two_changes_of_what_is_live_the_second_is_refused(registry, stable):
    mine = Contents(["json@1.0.0"], base=stable.live(), live=True)
    stable.create(Contents(["json@1.0.0"]))
    with pytest.raises(Conflict, match="stable offers release 2 by now, and this one was made from release 1"):
        stable.create(mine)
    assert len(registry.releases()) == 2
    stable.create(replace(mine, base=2))
    assert sorted(each.name for each in document(registry, 3).lines[0].adapters) == ["json"]


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (Contents(["json@1.0.0"], needs=Needs(app={"android": 1 << 63})), "min_build: expected an integer"),
        (Contents(["json@1.0.0"], needs=Needs(ram_bytes=1 << 63)), "ram_bytes: expected an integer"),
        (Contents(["json@1.0.0"], []), "a release has at least one line"),
    ],
)
def test_a_release_that_nobody_could_read_is_never_recorded(registry, stable, contents, message):
    for verb in (stable.preview, stable.create):
        with pytest.raises(InputError, match=message):
            verb(contents)
    assert len(registry.releases()) == 1
    assert registry.verify(fast=True).clean


def test_a_damaged_table_of_hooks_hides_no_release(registry, stable):
    (registry.home / "hooks.json").write_text("{")
    result = stable.create(Contents(["json@1.0.0"]))
    assert result.manifest is not None
    assert "delete that one file" in result.hook.output
    with pytest.raises(IntegrityError, match=r"hooks\.json is damaged"):
        stable.hooks.set("stable", "cat")


def test_a_hook_goes_with_its_channel(registry, stable):
    stable.hooks.set("stable", "cat")
    registry.delete_channel("stable")
    registry.create_channel("stable")
    assert registry.rollout("stable").create(Contents(["json@1.0.0"])).hook is None


def test_an_adapter_that_no_line_has_is_refused_even_where_holes_are_allowed(registry, stable, shop):
    second_line(shop)
    for refs in (["json@1.0.0", "pirate@1.0.0"], ["json@1.0.0"]):
        with pytest.raises(Conflict, match=r"no build for json@1\.0\.0"):
            stable.create(Contents(refs, [LineSpec("f2")], allow_holes=True))
    assert len(registry.releases()) == 1


def test_a_revoked_program_is_revoked_under_every_name_and_never_published_again(shop, registry, stable, template):
    shop.publish("buccaneer", template, "arr", "1.0.0")
    gone = registry.revoke("buccaneer@1.0.0", "leaks")
    assert sorted(each.adapter for each in gone) == ["buccaneer", "pirate"]
    assert shop.manifest().revoked == (registry.builds("pirate@1.0.0")[0].file.digest,)
    assert shop.sync().channels[0].adapters == {}
    with pytest.raises(Conflict, match=r"is the same program as pirate@1\.0\.0, which is revoked: leaks"):
        shop.publish("corsair", template, "arr", "1.0.0")
    assert shop.publish("pirate", template, "arr", "1.0.0").outcome == "unchanged"
    with pytest.raises(Conflict, match="revoked"):
        stable.create(Contents(["pirate@1.0.0"]))
    assert registry.adapters() == ("buccaneer", "json", "pirate")
    assert registry.verify(fast=True).clean


def test_what_is_revoked_everywhere_is_refused_by_that_name(registry, stable):
    registry.revoke("pirate@1.0.0", "leaks")
    with pytest.raises(Conflict, match=r"pirate@1\.0\.0 is revoked: leaks"):
        stable.create(Contents(base=1))


def test_a_first_partial_release_has_nothing_behind_it(registry):
    registry.create_channel("beta")
    beta = registry.rollout("beta")
    beta.create(Contents(["json@1.0.0"]), 1000)
    with pytest.raises(Conflict, match="offered nothing before") as caught:
        beta.rollback()
    assert "halt" in caught.value.hint
    with pytest.raises(Conflict, match="beta never offered release 1"):
        beta.rollback(1)
    beta.create(Contents(["pirate@1.0.0"]), 500)
    beta.rollback()
    assert registry.channel("beta").arms == (Arm(2, 1000), Arm(None, 9000))


def test_revoked_builds_are_offered_again_only_by_an_explicit_flag_that_is_recorded(shop, registry, stable):
    registry.create_channel("beta")
    stable.create(Contents(["json@1.0.0"]))
    registry.revoke("pirate@1.0.0", "leaks")
    for verb in (
        stable.rollback,
        lambda: registry.rollout("beta").promote("stable", number=1),
        lambda: stable.start(1),
    ):
        with pytest.raises(Conflict, match=r"release 1 holds revoked builds: pirate@1\.0\.0 \(leaks\)"):
            verb()
    result = stable.rollback(allow_revoked=True)
    assert result.warnings == ("pirate@1.0.0 is revoked: leaks",)
    assert registry.events(1)[0].after["release"] == 1
    assert shop.manifest().revoked == (registry.builds("pirate@1.0.0")[0].file.digest,)
    registry.rollout("beta").promote("stable", number=1, allow_revoked=True)
    assert registry.events(1)[0].after["allow_revoked"] is True
    assert shop.sync().channels[0].adapters == {}


def test_a_yanked_version_is_warned_of_when_its_release_is_offered_again(registry, stable):
    stable.create(Contents(["json@1.0.0"]))
    registry.yank("pirate@1.0.0", "rude")
    assert stable.rollback().warnings == ("pirate@1.0.0 is yanked: rude",)
    with pytest.raises(Conflict, match="yanked"):
        stable.create(Contents(base=1))


# What a channel demands


def test_a_channel_takes_only_versions_with_the_lineage_that_it_requires(registry, stable):
    stable.configure(require_lineage=["run", "licence"])
    with pytest.raises(Conflict, match=r"json@1\.0\.0: licence") as caught:
        stable.create(Contents(["json@1.0.0"]))
    assert caught.value.values["lacking"] == {"json@1.0.0": ["licence"]}
    assert len(registry.releases()) == 1
    registry.create_channel("beta")
    registry.create_release("beta", ["json@1.0.0"])
    with pytest.raises(Conflict, match="licence"):
        stable.promote("beta")
    stable.configure(require_lineage=["run"])
    stable.create(Contents(["json@1.0.0"]))


def test_a_channel_that_takes_proven_builds_asks_promotions_too(registry):
    registry.create_channel("proven", require_proof=True)
    with pytest.raises(Conflict, match="proven builds only"):
        registry.rollout("proven").promote("stable")


def test_settings_that_devices_read_are_told_at_once_and_others_are_not(shop, registry, stable):
    stable.configure(require_lineage=["run"])
    assert shop.manifest().sequence == 1
    stable.configure(poll_seconds=60, lifetime_seconds=7 * DAY)
    told = shop.manifest()
    assert (told.sequence, told.poll_seconds, told.expires - told.issued) == (2, 60, 7 * DAY)
    before = registry.events(1)
    assert stable.configure(poll_seconds=60).settings["poll_seconds"] == 60
    assert registry.events(1) == before
    assert "require_lineage" not in stable.configure(require_lineage=None).settings
    with pytest.raises(InputError, match="min_coverage_bp is 0 to 10000"):
        stable.configure(min_coverage_bp=10_001)


def test_a_holdout_keeps_what_it_has_through_every_verb(registry, stable):
    stable.configure(500)
    stable.create(Contents(["json@1.0.0"]), 1000)
    stable.complete()
    assert registry.channel("stable").arms == (Arm(2, 9500), Arm(None, 500, holdout=True))
    assert stable.configure(0).arms == (Arm(2, 10_000),)


# Who is where


def test_who_answers_the_bucket_the_release_and_why(registry, stable):
    stable.create(Contents(["json@1.0.0"]), 5000)
    salt = registry.channel("stable").salt
    for phone in PHONES:
        found = stable.who(phone)
        assert found.bucket == bucket(salt, phone)
        assert found.release == (2 if found.bucket < 5000 else 1)
        assert f"bucket {found.bucket} is in" in found.reason


def test_who_replays_a_halt_for_those_that_run_it_and_those_that_do_not(stable):
    stable.create(Contents(["json@1.0.0"]), 5000)
    stable.halt()
    phone = next(phone for phone in PHONES if stable.who(phone).bucket < 5000)
    assert stable.who(phone, active=2).release == 2
    assert stable.who(phone, active=1).release == 1
    assert "halted and not active here" in stable.who(phone).reason


def test_who_answers_for_any_time_even_of_a_deleted_channel(shop, registry, stable):
    first = int(shop.clock.now)
    shop.clock.now += DAY
    stable.create(Contents(["json@1.0.0"]))
    shop.clock.now += DAY
    registry.delete_channel("stable")
    assert stable.who("phone", at=first).release == 1
    assert stable.who("phone", at=first + DAY).release == 2
    assert stable.who("phone", at=first + 2 * DAY).release is None
    with pytest.raises(NotFound, match="offered nothing at that time"):
        stable.who("phone", at=first - DAY)
    with pytest.raises(NotFound, match="no channel"):
        stable.who("phone")


# The hook


def hooked(stable, tmp_path, script: str):
    """Let the channel run a Python script on each release."""
    path = tmp_path / "hook.py"
    path.write_text(script)
    stable.hooks.set("stable", f"{sys.executable} '{path}' --team mobile")
    return stable


def test_the_hook_gets_the_releases_json(registry, stable, tmp_path):
    script = f"import sys; open({str(tmp_path / 'got')!r}, 'wb').write(sys.stdin.buffer.read()); print(sys.argv[1:])"
    result = hooked(stable, tmp_path, script).create(Contents(["json@1.0.0"]), 1000)
    assert (result.hook.ok, result.hook.output) == (True, "['--team', 'mobile']")
    got = json.loads((tmp_path / "got").read_bytes())
    assert (got["event"], got["channel"], got["sequence"], got["release"]) == ("release.create", "stable", 2, 2)
    assert got["document"] == document(registry, 2).to_json()
    assert got["arms"][0]["share_bp"] == 1000


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [("import sys; print('no network'); sys.exit(3)", 3, "no network"), ("x = 1 / 0", 1, "ZeroDivisionError")],
)
def test_a_hook_that_fails_is_shown_and_undoes_nothing(registry, stable, tmp_path, script, code, said):
    result = hooked(stable, tmp_path, script).create(Contents(["json@1.0.0"]))
    assert result.hook.code == code
    assert said in result.hook.output
    assert registry.channel("stable").arms == (Arm(2, 10_000),)


def test_a_hook_that_cannot_be_started_is_shown(registry, stable, tmp_path):
    stable.hooks.set("stable", str(tmp_path / "absent"))
    result = stable.create(Contents(["json@1.0.0"]))
    assert (result.hook.code, "No such file" in result.hook.output) == (None, True)
    assert registry.channel("stable").sequence == 2


def test_a_hook_runs_when_a_release_begins_to_be_offered_and_only_then(registry, stable, tmp_path):
    hooked(stable, tmp_path, "pass")
    registry.create_channel("beta")
    registry.create_release("beta", ["json@1.0.0"])
    assert stable.create(Contents(["json@1.0.0"]), draft=True).hook is None
    assert stable.start(3, 1000).hook.ok
    assert stable.widen(2000).hook is None
    assert stable.promote("beta", 500).hook.ok
    stable.hooks.set("stable", "")
    assert stable.create(Contents(["json@1.0.0"]), 500).hook is None


def test_a_command_with_an_open_quote_is_refused(stable):
    with pytest.raises(InputError, match="is not a command"):
        stable.hooks.set("stable", "notify 'mobile")
    assert stable.hooks.get("stable") == ()


def test_a_release_that_was_recorded_meanwhile_takes_the_next_number(registry, stable):
    """What is composed outside of the transaction gets its number inside."""
    contents = Contents(["json@1.0.0"])
    first = stable.preview(contents).document
    registry.create_release("stable", ["pirate@1.0.0"])
    made = stable.create(contents).release
    assert made.number == 3
    assert document(registry, 3) == replace(first, release=3)
