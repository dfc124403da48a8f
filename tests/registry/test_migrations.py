"""The schema's history, on both databases: up from every schema that was released, down and back, and no drift."""

import re
import sqlite3
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import inspect, text

import migrations
from registry.database import SCHEMA, Database
from registry.engines import connected
from registry.errors import Conflict, IntegrityError
from registry.schema import Definitions, definitions, differences
from registry.tables import Table
from tests.registry.places import Kind, Place
from tests.registry.released import SCHEMAS, load, rows

Tables = dict[str, list[dict[str, object]]]

SCRIPTS = Path(migrations.__file__).parent


@pytest.fixture
def database(bare_place: Place) -> Database:
    """Either database, without a schema."""
    return bare_place.database


@pytest.fixture
def file(tmp_path: Path) -> Database:
    """A new SQLite database."""
    return Database.at(tmp_path / "registry.db")


def config(database: Database) -> Config:
    made = Config()
    made.set_main_option("script_location", str(SCRIPTS))
    made.attributes["url"] = database.engine.url
    return made


def schema(database: Database) -> Definitions:
    """What is in a database, but for Alembic's own table."""
    with database.engine.connect() as connection:
        found = definitions(connection)
    return {name: definition for name, definition in found.items() if "alembic_version" not in name}


def test_the_program_expects_the_newest_migration():
    assert ScriptDirectory(str(SCRIPTS)).get_current_head() == SCHEMA


def test_every_released_schema_is_kept():
    """A schema is released with its migration: `python -m tests.registry.released` keeps it."""
    known = {script.revision for script in ScriptDirectory(str(SCRIPTS)).walk_revisions()}

    assert set(SCHEMAS) == known


def test_models_and_migrations_agree(database):
    database.upgrade()

    command.check(config(database))


def test_the_migrated_tables_are_those_of_the_models_to_the_letter(kind, database, tmp_path):
    """Alembic's comparison does not see CHECK constraints and STRICT; what the databases tell of themselves does."""
    database.upgrade()
    models = kind.at(tmp_path / "models").database
    Table.metadata.create_all(models.engine)

    migrated = {name: clauses(each) for name, each in schema(database).items() if not name.startswith(TRIGGERS)}
    assert migrated == {name: clauses(each) for name, each in schema(models).items()}


TRIGGERS = ("trigger ", "function ")  # models know none


def clauses(definition: str) -> tuple[str, ...]:
    """A definition's lines in any order: SQLite keeps constraints in the order in which they were written."""
    lines = (re.sub(r"\s+", " ", line).strip().rstrip(",") for line in definition.splitlines())
    return tuple(sorted(filter(None, lines)))


@pytest.mark.parametrize("released", SCHEMAS)
def test_the_migrations_still_make_every_released_schema(kind: Kind, bare_place, tmp_path, released):
    """A migration that was released is never changed: whoever has it would not get the change."""
    kept = load(bare_place, released)
    made = kind.at(tmp_path / "made").database

    made.upgrade(released)

    assert schema(made) == schema(kept)
    assert differences(kept) == ()


@pytest.mark.parametrize("released", SCHEMAS)
def test_every_released_schema_is_upgraded_with_all_that_is_in_it(kind: Kind, bare_place, tmp_path, released):
    kept = load(bare_place, released)
    before = rows(kept)
    fresh = kind.at(tmp_path / "fresh").database
    fresh.upgrade()

    kept.upgrade()

    assert kept.schema() == SCHEMA
    assert schema(kept) == schema(fresh)
    assert shared(rows(kept), before) == before
    assert sum(map(len, before.values())) > 50
    registry = bare_place.init()
    assert registry.version("pirate").version == "1.0.0"
    assert registry.version("json@1.0.0").yanked == "kept"
    found = registry.verify(fast=True).damage
    # Only rows were kept, and the first of them are of tests whose bases were made up.
    assert {damage.kind for damage in found if not damage.subject.startswith("base ")} == {"blob"}


def shared(tables: Tables, other: Tables) -> Tables:
    """The tables and columns that another state of the database has too."""
    return {
        table: sorted(
            ({name: row[name] for name in row if name in columns(other[table], row)} for row in content), key=repr
        )
        for table, content in tables.items()
        if table in other
    }


def columns(content: list[dict[str, object]], otherwise: dict[str, object]) -> set[str]:
    """A table's columns, as far as a row of it tells."""
    return set(content[0] if content else otherwise)


def test_a_schema_goes_one_down_and_comes_back_with_all_that_is_in_it(bare_place):
    database = load(bare_place, SCHEMAS[-1])
    before, content = schema(database), rows(database)

    command.downgrade(config(database), "-1")
    assert database.schema() == SCHEMAS[-2]
    down = rows(database)
    assert shared(down, content) == shared(content, down)
    database.upgrade()

    assert schema(database) == before
    assert shared(rows(database), down) == down  # what the schema below does not know, it cannot bring back


def add_proof(database: Database, document: str, self_test: str | None) -> None:
    """A proof of the first build, its blobs made up, as a row."""
    digests = {name: f"sha256:{name[0] * 64}" for name in (document, self_test) if name}
    with database.write() as session:
        for digest in digests.values():
            session.execute(text("INSERT INTO blobs (digest, size) VALUES (:digest, 1)"), {"digest": digest})
        session.execute(
            text("INSERT INTO proofs (build, document, self_test, created) VALUES (1, :document, :self_test, 'now')"),
            {"document": digests[document], "self_test": digests.get(self_test or "")},
        )


