"""`ptdock serve` as a process: where it listens, what it refuses, how it ends."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from server.commands import is_loopback, url
from tests.command_line import refusal

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def started(home, *words):
    """The process and the document that it answered with when it listened."""
    command = [sys.executable, "-m", "cli", "--home", str(home), "serve", "--port", "0", "--json", *words]
    process = subprocess.Popen(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ}
    )
    try:
        document = ""
        while not document.endswith("}\n"):
            line = process.stdout.readline()
            assert line, process.stderr.read()
            document += line
        yield process, json.loads(document)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_listens_serves_logs_and_ends_when_told(offered, ending):
    with started(offered) as (process, document):
        with urllib.request.urlopen(f"{document['url']}/targets/v1/stable.json") as reply:  # noqa: S310 - our own
            assert json.load(reply)["channel"] == "stable"
        process.send_signal(ending)
        _, said = process.communicate(timeout=20)

    entry = json.loads(said.splitlines()[0])
    assert (entry["route"], entry["status"]) == ("/targets", 200)
    assert "Traceback" not in said
    assert process.returncode in {0, 128 + ending, -ending, 130}


def test_development_keys_are_not_served_to_others(offered):
    error = refusal(offered, "serve", "--host", "0.0.0.0", "--port", "0", code=6)  # noqa: S104

    assert "development keys" in error["message"]
    assert "ptdock keys init" in error["hint"]


def test_a_port_that_is_taken_is_one_clear_error(offered):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = refusal(offered, "serve", "--port", port, code=8)

    assert f"127.0.0.1:{port}" in error["message"]


def test_a_store_that_is_not_there_is_not_served(tmp_path):
    refusal(tmp_path / "none", "serve", "--port", "0", code=5)


@pytest.mark.parametrize(
    ("host", "own"),
    [("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False)],  # noqa: S104
)
def test_only_loopback_addresses_are_this_machines_own(host, own):
    assert is_loopback(host) is own


def test_an_address_is_written_as_clients_want_it():
    assert url("127.0.0.1", 80) == "http://127.0.0.1:80"
    assert url("::1", 80) == "http://[::1]:80"


def test_headers_without_end_are_cut_off_and_nobody_else_notices(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n" + b"GET / HTTP/1.1\r\nX: ")
        with pytest.raises(ConnectionError):
            connection.sendall(b"a" * (64 << 20))  # much more than the kernel holds between the two
    assert server.get("/healthz", X_Long="a" * 50_000).status == 200
