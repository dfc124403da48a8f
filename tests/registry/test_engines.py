"""How the databases are reached, what keeping their connections must not cost, and what their refusals are called."""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import URL, make_url, text

from registry.catalog import log
from registry.catalog.log import Change
from registry.database import Database
from registry.engines import ENVIRONMENT, database_url
from registry.errors import Conflict, InputError, IntegrityError, Unavailable
from tests.registry.postgresql import Server


def from_environment(url: str) -> URL:
    return database_url(Path("/home"), {ENVIRONMENT: url})


def append(database: Database, subject: str) -> None:
    with database.write() as session:
        Change(session, 0, "test").record("step", subject)


def subjects(database: Database) -> set[str]:
    with database.read() as session:
        return {event.subject for event in log.events(session)}


@pytest.mark.parametrize("environment", [{}, {ENVIRONMENT: ""}])
def test_without_a_word_the_database_is_the_homes_own_file(environment):
    assert database_url(Path("/home"), environment) == make_url("sqlite:////home/registry.db")


@pytest.mark.parametrize("scheme", ["postgresql+psycopg", "postgresql", "postgres"])
def test_postgresql_is_reached_through_psycopg_however_it_is_spelt(scheme):
    assert from_environment(f"{scheme}://me@db/ptdock") == make_url("postgresql+psycopg://me@db/ptdock")


@pytest.mark.parametrize(
    "url",
    [
        "mysql://me:secret@db/x",
        "secret",
        "sqlite://",
        "postgresql+asyncpg://me:secret@db/x",
        "postgresql://me:a:p@ss:secret@db/x",  # its characters unquoted: the rest of the password stands for a port
    ],
)
def test_another_kind_of_database_is_refused_without_repeating_the_password(url):
    with pytest.raises(InputError, match=ENVIRONMENT) as caught:
        from_environment(url)

    assert "secret" not in caught.value.message + caught.value.hint
    assert "postgresql+psycopg://" in caught.value.hint


def test_a_server_that_is_not_there_is_unavailable_and_the_password_stays_unsaid(tmp_path):
    database = Database(from_environment(f"postgresql://me:secret@/ptdock?host={tmp_path}"))

    with pytest.raises(Unavailable, match=r"postgresql\+psycopg://me:\*\*\*@/ptdock cannot be used: ") as caught:
        database.schema()

    assert "secret" not in caught.value.message


def test_without_its_driver_postgresql_says_what_to_install():
    """Another process, in which psycopg cannot be imported."""
    code = """
import sys
sys.modules["psycopg"] = None
from registry.engines import connected
from sqlalchemy import make_url
from registry.errors import Unavailable
try:
    connected(make_url("postgresql+psycopg://db/ptdock"))
except Unavailable as error:
    print(error.message, "|", error.hint)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd())

    assert done.stdout == "PostgreSQL needs the package psycopg | pip install 'ptdock[postgres]'\n"


@pytest.mark.parametrize("texts", ["LOCALE_PROVIDER icu ICU_LOCALE 'en-US'", "ENCODING 'SQL_ASCII' LOCALE 'C'"])
def test_a_database_that_sorts_texts_by_a_language_is_refused_with_the_way_out(server: Server, texts):
    name = server.create(texts=texts)
    database = Database(server.url(name))

    with pytest.raises(Conflict, match="must have the encoding UTF8 and the collation C") as caught:
        database.upgrade()

    assert database.schema() is None
    assert f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'" in caught.value.hint
    server.drop(name)


@pytest.mark.parametrize(
    ("setting", "message", "hint"),
    [
        (
            {"options": "-c default_transaction_read_only=on"},
            "in a read-only transaction",
            "name the server that takes",
        ),
        ({"user": "stranger"}, "permission denied for", "grant the user all rights"),
        ({"connect_timeout": "soon"}, "bad value for connect_timeout", "check the settings behind the \\?"),
    ],
)
def test_what_postgresql_refuses_by_its_settings_is_no_damage(server: Server, setting, message, hint):
    server.execute("DROP ROLE IF EXISTS stranger")
    server.execute("CREATE ROLE stranger LOGIN")
    name = server.create()

    with pytest.raises(Unavailable, match=rf" refused: .*{message}") as caught:
        Database(server.url(name).update_query_dict(setting)).upgrade()

    assert re.search(hint, caught.value.hint)
    server.drop(name)


def test_a_schema_that_a_user_may_not_read_is_not_said_to_be_missing(server: Server):
    """Else the way out would be `ptdock init`."""
    server.execute("DROP ROLE IF EXISTS stranger")
    server.execute("CREATE ROLE stranger LOGIN")
    name = server.create()
    Database(server.url(name)).upgrade()

    with pytest.raises(Unavailable, match="permission denied for table alembic_version"):
        Database(server.url(name).set(username="stranger")).schema()

    server.drop(name)


def test_a_dropped_table_is_damage_on_either_database(place):
    with place.database.engine.begin() as connection:
        connection.execute(text("DROP TABLE tokens"))

    with pytest.raises(IntegrityError, match=r" is damaged: .*tokens"), place.database.read() as session:
        session.execute(text("SELECT name FROM tokens"))


def test_a_kept_connection_that_no_longer_checks_links_is_not_used_again(empty_home, tmp_path):
    """A migration switches foreign keys off; a connection that kept that would take broken links in silence."""
    shutil.copy(empty_home / "registry.db", tmp_path)
    database = Database.at(tmp_path / "registry.db")
    with database.engine.connect() as connection:
        broken = connection.connection.dbapi_connection
        broken.execute("PRAGMA foreign_keys = OFF")

    with database.read() as session:
        assert session.scalar(text("PRAGMA foreign_keys")) == 1
        assert session.connection().connection.dbapi_connection is not broken


def test_one_connection_serves_one_transaction_after_another(place):
    database = place.database
    used = set()
    for transaction in (database.write, database.read, database.write):
        with transaction() as session:
            used.add(id(session.connection().connection.dbapi_connection))

    assert len(used) == 1


def test_a_forked_process_opens_connections_of_its_own(place):
    """Both processes go on: a shared PostgreSQL socket would mix their answers, a shared SQLite lose its locks."""
    database = place.database
    append(database, "before")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for number in range(5):
                append(database, f"child {number}")
            code = 0
        finally:
            os._exit(code)
    for number in range(5):
        append(database, f"parent {number}")
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert {f"{who} {number}" for who in ("child", "parent") for number in range(5)} < subjects(database)


def test_a_closed_database_leaves_one_whole_file(empty_home, tmp_path):
    """What a backup copies while nobody writes."""
    path = Path(shutil.copy(empty_home / "registry.db", tmp_path))
    database = Database.at(path)
    append(database, "last")

    del database

    assert [each.name for each in tmp_path.iterdir()] == ["registry.db"]
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT subject FROM events ORDER BY id DESC").fetchone() == ("last",)
    connection.close()


def test_a_connection_that_the_server_ended_is_replaced(server: Server, place):
    database = place.database
    append(database, "before")
    if database.engine.dialect.name == "postgresql":
        server.execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database.engine.url.database}'"  # noqa: S608 - the test's own
        )

    append(database, "after")

    assert {"before", "after"} < subjects(database)


def test_a_writer_that_waits_too_long_says_so_and_may_try_again(place):
    holder, waiter = place.database, Database(place.database.engine.url, patience=1)
    with holder.write():
        began = time.monotonic()
        with pytest.raises(Unavailable, match="was locked by another process for too long"):
            append(waiter, "never")

    assert 0.9 < time.monotonic() - began < 5
    append(waiter, "later")
    assert subjects(holder) >= {"later"}
