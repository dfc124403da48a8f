"""What verify finds that no look at single files would: rows, links and told history that contradict each other."""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Integer, text

from registry import audit, canonical
from registry.artifacts import Source
from registry.blobs import BlobStore
from registry.catalog import edges
from registry.digest import Digest
from registry.errors import Unavailable
from registry.manifest import Manifest
from registry.service import Registry
from registry.tables import Table
from tests.registry.files import Pair, run_script
from tests.registry.places import Place
from tests.registry.postgresql import Server
from tests.registry.stock import NOW, Stock, copied


@pytest.fixture
def stock(stocked_home: Path, tmp_path: Path, pair: Pair) -> Stock:
    return copied(stocked_home, tmp_path / "home", pair)


@pytest.fixture
def registry(stock: Stock) -> Registry:
    stock.registry.tokens().create("ci", "publish")
    stock.registry.create_release("stable", ["pirate@1.0.0", "json@1.0.0"])
    return stock.registry


def tamper(registry: Registry, *statements: str) -> None:
    """Change rows as only someone with the database's file can: without triggers, CHECK constraints and links."""
    connection = sqlite3.connect(registry.home / "registry.db", isolation_level=None)
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute("DROP TRIGGER " + name)
    connection.execute("PRAGMA ignore_check_constraints = ON")
    for statement in statements:
        assert connection.execute(statement).rowcount > 0, statement
    connection.close()


