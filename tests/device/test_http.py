"""A source behind http: real sockets, a server that misbehaves on request."""

import os
import socket
import time
from http.server import BaseHTTPRequestHandler

import pytest

from device.http import HttpSource, Patience, redirected
from registry.errors import FormatError, InputError, NotFound, PtdockError, Unavailable

DATA = os.urandom(300_000)
QUICK = Patience(attempts=3, first=0.01, longest=5, timeout=1, slowest=1)


class Handler(BaseHTTPRequestHandler):
    """Serves `server.files` with ranges; `server.faults` are taken first, one per request."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.asked.append((self.path, self.headers.get("Range")))
        fault = self.server.faults.pop(0) if self.server.faults else None
        if fault is None or fault(self):
            self.serve()

    def serve(self, cut=None, ranges=True, encoding=None):
        data = self.server.files.get(self.path)
        if data is None:
            self.answer(404)
            return
        asked = self.headers.get("Range") if ranges else None
        if asked:
            first, last = (int(text) for text in asked.removeprefix("bytes=").split("-"))
            extra = {"Content-Range": f"bytes {first}-{last}/{len(data)}"}
            self.answer(206, data[first : last + 1], extra, cut)
        else:
            self.answer(200, data, {"Content-Encoding": encoding} if encoding else {}, cut)

    def answer(self, status, body=b"", headers=None, cut=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[:cut])
        if cut is not None:
            self.close_connection = True

    def log_message(self, *_):
        pass


@pytest.fixture
def server(serve):
    with serve(Handler, files={"/tree/file": DATA}, faults=[], asked=[]) as server:
        yield server


def source(server, slept=None, **options):
    return HttpSource(
        f"{server.address}/tree",
        **({"patience": QUICK, "sleep": (slept if slept is not None else []).append} | options),
    )


def fetch(source, start=0, stop=None):
    return b"".join(source.stream("file", start, len(DATA) if stop is None else stop))


def cut(after):
    return lambda handler: handler.serve(cut=after)


def answer(status, body=b"", **headers):
    return lambda handler: handler.answer(status, body, {name.replace("_", "-"): v for name, v in headers.items()})


def test_a_file_arrives_whole(server):
    assert fetch(source(server)) == DATA
    assert server.asked == [("/tree/file", None)]


@pytest.mark.parametrize(("start", "stop"), [(1, len(DATA)), (1000, 2000), (len(DATA) - 1, len(DATA))])
def test_a_range_is_asked_for_as_one(server, start, stop):
    assert fetch(source(server), start, stop) == DATA[start:stop]
    assert server.asked == [("/tree/file", f"bytes={start}-{stop - 1}")]


def test_nothing_is_asked_for_an_empty_range(server):
    assert fetch(source(server), 5, 5) == b""
    assert server.asked == []


def test_a_server_without_ranges_still_serves_the_rest(server):
    server.faults = [lambda handler: handler.serve(ranges=False)]
    assert fetch(source(server), 1000) == DATA[1000:]


def test_a_transfer_goes_on_where_it_broke_off(server):
    server.faults = [cut(100_000), cut(50_000)]
    slept = []
    assert fetch(source(server, slept)) == DATA
    assert [asked for _, asked in server.asked] == [None, "bytes=100000-299999", "bytes=150000-299999"]
    assert len(slept) == 2


def test_reading_stops_at_the_asked_size(server):
    assert fetch(source(server), 0, 10) == DATA[:10]


def test_a_document_that_broke_off_is_read_from_its_start(server):
    server.faults = [cut(100)]
    assert source(server).read("file", len(DATA)) == DATA
    assert [asked for _, asked in server.asked] == [None, None]


def test_a_document_beyond_its_limit_is_refused(server):
    with pytest.raises(FormatError, match="larger than 1000 bytes"):
        source(server).read("file", 1000)


def test_a_body_without_end_is_refused_at_the_limit(server):
    def endless(handler):
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.close_connection = True
        try:
            while True:
                handler.wfile.write(bytes(65536))
        except OSError:
            pass

    server.faults = [endless]
    with pytest.raises(FormatError, match="larger than"):
        source(server).read("file", 1 << 20)


def test_a_missing_file_is_not_found_and_not_asked_for_again(server):
    with pytest.raises(NotFound, match="has no absent"):
        b"".join(source(server).stream("absent", 0, 10))
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_passing_trouble_is_waited_out_as_long_as_the_server_asks(server, status):
    server.faults = [answer(status, Retry_After="2")]
    slept = []
    assert fetch(source(server, slept)) == DATA
    assert slept == [2.0]


def test_a_wait_that_is_too_long_is_handed_to_the_caller(server):
    server.faults = [answer(503, Retry_After="3600")]
    with pytest.raises(Unavailable, match="503") as caught:
        fetch(source(server))
    assert caught.value.values["retry_after"] == 3600
    assert len(server.asked) == 1


def test_patience_ends(server):
    server.faults = [answer(503)] * 10
    with pytest.raises(Unavailable, match="the server answered 503"):
        fetch(source(server))
    assert len(server.asked) == QUICK.attempts


def test_waits_double_and_never_pass_the_longest():
    patience = Patience(first=1, longest=10)
    assert [patience.delay(n, 0.999999) for n in (1, 2, 3, 4, 5)] == pytest.approx([1, 2, 4, 8, 10], rel=1e-3)
    assert [patience.delay(n, 0.0) for n in (1, 2, 3, 4, 5)] == [0.5, 1, 2, 4, 5]


@pytest.mark.parametrize("status", [400, 401, 403, 501])
def test_a_refusal_is_final(server, status):
    server.faults = [answer(status)]
    with pytest.raises(Unavailable, match=f"answered {status}"):
        fetch(source(server))
    assert len(server.asked) == 1


def test_a_compressing_server_is_named(server):
    server.faults = [lambda handler: handler.serve(encoding="gzip")]
    with pytest.raises(Unavailable, match="as gzip"):
        fetch(source(server))


def test_a_range_that_was_not_asked_for_is_not_taken(server):
    server.faults = [answer(206, DATA[:100], Content_Range=f"bytes 0-99/{len(DATA)}")]
    with pytest.raises(Unavailable, match="another range"):
        fetch(source(server), 50)


def test_a_range_behind_the_end_holds_nothing(server):
    server.faults = [answer(416, Content_Range=f"bytes */{len(DATA)}")]
    assert fetch(source(server), len(DATA), len(DATA) + 5) == b""


def test_a_server_that_is_not_there_is_unavailable():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(Unavailable, match="refused"):
            fetch(HttpSource(address, patience=QUICK, sleep=lambda _: None))


def test_a_silent_server_is_given_up(server):
    server.faults = [lambda _: time.sleep(0.5)] * 3
    began = time.monotonic()
    with pytest.raises(Unavailable):
        fetch(source(server, patience=Patience(attempts=2, first=0.01, timeout=0.1)))
    assert time.monotonic() - began < 2


def test_a_dripping_server_counts_as_broken_off(server):
    def drip(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(DATA)))
        handler.end_headers()
        for position in range(20):
            time.sleep(0.02)
            handler.wfile.write(DATA[position : position + 1])
            handler.wfile.flush()
        handler.close_connection = True

    server.faults = [drip]
    patience = Patience(attempts=3, first=0.01, timeout=0.1, slowest=100_000)
    heard = []
    assert fetch(source(server, patience=patience, note=heard.append)) == DATA
    assert "slower than 100000 bytes a second" in heard[0]


def test_huge_headers_are_refused(server):
    server.faults = [answer(200, b"", X_Padding="x" * 100_000)] * 3
    with pytest.raises(Unavailable):
        fetch(source(server))


def test_three_redirects_are_followed_and_no_more(server):
    server.faults = [answer(302, Location="/tree/file")] * 3
    assert fetch(source(server)) == DATA
    server.faults = [answer(302, Location="/tree/file")] * 4
    with pytest.raises(Unavailable, match="redirects more than 3 times"):
        fetch(source(server))


def test_a_redirected_range_stays_a_range(server):
    server.faults = [answer(307, Location=f"{server.address}/tree/file")]
    assert fetch(source(server), 7) == DATA[7:]
    assert server.asked[1] == ("/tree/file", f"bytes=7-{len(DATA) - 1}")


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://host/x", "data:,x", "gopher://h/1", "//[broken"])
def test_a_redirect_leads_to_http_only(target):
    with pytest.raises(PtdockError):
        redirected("http://host/a", target)


def test_https_never_steps_down():
    assert redirected("https://host/a", "/b") == "https://host/b"
    assert redirected("http://host/a", "https://other/b") == "https://other/b"
    with pytest.raises(Unavailable, match="from https to http"):
        redirected("https://host/a", "http://host/a")


def test_a_public_source_cannot_redirect_to_a_private_address(server):
    server.faults = [answer(302, Location=f"{server.address}/tree/file")]
    with pytest.raises(Unavailable, match=r"private address 127\.0\.0\.1"):
        fetch(source(server, private=False))
    assert len(server.asked) == 1


def test_a_private_source_may(server):
    server.faults = [answer(302, Location=f"{server.address}/tree/file")]
    assert fetch(source(server)) == DATA


@pytest.mark.parametrize(
    "address",
    ["http://", "ftp://host", "http://user:word@host/", "http://host/?q=1", "http://host/#f", "host/path", "http://[x"],
)
def test_an_impossible_address_is_refused(address):
    with pytest.raises(InputError):
        HttpSource(address)


def test_one_connection_serves_many_files(server):
    used = source(server)
    ports = set()

    def remember(handler):
        ports.add(handler.client_address[1])
        return True

    server.faults = [remember] * 3
    for _ in range(3):
        fetch(used)
    assert len(ports) == 1
