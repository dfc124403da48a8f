"""A history that was removed, edited or rewritten is found, on either database, by whoever has only `verify`.

Triggers and foreign keys are in the way of everyone but the database's owner; the tests are the owner.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest

from registry import audit
from registry.artifacts import Report
from registry.catalog import log
from registry.service import Registry
from tests.registry.files import Pair
from tests.registry.places import Kind, Place


@pytest.fixture
def place(kind: Kind, stocked_place: Place, pair: Pair, tmp_path) -> Iterator[Place]:
    """The stock, with a release on its channel."""
    place = kind.copy(stocked_place, tmp_path / "home")
    place.stock(pair).registry.create_release("stable", ["pirate@1.0.0", "json@1.0.0"])
    yield place
    kind.drop(tmp_path)


@pytest.fixture
def registry(place: Place) -> Registry:
    return place.open()


def as_owner(place: Place, *statements: str) -> None:
    """Change the database without its triggers and foreign keys."""
    url = place.database.engine.url
    if url.get_backend_name() == "sqlite":
        connection = sqlite3.connect(str(url.database), isolation_level=None)
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            assert connection.execute(statement).rowcount > 0, statement
        connection.close()
    else:
        with psycopg.connect(host=str(url.query["host"]), user=url.username, dbname=url.database) as session:
            session.execute("SET session_replication_role = replica")
            for statement in statements:
                assert session.execute(statement.encode()).rowcount > 0, statement


def found(report: Report) -> dict[str, str]:
    return {damage.subject: damage.message for damage in report.damage}


def test_a_sound_history_has_no_fault(registry):
    assert registry.verify().damage == ()
    with registry.database.read() as session:
        assert list(audit.broken_links(audit.genesis(registry.uuid), log.chain(session))) == []


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE events SET actor = 'someone else' WHERE id = 3",
        "UPDATE events SET at = '2020' WHERE id = 3",
        "UPDATE events SET after = NULL WHERE id = 3",
        "UPDATE events SET subject = 'another' WHERE id = 3",
        "DELETE FROM events WHERE id = 3",
        "DELETE FROM events WHERE id = 1",
        "UPDATE registry SET uuid = '00000000-0000-0000-0000-000000000000'",
    ],
)
def test_an_event_that_was_edited_or_removed_is_found(place, registry, change):
    as_owner(place, change)

    assert any(subject.startswith("event ") for subject in found(registry.verify(fast=True)))


def test_a_history_that_was_rewritten_to_its_end_contradicts_the_manifests(place, registry):
    """Whoever rewrites all digests makes a chain that fits; the manifests that devices hold name the old one's head."""
    prev, statements = audit.genesis(registry.uuid), []
    for event in reversed(registry.events()):
        forged = replace(event, actor="nobody", prev=prev)
        values = f"actor = 'nobody', prev = '{forged.prev}', digest = '{forged.digest}'"
        statements.append(f"UPDATE events SET {values} WHERE id = {event.id}")  # noqa: S608 - the test's own
        prev = forged.digest
    as_owner(place, *statements)

    report = registry.verify(fast=True)

    assert not any(subject.startswith("event ") for subject in found(report))
    assert "manifest 1 of stable" in found(report)


def test_the_last_events_cannot_be_cut_off_behind_a_manifest(place, registry):
    """The chain that is left is sound; the manifest's log head is no longer in it."""
    (named,) = [event.id for event in registry.events() if event.digest == head(registry)]
    as_owner(place, f"DELETE FROM events WHERE id >= {named}")  # noqa: S608 - the test's own

    assert "manifest 1 of stable" in found(registry.verify(fast=True))


def head(registry: Registry):
    from registry.manifest import Manifest

    return Manifest.from_bytes(registry.manifest("stable")).log_head


def test_links_that_the_owner_broke_are_found(place, registry):
    as_owner(place, "DELETE FROM adapters WHERE name = 'json'")

    faults = [damage.message for damage in registry.verify(fast=True).damage if damage.kind == "database"]

    assert any("versions" in fault and "missing row of adapters" in fault for fault in faults)