class Dark:
    """A blob store whose server stops answering once the sizes are told."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def chunks(self, digest: Digest, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        yield from ()
        raise Unavailable(f"the bucket does not answer for {digest}, {start} to {stop}")

    def read(self, digest: Digest) -> bytes:
        raise Unavailable(f"the bucket does not answer for {digest}")


@pytest.mark.parametrize("fast", [False, True])
def test_a_store_that_does_not_answer_is_not_damaged(registry, fast):
    """Named as damage, an outage would send people to `ptdock repair`."""
    dark: Any = Dark(registry.blobs)
    with pytest.raises(Unavailable, match="does not answer"):
        Registry(registry.home, registry.database, dark, actor="tester", clock=lambda: NOW).verify(fast=fast)

    assert registry.verify().clean


def test_a_database_that_stops_answering_during_a_look_is_not_damaged(server: Server, stocked_place: Place):
    registry = stocked_place.open()
    database = registry.database.engine.url.database
    if registry.database.engine.dialect.name == "postgresql":
        end = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"  # noqa: S608 - its own
        with pytest.raises(Unavailable, match="terminating connection"):
            registry.verify(progress=lambda _: server.execute(end))

    assert registry.verify().clean


def test_a_dropped_table_does_not_keep_the_other_looks_from_finding_more(place: Place, pair: Pair):
    """After an error PostgreSQL refuses everything until the transaction, or a part of it, is undone."""
    stock = place.stock(pair)
    file = stock.foundation("f1").file.digest
    stock.registry.blobs.delete(file)
    with stock.registry.database.engine.begin() as connection:
        connection.execute(text("DROP TABLE tokens"))

    found = {(damage.kind, damage.subject) for damage in stock.registry.verify().damage}

    assert ("blob", str(file)) in found
    assert {subject for kind, subject in found if kind == "database"} == {"database"}


def messages(registry: Registry, *, fast: bool = False) -> dict[str, str]:
    """What is wrong, by subject."""
    found: dict[str, str] = {}
    for damage in registry.verify(fast=fast).damage:
        found[damage.subject] = f"{found.get(damage.subject, '')}{damage.message}\n"
    return found


@pytest.mark.parametrize(
    ("statement", "subject", "message"),
    [
        ("UPDATE adapters SET name = 'Pi rate' WHERE name = 'pirate'", "database", "CHECK constraint failed"),
        ("UPDATE versions SET version = '1.0' WHERE adapter = 'json'", "json@1.0", "is not a version"),
        ("UPDATE recipes SET document = '{}'", "recipe", "the document of this recipe has the digest"),
        ("UPDATE structures SET document = '{}'", "structure", "the document of this structure has the digest"),
        ("UPDATE source_files SET name = 'config.json' WHERE name = 'adapter_config.json'", "source", "its files are"),
        ("UPDATE bases SET tensors = (SELECT min(digest) FROM blobs)", "base", "its fingerprint is that of"),
        ("UPDATE versions SET yanked = 'why', yanked_at = 'now' WHERE adapter = 'json'", "json@1.0.0", "is yanked"),
        ("UPDATE builds SET revoked = 'why', revoked_at = 'now' WHERE adapter = 'json'", "sha256:", "is revoked"),
        ("UPDATE manifests SET expires = expires + 1", "manifest 1 of stable", "its document and its rows differ"),
        ("UPDATE manifests SET log_head = digest", "manifest 1 of stable", "the log does not hold the event"),
        ("UPDATE manifests SET digest = 'sha256:0'", "database", "a missing row of blobs"),
        ("UPDATE channels SET settings = '{'", "manifest 1 of stable", "not JSON"),
        ("UPDATE releases SET holes = 1", "release 1", "its document and its rows differ"),
        (
            "INSERT INTO channels VALUES ('beta', '00000000000000000000000000000000', '{}', 'now', NULL)",
            "channel beta",
            "the log does not tell of it",
        ),
        ("UPDATE channels SET deleted_at = 'now'", "channel stable", 'its deletion is "now", the log tells of none'),
        ("UPDATE channels SET settings = '{}'", "channel stable", "its settings are {}, the log tells of {"),
        (
            "UPDATE channels SET salt = substr(salt, 2) || substr(salt, 1, 1)",
            "manifest 1 of stable",
            "its salt is not the channel's",
        ),
        ("UPDATE foundation_names SET name = 'f9'", "foundation name f1", "it is not there, the log tells of"),
        (
            "UPDATE templates SET context = 77 WHERE id = 2",
            "template sha256:",
            "its context is 77, the log tells of 512",
        ),
        ("UPDATE templates SET runtime = '{}'", "database", "'minimum' is missing"),
        ("DELETE FROM release_files", "release 1", "the files that are kept for it are not those that it pins"),
        ("UPDATE tokens SET scope = 'admin'", "token ci", 'its scope is "admin", the log tells of "publish"'),
        ("DELETE FROM foundation_tensors WHERE key LIKE 'embed%'", "sha256:", "its file lists other tensors"),
    ],
)
@pytest.mark.parametrize("fast", [True, False])
def test_a_row_that_contradicts_another_is_found(registry, statement, subject, message, fast):
    tamper(registry, statement)

    found = messages(registry, fast=fast)

    assert any(each.startswith(subject) and message in said for each, said in found.items()), found


# Every column that neither bytes nor a document give again, beside those above: only an event knows better.
TOLD = {
    "registry.created": ("UPDATE registry SET created = 'then'", "registry", "its date"),
    "bases.hint": ("UPDATE bases SET hint = '/elsewhere'", "base sha256:", 'its hint is "/elsewhere"'),
    "bases.prompt": ("UPDATE bases SET prompt = (SELECT min(digest) FROM blobs)", "base sha256:", "its prompt is"),
    "bases.created": ("UPDATE bases SET created = 'then'", "base sha256:", 'its date is "then"'),
    "base_files.name": ("UPDATE base_files SET name = 'x' WHERE name = 'config.json'", "base sha256:", "its files are"),
    "base_files.blob": (
        "UPDATE base_files SET blob = (SELECT min(digest) FROM blobs)",
        "base sha256:",
        "its files are",
    ),
    "base_files": ("DELETE FROM base_files WHERE name = 'tokenizer.json'", "base sha256:", "its files are"),
    "foundations.modules": (
        "UPDATE foundations SET modules = (SELECT min(digest) FROM blobs)",
        "foundation sha256:",
        "its modules are",
    ),
    "foundations.created": ("UPDATE foundations SET created = 'then'", "foundation sha256:", "its date is"),
    "foundation_tensors.names": (
        "UPDATE foundation_tensors SET names = '[\"x\"]'",
        "foundation sha256:",
        "its tensors are",
    ),
    "foundation_tensors.dtype": ("UPDATE foundation_tensors SET dtype = 'I8'", "foundation sha256:", "its tensors are"),
    "foundation_tensors.shape": ("UPDATE foundation_tensors SET shape = '[]'", "foundation sha256:", "its tensors are"),
    "foundation_recipes.created": ("UPDATE foundation_recipes SET created = 'then'", "recipe sha256:", "its date is"),
    "foundation_recipes": ("DELETE FROM foundation_recipes", "recipe sha256:", "it is not there"),
    "templates.graph": ("UPDATE templates SET graph = 9 WHERE id = 2", "template sha256:", "its graph is 9"),
    "templates.executorch": (
        "UPDATE templates SET executorch = '9.9' WHERE id = 2",
        "template sha256:",
        'its executorch is "9.9", the log tells of "1.5.1"',
    ),
    "templates.hollow": ("UPDATE templates SET hollow = relocations WHERE id = 2", "template sha256:", "its hollow is"),
    "templates.relocations": ("UPDATE templates SET relocations = hollow", "template sha256:", "its table is"),
    "templates.program_size": ("UPDATE templates SET program_size = 1", "template sha256:", "its program size is 1"),
    "templates.runtime": (
        "UPDATE templates SET runtime = replace(runtime, '1,5', '1,4')",
        "template sha256:",
        'its runtime is {"backends":["XnnpackBackend"],"guaranteed":[1,6],"minimum":[1,4]',
    ),
    "templates.kv_cache_bytes": ("UPDATE templates SET kv_cache_bytes = 1", "template sha256:", "its kv cache bytes"),
    "templates.created": ("UPDATE templates SET created = 'then'", "template sha256:", "its date is"),
    "adapters.created": (
        "UPDATE adapters SET created = 'then' WHERE name = 'json'",
        "adapter json",
        "it is dated then",
    ),
    "adapters": ("INSERT INTO adapters VALUES ('sneaked', 'then')", "adapter sneaked", "it is dated then"),
    "versions.lineage": (
        "UPDATE versions SET lineage = '{}' WHERE adapter = 'json'",
        "json@1.0.0",
        'its lineage is {}, the log tells of {"run":"{}"}',
    ),
    "versions.created": (
        "UPDATE versions SET created = 'then' WHERE adapter = 'json'",
        "json@1.0.0",
        "it is dated then, and was made with its first build",
    ),
    "versions.yanked_at": (
        "UPDATE versions SET yanked_at = 'then' WHERE adapter = 'old'",
        "old@1.0.0",
        "whether it is yanked, why and since when, is not what the log tells",
    ),
    "versions.yanked": ("UPDATE versions SET yanked = NULL, yanked_at = NULL", "old@1.0.0", "whether it is yanked"),
    "attachments.name": ("UPDATE attachments SET name = 'LICENSE'", "json@1.0.0", "its attachments are"),
    "attachments.blob": ("UPDATE attachments SET blob = (SELECT min(digest) FROM blobs)", "json@1.0.0", "its attach"),
    "attachments": ("DELETE FROM attachments", "json@1.0.0", "its attachments are {}, the log tells of"),
    "builds.warnings": (
        "UPDATE builds SET warnings = '[]' WHERE adapter = 'json'",
        "json@1.0.0",
        'its warnings are [], the log tells of ["base not pinned"]',
    ),
    "builds.created": ("UPDATE builds SET created = 'then' WHERE adapter = 'json'", "json@1.0.0", 'its date is "then"'),
    "builds.factors": (
        "UPDATE builds SET factors = (SELECT factors FROM builds WHERE adapter = 'json')",
        "pirate@1.0.0",
        "its factors are",
    ),
    "builds.template": ("UPDATE builds SET template = 1 WHERE adapter = 'json'", "json@1.0.0", "its template is"),
    "builds.revoked": ("UPDATE builds SET revoked = 'other' WHERE adapter = 'bad'", "sha256:", "whether bad@1.0.0 is"),
    "builds.revoked_at": (
        "UPDATE builds SET revoked_at = 'then' WHERE adapter = 'bad'",
        "sha256:",
        "whether bad@1.0.0",
    ),
    "build_parts.role": ("UPDATE build_parts SET role = 'wire' WHERE role = 'prompt'", "old@1.0.0", "its parts are"),
    "build_parts.blob": (
        "UPDATE build_parts SET blob = (SELECT min(digest) FROM blobs) WHERE role = 'prompt'",
        "old@1.0.0",
        "its parts are",
    ),
    "proofs.document": (
        "UPDATE proofs SET document = (SELECT min(digest) FROM blobs)",
        "old@1.0.0",
        "the log tells of a proof",
    ),
    "proofs.self_test": (
        "UPDATE proofs SET self_test = (SELECT min(digest) FROM blobs)",
        "old@1.0.0",
        "its self test is",
    ),
    "proofs and parts": (
        "DELETE FROM proofs",
        "old@1.0.0",
        "its newest proof's is none",
    ),
    "proofs.created": ("UPDATE proofs SET created = 'then'", "old@1.0.0", 'its date is "then"'),
    "proofs": ("DELETE FROM proofs", "proofs", "there are 0 proofs, the log tells of 1"),
    "releases.created": ("UPDATE releases SET created = 'then'", "release 1", 'its date is "then"'),
    "channels.created": ("UPDATE channels SET created = 'then'", "channel stable", 'its date is "then"'),
    "tokens.id": ("UPDATE tokens SET id = '0123456789abcdef'", "token ci", 'its id is "0123456789abcdef"'),
    "tokens.digest": ("UPDATE tokens SET digest = (SELECT min(digest) FROM blobs)", "token ci", "its digest is"),
    "tokens.created": ("UPDATE tokens SET created = 'then'", "token ci", 'its date is "then"'),
    "tokens.revoked_at": ("UPDATE tokens SET revoked_at = 'then'", "token ci", 'its revocation is "then", the log'),
}


@pytest.fixture(scope="module")
def told_home(stocked_home: Path, tmp_path_factory: pytest.TempPathFactory, pair: Pair) -> Path:
    """A registry with a build that has parts and a proof and is yanked, one that is revoked, a token and a release."""
    stock = copied(stocked_home, tmp_path_factory.mktemp("told") / "home", pair)
    registry = stock.registry
    registry.tokens().create("ci", "publish")
    registry.create_release("stable", ["pirate@1.0.0", "json@1.0.0"])
    template = registry.templates(registry.foundation("f1").file.digest)[1]
    put = registry.blobs.put_bytes
    kept = {"template": template, "file": put(stock.program(7)), "factors": put(stock.factors(7))}
    old = registry.publish("old", "1.0.0", stock.source("old"), **kept, parts={"prompt": put(b"its chat format")})
    registry.add_proof(old.build, put(b"what was measured"), put(b"what devices replay"))
    registry.yank("old@1.0.0", "a typo")
    stock.publish("bad", template, "bad")
    registry.revoke("bad@1.0.0", "leaks")
    assert registry.verify().clean
    registry.database.close()
    return registry.home


@pytest.fixture
def told(told_home: Path, tmp_path: Path, pair: Pair) -> Registry:
    """A copy of it, to be tampered with."""
    return copied(told_home, tmp_path / "told", pair).registry


@pytest.mark.parametrize("column", TOLD)
def test_a_fact_that_only_the_log_knows_is_pinned_by_it(told, column):
    statement, subject, message = TOLD[column]
    tamper(told, statement)

    found = messages(told, fast=True)

    assert any(each.startswith(subject) and message in said for each, said in found.items()), found


COLUMNS = [f"{table.name}.{column.name}" for table in Table.metadata.sorted_tables for column in table.columns]
UNSEEN = {
    "blobs.condemned_at": "registry.collecting says why",
    "builds.id": "of one to which no row refers",
    "proofs.id": "only their order counts",
    "lines.position": "only their order counts",
    "arms.position": "only their order counts",
}


@pytest.mark.parametrize("name", COLUMNS)
def test_whatever_is_written_into_a_column_is_named_and_nothing_raises(told, name):
    """A table that a later migration adds must be seen too."""
    table, column = name.split(".")
    number = isinstance(Table.metadata.tables[table].columns[column].type, Integer)
    value = f'"{column}" + 1000' if number else "'x'"
    last = f"rowid = (SELECT max(rowid) FROM {table})"  # noqa: S608 - of the models
    tamper(told, f'UPDATE {table} SET "{column}" = {value} WHERE {last}')  # noqa: S608 - of the models

    assert bool(messages(told, fast=True)) == (name not in UNSEEN)


@pytest.mark.parametrize("table", [table.name for table in Table.metadata.sorted_tables])
def test_a_table_that_was_emptied_is_named_and_nothing_raises(told, table):
    tamper(told, f"DELETE FROM {table}")  # noqa: S608 - of the models

    assert messages(told, fast=True)


@pytest.mark.parametrize("kind", sorted({query.compile().params["param_1"] for query in edges._references()}))
def test_a_blob_whose_row_is_gone_is_named_and_nothing_raises(told, kind):
    table, column = kind.split(".")
    referred = f"(SELECT {column} FROM {table} WHERE {column} IS NOT NULL)"  # noqa: S608 - of the models
    connection = sqlite3.connect(told.home / "registry.db", isolation_level=None)
    connection.execute(f"DELETE FROM blobs WHERE digest IN {referred}")  # noqa: S608 - as above
    connection.close()

    assert bool(messages(told, fast=True)) == (kind != "bases.prompt"), "the stock's base has no prompt"


def test_a_program_that_is_revoked_under_one_of_its_names_alone_is_found(told, pair):
    stock = Stock(told, pair)
    template = told.templates(told.foundation("f1").file.digest)[1]
    stock.publish("twin", template, "arr")
    told.revoke("pirate@1.0.0", "leaks")
    assert told.verify(fast=True).clean
    tamper(told, "UPDATE builds SET revoked = NULL, revoked_at = NULL WHERE adapter = 'twin'")

    assert "is revoked under another name, but not under this one" in messages(told)["twin@1.0.0"]


def test_events_that_tell_less_are_compared_in_what_they_tell(told):
    """As earlier versions wrote them; the chain is made to fit, as they had it."""
    prev = audit.genesis(told.uuid)
    for event in reversed(told.events()):
        after = event.after
        if isinstance(after, dict):
            after = {name: value for name, value in after.items() if name not in LATER}
        told_less = replace(event, after=after, prev=prev)
        values = (canonical.dumps(after).decode() if after is not None else None, str(prev), str(told_less.digest))
        connection = sqlite3.connect(told.home / "registry.db", isolation_level=None)
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute("DROP TRIGGER " + name)
        old = str(event.digest)
        connection.execute("UPDATE events SET after = ?, prev = ?, digest = ? WHERE digest = ?", (*values, old))
        connection.execute("UPDATE manifests SET log_head = ? WHERE log_head = ?", (values[-1], old))
        connection.close()
        prev = told_less.digest

    found = messages(told, fast=True)

    assert {subject.partition(" ")[0] for subject in found} == {"manifest"}, found


LATER = {
    *("lineage", "attachments", "warnings", "parts", "tensors"),
    *("graph", "executorch", "hollow", "table", "program_size", "kv_cache_bytes", "runtime", "digest"),
}


def test_a_foundation_that_was_removed_and_added_again_is_no_damage(stock, registry):
    for _ in range(2):
        second = stock.foundation("f2", other=1)
        stock.template(second)
        assert registry.verify(fast=True).damage == ()
        registry.remove_foundation("f2")
        assert registry.verify(fast=True).damage == ()


def test_equal_templates_of_two_versions_of_executorch_are_told_apart(registry):
    template = registry.templates(registry.foundation("f1").file.digest)[1]
    registry.add_template(replace(template, executorch="1.6.0"))
    assert registry.verify(fast=True).damage == ()
    tamper(registry, "UPDATE templates SET kv_cache_bytes = 1 WHERE executorch = '1.6.0'")

    (subject,) = messages(registry, fast=True)

    assert subject == f"template {template.digest} of foundation {template.foundation} again (2)"


def test_a_base_that_was_replaced_is_compared_with_what_it_is_now(registry):
    base = registry.base(Digest.of(b"base"))
    registry.add_base(replace(base, hint="/moved", prompt=registry.blobs.put_bytes(b"chat")), replace=True)
    assert registry.verify(fast=True).damage == ()
    tamper(registry, "UPDATE bases SET hint = '/checkpoint'")

    found = messages(registry, fast=True)

    assert found == {f"base {base.fingerprint}": 'its hint is "/checkpoint", the log tells of "/moved"\n'}


def test_a_channel_that_was_deleted_and_made_again_is_no_damage(registry):
    registry.delete_channel("stable")
    assert registry.verify(fast=True).damage == ()
    registry.create_channel("stable")
    registry.create_release("stable", ["json@1.0.0"])
    assert registry.verify(fast=True).damage == ()


def test_a_manifest_that_was_taken_away_is_found_by_the_log(registry):
    """The newest one: without it, the channel would offer again what it did before."""
    registry.create_release("stable", ["json@1.0.0"], share_bp=1000)
    registry.rollout("stable").halt()
    tamper(registry, "DELETE FROM arms WHERE sequence = 3", "DELETE FROM manifests WHERE sequence = 3")

    assert "moved it, but the manifest that followed is not there" in messages(registry)["channel stable"]


def test_a_manifest_of_other_arms_that_was_put_in_its_place_is_found(registry):
    """Its rows and its document agree with each other; the log tells of other arms."""
    registry.create_release("stable", ["json@1.0.0"], share_bp=1000)
    assert registry.verify(fast=True).clean
    said = Manifest.from_bytes(registry.manifest("stable"))
    arms = (replace(said.arms[0], share_bp=9000), replace(said.arms[1], share_bp=1000))
    forged = registry.blobs.put_bytes(replace(said, arms=arms).to_bytes())
    tamper(
        registry,
        f"INSERT INTO blobs VALUES ('{forged.digest}', {forged.size}, NULL)",  # noqa: S608 - the test's own
        f"UPDATE manifests SET digest = '{forged.digest}' WHERE sequence = 2",  # noqa: S608 - the test's own
        "UPDATE arms SET share_bp = 10000 - share_bp WHERE sequence = 2",
    )

    assert messages(registry, fast=True) == {
        "manifest 2 of stable": "its arms do not follow from event 13, release.create\n"
    }


@pytest.mark.parametrize("action", ["release.create", "token.create", "channel.create"])
def test_a_manifest_that_names_another_event_is_found(registry, action):
    registry.rollout("stable").halt()
    event = f"(SELECT digest FROM events WHERE action = '{action}')"  # noqa: S608 - of the list above
    tamper(registry, f"UPDATE manifests SET log_head = {event} WHERE sequence = 2")  # noqa: S608 - as made above

    assert "its arms do not follow from event" in messages(registry)["manifest 2 of stable"]


def test_every_way_to_move_a_channel_is_told(registry):
    """What the log tells of each verb gives the arms of the manifest that it issued."""
    rollout = registry.rollout("stable")
    registry.create_release("stable", ["json@1.0.0"], share_bp=1000)
    rollout.widen(5000)
    rollout.halt()
    rollout.resume()
    rollout.rollback()
    rollout.start(2, 2000)
    rollout.configure(holdout_bp=500)
    rollout.complete()
    registry.create_channel("beta")
    registry.rollout("beta").promote("stable")
    registry.revoke("json@1.0.0", "leaks")
    registry.delete_channel("stable")
    registry.create_channel("stable")
    registry.create_release("stable", ["pirate@1.0.0"])

    assert registry.verify().damage == ()
    assert [event.action for event in registry.events(3)] == ["release.create", "channel.create", "channel.delete"]


def test_a_build_whose_program_was_swapped_is_found_by_the_log(registry):
    """Both programs are whole and of the same template: only what was told at publish knows better."""
    tamper(
        registry,
        "UPDATE builds SET digest = (SELECT digest FROM builds WHERE adapter = 'json') WHERE adapter = 'pirate'",
    )

    assert "the log tells of a build" in messages(registry)["pirate@1.0.0"]


def test_a_version_that_was_deleted_is_found_by_the_log(registry):
    tamper(
        registry,
        "DELETE FROM line_entries WHERE adapter = 'json'",
        "DELETE FROM builds WHERE adapter = 'json'",
        "DELETE FROM attachments WHERE adapter = 'json'",
        "DELETE FROM versions WHERE adapter = 'json'",
    )

    found = messages(registry)

    assert "the log tells of a build" in found["json@1.0.0"]
    assert found["builds"] == "there are 1 builds, the log tells of 2\n"


def test_a_build_that_nobody_told_of_is_found(registry):
    tamper(
        registry,
        "INSERT INTO adapters VALUES ('sneaked', 'now')",
        "INSERT INTO versions SELECT 'sneaked', version, source, lineage, created, yanked, yanked_at FROM versions "
        "WHERE adapter = 'json'",
        "INSERT INTO builds (adapter, version, foundation, template, digest, factors, warnings, created) "
        "SELECT 'sneaked', version, foundation, template, digest, factors, warnings, created FROM builds "
        "WHERE adapter = 'json'",
    )

    assert messages(registry)["builds"] == "there are 3 builds, the log tells of 2\n"


def test_a_revocation_that_was_hidden_from_devices_is_found(registry):
    registry.revoke("json@1.0.0", "leaks")
    assert registry.verify().clean
    tamper(registry, "DELETE FROM arms WHERE sequence = 2", "DELETE FROM manifests WHERE sequence = 2")

    assert "it does not name the revoked build" in messages(registry)["manifest 1 of stable"]


def test_a_program_of_another_template_is_found(stock, registry):
    """Same size, same factors, one byte of difference outside of the factors' places."""
    other = stock.program(1, 16)
    build = registry.build("pirate@1.0.0")
    path = registry.blobs.path(build.file.digest)
    path.unlink()
    path.write_bytes(other)

    assert "no program of its template: bytes" in messages(registry, fast=True)["pirate@1.0.0"]
    assert set(messages(registry)) == {str(build.file.digest)}, "its bytes say it already"


