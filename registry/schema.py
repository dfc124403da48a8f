"""`ptdock db`: bring a schema up, and see whether it is exactly what the migrations make.

    upgrade(database)           # answers the schema before
    backup(database, path)      # a copy of an SQLite database that is in use
    differences(database)       # () where no table, constraint, index or trigger was dropped, altered or added by hand

What is compared is the definitions that the database itself tells, with those of a schema that the same migrations make
a moment before, in SQLite's memory or in a PostgreSQL schema that is rolled back. Alembic's own comparison would pass
over CHECK constraints and triggers, which is where a registry's invariants are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import URL, Connection, text

from registry import files
from registry.catalog import content
from registry.database import SCHEMA, Database, migrate
from registry.engines import check_database, connected, translated
from registry.errors import Conflict, InputError

Definitions = Mapping[str, str]
"""What a schema consists of: an object's kind and name, and how it is defined."""

_SCRATCH = "ptdock_check"
_NUMBERS = tuple(f"{number:04}" for number in range(int(SCHEMA), 0, -1))  # of the migrations, the newest first

_SQLITE = "SELECT type || ' ' || name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"

# The pretty forms name a relation without its schema where the search path finds it.
_POSTGRESQL = """
SELECT 'column ' || c.relname || '.' || a.attname,
  concat_ws(' ', format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN 'NOT NULL' END,
    'DEFAULT ' || pg_get_expr(d.adbin, d.adrelid))
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
  LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
  WHERE c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
  AND c.relnamespace = current_schema()::regnamespace
UNION ALL SELECT 'constraint ' || conname, conrelid::regclass || ' ' || pg_get_constraintdef(oid, true)
  FROM pg_constraint WHERE conrelid <> 0 AND connamespace = current_schema()::regnamespace
UNION ALL SELECT 'index ' || c.relname, pg_get_indexdef(i.indexrelid, 0, true)
  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relnamespace = current_schema()::regnamespace
UNION ALL SELECT 'trigger ' || t.tgname,
  pg_get_triggerdef(t.oid, true) || CASE t.tgenabled WHEN 'O' THEN '' ELSE ' DISABLED' END
  FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
  WHERE NOT t.tgisinternal AND c.relnamespace = current_schema()::regnamespace
UNION ALL SELECT 'function ' || proname, prosrc FROM pg_proc
  WHERE proname LIKE 'ptdock%' AND pronamespace = current_schema()::regnamespace
"""


def upgrade(database: Database) -> str:
    """Bring a registry's schema to this program's; answers what it was.

    Raises NotFound; Conflict for a newer one, and for one that is not what its number says.
    """
    before = database.schema()
    if before is None or (before.isdecimal() and before > SCHEMA):
        database.check_schema()
    made_as = _made_as(database)
    if made_as != before and (made_as or before not in _NUMBERS):
        has = f"that of {made_as}" if made_as else "none that ptdock makes"
        right = f"set alembic_version.version_num to '{made_as}', or " if made_as else ""
        raise Conflict(
            f"{database.name} says that its schema is {before}, but has {has}",
            hint=f"somebody changed the number: {right}restore a backup",
            expected=before,
            actual=made_as,
        )
    database.upgrade()
    return str(before)


def _made_as(database: Database) -> str | None:
    """The migration whose schema a database has, whatever number it bears; None for a schema that none makes."""
    with translated(database.name), database.engine.connect() as connection:
        actual = definitions(connection)
    return next((number for number in _NUMBERS if _expected(database.engine.url, number) == actual), None)


def backup(database: Database, target: Path) -> None:
    """Write a copy of an SQLite database as one transaction left it, while others read and write; durable when it ends.

    Raises Conflict when the target exists, InputError for a directory that is not there and for PostgreSQL, which has
    its own tools.
    """
    if database.engine.dialect.name != "sqlite":
        raise InputError(f"{database.name} is a server's", hint="pg_dump makes its backup")
    if not target.parent.is_dir():
        raise InputError(f"{target.parent} is not a directory", hint="make it first, or name a file elsewhere")
    if target.exists():
        raise Conflict(f"{target} exists", hint="give each backup a name of its own", path=str(target))
    with files.translated(target), translated(database.name):
        fresh = target.with_name(f"{target.name}.part")
        files.unlink(fresh)
        with database.engine.connect().execution_options(ptdock_write=None) as connection:
            connection.exec_driver_sql("VACUUM INTO ?", (str(fresh),))
        files.sync(fresh)
        files.rename(fresh, target)
        files.sync(target.parent)


def check(database: Database) -> tuple[str, ...]:
    """What is wrong with a database's schema, pages and links, one sentence each.

    Raises NotFound and Conflict when it has no schema or another one than this program's.
    """
    database.check_schema()
    with database.read() as session:
        check_database(session.connection())
        faults = content.faults(session)
    return (*differences(database), *faults)


def differences(database: Database) -> tuple[str, ...]:
    """What separates a database from its own migration's schema, one sentence each; none when nothing does."""
    with translated(database.name), database.engine.connect() as connection:
        actual = definitions(connection)
    expected = _expected(database.engine.url, database.schema() or "base")
    common = actual.keys() & expected.keys()
    changed = [
        f"{name} is not as it was made: {_line(actual[name])}" for name in common if actual[name] != expected[name]
    ]
    missing = [f"{name} is missing" for name in expected if name not in actual]
    added = [f"{name} does not belong there" for name in actual if name not in expected]
    return tuple(sorted([*changed, *missing, *added]))


def _line(definition: str) -> str:
    return re.sub(r"\s+", " ", definition)


def definitions(connection: Connection) -> Definitions:
    """What the schema of a connection consists of, as the database itself tells it."""
    query = _SQLITE if connection.dialect.name == "sqlite" else _POSTGRESQL
    return {row[0]: row[1] for row in connection.execute(text(query))}


def _expected(url: URL, revision: str) -> Definitions:
    sqlite = url.get_backend_name() == "sqlite"
    engine = connected(URL.create("sqlite") if sqlite else url, keep=False)
    with translated(str(url.database)), engine.connect() as connection:
        if not sqlite:  # all of this is undone when the connection closes
            connection.execute(text(f"CREATE SCHEMA {_SCRATCH}"))
            connection.execute(text(f"SET LOCAL search_path TO {_SCRATCH}"))
        migrate(revision, connection)
        return definitions(connection)
