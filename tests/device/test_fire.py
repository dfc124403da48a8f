"""Under fire: whatever stands between, the last good set runs, and the next one comes whole."""

import itertools
import random
import subprocess
import sys
import textwrap
import time
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler

import numpy as np
import pytest

from device.http import HttpSource, Patience
from device.manage import status
from device.source import DirectorySource, manifest_path
from device.store import DeviceStore
from device.sync import Options, sync
from registry.device_state import DeviceState
from registry.digest import Descriptor
from registry.errors import FormatError, IntegrityError, PtdockError

OPTIONS = Options(facts=DeviceState("phone-1"), clock=lambda: 1_780_000_100)
BIG = np.random.default_rng(3).bytes(3_000_000)
PATIENCE = Patience(attempts=2, first=0.001, longest=1, timeout=1, slowest=1)


def truncated(body):
    return body[: len(body) // 2]


def corrupted(body):
    return body[: len(body) // 3] + bytes([body[len(body) // 3] ^ 4]) + body[len(body) // 3 + 1 :] if body else body


def reordered(body):
    half = len(body) // 2
    return body[half:] + body[:half]


class Proxy(BaseHTTPRequestHandler):
    """Serves a directory, badly: `server.fault()` answers what to do to each answer's body."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = self.server.root / self.path.lstrip("/")
        data = path.read_bytes() if path.is_file() else None
        status_code, body = (404, b"") if data is None else self.part(data)
        fault = self.server.fault()
        if fault == "delay":
            time.sleep(0.01)
        elif fault == "refuse":
            status_code, body = 503, b""
        elif fault == "reset":
            self.close_connection = True
            return
        sent = fault(body) if callable(fault) else body
        self.send_response(status_code)
        self.send_header("Content-Length", str(len(body)))
        if status_code == 206:
            first, last = self.asked()
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.end_headers()
        self.wfile.write(sent)
        self.close_connection = len(sent) < len(body)

    def asked(self):
        return tuple(int(text) for text in self.headers["Range"].removeprefix("bytes=").split("-"))

    def part(self, data):
        if "Range" not in self.headers:
            return 200, data
        first, last = self.asked()
        return 206, data[first : last + 1]

    def log_message(self, *_):
        pass


@pytest.fixture
def served(serve, site):
    """`served()`, `served(fault)`, `served(fault, handler)`: the site's address while it is served so."""

    @contextmanager
    def while_served(fault=lambda: None, handler=Proxy):
        with serve(handler, root=site.root, fault=fault) as server:
            yield server.address

    return while_served


def offer(site, number, pirate, parts):
    site.release(number, site.line({"pirate": pirate, "robot": parts(number)}, foundation=BIG[:: 1 + number]))
    site.offer(number)


def pull(address, phone, **options):
    source = HttpSource(address, patience=PATIENCE, sleep=lambda _: None)
    return sync(source, ["stable"], phone, replace(OPTIONS, **options))


def running(phone):
    store = DeviceStore(phone)
    active = store.known_state().channels["stable"].active
    return store.path(active.adapter("pirate").file.digest).read_bytes()


@pytest.mark.parametrize("seed", range(6))
def test_a_proxy_that_mangles_most_answers_never_gets_anything_wrong_activated(site, phone, parts, seed, served):
    offer(site, 1, b"old" * 1000, parts)
    with served() as address:
        pull(address, phone)
    offer(site, 2, b"new" * 1000, parts)
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    faults = [None, None, "delay", "refuse", "reset", truncated, corrupted, reordered]
    outcome = None
    with served(lambda: chance.choice(faults)) as address:
        for _ in range(200):
            try:
                outcome = pull(address, phone).channels[0].outcome
            except PtdockError:
                assert running(phone) in (b"old" * 1000, b"new" * 1000)
                assert status(phone, verify=True).damage == ()
            else:
                break
    assert outcome == "activated"
    assert running(phone) == b"new" * 1000
    assert status(phone, verify=True).damage == ()


def test_a_server_that_is_killed_in_mid_download_costs_only_the_rest(site, phone, parts, served):
    offer(site, 1, b"old", parts)
    with served() as address:
        pull(address, phone)
    site.release(2, site.line({"pirate": BIG}, foundation=b"F"))
    site.offer(2)
    # Trust, manifest, release and foundation arrive, half of the adapter too; then nothing answers any more.
    faults = itertools.chain([None] * 4, [truncated], itertools.repeat("reset"))
    with served(lambda: next(faults)) as address, pytest.raises(PtdockError):
        pull(address, phone)
    half = DeviceStore(phone).unfinished()[Descriptor.of(BIG).digest]
    assert half == len(BIG) // 2
    with served() as address:
        assert pull(address, phone).fetched == len(BIG) - half
    assert running(phone) == BIG


class Hostile(BaseHTTPRequestHandler):
    """Answers every request with what `server.fault` writes."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.close_connection = True
        self.server.fault()(self.wfile)

    def log_message(self, *_):
        pass


def flood(file):
    file.write(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(2000):
        file.write(bytes(65536))


def headers_without_end(file):
    file.write(b"HTTP/1.1 200 OK\r\n")
    for number in range(100_000):
        file.write(b"X-%d: y\r\n" % number)


def chunk_of_terabytes(file):
    file.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffff\r\nx")


HOSTILE = {
    "an endless body": flood,
    "endless headers": headers_without_end,
    "a line without end": lambda file: file.write(b"HTTP/1.1 200 " + b"x" * 1_000_000),
    "no HTTP": lambda file: file.write(b"\0\xff" * 1000),
    "an endless chunk": chunk_of_terabytes,
    "a negative length": lambda file: file.write(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nx"),
    "a redirect to itself": lambda file: file.write(b"HTTP/1.1 302 Found\r\nLocation: /again\r\n\r\n"),
    "a redirect to a file": lambda file: file.write(b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n"),
    "a gzip bomb": lambda file: file.write(
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x08"
    ),
    "deep JSON": lambda file: file.write(b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 1_000_000),
    "a huge number": lambda file: file.write(b'HTTP/1.1 200 OK\r\n\r\n{"schema":' + b"9" * 100_000 + b"}"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_server_gets_one_clear_error_and_changes_nothing(site, phone, parts, name, served):
    offer(site, 1, b"old", parts)
    with served() as address:
        pull(address, phone)
    before = (phone / "state.json").read_bytes()
    with served(lambda: HOSTILE[name], Hostile) as address, pytest.raises(PtdockError) as caught:
        pull(address, phone)
    assert len(caught.value.message) < 1000
    assert (phone / "state.json").read_bytes() == before
    assert running(phone) == b"old"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"name":"pirate"', b'"name":"../../evil"'),
        (b'"name":"pirate"', b'"name":"/etc/evil"'),
        (b'"digest":"sha256:', b'"digest":"sha256:../'),
        (b'"size":3', b'"size":-3'),
        (b'"size":3', b'"size":99999999999999999999'),
    ],
)
def test_a_release_document_that_names_paths_or_nonsense_is_refused_whole(site, phone, old, new, served):
    site.release(1, site.line({"pirate": b"old"}))
    site.offer(1)
    document = (site.root / "blobs" / "sha256" / site.pins[1].file.digest.hex).read_bytes()
    assert old in document
    site.pins[1] = replace(site.pins[1], file=site.put(document.replace(old, new)))
    site.offer(1)
    with served() as address, pytest.raises((FormatError, IntegrityError)):
        pull(address, phone)
    assert {path.name for path in phone.parent.iterdir()} == {"site", "phone"}


def test_a_channels_manifest_is_never_read_beyond_its_limit(site, phone):
    site.release(1, site.line({"pirate": b"old"}))
    site.offer(1)
    with open(site.root / manifest_path("stable"), "r+b") as file:
        file.truncate(50_000_000_000)  # a hole, not bytes
    with pytest.raises(FormatError, match="larger than"):
        sync(DirectorySource(site.root), ["stable"], phone, OPTIONS)


def test_kill_9_at_any_moment_leaves_a_set_that_runs(site, phone, parts, served):
    offer(site, 1, b"old", parts)
    with served() as address:
        pull(address, phone)
    offer(site, 2, b"new", parts)
    script = textwrap.dedent(
        f"""
        from pathlib import Path
        from device.source import DirectorySource
        from device.sync import Options, sync
        print("ready", flush=True)
        sync(DirectorySource(Path({str(site.root)!r})), ["stable"], Path({str(phone)!r}),
             Options(clock=lambda: 1_780_000_100))
        """
    )
    chance = random.Random(1)  # noqa: S311 - repeatable, not secret
    for _ in range(8):
        child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        child.stdout.readline()
        time.sleep(chance.random() * 0.05)
        child.kill()
        child.wait()
        child.stdout.close()
        assert running(phone) in (b"old", b"new")
        assert status(phone, verify=True).damage == ()
    with served() as address:
        pull(address, phone)
    assert running(phone) == b"new"
