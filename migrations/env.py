"""How Alembic reaches the database: what the caller gave, else PTDOCK_DATABASE_URL or PTDOCK_HOME's registry.db.

SQLite cannot alter a constraint, so Alembic copies the table, for which foreign keys must be off. They are checked as a
whole before the migration is committed; the connection is not pooled, so the setting ends with it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from alembic import context
from sqlalchemy import URL, Connection, text
from sqlalchemy.types import TypeDecorator

from registry.engines import connected, database_url, wait_for_writers
from registry.errors import IntegrityError
from registry.tables import Table


def render_item(kind: str, value: Any, _context: Any) -> str | Literal[False]:
    """Write our own column types as the plain types they are stored in: a migration imports no live code."""
    return "sa.Text()" if kind == "type" and isinstance(value, TypeDecorator) else False


def url() -> URL:
    """What the caller gave, else what the environment names."""
    given: URL | None = context.config.attributes.get("url")
    return given or database_url(Path(os.environ.get("PTDOCK_HOME", Path.home() / ".ptdock")), os.environ)


def migrate(connection: Connection) -> None:
    """Run the migrations that are due, in one transaction."""
    context.configure(
        connection=connection,
        target_metadata=Table.metadata,
        render_item=render_item,
        render_as_batch=connection.dialect.name == "sqlite",
        transactional_ddl=True,
    )
    with context.begin_transaction():
        wait_for_writers(connection)
        context.run_migrations()
        if connection.dialect.name == "sqlite":
            check_links(connection)


def check_links(connection: Connection) -> None:
    """Refuse the migration when it leaves a row whose target is gone. Raises IntegrityError."""
    broken = connection.execute(text("PRAGMA foreign_key_check")).first()
    if broken:
        raise IntegrityError(
            f"the migration would break a link of table {broken[0]} to {broken[2]}",
            hint="nothing was changed; `ptdock verify` names the damage",
        )


def run() -> None:
    """Connect, switch SQLite's foreign keys off outside of any transaction, and migrate.

    A caller that gives a connection has seen to all of that, and its transaction is the caller's.
    """
    if given := context.config.attributes.get("connection"):
        migrate(given)
        return
    engine = connected(url(), keep=False)
    with engine.connect() as connection:
        if connection.dialect.name == "sqlite":
            # The pragma is ignored inside a transaction, and SQLAlchemy begins one with the first statement.
            connection.connection.execute("PRAGMA foreign_keys = OFF")
        migrate(connection.execution_options(ptdock_write=True))


run()
