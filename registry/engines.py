"""Connections to either database with ptdock's settings, and what the databases refuse, in ptdock's words.

    engine = connected(database_url(home, os.environ))

Connections are kept and used again: opening an SQLite database, and checkpointing it when it is closed, costs five
times what a small transaction does. A kept connection is not trusted blindly. It belongs to the process that opened it
(SQLite's locks and PostgreSQL's sockets do not survive a fork), and on SQLite it must still check foreign keys, which
a migration switches off; one that fails either test is left alone and another one is opened. Migrations use connections
of their own, which are not kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Dialect, Engine, NullPool, QueuePool, create_engine, event, exc, make_url, text
from sqlalchemy.pool import ConnectionPoolEntry

from registry.errors import Conflict, InputError, IntegrityError, PtdockError, Unavailable

ENVIRONMENT = "PTDOCK_DATABASE_URL"
FILE = "registry.db"
PATIENCE = 10
"""How many seconds a writer waits for another one."""

_LOCK = 0x7074646F636B  # "ptdock": the number of PostgreSQL's advisory lock
_GONE = ("no such table", "no such column")  # to SQLite an operational error as any other
_FULL = ("disk is full", "disk I/O error", "No space left")
_POSTGRESQL = "postgresql+psycopg"
_READ_ONLY = "it is a replica, or this user may only read: name the server that takes changes"
_REFUSALS: dict[str | None, str] = {  # https://www.postgresql.org/docs/current/errcodes-appendix.html
    None: f"check the settings behind the ? of {ENVIRONMENT}",
    "0A000": _READ_ONLY,  # of a transaction that would write during recovery
    "25006": _READ_ONLY,
    "42501": "grant the user all rights on the database",
}
_PRAGMAS = {
    "journal_mode": "WAL",
    "synchronous": "FULL",
    "foreign_keys": "ON",
    "recursive_triggers": "ON",  # or REPLACE would remove immutable rows past their triggers
}
_foreign: list[Any] = []  # connections of the process that forked this one: to close them is as unsafe as to use them


def sqlite_url(path: Path) -> URL:
    """The URL of an SQLite database in a file."""
    return URL.create("sqlite", database=str(path))


def database_url(home: Path, environment: Mapping[str, str]) -> URL:
    """Where the database of a home is: what PTDOCK_DATABASE_URL names, else the home's own file.

    Raises InputError for a URL of anything but PostgreSQL or SQLite; the message never repeats it: it may hold a
    password.
    """
    given = environment.get(ENVIRONMENT)
    if not given:
        return sqlite_url(home / FILE)
    try:
        url = make_url(given)
    except (exc.ArgumentError, ValueError):  # ValueError: of a port, which an unquoted password can be taken for
        raise InputError(f"{ENVIRONMENT} is not a URL", hint=_URL_HINT) from None
    if url.drivername in {"postgresql", "postgres", _POSTGRESQL}:
        return url.set(drivername=_POSTGRESQL)
    if url.drivername == "sqlite" and url.database:
        return url
    raise InputError(f"{ENVIRONMENT} names a database of another kind: {url.drivername}", hint=_URL_HINT)


_URL_HINT = "write postgresql+psycopg://user@host/database, or unset it: then the store's own file is used"


def is_there(url: URL) -> bool:
    """False for an SQLite file that does not exist: connecting would make it."""
    return url.get_backend_name() != "sqlite" or Path(url.database or "").is_file()


def label(url: URL) -> str:
    """How messages call a database: a file's path, or the address without its password."""
    if url.get_backend_name() == "sqlite":
        return url.database or ":memory:"
    return url.set(query={}).render_as_string(hide_password=True)


def connected(url: URL, *, keep: bool = True, patience: int = PATIENCE) -> Engine:
    """An engine with ptdock's settings for its database; `keep` says whether its connections are used again.

    `patience` is how many seconds SQLite's writers wait for each other; PostgreSQL's say so when they begin.

    Raises Unavailable when the database's driver is not installed.
    """
    sqlite = url.get_backend_name() == "sqlite"
    settings: dict[str, Any] = {"poolclass": QueuePool, "pool_use_lifo": True} if keep else {"poolclass": NullPool}
    if not sqlite:
        settings["connect_args"] = {"client_encoding": "utf8"}
    try:
        engine = create_engine(url, **settings)
    except ModuleNotFoundError as error:
        raise Unavailable(
            f"PostgreSQL needs the package {error.name}", hint="pip install 'ptdock[postgres]'"
        ) from error
    if sqlite:
        event.listen(engine, "connect", partial(_configure, patience))
        event.listen(engine, "begin", _begin)
    event.listen(engine, "connect", _remember_process)
    event.listen(engine, "checkout", _check_process)
    event.listen(engine, "checkout", _check_links if sqlite else partial(_check_alive, engine.dialect))
    return engine


