import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from registry import files
from registry.artifacts import Base
from registry.catalog import edges
from registry.collecting import BATCH
from registry.digest import Descriptor, Digest
from registry.errors import BlobMissing, IntegrityError, NotFound, PtdockError
from registry.publishing import insisting
from registry.service import Registry
from registry.tables import Blob, Table
from tests.registry.crashes import in_a_child, killing
from tests.registry.files import Pair
from tests.registry.stock import NOW, Stock, copied

DAY = 86400


@pytest.fixture
def stock(stocked_home: Path, tmp_path: Path, pair: Pair) -> Stock:
    return copied(stocked_home, tmp_path / "home", pair)


@pytest.fixture
def registry(stock: Stock) -> Registry:
    return stock.registry


def at(registry: Registry, now: float) -> Registry:
    """The same registry at another time."""
    return Registry.open(registry.home, actor="tester", clock=lambda: now)


def kept(registry: Registry, now: float = NOW) -> dict[Digest, str | None]:
    return {item.blob.digest: item.kept_by for item in at(registry, now).keeper().survey()}


def on_disk(registry: Registry) -> set[Descriptor]:
    return set(registry.blobs.descriptors())


def test_nothing_of_an_untouched_registry_goes(registry):
    registry.create_release("stable", ["pirate@1.0.0"])
    before = on_disk(registry)

    done = registry.keeper().collect(grace=0)

    assert (done.condemned, done.deleted, done.unfinished) == ((), (), ())
    assert (done.kept, done.kept_bytes) == (len(before), sum(blob.size for blob in before))
    assert on_disk(registry) == before
    assert None not in kept(registry).values()


def test_a_blob_is_kept_by_the_strongest_edge_that_leads_to_it(stock, registry):
    template = registry.templates(registry.foundation("f1").file.digest)[1]
    for version in ("1.0.1", "1.0.2"):
        stock.publish("pirate", template, version, version)
    program = {f"1.0.{patch}": registry.build(f"pirate@1.0.{patch}").file.digest for patch in range(3)}
    registry.create_release("stable", ["pirate@1.0.0"])
    registry.create_release("stable", ["pirate@1.0.1"])
    registry.create_release("stable", ["pirate@1.0.2"], draft=True)

    now, later = kept(registry), kept(registry, NOW + 31 * DAY)

    assert now[program["1.0.1"]] == "channel stable offers release 2 (100 %)"
    assert now[program["1.0.0"]] == "devices may hold manifest 1 of stable until 2026-06-27 20:26 UTC"
    assert later[program["1.0.0"]] == "channel stable can go back to release 1"
    assert later[program["1.0.1"]] == "channel stable offers release 2 (100 %)"
    assert later[program["1.0.2"]] == "release 3"
    assert (
        now[registry.release(1).document.digest] == "devices may hold manifest 1 of stable until 2026-06-27 20:26 UTC"
    )
    assert now[registry.build("json@1.0.0").file.digest] == "the program of json@1.0.0"
    assert now[registry.build("json@1.0.0").factors.digest] == "the factors of json@1.0.0"
    assert now[Digest.of(b"arr")] == "the source of pirate@1.0.0"
    assert now[Digest.of(b"about arr")] == "an attachment of pirate@1.0.0"
    assert now[Digest.of(stock.table(8).to_bytes())] == "a template of foundation f1"


def test_an_arm_says_its_share(registry):
    registry.create_release("stable", ["pirate@1.0.0"], share_bp=1000)

    assert kept(registry)[registry.build("pirate@1.0.0").file.digest] == "channel stable offers release 1 (10 %)"


def test_the_manifests_of_a_deleted_channel_keep_what_they_offer_until_they_expire(registry):
    registry.create_release("stable", ["pirate@1.0.0"])
    registry.delete_channel("stable")
    program = registry.build("pirate@1.0.0").file.digest

    assert kept(registry)[program].startswith("devices may hold manifest 1 of stable until")
    assert kept(registry, NOW + 31 * DAY)[program] == "release 1"


def test_every_column_that_refers_to_a_blob_is_an_edge():
    """A table that a later migration adds keeps its blobs without a word here."""
    columns = {
        f"{table.name}.{key.parent.name}"
        for table in Table.metadata.tables.values()
        for key in table.foreign_keys
        if key.column is Blob.__table__.c.digest
    }

    assert {query.compile().params["param_1"] for query in edges._references()} == columns
    assert len(columns) > 15


def test_an_orphan_is_condemned_first_and_deleted_a_day_later(registry):
    orphan = registry.blobs.put_bytes(b"of an interrupted publish")

    first = registry.keeper().collect()
    early = at(registry, NOW + DAY - 1).keeper().collect()
    assert first.condemned == early.waiting == (orphan,)
    assert first.deleted == early.deleted == early.condemned == ()
    assert orphan in on_disk(registry)

    late = at(registry, NOW + DAY).keeper().collect()

    assert late.deleted == (orphan,)
    assert orphan not in on_disk(registry)
    assert registry.verify().clean
    assert at(registry, NOW + DAY).keeper().collect().deleted == ()