def test_a_template_whose_keys_are_not_in_its_foundation_is_found(registry):
    tamper(registry, "UPDATE foundation_tensors SET key = substr(digest, 8) || 'x' WHERE length(key) = 64")

    found = messages(registry)

    template = registry.templates(registry.foundation("f1").file.digest)[1]
    assert "does not fit this foundation" in found[f"the template {template.digest} of {template.foundation}"]


def test_a_tensor_row_that_lies_about_its_bytes_is_found(registry):
    foundation = registry.foundation("f1")
    tamper(registry, "UPDATE foundation_tensors SET digest = (SELECT max(digest) FROM blobs) WHERE length(key) = 64")

    assert "its table says that" in messages(registry)[str(foundation.file.digest)]


def test_damage_names_everything_that_needs_it_and_that_is_bounded(stock, registry):
    """`{}` is the config of both adapters, the base's and the module table."""
    for number in range(25):
        template = registry.templates(registry.foundation("f1").file.digest)[1]
        stock.publish(f"a{number}", template, f"text {number}")
    registry.blobs.path(Digest.of(b"{}")).unlink()
    registry.blobs.path(registry.build("json@1.0.0").file.digest).unlink()

    found = {damage.subject: damage.dependants for damage in registry.verify().damage}

    assert found[str(registry.build("json@1.0.0").file.digest)] == (
        "channel stable offers release 1 (100 %)",
        "the program of json@1.0.0",
    )
    many = found[str(Digest.of(b"{}"))]
    assert len(many) == 21
    assert many[-1] == "and 9 more"


