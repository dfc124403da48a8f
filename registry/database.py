"""The database: one short transaction after another, on SQLite or PostgreSQL.

    database = Database.at(home / "registry.db")
    with database.write() as session:      # one writer at a time; all or nothing
        session.execute(...)

A writer takes the write lock when it begins (SQLite: BEGIN IMMEDIATE, PostgreSQL: an advisory lock): what it then
reads cannot change under it, and two writers wait for each other instead of failing half-way. A reader sees the state
of its first look, and neither waits. How the databases are reached and what their refusals mean is in
registry.engines. Alembic is imported only to change the schema.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, exc, text
from sqlalchemy.orm import Session

from registry import engines, files
from registry.engines import translated
from registry.errors import Conflict, NotFound

SCHEMA = "0005"  # the newest migration; a test compares


class Database:
    """One database, by URL. The connections that it keeps end with it, and at the latest with the process.

    `patience` is how many seconds a writer waits for another one.
    """

    def __init__(self, url: URL, *, patience: int = engines.PATIENCE) -> None:
        self.engine = engines.connected(url, patience=patience)
        self._patience = patience
        self.name = engines.label(url)
        self._close = weakref.finalize(self, _dispose, self.engine, os.getpid())

    @classmethod
    def at(cls, path: Path) -> Database:
        """The SQLite database in a file."""
        return cls(engines.sqlite_url(path))

    @classmethod
    def found(cls, home: Path, environment: Mapping[str, str]) -> Database:
        """The database of a home, wherever the environment says it is. Raises NotFound where there is no file."""
        url = engines.database_url(home, environment)
        if not engines.is_there(url):
            raise NotFound(f"no registry in {home}", hint="make one with `ptdock init`", path=str(home))
        return cls(url)

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
            files.announce("commit", Path(self.name))
            session.commit()
        files.announce("committed", Path(self.name))

    @contextmanager
    def _session(self, *, write: bool) -> Iterator[Session]:
        # Nothing is written through objects, so there is never anything to flush.
        with translated(self.name), Session(self.engine, autoflush=False, expire_on_commit=False) as session:
            options: dict[str, Any] = {"ptdock_write": write}
            if self.engine.dialect.name == "postgresql":
                # A writer must see what was committed while it waited for the lock, whatever the server's default.
                options["isolation_level"] = "READ COMMITTED" if write else "REPEATABLE READ"
                options["postgresql_readonly"] = not write
            connection = session.connection(execution_options=options)
            if write:
                engines.wait_for_writers(connection, self._patience)
            yield session

    def close(self) -> None:
        """Give the connections back; SQLite then leaves one whole file. The next use opens new ones."""
        self.engine.dispose()

    def schema(self) -> str | None:
        """The migration that the database is at; None when it holds no schema."""
        with translated(self.name), self.engine.connect() as connection:
            try:
                return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
            except (exc.OperationalError, exc.ProgrammingError) as error:
                if "no such table" in str(error.orig) or getattr(error.orig, "sqlstate", None) == "42P01":
                    return None
                raise

    def check_schema(self) -> None:
        """Raise Conflict unless the database has this program's schema."""
        actual = self.schema()
        if actual is None:
            raise NotFound(f"{self.name} holds no registry", hint="make one with `ptdock init`")
        if actual != SCHEMA:
            newer = actual > SCHEMA
            raise Conflict(
                f"{self.name} has schema {actual}, but this ptdock works with {SCHEMA}",
                hint="upgrade ptdock" if newer else "run `ptdock db upgrade`",
                expected=SCHEMA,
                actual=actual,
            )

    def upgrade(self, revision: str = "head") -> None:
        """Bring the schema to a migration, by default the newest. Raises Unavailable."""
        with translated(self.name):
            with self.engine.connect() as connection:
                engines.check_database(connection)
            migrate(revision, self.engine.url)


def _dispose(engine: Engine, process: int) -> None:
    if os.getpid() == process:  # a child that was forked has nothing of its own here
        engine.dispose()


def migrate(revision: str, where: URL | Connection) -> None:
    """Run the migrations that lead to a revision, on connections of their own or inside the caller's transaction."""
    from alembic import command  # noqa: PLC0415 - 0.2 s that only a schema change may cost
    from alembic.config import Config  # noqa: PLC0415 - as above

    import migrations  # noqa: PLC0415 - as above

    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent).replace("%", "%%"))
    config.attributes["url" if isinstance(where, URL) else "connection"] = where
    command.upgrade(config, revision)