def test_proofs_of_before_keep_their_self_tests_and_stay_immutable(bare_place):
    database = load(bare_place, "0004")
    add_proof(database, "document", "a test")
    definitions, before = schema(database), rows(database)["proofs"]

    database.upgrade()
    assert rows(database)["proofs"] == before
    with pytest.raises(Conflict, match="proofs is immutable: no UPDATE"), database.write() as session:
        session.execute(text("UPDATE proofs SET self_test = NULL"))
    command.downgrade(config(database), "0004")

    assert rows(database)["proofs"] == before
    assert schema(database) == definitions


def test_a_proof_without_a_self_test_keeps_the_schema_from_going_down(bare_place):
    database = load(bare_place, "0005")
    add_proof(database, "document", None)
    before, content = schema(database), rows(database)

    with pytest.raises(CommandError, match="1 of the proofs have no self-test, which schema 0004 cannot hold"):
        command.downgrade(config(database), "0004")

    assert (database.schema(), schema(database), rows(database)) == ("0005", before, content)


def test_a_schema_goes_down_to_nothing_and_comes_back_the_same(database):
    database.upgrade()
    before = schema(database)

    command.downgrade(config(database), "base")
    assert schema(database) == {}
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
    """On connections that were there before it, too: SQLite's foreign keys are off while it runs."""
    database.upgrade()
    database.upgrade()

    with pytest.raises(Conflict, match=r"(?i)foreign key constraint"), database.write() as session:
        session.execute(text("INSERT INTO foundation_names VALUES ('f', :digest)"), {"digest": f"sha256:{'0' * 64}"})


def test_a_migration_that_would_break_a_link_changes_nothing(file):
    file.upgrade()
    with sqlite3.connect(file.engine.url.database) as connection:  # foreign keys are off by default
        connection.execute("INSERT INTO foundation_names VALUES ('f', 'sha256:' || ?)", ["0" * 64])
    connection.close()

    with pytest.raises(IntegrityError, match="would break a link of table foundation_names to foundations"):
        file.upgrade()


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


def test_every_table_of_sqlite_holds_only_what_its_columns_declare(file):
    file.upgrade()

    with file.read() as session:
        tables = session.execute(text("SELECT name, strict FROM pragma_table_list WHERE type = 'table'")).all()

    assert {name: strict for name, strict in tables if name in Table.metadata.tables} == dict.fromkeys(
        Table.metadata.tables, 1
    )


def test_a_generated_migration_names_only_plain_types(file, tmp_path):
    """Autogenerate would write our own types without their import; env.py writes what they are stored as."""
    made = config(file)
    made.set_main_option("version_locations", str(tmp_path))
    made.set_main_option("path_separator", "os")

    command.revision(made, "all of it", autogenerate=True)

    (script,) = tmp_path.glob("*.py")
    assert "registry" not in script.read_text().replace("'registry'", "").replace("_registry", "")
    assert "sa.Column('digest', sa.Text(), nullable=False)" in script.read_text()


DAMAGE = {
    "a dropped index": ("DROP INDEX ix_builds_digest", "index ix_builds_digest is missing"),
    "a table that is not ours": ("CREATE TABLE notes (text TEXT)", "notes"),
    "a column that is not ours": ("ALTER TABLE adapters ADD COLUMN notes TEXT", "adapters"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_what_was_changed_by_hand_is_found_on_either_database(database, what):
    statement, found = DAMAGE[what]
    database.upgrade()
    assert differences(database) == ()

    by_hand(database, statement)

    (message,) = differences(database)
    assert found in message


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("DROP TRIGGER events_refuse_update ON events", "trigger events_refuse_update is missing"),
        ("ALTER TABLE events DISABLE TRIGGER events_refuse_update", "trigger events_refuse_update is not as it was"),
        ("ALTER TABLE arms DROP CONSTRAINT ck_arms_share", "constraint ck_arms_share is missing"),
        ("ALTER TABLE bases ALTER hint DROP NOT NULL", "column bases.hint is not as it was made: text"),
        (
            "CREATE OR REPLACE FUNCTION ptdock_refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
            "ptdock_refuse",
        ),
    ],
)
def test_an_invariant_that_was_taken_away_from_postgresql_is_found(server, statement, found):
    database = Database(server.url(server.create()))
    database.upgrade()

    by_hand(database, statement)

    (message,) = differences(database)
    assert found in message
    database.close()
    server.drop(database.engine.url.database)


def test_an_invariant_that_was_taken_away_from_sqlite_is_found(file):
    file.upgrade()

    by_hand(file, "DROP TRIGGER events_refuse_update")

    assert differences(file) == ("trigger events_refuse_update is missing",)


def test_looking_for_differences_leaves_nothing_behind(database):
    database.upgrade()
    before = schema(database)

    differences(database)

    assert schema(database) == before
    if database.engine.dialect.name == "postgresql":
        assert "ptdock_check" not in inspect(database.engine).get_schema_names()


def by_hand(database: Database, statement: str) -> None:
    with connected(database.engine.url, keep=False).begin() as connection:
        connection.execute(text(statement))
