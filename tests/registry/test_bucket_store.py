"""What a store in a bucket adds to the contract: whose it is, interrupted uploads, and secrets that stay secret."""

import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import obstore
import pytest

from registry.bucket_store import BucketStore
from registry.buckets import PART, Bucket, open_bucket
from registry.cache import Cache
from registry.digest import Descriptor, Digest
from registry.errors import Conflict, FormatError, InputError, IntegrityError, NotFound, Unavailable
from registry.files import Step, observed
from registry.stores import ENVIRONMENT, make_store, open_store
from tests.registry.flaky import proxied
from tests.registry.s3 import S3, SECRET

LARGE = os.urandom(2 * PART + 1000)  # three parts


@pytest.fixture
def store(bucket: Bucket, tmp_path: Path) -> BucketStore:
    return BucketStore(bucket, Cache(tmp_path / "cache"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(LARGE)
    return path


def environment(server: S3) -> dict[str, str]:
    """One that puts the blobs under a fresh prefix."""
    return {**server.environment, ENVIRONMENT: f"s3://blobs/{secrets.token_hex(8)}"}


def test_one_prefix_belongs_to_one_registry(s3_server, tmp_path):
    """A second registry's collector would delete the first one's blobs: it knows none of them."""
    where = environment(s3_server)
    make_store(tmp_path, where, "first").put_bytes(b"x")
    make_store(tmp_path, where, "first")

    assert open_store(tmp_path, where, "first").size(Digest.of(b"x")) == 1
    for use in (make_store, open_store):
        with pytest.raises(Conflict, match="is the store of another registry") as caught:
            use(tmp_path, where, "second")
        assert caught.value.values == {"expected": "second", "actual": "first"}


def test_a_prefix_without_a_store_says_how_to_make_one(s3_server, tmp_path):
    with pytest.raises(NotFound, match="holds no store") as caught:
        open_store(tmp_path, environment(s3_server), "first")

    assert "ptdock init" in caught.value.hint


def test_an_owner_that_is_no_document_is_refused(bucket, store):
    obstore.put(bucket.objects, "ptdock.json", b"{")

    with pytest.raises(FormatError, match="not JSON"):
        store.check_claim("first")


@pytest.mark.parametrize("address", ["file:///srv", "gs://bucket", "/srv/blobs", "s3://", "s3://B/x", "s3://bucket//x"])
def test_another_kind_of_store_is_refused(tmp_path, address):
    with pytest.raises(InputError) as caught:
        open_store(tmp_path, {ENVIRONMENT: address}, "first")

    assert "s3://bucket/prefix" in caught.value.hint


def test_a_home_without_blobs_says_that_they_may_be_elsewhere(tmp_path):
    with pytest.raises(NotFound, match="holds no blobs") as caught:
        open_store(tmp_path, {}, "first")

    assert ENVIRONMENT in caught.value.hint


@pytest.mark.parametrize("size", [100, len(LARGE)], ids=["whole", "in parts"])
def test_bytes_that_change_after_they_were_hashed_never_appear(store, source, size):
    source.write_bytes(LARGE[:size])

    def change(step: Step) -> None:
        if step.operation == "read again":
            source.write_bytes(bytes(size))

    with observed(change), pytest.raises(IntegrityError, match="is not sha256:"):
        store.put_file(source)

    assert list(store.descriptors()) == []
    source.write_bytes(LARGE[:size])
    assert store.put_file(source) == Descriptor.of(LARGE[:size])


KILLED = """
import os, signal, sys
from pathlib import Path
from registry.bucket_store import BucketStore
from registry.buckets import open_bucket
from registry.cache import Cache
from registry.files import observed

seen = 0

def kill(step):
    global seen
    seen += step.operation == sys.argv[4]
    if seen == int(sys.argv[5]):
        os.kill(os.getpid(), signal.SIGKILL)

with observed(kill):
    BucketStore(open_bucket(sys.argv[1], os.environ), Cache(Path(sys.argv[2]))).put_file(Path(sys.argv[3]), move=True)
"""


@pytest.mark.parametrize(
    ("operation", "count", "there"), [("upload", 1, False), ("part", 20, False), ("rename", 1, True)]
)
def test_an_upload_that_is_killed_leaves_the_blob_whole_or_absent(seaweed, source, tmp_path, operation, count, there):
    address = f"s3://blobs/{secrets.token_hex(8)}"
    command = [sys.executable, "-c", KILLED, address, tmp_path / "cache", source, operation, str(count)]
    done = subprocess.run(command, env=os.environ | seaweed.environment, check=False, cwd=Path.cwd())
    store = BucketStore(open_bucket(address, seaweed.environment), Cache(tmp_path / "cache"))

    assert done.returncode == -signal.SIGKILL
    assert list(store.descriptors()) == ([Descriptor.of(LARGE)] if there else [])
    assert source.read_bytes() == LARGE
    assert store.put_file(source, move=True) == Descriptor.of(LARGE)
    assert b"".join(store.chunks(Digest.of(LARGE))) == LARGE


def test_a_connection_that_breaks_in_an_upload_is_tried_again(seaweed, source, tmp_path):
    with proxied(seaweed.endpoint) as proxy:
        store = through(proxy, seaweed, tmp_path)
        proxy.breaks, proxy.after = 2, 1 << 20

        store.put_file(source)

        assert proxy.broken == 2
    assert b"".join(store_at(seaweed, store, tmp_path).chunks(Digest.of(LARGE))) == LARGE


def test_a_connection_that_breaks_in_a_download_is_tried_again(seaweed, source, tmp_path):
    with proxied(seaweed.endpoint) as proxy:
        store = through(proxy, seaweed, tmp_path)
        blob = store.put_file(source)
        proxy.breaks, proxy.after = 2, 1 << 20
        fresh = through(proxy, seaweed, tmp_path, prefix_of(store))

        assert fresh.path(blob.digest).read_bytes() == LARGE
        assert proxy.broken == 2


def prefix_of(store: BucketStore) -> str:
    return store._bucket.address


def through(proxy, server: S3, tmp_path: Path, address: str | None = None) -> BucketStore:
    where = {**server.environment, "AWS_ENDPOINT_URL": proxy.endpoint}
    return BucketStore(open_bucket(address or f"s3://blobs/{secrets.token_hex(8)}", where), Cache(tmp_path / "proxied"))


def store_at(server: S3, store: BucketStore, tmp_path: Path) -> BucketStore:
    return BucketStore(open_bucket(prefix_of(store), server.environment), Cache(tmp_path / "cache"))


def test_a_server_that_is_away_is_unavailable_and_leaves_no_half_copy(moto, tmp_path):
    with proxied(moto.endpoint) as proxy:
        digest = through(proxy, moto, tmp_path, "s3://blobs/away").put_bytes(b"x" * 1000).digest
        away = through(proxy, moto, tmp_path, "s3://blobs/away")

    for ask in (away.path, away.size, away.read, away.delete, lambda _: away.put_bytes(b"y")):
        with pytest.raises(Unavailable, match="s3://blobs/away cannot be used: GenericError"):
            ask(digest)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []


def test_neither_a_refusal_nor_a_name_tells_the_secret(seaweed, tmp_path):
    wrong = open_bucket("s3://blobs/x", {**seaweed.environment, "AWS_SECRET_ACCESS_KEY": f"{SECRET}!"})
    store = BucketStore(wrong, Cache(tmp_path))

    with pytest.raises(Unavailable, match=r"PermissionDeniedError \(SignatureDoesNotMatch\)") as caught:
        store.put_bytes(b"x")

    told = f"{caught.value.message} {caught.value.hint} {caught.value.values} {wrong!r} {store!r}"
    assert SECRET not in told
    assert seaweed.environment["AWS_ACCESS_KEY_ID"] not in told


def test_a_bucket_that_is_not_there_is_unavailable(moto, tmp_path):
    store = BucketStore(open_bucket("s3://absent/x", moto.environment), Cache(tmp_path))

    with pytest.raises(Unavailable, match="s3://absent/x: there is no such bucket"):
        store.put_bytes(b"x")


def test_without_obstore_a_bucket_says_what_to_install():
    """Another process, in which obstore cannot be imported."""
    code = """
import sys
sys.modules["obstore"] = sys.modules["obstore.store"] = None
from registry.buckets import open_bucket
from registry.errors import Unavailable
try:
    open_bucket("s3://bucket", {})
except Unavailable as error:
    print(error.message, "|", error.hint)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd())

    assert done.stdout == "buckets need the package obstore | pip install 'ptdock[s3]'\n"


def test_a_presigned_address_expires(seaweed, tmp_path):
    store = BucketStore(open_bucket(f"s3://blobs/{secrets.token_hex(8)}", seaweed.environment), Cache(tmp_path))
    url = store.url(store.put_bytes(b"x").digest, 1)
    assert url is not None
    assert urllib.request.urlopen(url, timeout=10).read() == b"x"  # noqa: S310 - a server of our own

    time.sleep(2.1)

    with pytest.raises(HTTPError, match="403"):
        urllib.request.urlopen(url, timeout=10)  # noqa: S310 - as above


def test_a_damaged_copy_is_fetched_anew(store):
    blob = store.put_bytes(b"good")
    copy = store.path(blob.digest)
    copy.chmod(0o644)
    copy.write_bytes(b"evil")

    assert store.read(blob.digest) == b"good"
    assert copy.read_bytes() == b"good"


def test_unfinished_copies_are_stale_once_nobody_writes_to_them(store, tmp_path):
    assert store.stale(time.time()) == []
    store.path(store.put_bytes(b"x").digest)
    left = tmp_path / "cache" / "ingest" / "left"
    left.write_bytes(b"half")
    os.utime(left, (1000, 1000))

    assert store.stale(999) == []
    assert store.stale(1001) == [left]
