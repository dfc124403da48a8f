"""How fast `ptdock serve` is: small answers, plans, blobs beside nginx on the same file, and many devices at once.

    python -m benchmarks.server [HOME]       # HOME: a store that offers something on the channel stable

One server process on one core, clients in another process on the other: the figures are what one core serves. The
machine's own rate of copying through a socket stands beside the blob figures, for it bounds them.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

from device.source import open_source
from device.sync import Options, sync
from registry.device_state import DeviceState
from registry.digest import Descriptor
from registry.manifest import Manifest
from registry.release import ReleaseDocument
from registry.service import Registry
from tests.registry.exporting import export_pair
from tests.registry.files import Pair
from tests.registry.stock import fill

REQUESTS = 4000
CONNECTIONS = 16
PLANS = 400
DEVICES = 1000
AT_ONCE = 32
BLOB = 256 << 20


@dataclass(frozen=True, slots=True)
class Rate:
    """Answers per second, the 99th percentile in milliseconds, and the server's processor time for each."""

    per_second: float
    p99_ms: float
    cpu_ms: float

    def __str__(self) -> str:
        return (
            f"{self.per_second:8.0f}/s  p99 {self.p99_ms:6.1f} ms  {self.cpu_ms:.3f} ms of the server's processor each"
        )


@contextmanager
def served(home: Path) -> Iterator[tuple[str, int]]:
    """`ptdock serve` in a process of its own: its address and its process id."""
    command = [sys.executable, "-m", "cli", "--home", str(home), "serve", "--port", "0", "--json"]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        try:
            document = ""
            while not document.endswith("}\n"):
                document += process.stdout.readline()
            yield json.loads(document)["url"], process.pid
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()


