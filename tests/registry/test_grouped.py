import errno
import os
import shutil
import signal
from pathlib import Path

import pytest

from registry import files
from registry.blobs import LocalStore
from registry.digest import Descriptor
from registry.errors import InputError, Unavailable
from registry.files import Step
from registry.grouped import OneByOne
from tests.registry.crashes import in_a_child, killing


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore.create(tmp_path / "store")


def unfinished(store: LocalStore) -> list[Path]:
    return list((store.root / "ingest").iterdir())


def test_a_group_is_seen_by_nobody_before_it_is_settled(store, tmp_path):
    (tmp_path / "file").write_bytes(b"from a file")

    with store.group() as group:
        put = [group.put_bytes(b"one"), group.put_file(tmp_path / "file")]
        assert list(store.descriptors()) == []
        group.settle()
        assert set(store.descriptors()) == set(put) == {Descriptor.of(b"one"), Descriptor.of(b"from a file")}

    assert store.read(put[1].digest) == b"from a file"
    assert store.path(put[0].digest).stat().st_mode & 0o777 == 0o444
    assert unfinished(store) == []


def test_a_group_that_is_not_settled_leaves_nothing(store):
    with store.group() as group:
        group.put_bytes(b"one")
    assert (list(store.descriptors()), unfinished(store)) == ([], [])

    def fail() -> None:
        with store.group() as group:
            group.put_bytes(b"two")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (list(store.descriptors()), unfinished(store)) == ([], [])


def test_equal_bytes_and_what_is_there_are_written_once(store, tmp_path):
    store.put_bytes(b"there")
    (tmp_path / "file").write_bytes(b"there")
    written: list[bytes] = []

    def observe(step: Step) -> None:
        if step.operation == "write":
            written.append(step.data)

    with files.observed(observe), store.group() as group:
        for data in (b"there", b"new", b"new"):
            group.put_bytes(data)
        group.put_file(tmp_path / "file")
        group.settle()

    assert written == [b"new", b"there"], "a file's digest is known when it has been read"
    assert len(list(store.descriptors())) == 2
    assert unfinished(store) == []


def test_a_blob_of_another_size_is_replaced(store):
    blob = store.put_bytes(b"whole")
    path = store.path(blob.digest)
    path.chmod(0o644)
    os.truncate(path, 2)

    with store.group() as group:
        group.put_bytes(b"whole")
        group.settle()

    assert store.read(blob.digest) == b"whole"


def test_every_file_is_synced_before_it_is_named_and_the_directory_after_the_last_name(store):
    steps: list[Step] = []
    with files.observed(steps.append), store.group() as group:
        for number in range(5):
            group.put_bytes(b"blob %d" % number)
        group.settle()

    names = [step.operation for step in steps]
    synced = {step.path for step in steps[: names.index("link")] if step.operation == "sync"}
    assert {step.path for step in steps if step.operation == "link"} <= synced
    last = len(names) - 1 - names[::-1].index("link")
    assert (steps[last + 1].operation, steps[last + 1].path) == ("sync", store.root / "blobs" / "sha256")
    assert names.count("sync") == 6


@pytest.mark.parametrize("operation", ["create", "write", "sync", "link"])
def test_a_full_disk_leaves_nothing_unfinished(store, operation):
    def refuse(step: Step) -> None:
        if step.operation == operation:
            raise OSError(errno.ENOSPC, "No space left on device")

    def put() -> None:
        with store.group() as group:
            group.put_bytes(b"one")
            group.settle()

    with files.observed(refuse), pytest.raises(Unavailable, match="no space left"):
        put()

    assert (list(store.descriptors()), unfinished(store)) == ([], [])


def test_a_group_that_is_killed_leaves_only_whole_blobs(store, tmp_path):
    for after in range(40):
        root = Path(shutil.copytree(store.root, tmp_path / f"try-{after}"))

        def put(root: Path = root) -> None:
            with LocalStore(root).group() as group:
                for number in range(3):
                    group.put_bytes(b"blob %d" % number)
                group.settle()

        code = in_a_child(put, killing(after))
        for blob in LocalStore(root).descriptors():
            LocalStore(root).read(blob.digest)
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert after > 15


def test_a_file_that_is_none_is_an_input_error(store, tmp_path):
    with store.group() as group, pytest.raises(InputError):
        group.put_file(tmp_path / "nothing")


def test_a_store_without_groups_puts_at_once(store):
    group = OneByOne(store.put_bytes, store.put_file)

    with group:
        blob = group.put_bytes(b"at once")
        assert store.read(blob.digest) == b"at once"
        group.settle()