def test_a_lost_blob_that_only_a_release_pins_is_damage(registry):
    """A base's file that was replaced: no row names it any more, a live release does."""
    base = registry.base(Digest.of(b"base"))
    registry.add_base(type(base)(base.fingerprint, base.tensors, {}, base.hint), replace=True)
    registry.blobs.path(base.files["tokenizer.json"].digest).unlink()

    (damage,) = registry.verify().damage

    assert damage.dependants == ("channel stable offers release 1 (100 %)",)


def test_a_directory_in_the_place_of_a_file_is_damage_and_no_traceback(registry):
    path = registry.blobs.path(registry.build("json@1.0.0").factors.digest)
    path.unlink()
    path.mkdir()

    (damage,) = registry.verify().damage

    assert damage.dependants == ("the factors of json@1.0.0",)


MEMORY = """
import sys
from pathlib import Path
from registry.service import Registry
registry = Registry.open(Path(sys.argv[1]))
assert registry.verify(fast=True).clean
before = peak()
assert registry.verify().clean
print(peak() - before)
"""


def test_verifying_takes_no_memory_for_its_blobs(stock, registry):
    """64 MB in four blobs: in memory they would be seen."""
    template = registry.templates(registry.foundation("f1").file.digest)[1]
    put = registry.blobs.put_bytes
    files = {f"{number}.safetensors": put(b"x" * (16 << 20) + bytes([number])) for number in range(4)}
    program, factors = put(stock.program(1)), put(stock.factors(1))
    registry.publish("large", None, Source(files, {}), template=template, file=program, factors=factors)

    (grown,) = run_script(MEMORY, registry.home)

    assert int(grown) < 24_000
