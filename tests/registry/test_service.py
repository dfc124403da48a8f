import errno
import json
import os
import signal
import sqlite3
import threading
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import text

from registry.artifacts import Report
from registry.digest import Descriptor, Digest
from registry.errors import Conflict, InputError, IntegrityError, NotFound, PtdockError, Unavailable
from registry.manifest import Arm, Manifest
from registry.release import ReleaseDocument
from registry.service import Registry
from tests.registry.crashes import in_a_child, killing
from tests.registry.files import Pair
from tests.registry.stock import NOW, Stock, copied, refusing


@pytest.fixture
def stock(stocked_home: Path, tmp_path: Path, pair: Pair) -> Stock:
    return copied(stocked_home, tmp_path / "home", pair)


@pytest.fixture
def registry(stock: Stock) -> Registry:
    return stock.registry


@pytest.fixture
def template(stock: Stock):
    return stock.registry.templates(stock.registry.foundation("f1").file.digest)[1]


def second_foundation(stock: Stock):
    """`f2` with its base program; answers a template on it."""
    foundation = stock.foundation("f2", other=1)
    stock.template(foundation, rank=0)
    return stock.template(foundation)


def manifest(registry: Registry, channel: str = "stable") -> Manifest:
    return Manifest.from_bytes(registry.manifest(channel))


def document(registry: Registry, number: int) -> ReleaseDocument:
    return ReleaseDocument.from_bytes(registry.blobs.read(registry.release(number).document.digest))


def actions(registry: Registry) -> list[str]:
    return [f"{event.action} {event.subject}" for event in reversed(registry.events())]


def test_making_a_registry_twice_is_making_it_once(tmp_path):
    first = Registry.init(tmp_path / "deep" / "home")

    second = Registry.init(tmp_path / "deep" / "home")

    assert second.uuid == first.uuid
    assert len(second.uuid) == 36
    assert actions(second) == [f"registry.init {first.uuid}"]


def test_a_home_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "home").write_text("")

    for home in (tmp_path / "home", tmp_path / "home" / "below"):
        with pytest.raises(InputError, match="is not a directory"):
            Registry.init(home)


def test_a_base_that_is_known_is_a_no_op_and_keeps_the_new_hint(registry):
    base = registry.base(Digest.of(b"base"))

    assert registry.add_base(base) == base
    moved = registry.add_base(replace(base, hint="/elsewhere"))

    assert moved.hint == registry.base(base.fingerprint).hint == "/elsewhere"
    assert [action for action in actions(registry) if action.startswith("base.")] == [
        f"base.add {base.fingerprint}",
        f"base.update {base.fingerprint}",
    ]


def test_other_files_under_a_known_fingerprint_need_a_word(registry):
    base = registry.base(Digest.of(b"base"))
    files = {**base.files, "tokenizer.json": registry.blobs.put_bytes(b"another tokenizer")}

    with pytest.raises(Conflict, match=r"recorded with other files: tokenizer\.json"):
        registry.add_base(replace(base, files=files))
    assert registry.base(base.fingerprint) == base

    assert registry.add_base(replace(base, files=files), replace=True).files == files


def test_the_same_foundation_under_its_name_is_a_no_op(registry):
    foundation, before = registry.foundation("f1"), actions(registry)

    assert registry.add_foundation(foundation, "f1") == foundation

    assert actions(registry) == before


def test_a_foundation_may_have_several_names(registry):
    foundation = registry.foundation("f1")

    registry.add_foundation(foundation, "smollm2")

    assert registry.foundation_names() == {"f1": foundation.file.digest, "smollm2": foundation.file.digest}
    assert registry.foundations() == (foundation,)


