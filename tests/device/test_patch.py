"""A foundation update costs what changed, and ends in the pinned bytes whatever the old file or the server are like."""

from dataclasses import replace
from http.server import BaseHTTPRequestHandler

import numpy as np
import pytest

from device.http import HttpSource, Patience
from device.patch import BRIDGE, Patched
from device.source import DirectorySource, Metered
from device.store import DeviceStore
from device.sync import Options, sync
from registry.device_state import DeviceState
from registry.digest import Descriptor
from registry.errors import FormatError, Unavailable
from registry.release import FoundationEntry
from registry.segments import SegmentTable
from registry.site import blob_path
from tests.registry.files import foundation_bytes

OPTIONS = Options(facts=DeviceState("phone-1"), clock=lambda: 1_780_000_100)


def tensors(count=40, size=100_000):
    generator = np.random.default_rng(7)
    return {f"t{index}": generator.bytes(size + index) for index in range(count)}


OLD = tensors()
NEW = {key: (b"changed" * 20_000 if key in ("t3", "t4", "t20") else value) for key, value in OLD.items()}


def table_of(tmp_path, data):
    path = tmp_path / "table"
    path.write_bytes(data)
    return SegmentTable.of_file(path)


def offer(site, tmp_path, number, foundation, table=None):
    """Offer a foundation with its segment table."""
    line = site.line({"pirate": b"arr %d" % number}, foundation=foundation)
    document = site.put(table if table is not None else table_of(tmp_path, foundation).to_bytes())
    site.release(number, replace(line, foundation=FoundationEntry(line.foundation.file, document)))
    site.offer(number)
    return document.size


def pull(site, phone, source=None, **options):
    return sync(source or DirectorySource(site.root), ["stable"], phone, replace(OPTIONS, **options))


def stands(phone, data):
    return DeviceStore(phone).path(Descriptor.of(data).digest).read_bytes() == data


def test_only_what_changed_is_fetched(site, phone, tmp_path):
    offer(site, tmp_path, 1, foundation_bytes(OLD))
    pull(site, phone)
    document = offer(site, tmp_path, 2, foundation_bytes(NEW))
    result = pull(site, phone)
    assert stands(phone, foundation_bytes(NEW))
    changed = 3 * 140_000
    header = table_of(tmp_path, foundation_bytes(NEW)).pieces[0].size
    extra = site.pins[2].file.size + document + len(b"arr 2")
    assert changed + header <= result.fetched - extra <= changed + header + 3 * 128


def test_any_part_of_the_new_file_can_be_streamed(site, tmp_path):
    old, new = foundation_bytes(OLD), foundation_bytes(NEW)
    path = tmp_path / "old.ptd"
    path.write_bytes(old)
    blob = site.put(new)
    source = Metered(DirectorySource(site.root))
    patched = Patched.between(source, path, blob_path(blob.digest), table_of(tmp_path, new))
    for start, stop in [(0, len(new)), (1, 2), (350_000, 700_000), (len(new) - 1, len(new)), (5, 5)]:
        assert b"".join(patched.stream(blob_path(blob.digest), start, stop)) == new[start:stop]
    other = site.put(b"another file")
    assert b"".join(patched.stream(blob_path(other.digest), 0, 12)) == b"another file"
    assert patched.read(blob_path(other.digest), 12) == b"another file"


def remote_runs(tmp_path, old, new):
    """How many requests an update takes, and its bytes."""
    path = tmp_path / "old.ptd"
    path.write_bytes(foundation_bytes(old))
    patched = Patched.between(DirectorySource(tmp_path), path, "new", table_of(tmp_path, foundation_bytes(new)))
    return sum(run.offset is None for run in patched._runs), patched.remote


def every_other(tensors):
    return {key: value[::-1] if index % 2 else value for index, (key, value) in enumerate(tensors.items())}