def cpu_seconds(pid: int) -> float:
    """The processor time of a process so far (proc(5): utime and stime)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(address: str, pid: int, request: bytes, count: int, status: bytes) -> Rate:
    """Send one request again and again on a few kept connections."""
    before, began = cpu_seconds(pid), time.perf_counter()
    times = asyncio.run(_sent(address, request, count, status))
    took = time.perf_counter() - began
    return Rate(count / took, 1000 * quantiles(times, n=100)[98], 1000 * (cpu_seconds(pid) - before) / count)


async def _sent(address: str, request: bytes, count: int, status: bytes) -> list[float]:
    host, port = address.removeprefix("http://").split(":")
    times: list[float] = []

    async def one() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        for _ in range(count // CONNECTIONS):
            began = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 " + status), head
            length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0")
            await reader.readexactly(int(length.split(b":")[1]))
            times.append(time.perf_counter() - began)
        writer.close()

    work: list[Awaitable[None]] = [one() for _ in range(CONNECTIONS)]
    await asyncio.gather(*work)
    return times


def request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """One request as it goes over the wire."""
    lines = [f"{method} {path} HTTP/1.1", "Host: bench", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def throughput(address: str, path: str, size: int) -> float:
    """Gigabytes per second of one whole blob, read and thrown away."""
    from http.client import HTTPConnection  # noqa: PLC0415 - for this alone

    connection = HTTPConnection(address.removeprefix("http://"))
    began = time.perf_counter()
    connection.request("GET", path)
    reply, buffer, got = connection.getresponse(), bytearray(1 << 20), 0
    while read := reply.readinto(buffer):
        got += read
    assert got == size, (reply.status, got)
    return got / (time.perf_counter() - began) / 1e9


def fleet(address: str, directory: Path, count: int) -> tuple[float, int, int]:
    """So many devices sync at once: seconds, failures, and the bytes of blobs that they fetched."""

    def one(number: int) -> int:
        options = Options(facts=DeviceState(f"device-{number}", encodings=("factors",)))
        return sync(open_source(address), ["stable"], directory / str(number), options).fetched

    began, failures, fetched = time.perf_counter(), 0, 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for future in [pool.submit(one, number) for number in range(count)]:
            error = future.exception()
            failures += error is not None
            fetched += 0 if error else future.result()
    return time.perf_counter() - began, failures, fetched


def ideal(registry: Registry) -> int:
    """The bytes that one new device cannot do without: the release document and its line, adapters as factors."""
    manifest = Manifest.from_bytes(registry.manifest("stable"))
    (pin,) = manifest.releases
    line = ReleaseDocument.from_bytes(registry.blobs.read(pin.file.digest)).lines[0]
    wanted: dict[Descriptor, None] = {pin.file: None, line.foundation.file: None, line.base: None}
    if line.tokenizer:
        wanted[line.tokenizer.file] = None
    for entry in line.adapters:
        parts = (entry.factors.file, entry.factors.template, entry.factors.table) if entry.factors else (entry.file,)
        wanted |= dict.fromkeys([*parts, *(each for each in (entry.prompt, entry.self_test) if each)])
    wanted |= dict.fromkeys([line.prompt] if line.prompt else [])
    return sum(each.size for each in wanted)


def report(home: Path) -> None:
    """Print every figure."""
    devices, registry = DEVICES, Registry.open(home)
    state = DeviceState("device-1", executorch="1.5.1", encodings=("factors",)).to_json()
    question = json.dumps({"channels": ["stable"], "device": state}).encode()
    path = "/targets/v1/stable.json"
    with served(home) as (address, pid), tempfile.TemporaryDirectory() as work:
        tag = f'"{Descriptor.of(registry.manifest("stable")).digest.hex}"'
        cached = request("GET", path, If_None_Match=tag)
        plan = request("POST", "/v1/plan", question, Content_Type="application/json")
        print(f"manifest 200   {measured(address, pid, request('GET', path), REQUESTS, b'200')}")
        print(f"manifest 304   {measured(address, pid, cached, REQUESTS, b'304')}")
        print(f"plan           {measured(address, pid, plan, PLANS, b'200')}")
        seconds, failures, fetched = fleet(address, Path(work), devices)
        share = fetched / (devices * ideal(registry))
        print(f"{devices} devices, {AT_ONCE} at once: {seconds:.1f} s, {failures} failures, {share:.4f} of ideal bytes")
        blobs(home, address, Path(work))


def blobs(home: Path, address: str, work: Path) -> None:
    """The same file from ptdock and from nginx, alternating."""
    from tests.server.nginx import NGINX, nginx  # noqa: PLC0415 - the tests' own way to run it

    name = Descriptor.of(b"").digest.hex  # the server never reads a name's bytes: any digest will do
    file = home / "site" / "blobs" / "sha256" / name
    file.write_bytes(os.urandom(1 << 20) * (BLOB >> 20))
    path = f"/blobs/sha256/{name}"
    try:
        if NGINX is None:
            ours = max(throughput(address, path, BLOB) for _ in range(5))
            print(f"blob           {ours:.2f} GB/s (nginx is not installed)")
            return
        folder = work / "nginx"
        folder.mkdir()
        with nginx(home / "site", folder) as other:
            pairs = [(throughput(address, path, BLOB), throughput(other, path, BLOB)) for _ in range(5)]
        ours, theirs = (max(each) for each in zip(*pairs, strict=True))
        print(f"blob           {ours:.2f} GB/s, nginx {theirs:.2f} GB/s: {ours / theirs:.2f} of it")
    finally:
        file.unlink()


def main(words: list[str]) -> None:
    """Measure HOME, or a store that is made for it: two adapters on a foundation, all of it tiny."""
    if words:
        report(Path(words[0]))
        return
    with tempfile.TemporaryDirectory(prefix="ptdock-bench-") as scratch:
        here = Path(scratch)
        export_pair(here)
        pair = Pair(here / "program.pte", here / "foundation.ptd")
        stock = fill(Registry.init(here / "home", environment={}), pair)
        stock.registry.create_release("stable", ["pirate@1.0.0", "json@1.0.0"])
        report(here / "home")


if __name__ == "__main__":
    main(sys.argv[1:])