def test_the_log_says_what_was_condemned_and_deleted(registry):
    orphan = registry.blobs.put_bytes(b"orphan")

    registry.keeper().collect(grace=0)

    deleted, condemned = registry.events(2)
    assert (condemned.action, deleted.action) == ("store.condemn", "store.delete")
    assert deleted.after == {"size": 6, "blobs": [str(orphan.digest)]}


def test_a_collection_that_finds_nothing_leaves_no_event(registry):
    before = registry.events()

    registry.keeper().collect(grace=0)

    assert registry.events() == before


def test_a_condemned_blob_that_is_recorded_is_kept(stock, registry):
    template = registry.templates(registry.foundation("f1").file.digest)[1]
    program = registry.blobs.put_bytes(stock.program(7))
    registry.keeper().collect()

    stock.publish("robot", template, "beep", number=7)
    done = at(registry, NOW + 2 * DAY).keeper().collect()

    assert program not in done.deleted
    assert registry.build("robot@1.0.0").file == program
    assert registry.verify().clean


def test_a_blob_that_was_collected_before_it_was_recorded_is_put_again(stock, registry):
    template = registry.templates(registry.foundation("f1").file.digest)[1]
    tries = []

    def record():
        tries.append(registry.blobs.put_bytes(stock.program(7)))
        source = stock.source("beep")
        if len(tries) < 3:
            registry.keeper().collect(grace=0)
        program, factors = tries[-1], registry.blobs.put_bytes(stock.factors(7))
        return registry.publish("robot", None, source, template=template, file=program, factors=factors)

    assert insisting(record).outcome == "version"
    assert len(tries) == 3
    assert registry.verify().clean


def test_a_blob_that_stays_away_is_an_error_at_last():
    tries = []

    def record():
        tries.append(1)
        raise BlobMissing("gone")

    with pytest.raises(NotFound, match="gone"):
        insisting(record)
    assert len(tries) == 8


def test_more_than_one_batch_goes_in_one_collection(registry):
    orphans = {registry.blobs.put_bytes(b"orphan %d" % number) for number in range(BATCH + 2)}

    assert set(registry.keeper().collect(grace=0).deleted) == orphans


def test_what_a_forgotten_foundation_had_goes(stock, registry):
    second = stock.foundation("f2", other=1)
    template = stock.template(second, rank=16)

    registry.remove_foundation("f2")
    done = registry.keeper().collect(grace=0)

    assert {second.file, template.hollow, template.table} == set(done.deleted)
    assert registry.verify().clean


def test_a_file_that_a_base_has_replaced_stays_while_a_release_pins_it(registry):
    base = registry.base(Digest.of(b"base"))
    before = base.files["tokenizer.json"]
    registry.create_release("stable", ["pirate@1.0.0"])
    registry.create_channel("beta")
    files_of = {**base.files, "tokenizer.json": registry.blobs.put_bytes(b"another tokenizer")}
    registry.add_base(replace(base, files=files_of), replace=True)

    assert kept(registry)[before.digest] == "channel stable offers release 1 (100 %)"
    assert registry.keeper().collect(grace=0).deleted == ()

    also = {**files_of, "tokenizer.json": registry.blobs.put_bytes(b"a third one")}
    registry.add_base(replace(base, files=also), replace=True)
    assert registry.keeper().collect(grace=0).deleted == (files_of["tokenizer.json"],)


def test_a_condemned_blob_that_only_a_release_keeps_is_taken_back(registry):
    base = registry.base(Digest.of(b"base"))
    pinned = base.files["tokenizer.json"]
    registry.create_release("stable", ["pirate@1.0.0"])
    registry.add_base(Base(base.fingerprint, base.tensors, {}, base.hint), replace=True)
    connection = registry.database.engine.raw_connection()
    connection.execute("UPDATE blobs SET condemned_at = 'long ago' WHERE digest = ?", [str(pinned.digest)])
    connection.commit()
    connection.close()

    assert registry.keeper().collect(grace=0).taken_back == (pinned,)
    assert [item.blob for item in registry.keeper().survey() if item.condemned_at] == []


def test_a_release_that_cannot_be_read_stops_the_collection(registry):
    registry.create_release("stable", ["pirate@1.0.0"])
    orphan = registry.blobs.put_bytes(b"orphan")
    path = registry.blobs.path(registry.release(1).document.digest)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(IntegrityError, match="is damaged"):
        registry.keeper().collect(grace=0)

    assert orphan in on_disk(registry)


def test_what_interrupted_commands_left_is_cleared_after_a_day(registry):
    old, new = registry.home / "ingest" / "old", registry.home / "ingest" / "new"
    work = registry.home / "export-abc"
    work.mkdir()
    for path in (old, new, work / "foundation.ptd"):
        path.write_bytes(b"half")
    for path in (old, work):
        os.utime(path, (1, 1))

    done = registry.keeper().collect()

    assert set(done.unfinished) == {old, work}
    assert new.exists()
    assert not old.exists()
    assert not work.exists()


