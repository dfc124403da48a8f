"""docs/operations.md does what it says: backups that are taken while others publish are whole, and restored."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

import pytest

from registry import schema
from registry.errors import Conflict, InputError, PtdockError
from registry.service import Registry
from tests.command_line import answer, ptdock, refusal
from tests.registry.places import Place, Postgresql
from tests.registry.postgresql import program
from tests.registry.stock import NOW, Stock, copied, fill

ROOT = Path(__file__).resolve().parent.parent.parent
GUIDE = (ROOT / "docs" / "operations.md").read_text()
SHELL = re.findall(r"^```sh\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def stock(stocked_home, tmp_path, pair) -> Stock:
    return copied(stocked_home, tmp_path / "home", pair)


class Publisher:
    """Publishes one version after another beside a test."""

    def __init__(self, stock: Stock) -> None:
        self._stock = stock
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._publish)
        self.done = 0
        self.faults: list[PtdockError] = []

    def _publish(self) -> None:
        template = self._stock.registry.templates(self._stock.registry.foundation("f1").file.digest)[1]
        try:
            while not self._stop.is_set():
                self._stock.publish("busy", template, f"turn {self.done}")
                self.done += 1
        except PtdockError as error:
            self.faults.append(error)

    def __enter__(self) -> Self:
        self._thread.start()
        while self.done < 2 and not self.faults:
            self._stop.wait(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self.faults == []


def run(script: str, home: Path, backup: Path) -> None:
    """Run a block of the guide as it stands there."""
    beside = Path(sys.executable).parent
    function = f'ptdock() {{ "{sys.executable}" -m cli "$@"; }}\n'
    variables = {"PTDOCK_HOME": str(home), "BACKUP": str(backup), "PYTHONPATH": str(ROOT)}
    environment = os.environ | variables | {"PATH": f"{beside}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-euc", function + script], env=environment, capture_output=True, text=True, check=False, cwd=home.parent
    )
    assert done.returncode == 0, done.stderr


def test_the_guides_backup_is_whole_while_others_publish_and_its_restore_brings_it_back(stock, tmp_path):
    backup, restored = tmp_path / "backup", tmp_path / "restored"
    backup.mkdir()
    save, restore = SHELL

    with Publisher(stock):
        run(save, stock.registry.home, backup)
    run(restore, restored, backup)

    registry = Registry.open(restored)
    assert len(registry.versions("busy")) >= 2
    assert registry.verify().damage == ()
    assert registry.uuid == stock.registry.uuid
    assert schema.check(registry.database) == ()


def test_a_backup_never_takes_the_place_of_another_one(stock, tmp_path):
    home, target = stock.registry.home, tmp_path / "backup.db"

    assert answer(home, "db", "backup", target)["size"] == target.stat().st_size > 0
    assert refusal(home, "db", "backup", target, code=6)["message"] == f"{target} exists"
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".part"] == []


def test_a_backup_into_nowhere_is_refused_without_a_traceback(stock, tmp_path):
    error = refusal(stock.registry.home, "db", "backup", tmp_path / "absent" / "backup.db", code=2)
    assert error["message"] == f"{tmp_path / 'absent'} is not a directory"


def test_a_backup_that_was_interrupted_is_made_again(stock, tmp_path):
    (tmp_path / "backup.db.part").write_bytes(b"half")

    schema.backup(stock.registry.database, tmp_path / "backup.db")

    assert not (tmp_path / "backup.db.part").exists()
    with pytest.raises(Conflict):
        schema.backup(stock.registry.database, tmp_path / "backup.db")


def test_postgresql_has_tools_of_its_own(server, tmp_path):
    place = Postgresql(server).at(tmp_path / "home")
    place.init()

    with pytest.raises(InputError, match="is a server's") as caught:
        schema.backup(place.database, tmp_path / "backup")

    assert "pg_dump" in caught.value.hint


def test_what_pg_dump_saves_while_others_publish_is_restored_whole(server, tmp_path, pair):
    """As the guide says: the database first, then the blobs."""
    kind = Postgresql(server)
    place = kind.at(tmp_path / "home")
    stock = fill(place.init(), pair)
    url = place.database.engine.url
    reach = [f"--host={url.query['host']}", "--username=postgres"]
    with Publisher(stock):
        subprocess.run(
            [program("pg_dump"), *reach, "--format=custom", f"--file={tmp_path / 'dump'}", url.database], check=True
        )
        subprocess.run(["cp", "--archive", place.home, tmp_path / "restored"], check=True)
    name = server.create()
    subprocess.run([program("pg_restore"), *reach, f"--dbname={name}", tmp_path / "dump"], check=True)
    restored = Place(tmp_path / "restored", {"PTDOCK_DATABASE_URL": server.url(name).render_as_string()})

    registry = restored.open()

    assert len(registry.versions("busy")) >= 2
    assert registry.verify().damage == ()
    assert schema.check(registry.database) == ()
    assert registry._clock() == NOW
    registry.database.close()
    server.drop(name)
    kind.drop(tmp_path)


def test_what_the_guide_names_exists():
    commands = set(re.findall(r"`ptdock ([a-z]+(?: (?!s3)[a-z]+)?)", GUIDE))

    assert {"db backup", "verify", "init"} <= commands
    for words in sorted(commands):
        assert ptdock(None, *words.split(), "--help").exit_code == 0, words
