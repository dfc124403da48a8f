"""A small database of every schema that was released, as SQL: what users have, and what must be upgraded.

`released/<schema>.<database>.sql` is never changed. Whoever adds a migration keeps the database of its schema too:

    python -m tests.registry.released
"""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

import psycopg
from sqlalchemy import text

from registry.database import SCHEMA, Database
from tests.registry.exporting import export_pair
from tests.registry.files import Pair
from tests.registry.places import Kind, Place, Postgresql, Sqlite
from tests.registry.postgresql import running
from tests.registry.stock import fill

FILES = Path(__file__).parent / "released"
SCHEMAS = sorted({path.name.partition(".")[0] for path in FILES.glob("*.sql")})


def load(place: Place, schema: str) -> Database:
    """Make the kept database of a schema in a place that has none."""
    url = place.database.engine.url
    sqlite = url.get_backend_name() == "sqlite"
    statements = (FILES / f"{schema}.{'sqlite' if sqlite else 'postgresql'}.sql").read_text()
    if sqlite:
        connection = sqlite3.connect(str(url.database))
        connection.executescript(statements)
        connection.close()
    else:
        with psycopg.connect(host=str(url.query["host"]), user=url.username, dbname=url.database) as session:
            session.execute(statements.encode())
    return place.database


def rows(database: Database) -> dict[str, list[dict[str, object]]]:
    """Everything in a database, by table, in an order of its own."""
    listed = "SELECT name FROM sqlite_master WHERE type = 'table'"
    if database.engine.dialect.name == "postgresql":
        listed = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    with database.read() as session:
        tables = [name for name in session.scalars(text(listed)) if name != "alembic_version"]
        found = {name: session.execute(text(f"SELECT * FROM {name}")).mappings() for name in tables}  # noqa: S608
        return {name: sorted(map(dict, content), key=repr) for name, content in found.items()}


def keep(kind: Kind, pair: Pair, home: Path) -> str:
    """The SQL of a registry that has something in every corner."""
    place = kind.at(home)
    stock = fill(place.init(), pair)
    stock.registry.create_release("stable", ["pirate@1.0.0", "json@1.0.0"])
    stock.registry.yank("json@1.0.0", "kept")
    stock.registry.database.close()
    url = place.database.engine.url
    if isinstance(kind, Postgresql):
        return kind.server.dump(str(url.database))
    connection = sqlite3.connect(str(url.database))
    dumped = "\n".join(connection.iterdump()) + "\n"
    connection.close()
    return dumped


def main() -> None:
    """Keep both databases of this program's schema."""
    with tempfile.TemporaryDirectory() as directory, running() as server:
        export_pair(Path(directory))
        pair = Pair(Path(directory, "program.pte"), Path(directory, "foundation.ptd"))
        for kind in (Sqlite(), Postgresql(server)):
            target = FILES / f"{SCHEMA}.{kind.name}.sql"
            target.parent.mkdir(exist_ok=True)
            target.write_text(keep(kind, pair, Path(directory, kind.name)))


if __name__ == "__main__":
    main()
