import re
import sqlite3
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

import migrations
from registry.database import SCHEMA, Database
from registry.errors import Conflict, IntegrityError
from registry.tables import Table

SCRIPTS = Path(migrations.__file__).parent


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database.at(tmp_path / "registry.db")


def config(database: Database) -> Config:
    made = Config()
    made.set_main_option("script_location", str(SCRIPTS))
    made.attributes["url"] = database.engine.url
    return made


def schema(database: Database) -> list[str]:
    query = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'alembic%' ORDER BY name"
    with database.read() as session:
        return list(session.scalars(text(query)))


def test_the_program_expects_the_newest_migration():
    assert ScriptDirectory(str(SCRIPTS)).get_current_head() == SCHEMA


def test_models_and_migrations_agree(database):
    database.upgrade()

    assert database.drift() == []
    command.check(config(database))


def test_the_migrated_tables_are_those_of_the_models_to_the_letter(database, tmp_path):
    """Alembic's comparison does not see CHECK constraints and STRICT; SQLite's own text does."""
    database.upgrade()
    models = Database.at(tmp_path / "models.db")
    Table.metadata.create_all(models.engine)

    assert {clauses(sql) for sql in schema(database) if "TRIGGER" not in sql} == {
        clauses(sql) for sql in schema(models)
    }


def clauses(sql: str) -> tuple[str, ...]:
    """A statement's lines in any order: constraints may stand in another one."""
    return tuple(sorted(re.sub(r"\s+", " ", line).strip().rstrip(",") for line in sql.splitlines() if line.strip()))


def test_a_schema_goes_down_and_comes_back_the_same(database):
    database.upgrade()
    before = schema(database)

    command.downgrade(config(database), "base")
    assert schema(database) == []
    database.upgrade()

    assert schema(database) == before


def test_upgrading_twice_is_upgrading_once(database):
    database.upgrade()
    with database.write() as session:
        session.execute(text("INSERT INTO adapters VALUES ('kept', 'now')"))

    database.upgrade()

    with database.read() as session:
        assert session.scalar(text("SELECT name FROM adapters")) == "kept"


def test_links_are_checked_again_after_a_migration(database):
    database.upgrade()

    with pytest.raises(Conflict, match="FOREIGN KEY constraint failed"), database.write() as session:
        session.execute(text("INSERT INTO foundation_names VALUES ('f', 'sha256:' || :hex)"), {"hex": "0" * 64})


def test_a_migration_that_would_break_a_link_changes_nothing(database):
    database.upgrade()
    with sqlite3.connect(database.engine.url.database) as connection:  # foreign keys are off by default
        connection.execute("INSERT INTO foundation_names VALUES ('f', 'sha256:' || ?)", ["0" * 64])
    connection.close()

    with pytest.raises(IntegrityError, match="would break a link of table foundation_names to foundations"):
        database.upgrade()


def test_every_constraint_has_a_name(database):
    database.upgrade()
    inspector = inspect(database.engine)

    for table in Table.metadata.tables:
        constraints = [
            inspector.get_pk_constraint(table),
            *inspector.get_unique_constraints(table),
            *inspector.get_check_constraints(table),
            *inspector.get_foreign_keys(table),
        ]
        assert [each for each in constraints if not each["name"]] == []


def test_every_table_holds_only_what_its_columns_declare(database):
    database.upgrade()

    with database.read() as session:
        tables = session.execute(text("SELECT name, strict FROM pragma_table_list WHERE type = 'table'")).all()

    assert {name: strict for name, strict in tables if name in Table.metadata.tables} == dict.fromkeys(
        Table.metadata.tables, 1
    )


def test_a_generated_migration_names_only_plain_types(database, tmp_path):
    """Autogenerate would write our own types without their import; env.py writes what they are stored as."""
    made = config(database)
    made.set_main_option("version_locations", str(tmp_path))
    made.set_main_option("path_separator", "os")

    command.revision(made, "all of it", autogenerate=True)

    (script,) = tmp_path.glob("*.py")
    assert "registry" not in script.read_text().replace("'registry'", "").replace("_registry", "")
    assert "sa.Column('digest', sa.Text(), nullable=False)" in script.read_text()