def test_a_used_name_gets_other_bytes_only_by_the_flag_and_old_builds_stay_linked(stock, registry):
    first = registry.foundation("f1").file.digest

    with pytest.raises(Conflict, match="the name 'f1' means another foundation") as caught:
        stock.foundation("f1", other=1)
    assert "--replace-name" in caught.value.hint
    assert caught.value.values["expected"] == str(first)
    assert registry.foundation("f1").file.digest == first

    second = stock.foundation("f1", other=1, replace_name=True).file.digest

    assert registry.foundation("f1").file.digest == second != first
    assert registry.build("pirate@1.0.0").foundation == first
    assert registry.foundation(first).file.digest == first


def test_a_foundation_in_use_cannot_be_removed_and_names_what_uses_it(registry):
    registry.create_release("stable", ["pirate@1.0.0"])

    with pytest.raises(
        Conflict, match=r"is used by 3: adapter json@1\.0\.0, adapter pirate@1\.0\.0, release 1"
    ) as caught:
        registry.remove_foundation("f1")

    assert caught.value.values["dependants"] == ["adapter json@1.0.0", "adapter pirate@1.0.0", "release 1"]
    assert registry.foundation("f1")


def test_a_foundation_without_builds_is_removed_with_its_templates(stock, registry):
    foundation = stock.foundation("f2", other=1)
    stock.template(foundation, rank=0)

    removed = registry.remove_foundation("f2")

    assert removed == foundation
    assert list(registry.foundation_names()) == ["f1"]
    with pytest.raises(NotFound):
        registry.foundation(foundation.file.digest)
    assert registry.verify().clean
    assert stock.foundation("f2", other=1) == foundation


def test_the_same_template_is_a_no_op_and_other_bytes_are_an_alarm(registry, template):
    assert registry.add_template(template) == template

    with pytest.raises(IntegrityError, match="exported before and gave another program"):
        registry.add_template(replace(template, digest=Digest.of(b"other")))

    assert registry.templates(template.foundation)[1:] == (template,)


def test_a_template_needs_its_foundation(registry, template):
    with pytest.raises(NotFound, match="no foundation"):
        registry.add_template(replace(template, foundation=Digest.of(b"other")))


def test_publishing_twice_is_publishing_once(stock, registry, template):
    before = actions(registry)

    again = stock.publish("pirate", template, "arr", "1.0.0")

    assert (again.outcome, again.version.version) == ("unchanged", "1.0.0")
    assert again.build == registry.build("pirate@1.0.0")
    assert actions(registry) == before


def test_the_next_version_is_the_next_patch_and_the_latest_source_is_no_new_version(stock, template):
    first = stock.publish("robot", template, "one")
    assert (first.outcome, first.version.version) == ("version", "1.0.0")

    assert stock.publish("robot", template, "one").outcome == "unchanged"
    assert stock.publish("robot", template, "two").version.version == "1.0.1"
    stock.publish("robot", template, "three", "2.3.9")
    assert stock.publish("robot", template, "four").version.version == "2.3.10"
    assert stock.publish("robot", template, "one").version.version == "2.3.11"


def test_another_source_under_a_used_version_is_refused(stock, registry, template):
    before = registry.version("pirate@1.0.0"), actions(registry)

    with pytest.raises(Conflict, match=r"pirate@1\.0\.0 is immutable: it was made from another source") as caught:
        stock.publish("pirate", template, "other", "1.0.0")

    assert caught.value.values["expected"] == str(before[0].source)
    assert (registry.version("pirate@1.0.0"), actions(registry)) == before


def test_other_files_that_give_the_very_same_program_are_the_same_version(stock, registry, template):
    stock.publish("robot", template, "dropout 0.1", number=7)

    for version in ("1.0.0", None):
        again = stock.publish("robot", template, "dropout 0.2", version, number=7)
        assert (again.outcome, again.version.version) == ("unchanged", "1.0.0")

    assert registry.version("robot@1.0.0").source == stock.source("dropout 0.1").digest