def test_a_collection_that_is_killed_at_any_step_leaves_a_clean_registry_and_goes_on_when_repeated(registry):
    """Each round makes orphans and kills the collector one step later than the round before, until it ends."""
    before = on_disk(registry)

    def collect() -> None:
        at(registry, NOW).keeper().collect(grace=0)

    for after in range(100):
        for number in range(3):
            registry.blobs.put_bytes(b"orphan %d" % number)
        code = in_a_child(collect, killing(after))
        report = registry.verify(fast=True)
        assert report.clean, report.damage
        assert before <= on_disk(registry)
        if code == 0:
            break
        assert code == -signal.SIGKILL
    # A commit has two steps, an orphan an unlink and a sync. Round 8 condemned and was killed at its second commit.
    assert after == 9
    assert on_disk(registry) == before
    assert registry.verify().notes == ()


def test_a_collector_beside_publishers_takes_nothing_from_them(stock, registry):
    """The collector runs without any grace, so it deletes whatever a publisher has put, but not yet recorded."""
    template = registry.templates(registry.foundation("f1").file.digest)[1]
    failures: list[PtdockError] = []
    deleted: list[Descriptor] = []
    published = {"one": 0, "two": 0}
    going = {*published}
    stop, late = threading.Event(), time.monotonic() + 60  # until then they go on, for the collector to come in between

    def collect() -> None:
        own = at(registry, NOW)
        try:
            while not stop.is_set():
                before = dict(published)
                deleted.extend(own.keeper().collect(grace=0).deleted)
                while not stop.wait(0.005) and any(published[name] == before[name] for name in [*going]):
                    pass  # even without a grace, each publisher must now and then come first
        except PtdockError as error:
            failures.append(error)

    def publish(name: str) -> None:
        own = Stock(at(registry, NOW), stock.pair)
        try:
            while published[name] < 12 or (not deleted and time.monotonic() < late):
                number = published[name]
                insisting(lambda number=number: own.publish(name, template, f"{name} {number}", f"1.0.{number}"))
                published[name] += 1
        except PtdockError as error:
            failures.append(error)
        finally:
            going.remove(name)

    publishers = [threading.Thread(target=publish, args=(name,)) for name in published]
    collector = threading.Thread(target=collect)
    for thread in (collector, *publishers):
        thread.start()
    for thread in publishers:
        thread.join()
    stop.set()
    collector.join()

    assert failures == []
    assert {name: len(registry.versions(name)) for name in published} == published
    report = registry.verify()
    assert report.clean, report.damage
    assert deleted, "the collector never came in between"


def test_space_comes_back_before_more_is_taken(registry):
    """On a disk that is nearly full, nothing but the first batch's sentences is written before files go."""
    for number in range(3 * BATCH):
        registry.blobs.put_bytes(b"orphan %d" % number)
    steps: list[str] = []

    with files.observed(lambda step: steps.append(step.operation)):
        done = registry.keeper().collect(grace=0)

    assert len(done.deleted) == 3 * BATCH
    assert steps[: steps.index("unlink")].count("commit") == 1


def test_a_full_disk_in_the_middle_of_a_deletion_loses_no_row(registry):
    orphan = registry.blobs.put_bytes(b"orphan")

    def refuse(step: files.Step) -> None:
        if step.operation == "unlink":
            raise OSError(28, "No space left on device")

    with files.observed(refuse), pytest.raises(OSError, match="No space"):
        registry.keeper().collect(grace=0)

    assert orphan in on_disk(registry)
    assert registry.keeper().collect(grace=0).deleted == (orphan,)


def test_an_unfinished_file_that_goes_while_it_is_looked_at_is_no_error(registry):
    for number in range(20):
        (registry.home / "ingest" / str(number)).write_bytes(b"")
    stop = threading.Event()

    def come_and_go() -> None:
        while not stop.is_set():
            for number in range(20):
                path = registry.home / "ingest" / str(number)
                path.unlink(missing_ok=True)
                path.write_bytes(b"")

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        assert all(registry.blobs.stale(0.0) == [] for _ in range(200))
    finally:
        stop.set()
        thread.join()


def test_a_release_of_before_keeps_what_only_its_document_pins(registry):
    """Releases that were made under an older schema have no rows for such files."""
    base = registry.base(Digest.of(b"base"))
    registry.create_release("stable", ["pirate@1.0.0"])
    registry.add_base(Base(base.fingerprint, base.tensors, {}, base.hint), replace=True)
    connection = registry.database.engine.raw_connection()
    connection.execute("DROP TRIGGER release_files_refuse_delete")
    connection.execute("DELETE FROM release_files")
    connection.commit()
    connection.close()

    assert registry.keeper().collect(grace=0).deleted == ()
    assert kept(registry)[base.files["tokenizer.json"].digest] == "channel stable offers release 1 (100 %)"
