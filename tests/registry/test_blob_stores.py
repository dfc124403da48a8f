"""The promises of registry.blobs.BlobStore, on a directory and on two servers with an S3 interface."""

from __future__ import annotations

import os
import secrets
import threading
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import obstore
import pytest

from registry.blobs import BlobStore, LocalStore
from registry.bucket_store import BucketStore
from registry.buckets import PART, Bucket, open_bucket
from registry.cache import Cache
from registry.digest import Descriptor, Digest
from registry.errors import InputError, IntegrityError, NotFound

SMALL = b"small"
DATA = os.urandom(3 << 20)
LARGE = os.urandom(PART + 1000)  # two parts


@dataclass
class Shelf:
    """A store, and how to damage it: `overwrite` puts other bytes in a blob's place."""

    store: BlobStore
    overwrite: Callable[[Digest, bytes], None]


@pytest.fixture(params=["local", "moto", "seaweed"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Shelf:
    if request.param == "local":
        local = LocalStore.create(tmp_path / "store")

        def replace(digest: Digest, data: bytes) -> None:
            local.path(digest).chmod(0o644)
            local.path(digest).write_bytes(data)

        return Shelf(local, replace)
    server = request.getfixturevalue(request.param)
    bucket = open_bucket(f"s3://blobs/{secrets.token_hex(8)}", server.environment)
    return Shelf(
        BucketStore(bucket, Cache(tmp_path / "cache")),
        lambda digest, data: obstore.put(bucket.objects, f"blobs/sha256/{digest.hex}", data) and None,
    )


@pytest.fixture
def store(shelf: Shelf) -> BlobStore:
    return shelf.store


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(DATA)
    return path


@pytest.mark.parametrize("data", [b"", SMALL, DATA, LARGE], ids=["empty", "small", "middling", "large"])
def test_what_was_put_is_what_is_read(store, tmp_path, data):
    (tmp_path / "file").write_bytes(data)

    assert store.put_bytes(data) == store.put_file(tmp_path / "file") == Descriptor.of(data)

    digest = Digest.of(data)
    assert store.read(digest) == data
    assert store.path(digest).read_bytes() == data
    assert b"".join(store.chunks(digest)) == data
    assert store.size(digest) == len(data)
    assert list(store.descriptors()) == [Descriptor.of(data)]


def test_a_large_file_is_what_was_put_too(store, tmp_path):
    (tmp_path / "file").write_bytes(LARGE)

    blob = store.put_file(tmp_path / "file")

    assert store.read(blob.digest) == LARGE


@pytest.mark.parametrize(
    ("start", "stop"), [(0, 10), (5, None), (PART - 1, PART + 1), (PART, None), (10, 10), (len(LARGE) - 1, 1 << 40)]
)
def test_a_part_of_a_blob_is_read_alone(store, start, stop):
    digest = store.put_bytes(LARGE).digest

    assert b"".join(store.chunks(digest, start, stop)) == LARGE[start:stop]


def test_a_file_stays_where_it_was_and_may_change(store, source):
    blob = store.put_file(source)
    source.write_bytes(b"changed")

    assert store.read(blob.digest) == DATA


def test_a_moved_file_is_gone_and_its_blob_at_hand(store, source):
    inode = source.stat().st_ino

    blob = store.put_file(source, move=True)

    assert not source.exists()
    assert store.path(blob.digest).stat().st_ino == inode, "it need not be fetched again"
    assert store.read(blob.digest) == b"".join(store.chunks(blob.digest)) == DATA


def test_a_blobs_file_is_read_only(store):
    path = store.path(store.put_bytes(SMALL).digest)

    assert path.stat().st_mode & 0o777 == 0o444


@pytest.mark.parametrize("move", [False, True])
def test_other_bytes_than_expected_are_refused_and_leave_nothing(store, source, move):
    with pytest.raises(IntegrityError, match="is not sha256:") as caught:
        store.put_file(source, expected=Digest.of(b"other"), move=move)

    assert caught.value.values["actual"] == str(Digest.of(DATA))
    assert source.read_bytes() == DATA
    assert list(store.descriptors()) == []


def test_progress_adds_up_to_the_size(store, source):
    seen: list[int] = []

    store.put_file(source, progress=seen.append)

    assert sum(seen) == len(DATA)


def test_what_is_no_file_is_an_input_error(store, tmp_path):
    for path in (tmp_path / "absent", tmp_path, tmp_path / "absent" / "below"):
        with pytest.raises(InputError, match="is not a readable file"):
            store.put_file(path)


def test_an_absent_blob_is_not_found(store):
    absent = Digest.of(b"absent")

    for ask in (store.path, store.read, lambda digest: list(store.chunks(digest))):
        with pytest.raises(NotFound, match="the store holds no blob"):
            ask(absent)
    assert store.size(absent) is None


def test_sizes_are_asked_for_together(store):
    blobs = {store.put_bytes(bytes(size)) for size in range(30)}
    absent = Digest.of(b"absent")

    assert store.sizes([*(blob.digest for blob in blobs), absent]) == {
        **{blob.digest: blob.size for blob in blobs},
        absent: None,
    }
    assert store.sizes([]) == {}


def test_a_flipped_bit_is_found_when_it_is_read(shelf):
    digest = shelf.store.put_bytes(b"abc").digest
    shelf.overwrite(digest, b"abb")

    with pytest.raises(IntegrityError, match="is damaged"):
        shelf.store.read(digest)
    assert b"".join(shelf.store.chunks(digest)) == b"abb", "as the store has it now"


@pytest.mark.parametrize("data", [SMALL, DATA, LARGE], ids=["small", "middling", "large"])
def test_putting_the_right_bytes_mends_a_cut_blob(shelf, tmp_path, data):
    (tmp_path / "file").write_bytes(data)
    digest = shelf.store.put_bytes(data).digest
    for put in (lambda: shelf.store.put_bytes(data), lambda: shelf.store.put_file(tmp_path / "file")):
        shelf.overwrite(digest, data[:3])

        put()

        assert shelf.store.read(digest) == data


def test_a_deleted_blob_is_gone_and_deleting_again_is_fine(store):
    digest = store.put_bytes(SMALL).digest
    store.path(digest)

    store.delete(digest)
    store.delete(digest)

    assert list(store.descriptors()) == []
    with pytest.raises(NotFound):
        store.path(digest)


def test_blobs_are_listed_in_the_order_of_digests(store):
    blobs = {store.put_bytes(bytes([number])) for number in range(20)}

    assert list(store.descriptors()) == sorted(blobs, key=lambda blob: blob.digest)


@pytest.mark.parametrize("data", [SMALL, DATA, LARGE], ids=["small", "middling", "large"])
def test_racing_writers_of_one_blob_all_succeed(store, data):
    results: list[Descriptor] = []
    threads = [threading.Thread(target=lambda: results.append(store.put_bytes(data))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == [Descriptor.of(data)] * 8
    assert list(store.descriptors()) == [Descriptor.of(data)]
    assert store.read(Digest.of(data)) == data


def test_only_a_bucket_has_addresses(store):
    digest = store.put_bytes(SMALL).digest

    url = store.url(digest, 60)

    assert store.remote == (url is not None)
    if url is not None:
        assert urllib.request.urlopen(url, timeout=10).read() == SMALL  # noqa: S310 - a server of our own


def test_strangers_in_a_store_are_passed_over(bucket: Bucket, tmp_path):
    store = BucketStore(bucket, Cache(tmp_path))
    for name in ("blobs/sha256/README", f"blobs/sha256/{'0' * 64}.part", f"other/{'0' * 64}"):
        obstore.put(bucket.objects, name, b"not a blob")

    assert list(store.descriptors()) == []
