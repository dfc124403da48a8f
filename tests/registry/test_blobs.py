import errno
import os
import resource
import signal
import stat
import threading
from pathlib import Path

import pytest

from registry import files
from registry.blobs import LocalStore
from registry.digest import Descriptor, Digest
from registry.errors import InputError, IntegrityError, NotFound, Unavailable
from registry.files import Step, observed
from tests.registry.stock import refusing

DATA = os.urandom(3 << 20)  # three chunks


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore.create(tmp_path / "store")


def blob_names(store: LocalStore) -> list[str]:
    return sorted(path.name for path in (store.root / "blobs" / "sha256").iterdir())


def unfinished(store: LocalStore) -> list[Path]:
    return list((store.root / "ingest").iterdir())


def test_what_was_put_is_what_is_read(store):
    blob = store.put_bytes(DATA)

    assert blob == Descriptor(Digest.of(DATA), len(DATA))
    assert store.read(blob.digest) == DATA
    assert store.path(blob.digest).read_bytes() == DATA
    assert store.size(blob.digest) == len(DATA)
    assert list(store.descriptors()) == [blob]


def test_the_empty_blob_is_a_blob(store):
    assert store.read(store.put_bytes(b"").digest) == b""


def test_the_store_is_an_oci_image_layout(store):
    blob = store.put_bytes(b"x")

    assert (store.root / "oci-layout").read_bytes() == b'{"imageLayoutVersion":"1.0.0"}'
    assert store.path(blob.digest) == store.root / "blobs" / "sha256" / blob.digest.hex


def test_a_blob_is_read_only(store):
    assert stat.S_IMODE(store.path(store.put_bytes(b"x").digest).stat().st_mode) == 0o444


def test_putting_twice_is_putting_once(store, tmp_path):
    blob = store.put_bytes(DATA)
    inode = store.path(blob.digest).stat().st_ino
    (tmp_path / "copy").write_bytes(DATA)

    assert store.put_bytes(DATA) == blob
    assert store.put_file(tmp_path / "copy") == blob
    assert store.path(blob.digest).stat().st_ino == inode
    assert unfinished(store) == []


def test_putting_again_restarts_the_grace_before_collection(store):
    path = store.path(store.put_bytes(b"x").digest)
    os.utime(path, (1, 1))

    store.put_bytes(b"x")

    assert path.stat().st_mtime > 1


