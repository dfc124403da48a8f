"""The static tree: exactly what channels offer, with everything that a resuming, caching client relies on."""

import hashlib
import http.client
import socket

import pytest

from device.source import open_source
from device.sync import sync
from registry.service import Registry
from registry.site import blob_path
from server.settings import Settings

MANIFEST = "/targets/v1/stable.json"


def foundation_path(offered):
    return f"/{blob_path(Registry.open(offered).foundation('plain').file.digest)}"


def tag(data):
    return f'"{hashlib.sha256(data).hexdigest()}"'


def test_every_file_of_the_site_is_served_byte_for_byte(server, offered):
    site = offered / "site"
    paths = [path for path in site.rglob("*") if path.is_file()]

    for path in paths:
        reply = server.get(f"/{path.relative_to(site)}")
        assert (reply.status, reply.body) == (200, path.read_bytes())
        assert reply.headers["etag"] == tag(reply.body)
        assert int(reply.headers["content-length"]) == len(reply.body)
    assert len(paths) > 10


def test_what_its_digest_names_is_immutable_and_a_manifest_is_not(server, offered):
    named = server.get(foundation_path(offered)).headers["cache-control"]

    assert "immutable" in named
    assert "max-age=31536000" in named
    assert server.get(MANIFEST).headers["cache-control"] == "public, max-age=60, no-transform"


def test_a_known_manifest_is_not_sent_again(server):
    first = server.get(MANIFEST)
    again = server.get(MANIFEST, If_None_Match=first.headers["etag"])

    assert (again.status, again.body) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert again.headers["cache-control"] == first.headers["cache-control"]


def test_a_changed_manifest_is_sent_at_once(home, serve):
    with serve(home) as running:
        first = running.get(MANIFEST)
        Registry.open(home).rollout("stable").halt()
        again = running.get(MANIFEST, If_None_Match=first.headers["etag"])

    assert again.status == 200
    assert again.json["sequence"] == first.json["sequence"] + 1


@pytest.mark.parametrize("path", ["foundation", "manifest"])
def test_a_range_is_those_bytes_of_the_file(server, offered, path):
    path = MANIFEST if path == "manifest" else foundation_path(offered)
    whole = server.get(path).body
    part = server.get(path, Range="bytes=10-99")

    assert (part.status, part.body) == (206, whole[10:100])
    assert part.headers["content-range"] == f"bytes 10-99/{len(whole)}"
    assert server.get(path, Range="bytes=-7").body == whole[-7:]
    assert server.get(path, Range="bytes=10-99", If_Range='"other"').body == whole


def test_a_range_behind_the_end_says_how_long_the_file_is(server):
    size = len(server.get(MANIFEST).body)
    reply = server.get(MANIFEST, Range=f"bytes={size}-")

    assert reply.status == 416
    assert reply.headers["content-range"] == f"bytes */{size}"
    assert reply.headers["content-type"] == "application/problem+json"


def test_head_tells_all_but_the_bytes(server, offered):
    for path in (MANIFEST, foundation_path(offered), "/healthz", "/openapi.json"):
        head, full = server.ask("HEAD", path), server.get(path)
        vary = {"date", "x-request-id"}
        assert (head.status, head.body) == (200, b"")
        assert head.headers.keys() - vary == full.headers.keys() - vary
        assert head.headers["content-length"] == str(len(full.body))


def test_writing_to_the_tree_is_refused(server):
    for method in ("PUT", "POST", "DELETE", "PATCH", "OPTIONS"):
        reply = server.ask(method, MANIFEST, b"{}" if method != "OPTIONS" else None)
        assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")
        assert reply.json["status"] == 405