def _configure(patience: int, connection: Any, _entry: ConnectionPoolEntry) -> None:
    """Durable writes that wait for each other, readers beside them, and every link checked."""
    connection.isolation_level = None  # sqlite3 would begin by itself, deferred, and only before a change
    connection.execute(f"PRAGMA busy_timeout = {patience * 1000}")
    for name, value in _PRAGMAS.items():
        connection.execute(f"PRAGMA {name} = {value}")


def _remember_process(_connection: Any, entry: ConnectionPoolEntry) -> None:
    entry.info["process"] = os.getpid()


def _check_process(connection: Any, entry: ConnectionPoolEntry, proxy: Any) -> None:
    """Never touch what another process opened: https://docs.sqlalchemy.org/20/core/pooling.html#pooling-multiprocessing."""
    if entry.info["process"] != os.getpid():
        _foreign.append(connection)
        entry.dbapi_connection = proxy.dbapi_connection = None  # type: ignore[misc]  # as the manual has it
        raise exc.DisconnectionError("opened before a fork")


def _check_links(connection: Any, _entry: ConnectionPoolEntry, _proxy: Any) -> None:
    if connection.execute("PRAGMA foreign_keys").fetchone() != (1,):
        raise exc.DisconnectionError("does not check foreign keys")


def _check_alive(dialect: Dialect, connection: Any, _entry: ConnectionPoolEntry, _proxy: Any) -> None:
    try:
        dialect.do_ping(connection)
    except dialect.loaded_dbapi.Error as error:
        raise exc.DisconnectionError("the server ended it") from error


def _begin(connection: Connection) -> None:
    """Begin as the option `ptdock_write` says; not at all when it is None, for what no transaction may contain."""
    write = connection.get_execution_options().get("ptdock_write", False)
    if write is not None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def wait_for_writers(connection: Connection, patience: int = PATIENCE) -> None:
    """Take the write lock until the transaction ends; SQLite has it since BEGIN IMMEDIATE."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL lock_timeout = '{patience}s'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})


def check_database(connection: Connection) -> None:
    """Refuse a PostgreSQL database in which texts are not in the order of their bytes. Raises Conflict.

    Names and digests are sorted by the database, and documents that are hashed hold them in that order. A collation of
    the system's can also change with its C library, which breaks indexes
    (https://wiki.postgresql.org/wiki/Locale_data_changes).
    """
    if connection.dialect.name != "postgresql":
        return
    encoding = connection.scalar(text("SHOW server_encoding"))
    if encoding != "UTF8" or not connection.scalar(text("SELECT 'Z' < 'a' AND 'a-z' < 'aa'")):
        name = connection.engine.url.database
        raise Conflict(
            f"the database {name} must have the encoding UTF8 and the collation C",
            hint=f"make it with: CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'",
        )


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Turn what the database called `name` refuses into ptdock's errors."""
    try:
        yield
    except (exc.IntegrityError, exc.DataError) as error:
        raise Conflict(f"the database refused: {_reason(error)}", hint="the change was undone") from error
    except exc.OperationalError as error:
        if any(word in _reason(error) for word in _GONE):
            raise _refused(name, error) from error
        raise _unavailable(name, _reason(error)) from error
    except exc.TimeoutError as error:  # of the pool
        raise Unavailable(f"{name} has no connection free", hint="repeat the command") from error
    except exc.InterfaceError as error:  # no DatabaseError: the driver has lost its connection
        raise _unavailable(name, _reason(error)) from error
    except exc.DatabaseError as error:
        raise _refused(name, error) from error
    except exc.StatementError as error:  # the value itself: it is told as anywhere else, without the statement
        if isinstance(error.orig, UnicodeEncodeError):
            raise error.orig from None
        raise


def _reason(error: exc.DBAPIError) -> str:
    return " ".join(str(error.orig).split())  # PostgreSQL answers several lines


def _refused(name: str, error: exc.DBAPIError) -> PtdockError:
    """Damage, unless PostgreSQL's code says otherwise; what its driver refuses itself has none."""
    code = getattr(error.orig, "sqlstate", "XX000")
    if code in _REFUSALS:
        return Unavailable(f"{name} refused: {_reason(error)}", hint=_REFUSALS[code])
    return IntegrityError(
        f"{name} is damaged: {_reason(error)}", hint="restore a backup of the database; blobs are kept beside it"
    )


def _unavailable(name: str, reason: str) -> PtdockError:
    if any(word in reason for word in _FULL):
        return Unavailable(
            f"no space left for {name}",
            hint="free some space (`ptdock gc` can, from its reserve); then repeat the command",
        )
    if "locked" in reason or "lock timeout" in reason:
        return Unavailable(
            f"{name} was locked by another process for too long", hint="wait for it to end, then repeat the command"
        )
    hint = "check the path or address, and that you may use it"
    if "unable to open" in reason:
        hint = "SQLite writes beside its file even to read it: is its directory there, and may you write to it?"
    return Unavailable(f"{name} cannot be used: {reason}", hint=hint)