def test_a_put_file_stays_where_it_was_and_may_change(store, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(DATA)

    blob = store.put_file(source)
    source.write_bytes(b"changed")

    assert store.read(blob.digest) == DATA


def test_a_moved_file_becomes_the_blob_without_being_copied(store, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(DATA)
    inode = source.stat().st_ino

    blob = store.put_file(source, move=True)

    assert not source.exists()
    assert store.path(blob.digest).stat().st_ino == inode
    assert store.read(blob.digest) == DATA
    assert stat.S_IMODE(store.path(blob.digest).stat().st_mode) == 0o444


def test_moving_a_known_blob_removes_only_the_file(store, tmp_path):
    blob = store.put_bytes(DATA)
    (tmp_path / "source").write_bytes(DATA)

    assert store.put_file(tmp_path / "source", move=True) == blob
    assert not (tmp_path / "source").exists()
    assert store.read(blob.digest) == DATA


@pytest.mark.parametrize("move", [False, True])
def test_other_bytes_than_expected_are_refused_and_leave_nothing(store, tmp_path, move):
    (tmp_path / "source").write_bytes(DATA)

    with pytest.raises(IntegrityError, match="is not sha256:") as caught:
        store.put_file(tmp_path / "source", expected=Digest.of(b"other"), move=move)

    assert caught.value.values["actual"] == str(Digest.of(DATA))
    assert (tmp_path / "source").read_bytes() == DATA
    assert blob_names(store) == unfinished(store) == []


def test_progress_adds_up_to_the_size(store, tmp_path):
    (tmp_path / "source").write_bytes(DATA + b"1")
    seen: list[int] = []

    store.put_file(tmp_path / "source", progress=seen.append)

    assert sum(seen) == len(DATA) + 1
    assert len(seen) == 4


def test_what_is_no_file_is_an_input_error(store, tmp_path):
    for path in (tmp_path / "absent", tmp_path, tmp_path / "absent" / "below"):
        with pytest.raises(InputError, match="is not a readable file"):
            store.put_file(path)


def test_an_absent_blob_is_not_found(store):
    with pytest.raises(NotFound, match="the store holds no blob"):
        store.path(Digest.of(b"absent"))
    assert store.size(Digest.of(b"absent")) is None


def test_a_flipped_bit_is_found_when_it_is_read(store):
    blob = store.put_bytes(b"abc")
    damage(store.path(blob.digest), b"abb")

    with pytest.raises(IntegrityError, match="is damaged"):
        store.read(blob.digest)


def test_putting_the_right_bytes_mends_a_cut_blob(store):
    blob = store.put_bytes(DATA)
    damage(store.path(blob.digest), DATA[:100])

    store.put_bytes(DATA)

    assert store.read(blob.digest) == DATA


def damage(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)


def test_a_deleted_blob_is_gone_and_deleting_again_is_fine(store):
    blob = store.put_bytes(b"x")

    store.delete(blob.digest)
    store.delete(blob.digest)

    assert list(store.descriptors()) == []


def test_blobs_are_listed_in_the_order_of_digests_and_strangers_are_passed_over(store):
    blobs = {store.put_bytes(bytes([number])) for number in range(20)}
    (store.root / "blobs" / "sha256" / "README").write_text("not a blob")

    assert list(store.descriptors()) == sorted(blobs, key=lambda blob: blob.digest)


def test_racing_writers_of_one_blob_all_succeed(store):
    results: list[Descriptor] = []
    threads = [threading.Thread(target=lambda: results.append(store.put_bytes(DATA))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == [Descriptor.of(DATA)] * 8
    assert blob_names(store) == [Digest.of(DATA).hex]
    assert unfinished(store) == []


@pytest.mark.parametrize("move", [False, True])
def test_a_power_cut_at_any_step_leaves_each_blob_whole_or_absent(store, tmp_path, move):
    (tmp_path / "source").write_bytes(DATA)
    steps: list[Step] = []
    with observed(steps.append):
        store.put_bytes(b"small")
        store.put_file(tmp_path / "source", move=move)

    cuts = [surviving(steps[:count], {tmp_path / "source": DATA}) for count in range(len(steps) + 1)]

    for certain, possible in cuts:
        for name, data in possible.items():
            assert name == Digest.of(data).hex
        assert certain <= possible.keys()
    assert sorted({len(certain) for certain, _ in cuts}) == [0, 1, 2]
    assert cuts[-1][0] == {Digest.of(b"small").hex, Digest.of(DATA).hex}


def surviving(steps: list[Step], before: dict[Path, bytes]) -> tuple[set[str], dict[str, bytes]]:
    """The blobs after a power cut: those that certainly survive, and those that may, with their bytes.

    Bytes survive once their file was synced; names certainly once their directory was, possibly as soon as linked.
    """
    written, synced = dict(before), {}
    linked: dict[str, Path] = {}
    certain: set[str] = set()
    for step in steps:
        if step.operation == "write":
            written[step.path] = written.get(step.path, b"") + step.data
        elif step.operation == "link":
            linked[step.target.name] = step.path
        elif step.operation == "sync" and step.path.name == "sha256":
            certain = set(linked)
        elif step.operation == "sync":
            synced[step.path] = written[step.path]
    return certain, {name: synced.get(path, b"lost") for name, path in linked.items()}


@pytest.mark.parametrize("operation", ["create", "write", "protect", "sync", "link"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_nothing_visible_and_the_next_try_succeeds(store, tmp_path, operation, code):
    (tmp_path / "source").write_bytes(DATA)

    for after in range(2 if operation == "write" else 1):
        with refusing({operation}, after, OSError(code, "full")), pytest.raises(Unavailable, match="no space left"):
            store.put_file(tmp_path / "source")
        assert blob_names(store) == unfinished(store) == []
    assert store.read(store.put_file(tmp_path / "source").digest) == DATA


@pytest.mark.parametrize("operation", ["protect", "sync", "link"])
def test_a_full_disk_never_loses_a_file_that_was_to_be_moved(store, tmp_path, operation):
    (tmp_path / "source").write_bytes(DATA)

    with refusing({operation}, 0, OSError(errno.ENOSPC, "full")), pytest.raises(Unavailable):
        store.put_file(tmp_path / "source", move=True)

    assert blob_names(store) == []
    assert (tmp_path / "source").read_bytes() == DATA


def test_the_kernels_own_refusal_is_told_like_that(store):
    """A process that may not write files beyond 1 MB gets EFBIG from a real write."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
            store.put_bytes(DATA)
        except Unavailable:
            code = 42
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 42
    assert blob_names(store) == unfinished(store) == []


def test_a_home_that_cannot_be_written_is_unavailable(store):
    refused = pytest.raises(Unavailable, match="Read-only file system")
    with refusing({"create"}, 0, OSError(errno.EROFS, "Read-only file system")), refused:
        store.put_bytes(b"x")


def test_unfinished_files_are_stale_once_nobody_writes_to_them(store):
    path, file = files.create(store.root / "ingest")
    file.close()
    os.utime(path, (1000, 1000))

    assert store.stale(before=999) == []
    assert store.stale(before=1001) == [path]


def test_a_small_file_is_replaced_whole(tmp_path):
    path = tmp_path / "site" / "v1" / "stable.json"
    files.replace(path, b"old")
    with refusing({"rename"}, 0, OSError(errno.ENOSPC, "full")), pytest.raises(Unavailable):
        files.replace(path, b"new")
    assert path.read_bytes() == b"old"

    files.replace(path, b"new")

    assert path.read_bytes() == b"new"
    assert [each.name for each in path.parent.iterdir()] == ["stable.json"]


def test_a_lock_makes_others_wait_and_say_so(tmp_path):
    order: list[str] = []
    inside = threading.Event()

    def second() -> None:
        with files.locked(tmp_path / "lock", lambda: (order.append("waiting"), inside.set())):
            order.append("second")

    with files.locked(tmp_path / "lock"):
        thread = threading.Thread(target=second)
        thread.start()
        assert inside.wait(10)
        order.append("first done")
    thread.join()

    assert order == ["waiting", "first done", "second"]
