"""Only the right bytes ever become visible, whatever the source does and wherever the device was interrupted."""

import os
import subprocess
import sys
import textwrap

import pytest

from device.checks import Checks
from device.intake import Intake
from device.source import DirectorySource, Metered
from device.store import DeviceStore
from registry import files
from registry.digest import CHUNK, Descriptor
from registry.errors import IntegrityError, NotFound, Unavailable

DATA = os.urandom(3 * CHUNK + 17)


class Counting(DirectorySource):
    """A directory that remembers which ranges were asked of it."""

    def __init__(self, root):
        super().__init__(root)
        self.asked = []

    def stream(self, path, start, stop, *, ranged=False):
        self.asked.append((start, stop))
        return super().stream(path, start, stop, ranged=ranged)


class Breaking(DirectorySource):
    """A source that goes away in the middle of a file."""

    def stream(self, path, start, stop, *, ranged=False):
        yield next(super().stream(path, start, stop, ranged=ranged))
        raise Unavailable("the source went away")


@pytest.fixture
def store(tmp_path):
    return DeviceStore.create(tmp_path / "device")


def take(store, source, blob, heard=None):
    source = Metered(source)
    Intake(store, source, Checks(store), (heard if heard is not None else []).append).take(blob)
    return source


def nothing_visible(store):
    return not store.held() and not store.unfinished()


def test_a_taken_blob_stands_read_only_under_its_digest(store, site):
    blob = site.put(DATA)
    heard = []
    take(store, DirectorySource(site.root), blob, heard)
    path = store.path(blob.digest)
    assert path.read_bytes() == DATA
    assert path.stat().st_mode & 0o777 == 0o444
    assert sum(heard) == len(DATA)
    assert not store.unfinished()


def test_taking_twice_fetches_once(store, site):
    blob, source = site.put(DATA), Counting(site.root)
    take(store, source, blob)
    take(store, source, blob)
    assert source.asked == [(0, len(DATA))]


def test_an_empty_blob_can_be_taken(store, site):
    blob = site.put(b"")
    take(store, DirectorySource(site.root), blob)
    assert store.held() == {blob.digest: 0}


def test_a_download_that_broke_off_goes_on_where_it_stopped(store, site):
    blob = site.put(DATA)
    with pytest.raises(Unavailable, match="went away"):
        take(store, Breaking(site.root), blob)
    assert store.held() == {}
    assert store.unfinished() == {blob.digest: CHUNK}
    source = Counting(site.root)
    heard = []
    assert take(store, source, blob, heard).fetched == len(DATA) - CHUNK
    assert source.asked == [(CHUNK, len(DATA))]
    assert store.path(blob.digest).read_bytes() == DATA
    assert sum(heard) == len(DATA)


def test_a_damaged_unfinished_piece_is_fetched_anew(store, site):
    blob, source = site.put(DATA), Counting(site.root)
    store.partial(blob.digest).write_bytes(bytes(CHUNK))
    heard = []
    take(store, source, blob, heard)
    assert source.asked == [(CHUNK, len(DATA)), (0, len(DATA))]
    assert store.path(blob.digest).read_bytes() == DATA
    assert sum(heard) == len(DATA)


def test_an_unfinished_piece_longer_than_the_whole_is_dropped(store, site):
    blob = site.put(DATA)
    store.partial(blob.digest).write_bytes(DATA + b"more")
    take(store, DirectorySource(site.root), blob)
    assert store.path(blob.digest).read_bytes() == DATA


def test_an_unfinished_piece_that_a_crash_left_complete_needs_no_source(store, tmp_path):
    blob = Descriptor.of(DATA)
    partial = store.partial(blob.digest)
    partial.write_bytes(DATA)
    partial.chmod(0o444)
    empty = tmp_path / "empty"
    (empty / "blobs" / "sha256").mkdir(parents=True)
    (empty / "blobs" / "sha256" / blob.digest.hex).touch()
    assert take(store, DirectorySource(empty), blob).fetched == 0
    assert store.path(blob.digest).read_bytes() == DATA


