"""A registry whose database and blobs are on no machine of its own: PostgreSQL, a bucket, and several homes."""

from __future__ import annotations

import secrets
import shutil
from dataclasses import replace
from pathlib import Path

import obstore
import pytest

from registry.buckets import open_bucket
from registry.digest import Digest
from registry.errors import Conflict
from registry.manifest import Manifest
from registry.stores import ENVIRONMENT
from tests.registry.files import Pair
from tests.registry.places import Place, Postgresql
from tests.registry.postgresql import Server
from tests.registry.s3 import S3
from tests.registry.stock import Stock, fill


@pytest.fixture
def place(server: Server, moto: S3, tmp_path: Path) -> Place:
    """An empty database and an empty prefix."""
    made = Postgresql(server).at(tmp_path / "one")
    blobs = {**moto.environment, ENVIRONMENT: f"s3://blobs/{secrets.token_hex(8)}"}
    return replace(made, environment=made.environment | blobs)


@pytest.fixture
def stock(place: Place, pair: Pair) -> Stock:
    return fill(place.init(), pair)


@pytest.fixture
def beside(stock: Stock, place: Place, tmp_path: Path) -> Place:
    """The same registry on a second machine, which has been given the keys."""
    home = tmp_path / "two"
    home.mkdir()
    shutil.copytree(stock.registry.home / "keys", home / "keys")
    return Place(home, place.environment)


def test_nothing_of_the_registry_is_kept_at_home_alone(stock):
    stock.registry.create_release("stable", ["pirate@1.0.0"])

    assert {path.name for path in stock.registry.home.iterdir()} <= {"cache", "keys", "site", "site.lock"}


def test_what_one_machine_publishes_another_one_releases(stock, beside):
    there = beside.open()
    template = stock.registry.templates(stock.registry.foundation("f1").file.digest)[1]
    stock.publish("pirate", template, "aye", "1.1.0")

    there.create_release("stable", ["pirate@1.1.0", "json@1.0.0"])

    assert Manifest.from_bytes(stock.registry.manifest("stable")).sequence == 1
    assert there.verify().clean
    served = {path.name for path in (there.site / "blobs" / "sha256").iterdir()}
    assert stock.registry.build("pirate@1.1.0").file.digest.hex in served


def test_a_site_is_written_again_without_fetching_what_it_has(stock):
    registry = stock.registry
    registry.create_release("stable", ["pirate@1.0.0"])
    shutil.rmtree(registry.home / "cache")

    changes = registry.refresh_site()

    program = registry.build("pirate@1.0.0").file.digest.hex
    assert not (registry.home / "cache" / program).exists()
    assert not [path for path in changes.written if program in path]


@pytest.mark.parametrize("fast", [False, True])
def test_damage_in_the_bucket_is_found_whatever_the_copies_say(stock, place, fast):
    registry = stock.registry
    program = registry.build("pirate@1.0.0").file
    registry.blobs.path(program.digest)
    objects = open_bucket(place.environment[ENVIRONMENT], place.environment).objects
    obstore.put(objects, f"blobs/sha256/{program.digest.hex}", bytes(program.size))
    lost = registry.build("json@1.0.0").factors.digest
    obstore.delete(objects, f"blobs/sha256/{lost.hex}")

    damage = {each.subject: each.message for each in registry.verify(fast=fast).damage}

    assert damage.pop(str(lost)) == "the blob is missing from the store"
    assert list(damage) == ([] if fast else [str(program.digest)])


def test_what_nothing_needs_goes_from_the_bucket_too(stock):
    registry = stock.registry
    loose = registry.blobs.put_bytes(b"loose").digest
    registry.blobs.path(loose)

    registry.keeper().collect(grace=0)

    assert registry.blobs.size(loose) is None
    assert not (registry.home / "cache" / loose.hex).exists()
    assert registry.verify().clean


def test_another_registry_cannot_take_the_prefix(stock, place, server, tmp_path):
    other = Postgresql(server).at(tmp_path / "other")

    with pytest.raises(Conflict, match="is the store of another registry"):
        replace(other, environment=place.environment | other.environment).init()

    assert stock.registry.verify().clean
    assert stock.registry.blobs.size(Digest.of(b"{}")) == 2