def test_the_same_version_on_a_second_foundation_is_one_more_build(stock, registry):
    other = second_foundation(stock)

    added = stock.publish("pirate", other, "arr", "1.0.0")

    assert (added.outcome, added.version) == ("build", registry.version("pirate@1.0.0"))
    assert [build.foundation for build in registry.builds("pirate@1.0.0")] == [
        registry.foundation("f1").file.digest,
        other.foundation,
    ]
    assert registry.build("pirate@1.0.0", "f1").foundation == registry.foundation("f1").file.digest
    assert registry.build("pirate@1.0.0", "f2").foundation == other.foundation


def test_a_second_foundation_takes_no_other_source(stock):
    with pytest.raises(Conflict, match="immutable"):
        stock.publish("pirate", second_foundation(stock), "other", "1.0.0")


def test_the_same_version_through_another_template_is_one_more_build_and_the_newest(stock, registry):
    longer = stock.template(registry.foundation("f1"), rank=8, context=2048)

    added = stock.publish("pirate", longer, "arr", "1.0.0", number=99)

    assert added.outcome == "build"
    assert registry.build("pirate@1.0.0", "f1") == added.build


def test_a_template_that_gives_other_bytes_for_the_same_source_is_an_alarm(stock, template):
    with pytest.raises(IntegrityError, match="through the same template gave another program before"):
        stock.publish("pirate", template, "arr", "1.0.0", number=99)


@pytest.mark.parametrize(
    ("name", "version", "message"),
    [
        ("../etc", None, "not a usable adapter name"),
        ("Pirate", None, "not a usable"),
        ("pirate", "1.0", "not a version"),
    ],
)
def test_bad_names_and_versions_are_refused_before_anything_is_written(
    stock, registry, template, name, version, message
):
    before = list(registry.blobs.descriptors())

    with pytest.raises(InputError, match=message):
        registry.publish(name, version, stock.source("arr"), template=template, file=before[0], factors=before[1])

    assert list(registry.blobs.descriptors()) == before


def test_a_build_needs_a_recorded_template(stock, template):
    with pytest.raises(NotFound, match="the template is not recorded"):
        stock.publish("pirate", replace(template, context=64), "arr")


def test_a_condemned_blob_that_is_published_again_is_taken_back(stock, registry, template):
    with registry.database.write() as session:
        session.execute(text("UPDATE blobs SET condemned_at = 'then'"))

    stock.publish("robot", template, "arr")

    with registry.database.read() as session:
        query = "SELECT condemned_at FROM blobs JOIN source_files ON blob = digest WHERE source = :source"
        assert session.scalars(text(query), {"source": str(stock.source("arr").digest)}).all() == [None, None]


def test_a_version_with_its_source_is_found_before_any_work(stock, registry):
    assert registry.find_version("pirate", stock.source("arr")) == registry.version("pirate@1.0.0")
    assert registry.find_version("pirate", stock.source("other")) is None
    assert registry.find_version("nobody", stock.source("arr")) is None


def test_the_same_version_from_two_publishers_at_once_has_one_winner(stock, template):
    outcomes: list[str] = []

    def publish(text: str) -> None:
        try:
            outcomes.append(stock.publish("robot", template, text, "1.0.0").outcome)
        except Conflict as error:
            outcomes.append(error.code)

    for text_of in (["same"] * 4, ["a", "b", "c", "d"]):
        outcomes.clear()
        threads = [threading.Thread(target=publish, args=(each,)) for each in text_of]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expected = ["version"] + ["unchanged"] * 3 if text_of[0] == "same" else ["Conflict"] * 4
        assert sorted(outcomes) == sorted(expected)


