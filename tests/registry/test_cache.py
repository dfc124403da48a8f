import os
import threading
import time
from pathlib import Path

import pytest

from registry.cache import Cache
from registry.digest import Digest
from registry.errors import IntegrityError

OLD = time.time() - 7200


def fetched(cache: Cache, data: bytes) -> Path:
    return cache.fetch(Digest.of(data), lambda: iter([data]))


def never() -> None:
    raise AssertionError("it was there already")


def test_a_blob_is_fetched_once(tmp_path):
    cache = Cache(tmp_path)

    path = fetched(cache, b"x")

    assert path.read_bytes() == b"x"
    assert cache.fetch(Digest.of(b"x"), never) == path
    assert cache.get(Digest.of(b"x")) == path
    assert cache.get(Digest.of(b"y")) is None


def test_other_bytes_are_refused_and_nothing_is_left(tmp_path):
    with pytest.raises(IntegrityError, match="is damaged"):
        Cache(tmp_path).fetch(Digest.of(b"x"), lambda: iter([b"y"]))

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_download_that_breaks_leaves_nothing(tmp_path):
    def half():
        yield b"x"
        raise ConnectionError

    with pytest.raises(ConnectionError):
        Cache(tmp_path).fetch(Digest.of(b"xy"), half)

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_the_least_recently_used_go_when_the_cache_is_full(tmp_path):
    cache = Cache(tmp_path, limit=350)
    for age, letter in enumerate((b"c", b"a", b"b")):
        os.utime(fetched(cache, letter * 100), (OLD + age, OLD + age))
    cache.get(Digest.of(b"c" * 100))  # used now

    fetched(cache, b"d" * 100)

    assert {letter for letter in b"abcd" if cache.get(Digest.of(bytes([letter]) * 100))} == set(b"bcd")


def test_what_was_used_within_the_hour_stays_even_when_the_cache_is_too_full(tmp_path):
    cache = Cache(tmp_path, limit=10)

    paths = [fetched(cache, letter * 100) for letter in (b"a", b"b")]

    assert all(path.exists() for path in paths)


def test_a_copy_that_goes_stays_with_whoever_has_it_open(tmp_path):
    cache = Cache(tmp_path, limit=10)
    path = fetched(cache, b"a" * 100)
    with path.open("rb") as file:
        os.utime(path, (OLD, OLD))
        fetched(cache, b"b" * 100)

        assert not path.exists()
        assert file.read() == b"a" * 100


def test_a_file_that_is_adopted_becomes_the_copy(tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"x")
    cache = Cache(tmp_path / "cache")

    cache.adopt(source, Digest.of(b"x"))

    assert not source.exists()
    assert cache.fetch(Digest.of(b"x"), never).read_bytes() == b"x"


def test_several_may_fetch_the_same_at_once(tmp_path):
    cache, paths = Cache(tmp_path), []
    data = os.urandom(1 << 20)
    threads = [threading.Thread(target=lambda: paths.append(fetched(cache, data).read_bytes())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert paths == [data] * 8
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [Digest.of(data).hex]
