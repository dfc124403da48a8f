"""The database: one short transaction after another, on SQLite or PostgreSQL.

    database = Database.at(home / "registry.db")
    with database.write() as session:      # one writer at a time; all or nothing
        session.execute(...)

A writer takes the write lock when it begins (SQLite: BEGIN IMMEDIATE, PostgreSQL: an advisory lock): what it then
reads cannot change under it, and two writers wait for each other instead of failing half-way. What the database
refuses is translated here, once, into ptdock's errors. Alembic is imported only to change the schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, exc, text
from sqlalchemy.orm import Session

from registry import files
from registry.errors import Conflict, IntegrityError, NotFound, PtdockError, Unavailable

SCHEMA = "0002"  # the newest migration; a test compares

_LOCK = 0x7074646F636B  # "ptdock": the number of PostgreSQL's advisory lock
_BUSY_SECONDS = 10
_FULL = ("disk is full", "disk I/O error", "No space left")


class Database:
    """One database, by URL. It holds no connection while it is idle."""

    def __init__(self, url: str | URL) -> None:
        self.engine = connected(url)
        self._path = Path(self.engine.url.database or "registry.db")

    @classmethod
    def at(cls, path: Path) -> Database:
        """The SQLite database in a file."""
        return cls(sqlite_url(path))

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session that sees one state of the database, whatever writers do meanwhile."""
        with self._session(write=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A transaction that holds the write lock; committed when the block ends, undone when it raises.

        Raises Conflict for what a constraint refuses, Unavailable when the database is full, locked or gone.
        """
        with self._session(write=True) as session:
            yield session
            files.announce("commit", self._path)
            session.commit()
        files.announce("committed", self._path)

    @contextmanager
    def _session(self, *, write: bool) -> Iterator[Session]:
        # Nothing is written through objects, so there is never anything to flush.
        with translated(self._path), Session(self.engine, autoflush=False, expire_on_commit=False) as session:
            options: dict[str, Any] = {"ptdock_write": write}
            if not write and self.engine.dialect.name == "postgresql":
                options["isolation_level"] = "REPEATABLE READ"
            connection = session.connection(execution_options=options)
            if write:
                wait_for_writers(connection)
            yield session

    def schema(self) -> str | None:
        """The migration that the database is at; None when it holds no schema."""
        with translated(self._path), self.engine.connect() as connection:
            try:
                return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
            except (exc.OperationalError, exc.ProgrammingError) as error:
                if "alembic_version" in str(error.orig):  # no such table
                    return None
                raise

    def check_schema(self) -> None:
        """Raise Conflict unless the database has this program's schema."""
        actual = self.schema()
        if actual is None:
            raise NotFound(f"{self._path} holds no registry", hint="make one with `ptdock init`")
        if actual != SCHEMA:
            newer = actual > SCHEMA
            raise Conflict(
                f"{self._path} has schema {actual}, but this ptdock works with {SCHEMA}",
                hint="upgrade ptdock" if newer else "run `ptdock db upgrade`",
                expected=SCHEMA,
                actual=actual,
            )

    def upgrade(self, revision: str = "head") -> None:
        """Bring the schema to a migration, by default the newest. Raises Unavailable."""
        from alembic import command  # noqa: PLC0415 - 0.2 s that only a schema change may cost

        config = _alembic_config()
        with translated(self._path):
            config.attributes["url"] = self.engine.url
            command.upgrade(config, revision)

    def drift(self) -> list[Any]:
        """What separates the database from the models, as Alembic's operations; empty when nothing does."""
        from alembic.autogenerate import compare_metadata  # noqa: PLC0415 - as above
        from alembic.migration import MigrationContext  # noqa: PLC0415 - as above

        from registry.tables import Table  # noqa: PLC0415 - only the comparison needs the models here

        with self.engine.connect() as connection:
            return list(compare_metadata(MigrationContext.configure(connection), Table.metadata))


def sqlite_url(path: Path) -> URL:
    """The URL of an SQLite database in a file."""
    return URL.create("sqlite", database=str(path))


def connected(url: str | URL) -> Engine:
    """An engine with ptdock's settings for its database.

    SQLite's connections are not pooled: a migration switches foreign keys off, and a connection that went back to a
    pool so would accept broken links in silence.
    """
    engine = create_engine(url, poolclass=NullPool)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _configure)
        event.listen(engine, "begin", _begin)
    return engine


def _configure(connection: Any, _record: Any) -> None:
    """Durable writes that wait for each other, readers beside them, and every link checked."""
    connection.isolation_level = None  # sqlite3 would begin by itself, deferred, and only before a change
    for pragma in (
        f"busy_timeout = {_BUSY_SECONDS * 1000}",
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
        "recursive_triggers = ON",  # or REPLACE would remove immutable rows past their triggers
    ):
        connection.execute(f"PRAGMA {pragma}")


def wait_for_writers(connection: Connection) -> None:
    """Take the write lock until the transaction ends; SQLite has it since BEGIN IMMEDIATE."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})


def _begin(connection: Connection) -> None:
    write = connection.get_execution_options().get("ptdock_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn what the database refuses into ptdock's errors."""
    try:
        yield
    except exc.IntegrityError as error:
        raise Conflict(f"the database refused: {error.orig}", hint="the change was undone") from error
    except exc.OperationalError as error:
        raise _unavailable(path, str(error.orig)) from error
    except exc.DatabaseError as error:
        raise IntegrityError(
            f"{path} is damaged: {error.orig}", hint="restore a backup of the database; blobs are kept beside it"
        ) from error


def _unavailable(path: Path, reason: str) -> PtdockError:
    if any(word in reason for word in _FULL):
        return Unavailable(f"no space left for {path}", hint="free some space, then repeat the command")
    if "locked" in reason:
        return Unavailable(
            f"{path} is locked by another process for more than {_BUSY_SECONDS} seconds",
            hint="wait for it to end, then repeat the command",
        )
    return Unavailable(f"{path} cannot be used: {reason}", hint="check the path, its owner and the mount")


def _alembic_config() -> Any:
    """Alembic's configuration for the migrations that are installed with this program."""
    from alembic.config import Config  # noqa: PLC0415 - only a schema change needs it

    import migrations  # noqa: PLC0415 - only a schema change needs it

    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent).replace("%", "%%"))
    return config