HOSTILE = [
    "/targets/v1/../../../registry.db",
    "/targets/v1/..%2f..%2f..%2fregistry.db",
    "/blobs/sha256/..%2F..%2F..%2Fregistry.db",
    "/blobs/sha256/%2e%2e/%2e%2e/%2e%2e/registry.db",
    "/blobs/../../registry.db",
    "/metadata/..%5c..%5cregistry.db",
    "/metadata//etc/passwd",
    "/metadata/%00",
    "/targets/v1/stable.json%00",
    "/targets/v1/stable.json/",
    "/targets/v1/stable.json%0a",
    "//targets/v1/stable.json",
    "/targets/v1/",
    "/targets/",
    "/blobs/sha256/",
    "/registry.db",
    "/site/targets/v1/stable.json",
    "/keys/keys.json",
    "/metadata/../../keys/keys.json",
    "/targets/v1/STABLE.json",
    "/blobs/sha256/" + "A" * 64,
    "/blobs/sha256/" + "a" * 64,
    "/targets/v1/%E2%80%AE.json",
    "/",
    "/index.html",
]


@pytest.mark.parametrize("path", HOSTILE)
def test_nothing_outside_of_the_layout_is_reachable(server, offered, path):
    reply = server.get(path)

    assert reply.status == 404
    assert reply.headers["content-type"] == "application/problem+json"
    assert str(offered).encode() not in reply.body
    assert b"SQLite" not in reply.body


def test_what_no_channel_offers_is_not_served(server, offered):
    registry = Registry.open(offered)
    hidden = registry.build("hidden@1.0.0")
    held = [hidden.file, hidden.factors]
    held += registry.source(registry.version("pirate@1.0.0")).files.values()

    for blob in held:
        assert registry.blobs.size(blob.digest) == blob.size
        assert server.get(f"/{blob_path(blob.digest)}").status == 404


def test_other_files_in_the_site_and_links_out_of_it_are_not_served(home, serve):
    (home / "site" / "notes.txt").write_text("private")
    (home / "site" / "targets" / "v1" / "leak.json").symlink_to(home / "registry.db")
    (home / "site" / "targets" / "v1" / "folder.json").mkdir()
    with serve(home) as running:
        replies = [running.get(f"/{name}") for name in ("notes.txt", "targets/v1/leak.json", "targets/v1/folder.json")]

    assert [reply.status for reply in replies] == [404, 404, 404]


def test_a_device_syncs_through_the_server_and_again_without_a_blob(server, phone, offered):
    source = open_source(server.address)
    first = sync(source, ["stable"], phone)
    before = len(server.log)
    again = sync(source, ["stable"], phone)

    assert [first.channels[0].outcome, again.channels[0].outcome] == ["activated", "unchanged"]
    release = Registry.open(offered).release(1).document.size
    assert first.fetched == first.plan.bytes + release
    assert again.fetched == 0
    assert not [entry for entry in server.log[before:] if entry["route"] == "/blobs"]
    held = {path.name for path in phone.rglob("*") if path.is_file()}
    assert Registry.open(offered).build("pirate@1.0.0").file.digest.hex in held


@pytest.fixture
def phone(tmp_path):
    return tmp_path / "phone"


def test_a_download_that_is_cut_goes_on_where_it_stopped(server, offered):
    path = foundation_path(offered)
    whole = server.get(path)
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        response = http.client.HTTPResponse(connection)
        response.begin()
        part = response.read(5000)
    rest = server.get(path, Range=f"bytes={len(part)}-", If_Range=whole.headers["etag"])

    assert rest.status == 206
    assert part + rest.body == whole.body


def test_offered_blobs_that_live_elsewhere_are_redirected_and_nothing_else_is(offered, serve):
    with serve(offered, Settings(blobs="https://cdn.example.com/ptdock")) as running:
        path = foundation_path(offered)
        reply = running.get(path)
        hidden = Registry.open(offered).build("hidden@1.0.0").file.digest
        assert (reply.status, reply.headers["location"]) == (307, f"https://cdn.example.com/ptdock{path}")
        assert reply.headers["cache-control"] == "no-store"
        assert running.get(MANIFEST).status == 200
        assert running.get(f"/{blob_path(hidden)}").status == 404
        assert running.ask("HEAD", path).status == 200