@pytest.mark.parametrize("position", [0, 1, CHUNK, len(DATA) - 1])
def test_one_flipped_bit_at_the_source_is_never_visible(store, site, position):
    blob = site.put(DATA)
    changed = bytearray(DATA)
    changed[position] ^= 1
    site.blob_file(DATA).write_bytes(changed)
    with pytest.raises(IntegrityError, match="answered other bytes") as caught:
        take(store, DirectorySource(site.root), blob)
    assert caught.value.values["expected"] == blob.to_json()
    assert caught.value.values["actual"] == Descriptor.of(bytes(changed)).to_json()
    assert nothing_visible(store)


def test_a_truncated_source_is_told_with_both_sizes(store, site):
    blob = site.put(DATA)
    site.blob_file(DATA).write_bytes(DATA[:100])
    with pytest.raises(IntegrityError, match=f"holds only 100 of the {len(DATA)} bytes"):
        take(store, DirectorySource(site.root), blob)
    assert nothing_visible(store)


def test_never_more_than_the_pinned_size_is_read(store, site):
    blob = Descriptor.of(DATA[:1000])
    path = site.root / "blobs" / "sha256" / blob.digest.hex
    path.parent.mkdir(parents=True)
    path.write_bytes(DATA)
    take(store, DirectorySource(site.root), blob)
    assert store.path(blob.digest).read_bytes() == DATA[:1000]


def test_a_missing_blob_is_not_found(store, site):
    site.put(b"another")
    blob = Descriptor.of(b"never published")
    with pytest.raises(NotFound, match=blob.digest.hex):
        take(store, DirectorySource(site.root), blob)


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data + b"x", lambda data: b"x" + data[1:]])
def test_a_damaged_blob_on_the_device_is_replaced_not_rewritten(store, site, damage):
    blob = site.put(DATA)
    take(store, DirectorySource(site.root), blob)
    path = store.path(blob.digest)
    path.chmod(0o644)
    path.write_bytes(damage(DATA))
    with open(path, "rb") as mapped:
        take(store, DirectorySource(site.root), blob)
        assert mapped.read() == damage(DATA)
    assert path.read_bytes() == DATA


def test_a_full_disk_is_told_as_one_and_leaves_nothing(tmp_path, site):
    """A real refusal of the kernel: the largest file that this process may write is 1 MiB."""
    blob = site.put(DATA)
    script = textwrap.dedent(
        f"""
        import resource
        from pathlib import Path
        from device.checks import Checks
        from device.intake import Intake
        from device.source import DirectorySource, Metered
        from device.store import DeviceStore
        from registry.digest import Descriptor, Digest
        from registry.errors import Unavailable

        store = DeviceStore.create(Path({str(tmp_path / "device")!r}))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        blob = Descriptor(Digest.parse("{blob.digest}"), {blob.size})
        try:
            Intake(store, DirectorySource(Path({str(site.root)!r})), Checks(store)).take(blob)
        except Unavailable as error:
            print(error.message)
        print(store.held(), store.unfinished())
        """
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "no space left" in ended.stdout
    assert ended.stdout.endswith("{} {}\n")


def test_a_crash_at_any_step_leaves_the_blob_absent_or_whole(tmp_path, site, power_cut):
    blob = site.put(DATA)
    steps = count_steps(DeviceStore.create(tmp_path / "rehearsal"), site, blob)
    assert steps >= 8
    for last in range(steps):
        store = DeviceStore.create(tmp_path / f"crash-{last}")
        with files.observed(power_cut(last)), pytest.raises(KeyboardInterrupt):
            take(store, DirectorySource(site.root), blob)
        assert set(store.held()) <= {blob.digest}
        assert all(store.path(digest).read_bytes() == DATA for digest in store.held())
        take(store, DirectorySource(site.root), blob)
        assert store.path(blob.digest).read_bytes() == DATA


def count_steps(store, site, blob):
    seen = []
    with files.observed(seen.append):
        take(store, DirectorySource(site.root), blob)
    return len(seen)