def test_a_release_pins_everything_that_a_device_fetches(registry):
    result = registry.create_release("stable", ["pirate@1.0.0", "json@1.0.0"])

    (line,) = document(registry, 1).lines
    foundation = registry.foundation("f1")
    base_program = registry.templates(foundation.file.digest)[0]
    assert result.release == registry.release(1)
    assert line.foundation.file == foundation.file
    assert line.base == base_program.hollow
    assert (line.tokenizer.format, line.tokenizer.file) == ("hf-json", Descriptor.of(b"tokenizer of base"))
    assert (line.requires.minimum, line.requires.guaranteed, line.requires.backends) == (
        (1, 5),
        (1, 6),
        ("XnnpackBackend",),
    )
    assert [(entry.name, entry.version, entry.file) for entry in line.adapters] == [
        ("json", "1.0.0", registry.build("json@1.0.0").file),
        ("pirate", "1.0.0", registry.build("pirate@1.0.0").file),
    ]
    assert all(registry.blobs.size(blob.digest) == blob.size for blob in document(registry, 1).blobs())


def test_the_manifest_is_what_the_channel_offers(registry):
    result = registry.create_release("stable", ["pirate@1.0.0"])

    said = manifest(registry)
    assert (said.registry, said.channel, said.sequence) == (registry.uuid, "stable", 1)
    assert (said.issued, said.expires, said.poll_seconds) == (NOW, NOW + 30 * 86400, 4 * 3600)
    assert said.arms == registry.channel("stable").arms == (Arm(1, 10000),)
    assert said.pin(1).file == result.release.document
    assert said.salt == registry.channel("stable").salt
    assert said.log_head == registry.events(1)[0].digest
    assert registry.blobs.read(result.manifest.digest) == registry.manifest("stable")


def test_every_manifest_is_kept_as_it_was_issued(registry):
    registry.create_release("stable", ["pirate@1.0.0"])
    first = registry.manifest("stable")
    registry.create_release("stable", ["json@1.0.0"])

    assert registry.manifest("stable", 1) == first
    assert json.loads(registry.manifest("stable", 2))["arms"] == [{"release": 2, "share_bp": 10000, "state": "open"}]
    with pytest.raises(NotFound, match="no manifest 3") as caught:
        registry.manifest("stable", 3)
    assert caught.value.hint == "the newest is 2"


def test_a_share_takes_from_the_release_before_and_keeps_the_salt(registry):
    registry.create_release("stable", ["pirate@1.0.0"])
    registry.create_release("stable", ["json@1.0.0"], share_bp=1000)
    salt = registry.channel("stable").salt

    registry.create_release("stable", ["json@1.0.0", "pirate@1.0.0"], share_bp=500)

    assert registry.channel("stable").arms == (Arm(3, 500), Arm(2, 500), Arm(1, 9000))
    assert manifest(registry).salt == salt
    assert {pin.release for pin in manifest(registry).releases} == {1, 2, 3}


def test_the_salt_is_drawn_anew_while_one_arm_holds_everyone(registry):
    salts = {registry.channel("stable").salt}
    for _ in range(3):
        registry.create_release("stable", ["pirate@1.0.0"])
        salts.add(registry.channel("stable").salt)

    assert len(salts) == 4


def test_a_partial_first_release_leaves_the_others_what_they_have(registry):
    registry.create_release("stable", ["pirate@1.0.0"], share_bp=2500)

    assert registry.channel("stable").arms == (Arm(1, 2500), Arm(None, 7500))


def test_a_draft_is_recorded_and_offered_to_nobody(registry):
    result = registry.create_release("stable", ["pirate@1.0.0"], draft=True)

    assert (result.manifest, registry.channel("stable").sequence) == (None, 0)
    assert registry.releases() == (result.release,)
    assert not (registry.site / "targets").exists()


def test_each_foundation_that_has_all_builds_is_a_line_the_newest_first(stock, registry):
    other = second_foundation(stock)
    stock.publish("pirate", other, "arr", "1.0.0")

    registry.create_release("stable", ["pirate@1.0.0"])
    registry.create_release("stable", ["pirate@1.0.0", "json@1.0.0"])
    registry.create_release("stable", ["pirate@1.0.0"], lines=["f1", other.foundation, "f1"])

    f1 = registry.foundation("f1").file.digest
    assert [{line.foundation for line in registry.release(number).lines} for number in (1, 2, 3)] == [
        {f1, other.foundation},
        {f1},
        {f1, other.foundation},
    ]
    assert [line.foundation for line in registry.release(3).lines] == [f1, other.foundation]
    assert [line.foundation.file.digest for line in document(registry, 3).lines] == [f1, other.foundation]


