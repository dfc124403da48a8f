"""Proofs are recorded once, change what devices get, and open the channels that ask for them."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from registry.digest import Descriptor, Digest
from registry.errors import Conflict, InputError, NotFound
from registry.release import ReleaseDocument
from tests.registry.files import Pair
from tests.registry.stock import Stock, copied


@pytest.fixture
def stock(stocked_home: Path, tmp_path: Path, pair: Pair) -> Stock:
    return copied(stocked_home, tmp_path / "home", pair)


def put(stock: Stock, text: str) -> Descriptor:
    return stock.registry.blobs.put_bytes(text.encode())


def self_tests(stock: Stock, number: int) -> dict[str, Descriptor | None]:
    document = ReleaseDocument.from_bytes(stock.registry.blobs.read(stock.registry.release(number).document.digest))
    return {entry.name: entry.self_test for entry in document.lines[0].adapters}


def test_a_build_has_no_proof_before_the_first(stock):
    assert stock.registry.proof(stock.registry.build("pirate")) is None


def test_the_newest_proof_counts(stock):
    build = stock.registry.build("pirate")
    first = stock.registry.add_proof(build, put(stock, "first"), put(stock, "test 1"))
    assert stock.registry.proof(build) == first
    second = stock.registry.add_proof(build, put(stock, "second"), put(stock, "test 2"))
    assert stock.registry.proof(build) == second
    assert stock.registry.build("pirate").parts["self_test"] == put(stock, "test 2")
    assert stock.registry.proof(stock.registry.build("json")) is None


def test_proving_twice_is_proving_once(stock):
    build = stock.registry.build("pirate")
    stock.registry.add_proof(build, put(stock, "proof"), put(stock, "test"))
    events = stock.registry.events()
    stock.registry.add_proof(build, put(stock, "proof"), put(stock, "test"))
    assert stock.registry.events() == events
    assert events[0].action == "adapter.prove"
    assert events[0].after["proof"] == str(put(stock, "proof").digest)


def test_a_proof_of_nothing_or_without_its_bytes_is_refused(stock):
    build = stock.registry.build("pirate")
    missing = Descriptor(Digest.of(b"never stored"), 12)
    with pytest.raises(NotFound, match="the store holds no blob"):
        stock.registry.add_proof(build, missing, put(stock, "test"))
    other = replace(build, file=put(stock, "another program"))
    with pytest.raises(NotFound, match=r"pirate@1\.0\.0 has no build"):
        stock.registry.add_proof(other, put(stock, "proof"), put(stock, "test"))
    assert stock.registry.proof(build) is None


def test_releases_made_after_a_proof_carry_its_self_test(stock):
    registry = stock.registry
    before = registry.create_release("stable", ["pirate", "json"]).release.number
    registry.add_proof(registry.build("pirate"), put(stock, "proof"), put(stock, "test"))
    after = registry.create_release("stable", ["pirate", "json"]).release.number
    assert self_tests(stock, before) == {"json": None, "pirate": None}
    assert self_tests(stock, after) == {"json": None, "pirate": put(stock, "test")}
    assert (registry.site / "blobs" / "sha256" / put(stock, "test").digest.hex).is_file()


def test_a_proof_without_a_self_test_opens_careful_channels_and_leaves_devices_nothing_to_replay(stock):
    registry = stock.registry
    registry.create_channel("careful", require_proof=True)
    registry.add_proof(registry.build("pirate"), put(stock, "proof"), put(stock, "test"))
    registry.add_proof(registry.build("json"), put(stock, "proof of json"), None)
    assert self_tests(stock, registry.create_release("careful", ["pirate", "json"]).release.number) == {
        "json": None,
        "pirate": put(stock, "test"),
    }
    kept = registry.add_proof(registry.build("pirate"), put(stock, "newer"), None)
    assert registry.proof(registry.build("pirate")) == kept
    assert kept.self_test is None
    assert "self_test" not in registry.build("pirate").parts
    assert "self_test" not in registry.events()[0].after
    assert registry.create_release("careful", ["pirate", "json"]).channel.sequence == 2
    assert registry.verify().clean


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("DELETE FROM build_parts", "its self-test is none, its newest proof's is {test}"),
        (
            "UPDATE build_parts SET blob = (SELECT document FROM proofs)",
            "its self-test is {proof}, its newest proof's is {test}",
        ),
        (
            "DELETE FROM proofs; INSERT INTO proofs SELECT 7, id, digest, NULL, 'now' FROM builds WHERE id = 1",
            "its self-test is {test}, its newest proof's is none",
        ),
    ],
)
def test_verify_finds_a_self_test_that_is_not_the_newest_proofs(stock, statement, found):
    proof = stock.registry.add_proof(stock.registry.build("pirate"), put(stock, "proof"), put(stock, "test"))
    with sqlite3.connect(stock.registry.home / "registry.db") as database:
        database.executescript(statement)
    said = {damage.message for damage in stock.registry.verify(fast=True).damage if damage.kind == "row"}
    assert said == {found.format(proof=proof.document.digest, test=put(stock, "test").digest)}


def test_a_channel_that_requires_proof_names_what_is_not_proven_and_takes_nothing(stock):
    registry = stock.registry
    registry.create_channel("careful", require_proof=True)
    registry.add_proof(registry.build("json"), put(stock, "proof"), put(stock, "test"))
    with pytest.raises(Conflict, match=r"not proven: pirate@1\.0\.0$") as caught:
        registry.create_release("careful", ["pirate", "json"])
    assert caught.value.hint.startswith("ptdock adapter prove pirate@1.0.0 --foundation sha256:")
    assert [each["ref"] for each in caught.value.values["unproven"]] == ["pirate@1.0.0"]
    assert registry.releases() == ()
    registry.add_proof(registry.build("pirate"), put(stock, "proof of pirate"), put(stock, "test"))
    assert registry.create_release("careful", ["pirate", "json"]).channel.sequence == 1


def test_requiring_proof_is_yes_or_no(stock):
    with pytest.raises(InputError, match="require_proof is true or false, not 1"):
        stock.registry.create_channel("careful", require_proof=1)


def test_a_proof_is_never_changed(stock):
    stock.registry.add_proof(stock.registry.build("pirate"), put(stock, "proof"), put(stock, "test"))
    with (
        sqlite3.connect(stock.registry.home / "registry.db") as database,
        pytest.raises(sqlite3.IntegrityError, match="proofs is immutable: no UPDATE"),
    ):
        database.execute("UPDATE proofs SET document = self_test")


def test_verify_is_clean_with_a_proof_and_names_the_build_when_its_document_is_damaged(stock):
    proof = stock.registry.add_proof(stock.registry.build("pirate"), put(stock, "proof"), put(stock, "test"))
    assert stock.registry.verify().clean
    path = stock.registry.blobs.path(proof.document.digest)
    path.chmod(0o644)
    path.write_text("proo?")
    (damage,) = stock.registry.verify().damage
    assert (damage.subject, damage.dependants) == (str(proof.document.digest), ("a proof of pirate@1.0.0",))
