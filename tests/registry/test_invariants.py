"""The database itself refuses what must never be stored: every test goes around the code, with raw SQL."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from registry.errors import Conflict
from tests.registry.files import Pair
from tests.registry.places import Kind, Place
from tests.registry.raw import Raw, opened
from tests.registry.stock import copied

HEX = "0123456789abcdef" * 4
NOTHING = f"'sha256:{HEX}'"  # the digest of no blob, as SQL
SOME_BLOB = "(SELECT max(digest) FROM sources)"
F2 = "(SELECT foundation FROM foundation_names WHERE name = 'f2')"
ON_F2 = f"(SELECT id FROM builds WHERE foundation = {F2})"  # noqa: S608 - a constant


@pytest.fixture(scope="module")
def place(kind: Kind, stocked_place: Place, tmp_path_factory: pytest.TempPathFactory, pair: Pair) -> Iterator[Place]:
    """Two foundations, two adapters with a build on the first, pirate with one on the second, and a release."""
    home = tmp_path_factory.mktemp("stock") / "home"
    place = kind.copy(stocked_place, home)
    made = place.stock(pair)
    second = made.foundation("f2", other=1)
    made.template(second, rank=0)
    made.publish("pirate", made.template(second), "arr", "1.0.0")
    made.registry.create_release("stable", ["json@1.0.0"], lines=["f1"])
    yield place
    kind.drop(home)


@pytest.fixture
def database(place: Place) -> Iterator[Raw]:
    """Its database without any of our code; what a test does to it is undone."""
    with opened(place.database.engine.url) as database:
        yield database


def copying(database: Raw, table: str, where: str = "true", **changes: str) -> str:
    """The statement that stores a row again with some columns changed to other SQL expressions."""
    columns = database.columns(table)
    assert changes.keys() <= set(columns)
    chosen = ", ".join(changes.get(column, f'"{column}"') for column in columns)
    query = f"SELECT {chosen} FROM {table} WHERE {where} LIMIT 1"  # noqa: S608 - the tests' own
    assert database.rows(query)
    return f"INSERT INTO {table} {query}"


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

    assert database.refusal(statement) == ("check", f"ck_{table}_{column}_is_digest")


@pytest.mark.parametrize("name", ["", "Pirate", "-a", ".a", "a.", "a b", "../etc", "a/b", "ä", "a" * 65])
@pytest.mark.parametrize("table", ["adapters", "foundation_names", "channels"])
def test_a_name_has_its_shape(database, table, name):
    statement = copying(database, table, name=f"'{name}'")

    assert database.refusal(statement) == ("check", f"ck_{table}_name_is_name")


@pytest.mark.parametrize("name", ["a", "0", "a.b", "a-", "a_", "a" * 64])
@pytest.mark.parametrize("table", ["adapters", "foundation_names", "channels"])
def test_every_name_that_the_rule_allows_is_stored(database, table, name):
    assert database.changed(copying(database, table, name=f"'{name}'")) == 1


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

    assert database.refusal(copying(database, table, **changes)) == ("check", f"ck_{table}_{constraint}")


@pytest.mark.parametrize(("table", "column"), [("blobs", "size"), ("arms", "share_bp"), ("builds", "template")])
def test_a_column_holds_only_its_type(database, table, column):
    statement = copying(database, table, **{column: "'many'"})

    assert database.refusal(statement)[0] == "type"


UNIQUE = {
    "a version stands once": ("versions", "true", {"lineage": "'{}'"}),
    "a name means one foundation": ("foundation_names", "name = 'f1'", {"foundation": F2}),
    "a foundation has each key once": ("foundation_tensors", "true", {"offset": "0"}),
    "a template's key stands once": ("templates", "true", {"id": "99"}),
    "a version has one build per template": ("builds", "true", {"id": "99"}),
    "a release's number stands once": ("releases", "true", {"document": SOME_BLOB}),
    "a release has one line per foundation": ("lines", "true", {"position": "9"}),
    "a line has one place": ("lines", "true", {"foundation": F2}),
    "a line holds one build of an adapter": ("line_entries", "true", {}),
    "a sequence is issued once": ("manifests", "true", {"digest": SOME_BLOB}),
    "a manifest is issued once": ("manifests", "true", {"sequence": "9"}),
    "the log does not fork": ("events", "id = 3", {"id": "99", "digest": NOTHING}),
    "an event stands once": ("events", "id = 3", {"id": "99", "prev": NOTHING}),
}


@pytest.mark.parametrize("law", UNIQUE)
def test_what_is_unique_stands_once(database, law):
    table, where, changes = UNIQUE[law]

    assert database.refusal(copying(database, table, where, **changes))[0] == "unique"


LINKS = {
    "a line holds no build of another foundation": ("line_entries", "true", {"adapter": "'pirate'", "build": ON_F2}),
    "an entry has a line": ("line_entries", "true", {"foundation": F2, "adapter": "'pirate'", "build": ON_F2}),
    "an entry's adapter is its build's": ("line_entries", "true", {"adapter": "'pirate'"}),
    "a build's template is of its foundation": ("builds", "true", {"id": "99", "template": "1", "foundation": F2}),
    "a build has a version": ("builds", "true", {"id": "99", "version": "'9.9.9'"}),
    "a build has its bytes": ("builds", "true", {"id": "99", "template": "1", "digest": NOTHING}),
    "a version has an adapter": ("versions", "true", {"adapter": "'nobody'"}),
    "a version has a source": ("versions", "true", {"version": "'2.0.0'", "source": NOTHING}),
    "a source's file has its bytes": ("source_files", "true", {"name": "'other'", "blob": NOTHING}),
    "a foundation has its bytes": ("foundations", "true", {"digest": NOTHING}),
    "a foundation has a base": ("foundations", "true", {"digest": SOME_BLOB, "base": NOTHING}),
    "a name means something": ("foundation_names", "true", {"name": "'f3'", "foundation": NOTHING}),
    "a template has a foundation": ("templates", "true", {"id": "99", "foundation": NOTHING}),
    "a release has its document": ("releases", "true", {"number": "9", "document": NOTHING}),
    "a release has the files that it pins": ("release_files", "true", {"blob": NOTHING}),
    "a manifest has its bytes": ("manifests", "true", {"sequence": "9", "digest": NOTHING}),
    "a manifest has a log": (
        "manifests",
        "true",
        {"sequence": "9", "digest": SOME_BLOB, "log_head": NOTHING},
    ),
    "an arm has a manifest": ("arms", "true", {"sequence": "9"}),
    "an arm offers what there is": ("arms", "true", {"position": "5", "release": "9"}),
}


@pytest.mark.parametrize("law", LINKS)
def test_a_link_leads_to_what_it_must(database, law):
    table, where, changes = LINKS[law]

    assert database.refusal(copying(database, table, where, **changes))[0] == "link"


@pytest.mark.parametrize(
    ("table", "where"),
    [
        ("foundations", "true"),
        ("bases", "true"),
        ("templates", "id IN (SELECT template FROM builds)"),
        ("structures", "true"),
        ("recipes", "true"),
        ("sources", "true"),
        ("adapters", "true"),
        ("builds", "id IN (SELECT build FROM line_entries)"),
    ],
)
def test_what_is_referred_to_cannot_be_deleted(database, table, where):
    statement = f"DELETE FROM {table} WHERE {where}"  # noqa: S608 - of the list above

    assert database.refusal(statement)[0] == "link"


def test_no_blob_can_be_deleted_that_anything_refers_to(database):
    """Every blob of the stock is referred to by something."""
    digests = database.rows("SELECT digest FROM blobs")
    assert len(digests) > 15

    for (digest,) in digests:
        assert database.refusal(f"DELETE FROM blobs WHERE digest = '{digest}'")[0] == "link"  # noqa: S608 - as checked


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
        "release_files SET blob = blob",
        "manifests SET expires = expires + 1",
        "arms SET share_bp = 1",
        "events SET actor = 'someone else'",
        "registry SET created = 'never'",
    ],
)
def test_what_is_immutable_cannot_be_changed(database, change):
    assert database.refusal(f"UPDATE {change}") == ("fixed", f"{change.split()[0]} is immutable: no UPDATE")


@pytest.mark.parametrize(
    "table",
    [
        *("registry", "versions", "releases", "lines", "line_entries", "release_files"),
        *("channels", "manifests", "arms", "events"),
    ],
)
def test_history_cannot_be_removed(database, table):
    statement = f"DELETE FROM {table}"  # noqa: S608 - of the list above

    assert database.refusal(statement) == ("fixed", f"{table} is immutable: no DELETE")


def test_history_cannot_be_replaced_on_a_connection_of_ours(stocked_home, tmp_path, pair):
    """REPLACE is SQLite's own, and passes triggers unless it is told not to."""
    stock = copied(stocked_home, tmp_path / "home", pair)
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
        assert database.changed(f"UPDATE {change}") > 0, table