def test_holes_are_refused_with_the_matrix_and_allowed_by_a_recorded_flag(stock, registry):
    stock.publish("pirate", second_foundation(stock), "arr", "1.0.0")
    refs, lines = ["pirate@1.0.0", "json@1.0.0"], ["f1", "f2"]

    with pytest.raises(Conflict, match=r"no build for json@1\.0\.0 on sha256:") as caught:
        registry.create_release("stable", refs, lines=lines)

    f1, f2 = (str(registry.foundation(name).file.digest) for name in lines)
    assert caught.value.values["matrix"] == {
        f1: {"pirate@1.0.0": True, "json@1.0.0": True},
        f2: {"pirate@1.0.0": True, "json@1.0.0": False},
    }
    assert registry.releases() == ()

    release = registry.create_release("stable", refs, lines=lines, allow_holes=True).release

    assert release.holes
    assert document(registry, 1).holes
    assert [sorted(line.builds) for line in registry.release(1).lines] == [["json", "pirate"], ["pirate"]]


def test_a_release_may_hold_two_versions_of_an_adapter_but_a_line_may_not(stock, registry, template):
    other = second_foundation(stock)
    stock.publish("pirate", other, "new", "2.0.0")

    registry.create_release("stable", ["pirate@1.0.0", "pirate@2.0.0"], lines=["f1", "f2"])
    assert [line.builds["pirate"].version for line in registry.release(1).lines] == ["1.0.0", "2.0.0"]

    stock.publish("pirate", template, "new", "2.0.0", number=5)
    with pytest.raises(Conflict, match=r"pirate 1\.0\.0 and 2\.0\.0 both have a build on"):
        registry.create_release("stable", ["pirate@1.0.0", "pirate@2.0.0"], lines=["f1", "f2"])


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda r: r.create_release("stable", []), InputError, "at least one adapter"),
        (lambda r: r.create_release("beta", ["pirate@1.0.0"]), NotFound, "no channel 'beta'"),
        (lambda r: r.create_release("stable", ["pirate@2.0.0"]), NotFound, "no version 2.0.0"),
        (lambda r: r.create_release("stable", ["pirate@1.0.0"], lines=["f9"]), NotFound, "no foundation 'f9'"),
        (lambda r: r.create_release("stable", ["pirate@1.0.0"], share_bp=0), InputError, "a share is"),
        (lambda r: r.create_channel("stable"), Conflict, "channel 'stable' exists"),
        (lambda r: r.create_channel("a/b"), InputError, "not a usable channel name"),
        (lambda r: r.create_channel("beta", colour=1), InputError, "unknown channel setting 'colour'"),
        (lambda r: r.create_channel("beta", poll_seconds=True), InputError, "whole number of seconds"),
        (lambda r: r.yank("pirate@1.0.0", ""), InputError, "needs a reason"),
        (lambda r: r.revoke("pirate@1.0.0", ""), InputError, "needs a reason"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(registry, ask, error, message):
    before = actions(registry)

    with pytest.raises(error, match=message):
        ask(registry)

    assert actions(registry) == before
    assert registry.releases() == ()


def test_a_yanked_version_enters_no_new_release_until_it_is_unyanked(stock, registry, template):
    registry.create_release("stable", ["pirate@1.0.0"])
    stock.publish("pirate", template, "worse")

    registry.yank("pirate@1.0.1", "rude")
    with pytest.raises(Conflict, match=r"yanked: pirate@1\.0\.1 \(rude\)"):
        registry.create_release("stable", ["pirate@1.0.1"])
    assert registry.version("pirate").version == "1.0.0"
    assert registry.yank("pirate@1.0.1", "rude").yanked == "rude"

    assert registry.unyank("pirate@1.0.1").yanked is None
    assert registry.version("pirate").version == "1.0.1"
    assert [action for action in actions(registry) if "yank" in action] == [
        "adapter.yank pirate@1.0.1",
        "adapter.unyank pirate@1.0.1",
    ]


def test_a_revoked_build_is_told_to_every_channel_that_ever_offered_it_and_to_no_other(registry):
    for channel in ("beta", "other"):
        registry.create_channel(channel)
    registry.create_release("stable", ["pirate@1.0.0"])
    registry.create_release("beta", ["pirate@1.0.0"])
    registry.create_release("beta", ["json@1.0.0"])
    registry.create_release("other", ["json@1.0.0"])

    (revoked,) = registry.revoke("pirate@1.0.0", "leaks")
    again = registry.revoke("pirate@1.0.0", "leaks more")

    assert revoked.revoked == again[0].revoked == "leaks"
    assert {name: manifest(registry, name).sequence for name in ("stable", "beta", "other")} == {
        "stable": 2,
        "beta": 3,
        "other": 1,
    }
    assert manifest(registry).revoked == manifest(registry, "beta").revoked == (revoked.file.digest,)
    assert manifest(registry, "other").revoked == ()
    with pytest.raises(NotFound, match="no usable build"):
        registry.build("pirate@1.0.0")
    with pytest.raises(Conflict, match=r"pirate@1\.0\.0 is revoked: leaks"):
        registry.create_release("stable", ["pirate@1.0.0"])


def test_a_sequence_survives_its_channels_deletion(registry):
    registry.create_release("stable", ["pirate@1.0.0"])
    salt = registry.channel("stable").salt

    registry.delete_channel("stable")
    assert registry.channels() == ()
    with pytest.raises(NotFound):
        registry.manifest("stable")

    again = registry.create_channel("stable", poll_seconds=60)
    registry.create_release("stable", ["json@1.0.0"])

    assert (again.sequence, again.settings["poll_seconds"]) == (2, 60)
    assert again.salt != salt
    assert [manifest(registry).sequence, manifest(registry).poll_seconds] == [3, 60]
    assert registry.channel("stable").arms == (Arm(2, 10000),)


def test_the_site_holds_what_channels_offer_and_nothing_else(registry):
    registry.create_release("stable", ["pirate@1.0.0"])

    offered = {blob.digest.hex for blob in document(registry, 1).blobs()} | {registry.release(1).document.digest.hex}
    assert (registry.site / "targets" / "v1" / "stable.json").read_bytes() == registry.manifest("stable")
    assert {path.name for path in (registry.site / "blobs" / "sha256").iterdir()} == offered
    assert registry.build("json@1.0.0").file.digest.hex not in offered
    assert stock_link_count(registry, registry.build("pirate@1.0.0").file.digest) == 2


def stock_link_count(registry: Registry, digest: Digest) -> int:
    return registry.blobs.path(digest).stat().st_nlink


def test_a_site_that_cannot_be_written_does_not_undo_the_release(registry):
    full = OSError(errno.ENOSPC, "No space left on device")

    with (
        refusing({"rename"}, 0, full),
        pytest.raises(Unavailable, match="release 1 is recorded and offered, but") as caught,
    ):
        registry.create_release("stable", ["pirate@1.0.0"])

    assert "do not repeat" in caught.value.hint
    assert registry.channel("stable").arms == (Arm(1, 10000),)
    assert registry.refresh_site().written
    assert (registry.site / "targets" / "v1" / "stable.json").read_bytes() == registry.manifest("stable")


def test_writing_the_site_again_changes_nothing(registry):
    registry.create_release("stable", ["pirate@1.0.0"])

    changes = registry.refresh_site()

    assert (changes.written, changes.removed) == ((), ())


def test_a_deleted_channel_leaves_the_site(registry):
    registry.create_release("stable", ["pirate@1.0.0"])

    registry.delete_channel("stable")

    assert not (registry.site / "targets" / "v1" / "stable.json").exists()


def test_every_change_is_an_event_of_one_chain(registry):
    registry.create_release("stable", ["pirate@1.0.0"])
    events = registry.events()

    assert [event.id for event in events] == list(range(len(events), 0, -1))
    assert all(newer.prev == older.digest for newer, older in pairwise(events))
    assert {event.actor for event in events} == {"tester"}
    assert registry.events(1)[0].subject == "release 1"
    assert registry.verify().clean


def test_one_export_at_a_time(registry):
    waited: list[str] = []

    with registry.export_lock():
        other = threading.Thread(target=lambda: wait(registry, waited))
        other.start()
        while not waited:
            other.join(0.01)
        assert waited == ["waiting"]
    other.join()

    assert waited == ["waiting", "got it"]


def wait(registry: Registry, log: list[str]) -> None:
    with registry.export_lock(lambda: log.append("waiting")):
        log.append("got it")


def found(report: Report) -> set[tuple[str, str]]:
    return {(damage.kind, damage.subject) for damage in report.damage}


def test_an_untouched_registry_is_clean(registry):
    registry.create_release("stable", ["pirate@1.0.0", "json@1.0.0"])
    seen: list[int] = []

    report = registry.verify(progress=seen.append)

    assert report.clean
    assert report.notes == ()
    assert report.builds == 3  # and the base program
    assert report.size == sum(seen) == sum(blob.size for blob in registry.blobs.descriptors())
    assert registry.verify(fast=True).clean


def flip(path: Path, at: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.chmod(0o644)
    path.write_bytes(bytes(data))


def test_a_flipped_bit_in_any_blob_is_found_and_named(registry):
    registry.create_release("stable", ["pirate@1.0.0", "json@1.0.0"])

    for blob in list(registry.blobs.descriptors()):
        if blob.size:
            flip(registry.blobs.path(blob.digest), blob.size // 2)
            assert found(registry.verify()) == {("blob", str(blob.digest))}
            flip(registry.blobs.path(blob.digest), blob.size // 2)
    assert registry.verify().clean


@pytest.mark.parametrize("fast", [True, False])
def test_a_lost_or_cut_blob_is_found_with_what_depends_on_it(registry, fast):
    file = registry.build("pirate@1.0.0").file
    path = registry.blobs.path(file.digest)
    path.chmod(0o644)
    os.truncate(path, file.size - 1)
    cut = registry.verify(fast=fast)
    path.unlink()
    lost = registry.verify(fast=fast)

    for report, message in ((cut, f"has {file.size - 1} bytes"), (lost, "missing from the store")):
        (damage,) = report.damage
        assert message in damage.message
        assert damage.dependants == ("the program of pirate@1.0.0",)


def test_a_damaged_foundation_names_the_tensors(registry):
    foundation = registry.foundation("f1")
    tensor = foundation.tensors[0]

    flip(registry.blobs.path(foundation.file.digest), tensor.offset)

    (damage,) = registry.verify().damage
    assert tensor.key in damage.message


def unprotected(registry: Registry, statement: str) -> None:
    """Do what only someone with the database file can: drop the triggers, and change a row without a check."""
    connection = sqlite3.connect(registry.home / "registry.db", isolation_level=None)
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute("DROP TRIGGER " + name)
    assert connection.execute(statement).rowcount > 0
    connection.close()


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("UPDATE events SET actor = 'someone else' WHERE id = 3", "log"),
        ("DELETE FROM events WHERE id = 3", "log"),
        ("UPDATE arms SET share_bp = 9999", "manifest"),
        ("UPDATE lines SET position = 1", None),
        ("DELETE FROM line_entries WHERE adapter = 'json'", "release"),
        ("UPDATE foundation_tensors SET size = size + 1", "foundation"),
        ("DELETE FROM foundation_tensors WHERE key NOT LIKE 'embed%'", "template"),
        ("UPDATE blobs SET size = size + 1 WHERE digest = (SELECT digest FROM releases)", "blob"),
    ],
)
def test_a_row_that_was_changed_behind_the_code_is_found(registry, statement, kind):
    registry.create_release("stable", ["pirate@1.0.0", "json@1.0.0"])

    unprotected(registry, statement)

    kinds = {damage.kind for damage in registry.verify().damage}
    assert (kind in kinds) if kind else not kinds


def test_a_history_that_was_rewritten_as_a_whole_contradicts_the_manifests(registry):
    registry.create_release("stable", ["pirate@1.0.0"])
    forged = replace(registry.events(1)[0], actor="nobody")

    newest = "WHERE id = (SELECT max(id) FROM events)"
    unprotected(registry, f"UPDATE events SET actor = 'nobody', digest = '{forged.digest}' {newest}")  # noqa: S608

    assert ("manifest", "manifest 1 of stable") in found(registry.verify())


def test_what_interrupted_commands_left_is_only_a_note(registry):
    registry.blobs.put_bytes(b"orphan")
    (registry.home / "ingest" / "old").write_bytes(b"half")
    os.utime(registry.home / "ingest" / "old", (1, 1))

    report = registry.verify()

    assert report.clean
    assert report.notes == (
        "1 blobs (6 bytes) that nothing refers to",
        f"1 unfinished files older than a day in {registry.home / 'ingest'}",
    )


def test_a_publish_that_is_killed_at_any_step_leaves_a_clean_registry_and_succeeds_when_repeated(
    stock, registry, template
):
    """Each round publishes another version, killed one step later than the round before, until one is not killed."""
    for after in range(1000):
        publish = partial(stock.publish, "robot", template, f"round {after}", f"1.0.{after}")
        code = in_a_child(publish, killing(after))
        again = Registry.open(registry.home)
        report = again.verify(fast=True)
        assert report.clean, report.damage
        assert publish().outcome in {"version", "unchanged"}
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert after > 30
    assert len(registry.versions("robot")) == after + 1
    assert registry.verify().clean


def test_a_release_that_is_killed_at_any_step_leaves_the_channel_before_or_after(registry):
    """The pointer moves last: a killed release is offered whole, or not at all; the next command mends the site."""
    for after in range(1000):
        before = registry.channel("stable").sequence
        code = in_a_child(lambda: registry.create_release("stable", ["pirate@1.0.0", "json@1.0.0"]), killing(after))
        report = registry.verify(fast=True)
        assert report.clean, report.damage
        assert registry.channel("stable").sequence in {before, before + 1}
        registry.refresh_site()
        if registry.channel("stable").sequence:
            assert (registry.site / "targets" / "v1" / "stable.json").read_bytes() == registry.manifest("stable")
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert after > 15
    assert registry.verify().clean


@pytest.mark.parametrize(("operation", "steps"), [("create", 5), ("write", 5), ("link", 5), ("sync", 11)])
def test_a_full_disk_at_any_step_of_a_publish_leaves_nothing_half_written(stock, registry, template, operation, steps):
    """Five blobs are new: tensors, attachment, program, factors, source list; the config is known, and synced again."""
    before, full = actions(registry), OSError(errno.ENOSPC, "No space left on device")

    for after in range(steps):
        with refusing({operation}, after, full), pytest.raises(Unavailable, match="no space left"):
            stock.publish("robot", template, f"round {after}")
        assert actions(registry) == before
        assert list((registry.home / "ingest").iterdir()) == []

    with refusing({operation}, steps, full):
        assert stock.publish("robot", template, "last").version.version == "1.0.0"
    assert registry.verify().clean


def test_an_error_never_leaves_the_write_lock_behind(stock, template):
    for _ in range(3):
        with pytest.raises(PtdockError):
            stock.publish("pirate", template, "other", "1.0.0")

    assert stock.publish("pirate", template, "other").version.version == "1.0.1"
