import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from registry.catalog import log
from registry.catalog.log import Change
from registry.database import SCHEMA, Database
from registry.errors import Conflict, IntegrityError, NotFound, PtdockError, Unavailable
from registry.files import observed
from registry.service import Registry
from tests.registry.places import Place


@pytest.fixture
def database(place: Place) -> Database:
    """Either database, empty."""
    return place.database


@pytest.fixture
def file(empty_home: Path, tmp_path: Path) -> Database:
    """An empty SQLite database."""
    shutil.copy(empty_home / "registry.db", tmp_path)
    return Database.at(tmp_path / "registry.db")


def add(database: Database, name: str) -> None:
    with database.write() as session:
        insert(session, name)


def insert(session: Session, name: str) -> None:
    session.execute(text("INSERT INTO adapters VALUES (:name, 'now')"), {"name": name})


def names(database: Database) -> list[str]:
    with database.read() as session:
        return list(session.scalars(text("SELECT name FROM adapters ORDER BY name")))


def test_every_connection_is_durable_and_checks_links(file):
    wanted = {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "busy_timeout": 10000,
        "recursive_triggers": 1,
    }

    for transaction in (file.read, file.write, file.read):
        with transaction() as session:
            assert {name: session.scalar(text(f"PRAGMA {name}")) for name in wanted} == wanted


def test_a_transaction_is_kept_whole(database):
    add(database, "kept")

    assert names(database) == ["kept"]


def test_a_transaction_that_raises_leaves_nothing(database):
    def half() -> None:
        with database.write() as session:
            insert(session, "half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half()

    assert names(database) == []


def test_what_a_constraint_refuses_is_a_conflict_and_undone(database):
    with pytest.raises(Conflict, match=r"the database refused: .*ck_adapters_name_is_name"):
        add(database, "Not A Name")

    assert names(database) == []


def test_the_step_before_a_commit_can_still_refuse_it(database):
    def refuse(step):
        if step.operation == "commit":
            raise OSError(28, "No space left on device")

    with observed(refuse), pytest.raises(OSError, match="No space"):
        add(database, "refused")

    assert names(database) == []


def test_writers_wait_for_each_other_and_none_is_lost(database):
    """Each event follows the last one, so a lost update would fork the chain, which UNIQUE refuses."""
    faults: list[PtdockError] = []

    def append(worker: int) -> None:
        try:
            for number in range(10):
                with database.write() as session:
                    Change(session, 0, "test").record("step", f"{worker}.{number}")
        except PtdockError as error:
            faults.append(error)

    threads = [threading.Thread(target=append, args=(worker,)) for worker in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert faults == []
    with database.read() as session:
        assert [event.id for event in log.events(session)] == list(range(61, 0, -1))


def test_readers_see_one_state_and_never_wait_for_a_writer(database):
    add(database, "before")

    with database.read() as reader:
        seen = [reader.scalar(text("SELECT count(*) FROM adapters"))]
        with database.write() as writer:
            insert(writer, "during")
            seen.append(reader.scalar(text("SELECT count(*) FROM adapters")))
        seen.append(reader.scalar(text("SELECT count(*) FROM adapters")))

    assert seen == [1, 1, 1]
    assert names(database) == ["before", "during"]


def test_a_file_that_is_no_database_is_damage(tmp_path):
    (tmp_path / "registry.db").write_bytes(b"not a database, but long enough to be read as a header " * 20)

    with pytest.raises(IntegrityError, match="is damaged: file is not a database"):
        Database.at(tmp_path / "registry.db").schema()


def test_a_full_disk_is_unavailable_and_leaves_nothing(file):
    """The kernel refuses a write of SQLite's in a process that may not write files beyond 1 MB."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
            with file.write() as session:
                session.execute(
                    text("INSERT INTO recipes VALUES (:d, :t)"), {"d": f"sha256:{'0' * 64}", "t": "x" * (2 << 20)}
                )
        except Unavailable:
            code = 42
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 42
    with file.read() as session:
        assert session.scalar(text("SELECT count(*) FROM recipes")) == 0


@pytest.mark.parametrize(("schema", "hint"), [("0000", "ptdock db upgrade"), ("9999", "upgrade ptdock")])
def test_another_schema_is_refused_with_the_way_out(place, database, schema, hint):
    with database.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = :schema"), {"schema": schema})

    with pytest.raises(Conflict, match=f"has schema {schema}, but this ptdock works with {SCHEMA}") as caught:
        place.open()

    assert hint in caught.value.hint


@pytest.mark.parametrize("content", [None, b""])
def test_a_place_without_a_registry_says_how_to_make_one(tmp_path, content):
    if content is not None:
        (tmp_path / "registry.db").write_bytes(content)

    with pytest.raises(NotFound) as caught:
        Registry.open(tmp_path)

    assert "ptdock init" in caught.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ([] if content is None else ["registry.db"])


def test_a_database_without_a_schema_says_how_to_make_a_registry(bare_place):
    with pytest.raises(NotFound) as caught:
        bare_place.open()

    assert "ptdock init" in caught.value.hint


def test_initialising_says_whether_it_made_the_registry(bare_place):
    first, second = bare_place.init(), bare_place.init()

    assert (first.fresh, second.fresh) == (True, False)
    assert first.uuid == second.uuid


def test_opening_a_registry_imports_neither_torch_nor_alembic(empty_home):
    code = """
import sys
from pathlib import Path
from registry.service import Registry
from tests.registry.places import Place
Registry.open(Path(sys.argv[1])).uuid
print(sorted({name.split(".")[0] for name in sys.modules} & {"torch", "alembic", "executorch", "transformers", "mako"}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, empty_home], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )

    assert done.stdout == "[]\n"