def test_short_gaps_are_fetched_along_and_long_ones_are_not(tmp_path):
    short = tensors(count=20, size=BRIDGE // 2)
    requests, remote = remote_runs(tmp_path, short, every_other(short))
    assert requests == 1
    assert remote > 18 * BRIDGE // 2
    long = tensors(count=20, size=2 * BRIDGE)
    requests, remote = remote_runs(tmp_path, long, every_other(long))
    assert requests == 10
    assert remote < 11 * 2 * BRIDGE


def test_an_old_file_that_is_no_foundation_is_refused(tmp_path):
    path = tmp_path / "old.ptd"
    path.write_bytes(b"no foundation")
    with pytest.raises(FormatError):
        Patched.between(DirectorySource(tmp_path), path, "new", table_of(tmp_path, foundation_bytes(NEW)))


def lying(table):
    """A table whose pieces are all right in size, and say of a changed tensor that it did not change."""
    old = table.pieces
    return replace(table, pieces=(*old[:4], replace(old[4], digest=old[6].digest), *old[5:]))


@pytest.mark.parametrize("kind", ["lies", "another size", "no table", "no foundation here"])
def test_a_disappointing_table_leads_to_the_whole_file(site, phone, tmp_path, kind):
    old = b"no foundation at all" if kind == "no foundation here" else foundation_bytes(OLD)
    new = foundation_bytes(NEW)
    good = table_of(tmp_path, new)
    table = {
        "lies": lying(good).to_bytes(),
        "another size": replace(good, pieces=good.pieces[:-1]).to_bytes(),
        "no table": b"{}",
        "no foundation here": good.to_bytes(),
    }[kind]
    line = site.line({"pirate": b"arr"}, foundation=old)
    site.release(1, line)
    site.offer(1)
    pull(site, phone)
    offer(site, tmp_path, 2, new, table)
    notes, heard = [], []
    pull(site, phone, note=notes.append, progress=lambda done, total: heard.append((done, total)))
    assert stands(phone, new)
    assert any("fetching the foundation whole" in note for note in notes)
    assert heard[-1][0] == heard[-1][1]


class Ranges(BaseHTTPRequestHandler):
    """A plain static server; `server.ranges` says whether it knows ranges, `server.break_after` when it goes away."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        asked = self.headers.get("Range")
        self.server.asked.append((self.path, asked))
        path = self.server.root / self.path.lstrip("/")
        data = path.read_bytes() if path.is_file() else None
        if data is None:
            self.send_error(404)
        elif asked and self.server.ranges:
            first, last = (int(text) for text in asked.removeprefix("bytes=").split("-"))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
            self.body(data[first : last + 1])
        else:
            self.send_response(200)
            self.body(data)

    def body(self, data):
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.server.left is not None:
            if len(data) > self.server.left:
                self.wfile.write(data[: self.server.left])
                self.server.left = 0
                self.close_connection = True
                return
            self.server.left -= len(data)
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def web(site, serve):
    with serve(Ranges, root=site.root, ranges=True, asked=[], left=None) as server:
        yield server


def over(web, attempts=3):
    patience = Patience(attempts=attempts, first=0.01, timeout=5, slowest=1)
    return HttpSource(web.address, patience=patience, sleep=lambda _: None)


def test_an_update_over_http_asks_for_a_few_ranges(site, phone, tmp_path, web):
    offer(site, tmp_path, 1, foundation_bytes(OLD))
    pull(site, phone, over(web))
    offer(site, tmp_path, 2, foundation_bytes(NEW))
    web.asked.clear()
    pull(site, phone, over(web))
    assert stands(phone, foundation_bytes(NEW))
    asked = [ranged for path, ranged in web.asked if Descriptor.of(foundation_bytes(NEW)).digest.hex in path]
    assert len(asked) == 3  # the header, two neighbours together, and one alone
    assert all(asked)


def test_a_server_without_ranges_serves_the_whole_file(site, phone, tmp_path, web):
    offer(site, tmp_path, 1, foundation_bytes(OLD))
    pull(site, phone, over(web))
    offer(site, tmp_path, 2, foundation_bytes(NEW))
    web.ranges = False
    notes = []
    pull(site, phone, over(web), note=notes.append)
    assert stands(phone, foundation_bytes(NEW))
    assert any("does not serve parts" in note for note in notes)


def test_an_update_that_breaks_off_goes_on_where_it_stopped(site, phone, tmp_path, web):
    offer(site, tmp_path, 1, foundation_bytes(OLD))
    pull(site, phone, over(web))
    offer(site, tmp_path, 2, foundation_bytes(NEW))
    web.left = 150_000
    with pytest.raises(Unavailable):
        pull(site, phone, over(web))
    new = Descriptor.of(foundation_bytes(NEW))
    begun = DeviceStore(phone).unfinished()[new.digest]
    assert begun > 140_000
    web.left = None
    result = pull(site, phone, over(web))
    assert stands(phone, foundation_bytes(NEW))
    assert result.fetched < 3 * 140_000
