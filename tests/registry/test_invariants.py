"""The database itself refuses what must never be stored: every test goes around the code, with raw SQL."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from registry.errors import Conflict
from tests.registry.files import Pair
from tests.registry.stock import Stock, copied

HEX = "0123456789abcdef" * 4
NOTHING = f"'sha256:{HEX}'"  # the digest of no blob, as SQL
F2 = "(SELECT foundation FROM foundation_names WHERE name = 'f2')"
ON_F2 = f"(SELECT id FROM builds WHERE foundation = {F2})"  # noqa: S608 - a constant


@pytest.fixture(scope="module")
def stock(stocked_home: Path, tmp_path_factory: pytest.TempPathFactory, pair: Pair) -> Stock:
    """Two foundations, two adapters with a build on the first, pirate with one on the second, and a release."""
    made = copied(stocked_home, tmp_path_factory.mktemp("stock") / "home", pair)
    second = made.foundation("f2", other=1)
    made.template(second, rank=0)
    made.publish("pirate", made.template(second), "arr", "1.0.0")
    made.registry.create_release("stable", ["json@1.0.0"], lines=["f1"])
    return made


@pytest.fixture
def database(stock: Stock) -> Iterator[sqlite3.Connection]:
    """A copy of its database in memory, with nothing but foreign keys switched on."""
    stored = sqlite3.connect(stock.registry.home / "registry.db")
    copy = sqlite3.connect(":memory:", isolation_level=None)
    stored.backup(copy)
    stored.close()
    copy.execute("PRAGMA foreign_keys = ON")
    yield copy
    copy.close()


def refusal(database: sqlite3.Connection, statement: str, *values: object) -> str:
    """What the database says to a statement, which must fail and change nothing."""
    before = database.total_changes
    with pytest.raises(sqlite3.IntegrityError) as caught:
        database.execute(statement, values)
    assert database.total_changes == before
    return str(caught.value)


def copying(database: sqlite3.Connection, table: str, where: str = "1", **changes: str) -> str:
    """The statement that stores a row again with some columns changed to other SQL expressions."""
    columns = [name for (name,) in database.execute("SELECT name FROM pragma_table_info(?)", [table])]
    assert changes.keys() <= set(columns)
    chosen = ", ".join(changes.get(column, f'"{column}"') for column in columns)
    statement = f"INSERT INTO {table} SELECT {chosen} FROM {table} WHERE {where} LIMIT 1"  # noqa: S608 - the tests' own
    assert database.execute(statement.partition("INSERT INTO " + table)[2]).fetchall()
    return statement


@pytest.mark.parametrize(
    "digest",
    [
        HEX,
        f"sha512:{HEX}",
        f"sha256:{HEX[:-1]}",
        f"sha256:{HEX}0",
        f"sha256:{HEX[:-1]}F",
        f"sha256:{HEX[:-1]}g",
        f"sha256:{HEX[:32]} {HEX[33:]}",
        "",
    ],
)
@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("blobs", "digest"),
        ("recipes", "digest"),
        ("structures", "digest"),
        ("bases", "fingerprint"),
        ("events", "prev"),
        ("events", "digest"),
        ("foundation_tensors", "digest"),
        ("templates", "digest"),
    ],
)
def test_a_digest_has_its_shape(database, table, column, digest):
    statement = copying(database, table, **{column: f"'{digest}'"})

    assert refusal(database, statement) == f"CHECK constraint failed: ck_{table}_{column}_is_digest"


@pytest.mark.parametrize("name", ["", "Pirate", "-a", ".a", "a.", "a b", "../etc", "a/b", "ä", "a" * 65])
@pytest.mark.parametrize("table", ["adapters", "foundation_names", "channels"])
def test_a_name_has_its_shape(database, table, name):
    statement = copying(database, table, name=f"'{name}'")

    assert refusal(database, statement) == f"CHECK constraint failed: ck_{table}_name_is_name"


@pytest.mark.parametrize("name", ["a", "0", "a.b", "a-", "a_", "a" * 64])
@pytest.mark.parametrize("table", ["adapters", "foundation_names", "channels"])
def test_every_name_that_the_rule_allows_is_stored(database, table, name):
    database.execute(copying(database, table, name=f"'{name}'"))


BOUNDS = {
    "a blob's size": ("blobs", {"digest": NOTHING, "size": "-1"}, "size"),
    "a tensor's offset": ("foundation_tensors", {"key": "'k'", "offset": "-1"}, "extent"),
    "a tensor's size": ("foundation_tensors", {"key": "'k'", "size": "-1"}, "extent"),
    "a tensor's key": ("foundation_tensors", {"key": "''"}, "key"),
    "a template's context": ("templates", {"id": "99", "context": "0"}, "sizes"),
    "two numbers are no version": ("versions", {"version": "'1.0'"}, "version_is_semver"),
    "a space is in no version": ("versions", {"version": "'1.0.0 '"}, "version_is_semver"),
    "a yank has its time": ("versions", {"version": "'2.0.0'", "yanked": "'why'"}, "yank"),
    "a revocation has its reason": ("builds", {"id": "99", "revoked_at": "'now'"}, "revocation"),
    "a release's number": ("releases", {"number": "0"}, "number"),
    "holes are yes or no": ("releases", {"number": "9", "holes": "2"}, "holes"),
    "a line's place": ("lines", {"position": "-1"}, "position"),
    "a channel's salt": ("channels", {"name": "'c'", "salt": "'salt'"}, "salt"),
    "a manifest's sequence": ("manifests", {"sequence": "0"}, "sequence"),
    "a manifest expires after it was issued": ("manifests", {"sequence": "9", "expires": "issued"}, "lifetime"),
    "an arm has a share": ("arms", {"position": "5", "share_bp": "0"}, "share"),
    "an arm has at most everyone": ("arms", {"position": "5", "share_bp": "10001"}, "share"),
    "an arm is open or halted": ("arms", {"position": "5", "state": "'paused'"}, "state"),
    "nothing cannot be halted": ("arms", {"position": "5", "release": "NULL", "state": "'halted'"}, "state"),
    "a holdout offers nothing": ("arms", {"position": "5", "holdout": "1"}, "holdout"),
    "there is one registry": ("registry", {"id": "2"}, "single"),
    "a source file has a name": ("source_files", {"name": "''"}, "name"),
}


@pytest.mark.parametrize("law", BOUNDS)
def test_a_value_out_of_bounds_is_refused(database, law):
    table, changes, constraint = BOUNDS[law]

    assert refusal(database, copying(database, table, **changes)) == f"CHECK constraint failed: ck_{table}_{constraint}"


@pytest.mark.parametrize(("table", "column"), [("blobs", "size"), ("arms", "share_bp"), ("builds", "template")])
def test_a_column_holds_only_its_type(database, table, column):
    statement = copying(database, table, **{column: "'many'"})

    assert refusal(database, statement) == f"cannot store TEXT value in INTEGER column {table}.{column}"


UNIQUE = {
    "a version stands once": ("versions", "1", {"lineage": "'{}'"}),
    "a name means one foundation": ("foundation_names", "name = 'f1'", {"foundation": F2}),
    "a foundation has each key once": ("foundation_tensors", "1", {"offset": "0"}),
    "a template's key stands once": ("templates", "1", {"id": "99"}),
    "a version has one build per template": ("builds", "1", {"id": "99"}),
    "a release's number stands once": ("releases", "1", {"document": "(SELECT digest FROM sources)"}),
    "a release has one line per foundation": ("lines", "1", {"position": "9"}),
    "a line has one place": ("lines", "1", {"foundation": F2}),
    "a line holds one build of an adapter": ("line_entries", "1", {}),
    "a sequence is issued once": ("manifests", "1", {"digest": "(SELECT digest FROM sources)"}),
    "a manifest is issued once": ("manifests", "1", {"sequence": "9"}),
    "the log does not fork": ("events", "id = 3", {"id": "99", "digest": NOTHING}),
    "an event stands once": ("events", "id = 3", {"id": "99", "prev": NOTHING}),
}


@pytest.mark.parametrize("law", UNIQUE)
def test_what_is_unique_stands_once(database, law):
    table, where, changes = UNIQUE[law]

    assert "UNIQUE constraint failed" in refusal(database, copying(database, table, where, **changes))


LINKS = {
    "a line holds no build of another foundation": ("line_entries", "1", {"adapter": "'pirate'", "build": ON_F2}),
    "an entry has a line": ("line_entries", "1", {"foundation": F2, "adapter": "'pirate'", "build": ON_F2}),
    "an entry's adapter is its build's": ("line_entries", "1", {"adapter": "'pirate'"}),
    "a build's template is of its foundation": ("builds", "1", {"id": "99", "template": "1", "foundation": F2}),
    "a build has a version": ("builds", "1", {"id": "99", "version": "'9.9.9'"}),
    "a build has its bytes": ("builds", "1", {"id": "99", "template": "1", "digest": NOTHING}),
    "a version has an adapter": ("versions", "1", {"adapter": "'nobody'"}),
    "a version has a source": ("versions", "1", {"version": "'2.0.0'", "source": NOTHING}),
    "a source's file has its bytes": ("source_files", "1", {"name": "'other'", "blob": NOTHING}),
    "a foundation has its bytes": ("foundations", "1", {"digest": NOTHING}),
    "a foundation has a base": ("foundations", "1", {"digest": "(SELECT digest FROM sources)", "base": NOTHING}),
    "a name means something": ("foundation_names", "1", {"name": "'f3'", "foundation": NOTHING}),
    "a template has a foundation": ("templates", "1", {"id": "99", "foundation": NOTHING}),
    "a release has its document": ("releases", "1", {"number": "9", "document": NOTHING}),
    "a manifest has its bytes": ("manifests", "1", {"sequence": "9", "digest": NOTHING}),
    "a manifest has a log": (
        "manifests",
        "1",
        {"sequence": "9", "digest": "(SELECT digest FROM sources)", "log_head": NOTHING},
    ),
    "an arm has a manifest": ("arms", "1", {"sequence": "9"}),
    "an arm offers what there is": ("arms", "1", {"position": "5", "release": "9"}),
}


@pytest.mark.parametrize("law", LINKS)
def test_a_link_leads_to_what_it_must(database, law):
    table, where, changes = LINKS[law]

    assert refusal(database, copying(database, table, where, **changes)) == "FOREIGN KEY constraint failed"


@pytest.mark.parametrize(
    ("table", "where"),
    [
        ("foundations", "1"),
        ("bases", "1"),
        ("templates", "id IN (SELECT template FROM builds)"),
        ("structures", "1"),
        ("recipes", "1"),
        ("sources", "1"),
        ("adapters", "1"),
        ("builds", "id IN (SELECT build FROM line_entries)"),
    ],
)
def test_what_is_referred_to_cannot_be_deleted(database, table, where):
    statement = f"DELETE FROM {table} WHERE {where}"  # noqa: S608 - of the list above

    assert refusal(database, statement) == "FOREIGN KEY constraint failed"


def test_no_blob_can_be_deleted_that_anything_refers_to(database):
    """Every blob of the stock is referred to by something."""
    digests = database.execute("SELECT digest FROM blobs").fetchall()
    assert len(digests) > 15

    for (digest,) in digests:
        assert refusal(database, "DELETE FROM blobs WHERE digest = ?", digest) == "FOREIGN KEY constraint failed"


@pytest.mark.parametrize(
    "change",
    [
        "blobs SET size = size + 1",
        "bases SET tensors = tensors",
        "foundations SET modules = modules",
        "foundation_tensors SET digest = digest",
        "recipes SET document = '{}'",
        "structures SET document = '{}'",
        "templates SET runtime = '{}'",
        "sources SET digest = digest",
        "source_files SET name = 'other'",
        "attachments SET name = 'other'",
        "versions SET version = '9.9.9'",
        "versions SET source = source",
        "versions SET lineage = '{}'",
        "builds SET digest = digest",
        "builds SET factors = factors",
        "builds SET template = template",
        "releases SET document = document",
        "lines SET position = 7",
        "line_entries SET build = build",
        "manifests SET expires = expires + 1",
        "arms SET share_bp = 1",
        "events SET actor = 'someone else'",
        "registry SET created = 'never'",
    ],
)
def test_what_is_immutable_cannot_be_changed(database, change):
    assert refusal(database, f"UPDATE {change}") == f"{change.split()[0]} is immutable: no UPDATE"


@pytest.mark.parametrize(
    "table", ["registry", "versions", "releases", "lines", "line_entries", "channels", "manifests", "arms", "events"]
)
def test_history_cannot_be_removed(database, table):
    statement = f"DELETE FROM {table}"  # noqa: S608 - of the list above

    assert refusal(database, statement) == f"{table} is immutable: no DELETE"


def test_history_cannot_be_replaced_on_a_connection_of_ours(stock):
    statement = "REPLACE INTO events SELECT id, at, 'nobody', action, subject, before, after, prev, digest FROM events"

    with pytest.raises(Conflict, match="events is immutable: no DELETE"), stock.registry.database.write() as session:
        session.connection().exec_driver_sql(statement)


def test_what_may_change_can(database):
    for change in (
        "versions SET yanked = 'why', yanked_at = 'now'",
        "builds SET revoked = 'why', revoked_at = 'now'",
        "bases SET hint = '/elsewhere'",
        "blobs SET condemned_at = 'now'",
        f"channels SET salt = '{'f' * 32}', settings = '{{}}', deleted_at = 'now'",
    ):
        table = re.split(r"\W", change)[0]
        assert database.execute(f"UPDATE {change}").rowcount > 0, table
