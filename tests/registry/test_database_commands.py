"""`ptdock db` on a real store, and the whole command line on PostgreSQL."""

import sqlite3
from pathlib import Path

import pytest

from registry.blobs import LocalStore
from registry.database import SCHEMA
from registry.engines import ENVIRONMENT
from tests.command_line import answer, ptdock, refusal
from tests.registry.places import Place
from tests.registry.released import SCHEMAS, load


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty store."""
    answer(tmp_path / "home", "init")
    return tmp_path / "home"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A store that an earlier version made."""
    load(Place(tmp_path), SCHEMAS[0])
    LocalStore.create(tmp_path)
    return tmp_path


def by_hand(home: Path, statement: str) -> None:
    with sqlite3.connect(home / "registry.db") as connection:
        connection.execute(statement)
    connection.close()


def test_an_old_store_is_refused_until_it_is_upgraded(old):
    refused = refusal(old, "log", code=6)

    assert refused["values"] == {"expected": SCHEMA, "actual": SCHEMAS[0]}
    assert refused["hint"] == "run `ptdock db upgrade`"
    assert refusal(old, "db", "check", code=6)["message"] == refused["message"]
    database = str(old / "registry.db")
    assert answer(old, "db", "upgrade") == {"database": database, "before": SCHEMAS[0], "schema": SCHEMA}
    assert answer(old, "db", "upgrade") == {"database": database, "before": SCHEMA, "schema": SCHEMA}
    assert answer(old, "db", "check") == {"database": database, "schema": SCHEMA, "faults": []}
    assert answer(old, "log")[-1]["action"] == "registry.init"


def test_a_sound_schema_says_so(home):
    assert ptdock(home, "db", "check").stdout == f"sound: {home / 'registry.db'}, schema {SCHEMA}\n"
    assert ptdock(home, "db", "upgrade").stdout == f"{home / 'registry.db'} has schema {SCHEMA}, as before\n"


def test_an_invariant_that_somebody_took_away_is_named_with_exit_code_7(home):
    by_hand(home, "DROP TRIGGER events_refuse_update")

    done = ptdock(home, "db", "check")

    assert done.exit_code == 7
    assert done.stdout.splitlines() == [
        "changed  trigger events_refuse_update is missing",
        f"1 fault: {home / 'registry.db'}, schema {SCHEMA}",
    ]


def test_a_newer_store_is_refused_by_both(home):
    by_hand(home, "UPDATE alembic_version SET version_num = '9999'")

    for verb in ("check", "upgrade"):
        assert refusal(home, "db", verb, code=6)["hint"] == "upgrade ptdock"


@pytest.mark.parametrize("number", ["0001", "0003", "latest"])
def test_a_number_that_is_not_the_schemas_is_named_and_nothing_is_upgraded(home, number):
    by_hand(home, f"UPDATE alembic_version SET version_num = '{number}'")  # noqa: S608 - of the list above

    refused = refusal(home, "db", "upgrade", code=6)

    assert refused["message"] == f"{home / 'registry.db'} says that its schema is {number}, but has that of {SCHEMA}"
    assert f"set alembic_version.version_num to '{SCHEMA}'" in refused["hint"]
    by_hand(home, f"UPDATE alembic_version SET version_num = '{SCHEMA}'")  # noqa: S608 - a constant
    assert answer(home, "db", "check")["faults"] == []


def test_a_number_of_no_schema_on_a_schema_that_was_changed_is_a_backups_business(home):
    by_hand(home, "DROP TRIGGER events_refuse_update")
    by_hand(home, "UPDATE alembic_version SET version_num = '0000'")

    refused = refusal(home, "db", "upgrade", code=6)

    assert refused["message"].endswith("says that its schema is 0000, but has none that ptdock makes")
    assert refused["hint"] == "somebody changed the number: restore a backup"


def test_a_number_above_the_schemas_own_is_named(old):
    by_hand(old, f"UPDATE alembic_version SET version_num = '{SCHEMA}'")  # noqa: S608 - a constant

    assert f"but has that of {SCHEMAS[0]}" in refusal(old, "db", "upgrade", code=6)["message"]


@pytest.mark.parametrize("verb", ["check", "upgrade"])
def test_where_there_is_no_store_none_is_made(tmp_path, verb):
    assert "ptdock init" in refusal(tmp_path, "db", verb, code=5)["hint"]
    assert list(tmp_path.iterdir()) == []


def test_the_environment_puts_the_database_elsewhere(tmp_path, server, monkeypatch):
    name = server.create()
    monkeypatch.setenv(ENVIRONMENT, server.url(name).render_as_string())

    assert answer(tmp_path / "home", "init")["fresh"] is True
    assert answer(tmp_path / "home", "init")["fresh"] is False
    answer(tmp_path / "home", "channel", "create", "stable")
    assert [event["action"] for event in answer(tmp_path / "home", "log")] == ["channel.create", "registry.init"]
    assert answer(tmp_path / "home", "db", "check")["database"] == f"postgresql+psycopg://postgres@/{name}"
    assert not (tmp_path / "home" / "registry.db").exists()

    monkeypatch.delenv(ENVIRONMENT)
    assert refusal(tmp_path / "home", "log", code=5)["message"] == f"no registry in {tmp_path / 'home'}"
    server.drop(name)
