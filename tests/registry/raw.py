"""A database without any of ptdock's code: what it refuses here, it refuses everyone."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import psycopg
import pytest
from psycopg import errors
from sqlalchemy import URL

Refusal = tuple[str, str]
"""The kind (`check`, `unique`, `link`, `type`, `fixed`), and the constraint's name or the trigger's words."""


class Connection(Protocol):
    """What sqlite3 and psycopg have in common."""

    def execute(self, statement: str) -> Any:
        """Run a statement and answer its cursor."""
        ...


class Raw:
    """One transaction, undone at the end."""

    def __init__(self, connection: Connection, refused: Callable[[Exception], Refusal]) -> None:
        self._connection = connection
        self._refused = refused

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What a query answers."""
        rows: list[tuple[Any, ...]] = self._connection.execute(query).fetchall()
        return rows

    def columns(self, table: str) -> list[str]:
        """A table's columns, in order."""
        cursor = self._connection.execute(f"SELECT * FROM {table} LIMIT 0")  # noqa: S608 - the tests' own
        return [column[0] for column in cursor.description]

    def changed(self, statement: str) -> int:
        """Do a change; answers how many rows it reached."""
        count: int = self._connection.execute(statement).rowcount
        return count

    def refusal(self, statement: str) -> Refusal:
        """Why the database refuses a statement, which must fail."""
        self._connection.execute("SAVEPOINT before")
        with pytest.raises((sqlite3.IntegrityError, psycopg.Error)) as caught:
            self._connection.execute(statement)
        self._connection.execute("ROLLBACK TO before")
        return self._refused(caught.value)


@contextmanager
def opened(url: URL) -> Iterator[Raw]:
    """Connect with the driver alone; on SQLite with nothing but foreign keys switched on."""
    if url.get_backend_name() == "sqlite":
        connection = sqlite3.connect(str(url.database), isolation_level=None)
        connection.execute("PRAGMA foreign_keys = ON")
        refused = _sqlite
    else:
        host = str(url.query["host"])
        connection = psycopg.connect(host=host, user=url.username, dbname=url.database, autocommit=True)
        refused = _postgresql
    connection.execute("BEGIN")
    try:
        yield Raw(connection, refused)
    finally:
        connection.execute("ROLLBACK")
        connection.close()


def _sqlite(error: Exception) -> Refusal:
    message = str(error)
    for kind, pattern in {
        "check": r"CHECK constraint failed: (\w+)",
        "unique": r"UNIQUE constraint failed: (.+)",
        "link": r"FOREIGN KEY constraint failed()",
        "type": r"cannot store TEXT value in INTEGER column (.+)",
        "fixed": r"(\w+ is immutable: no \w+)",
    }.items():
        if found := re.fullmatch(pattern, message):
            return kind, found[1]
    raise error


def _postgresql(error: Exception) -> Refusal:
    assert isinstance(error, psycopg.Error)
    constraint = error.diag.constraint_name or ""
    match error:
        case errors.CheckViolation():
            return "check", constraint
        case errors.UniqueViolation():
            return "unique", constraint
        case errors.ForeignKeyViolation() | errors.RestrictViolation():
            return "link", constraint
        case errors.DatatypeMismatch() | errors.InvalidTextRepresentation():
            return "type", ""
        case errors.IntegrityConstraintViolation():
            return "fixed", str(error.diag.message_primary)
    raise error
