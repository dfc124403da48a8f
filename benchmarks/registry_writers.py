"""How many versions a second one registry takes, from 1 and from 8 processes, on SQLite and on PostgreSQL.

    python -m benchmarks.registry_writers           two minutes; PostgreSQL is Debian's, started and stopped here

Everything is durable: the blobs are synced, and so is each commit (PostgreSQL with fsync on). "small" writes blobs of
some hundred bytes, so that the transaction is what counts; "real" writes what one rank-8 adapter of SmolLM2 needs: a
program of 2.1 MB and its factors of 1.8 MB. Beside it stands what this disk can do: fsyncs a second.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path

from sqlalchemy import text

from registry.artifacts import Base, ExternalTensor, Foundation, Runtime, Source, Template
from registry.database import Database
from registry.digest import Digest
from registry.engines import ENVIRONMENT, database_url
from registry.service import Registry
from tests.registry.postgresql import running

SECONDS = 10.0
WRITERS = (1, 8)
KINDS = {"small": (300, 300), "real": (2_133_888, 1_843_200)}  # bytes of the program and of its factors
DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}


@dataclass(frozen=True)
class Where:
    """A registry of the benchmark."""

    home: Path
    environment: Mapping[str, str]

    def size(self) -> int:
        """Bytes of its database."""
        database = Database(database_url(self.home, self.environment))
        if database.engine.dialect.name == "sqlite":
            database.close()
            return Path(database.name).stat().st_size
        with database.read() as session:
            return int(session.scalar(text("SELECT pg_database_size(current_database())")) or 0)


def furnish(registry: Registry) -> Template:
    """A base, a foundation of 274 tensors and a template, all made up: recording looks at none of their bytes."""
    put = registry.blobs.put_bytes
    base = registry.add_base(Base(Digest.of(b"base"), put(b"tensors"), {"config.json": put(b"{}")}, "/checkpoint"))
    tensors = tuple(
        ExternalTensor(Digest.of(b"%d" % i).hex, (f"layer.{i}",), Digest.of(b"%d" % i), 1000, 1000 * i, "F32", (250,))
        for i in range(274)
    )
    foundation = Foundation(put(b"foundation"), base.fingerprint, {"quantization": ""}, put(b"{}"), tensors)
    registry.add_foundation(foundation, "made-up")
    return registry.add_template(
        Template(
            digest=Digest.of(b"hollow"),
            foundation=foundation.file.digest,
            structure={"schema": 1, "modules": {}, "equal": []},
            context=512,
            graph=1,
            executorch="1.5.1",
            hollow=put(b"hollow"),
            table=put(b"table"),
            program_size=2_133_888,
            runtime=Runtime((1, 5), (1, 6), ("XnnpackBackend",), ()),
            kv_cache_bytes=1024,
        )
    )


_together: Barrier | None = None  # a pool hands it to its processes as they start


def _meet(barrier: Barrier) -> None:
    global _together  # noqa: PLW0603 - one per process
    _together = barrier


def write(where: Where, writer: int, sizes: tuple[int, int]) -> int:
    """Publish one version after another until the time is up; answers how many."""
    registry = Registry.open(where.home, environment=where.environment)
    (template,) = registry.templates(registry.foundation("made-up").file.digest)
    put, done = registry.blobs.put_bytes, 0
    assert _together is not None
    _together.wait()
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        one = f"{writer} {done:07}".encode()
        source = Source({"adapter_config.json": put(b"{}"), "adapter_model.safetensors": put(one)}, {})
        program, factors = (put((one + what) * (size // 10)) for what, size in zip((b"p", b"f"), sizes, strict=True))
        registry.publish(f"writer-{writer}", f"1.0.{done}", source, template=template, file=program, factors=factors)
        done += 1
    return done


def measured(where: Where, writers: int, sizes: tuple[int, int]) -> tuple[float, float]:
    """Publishes per second, and bytes that the database grew by per version."""
    registry = Registry.init(where.home, environment=where.environment)
    furnish(registry)
    registry.database.close()
    before, spawn = where.size(), get_context("spawn")
    with ProcessPoolExecutor(writers, spawn, _meet, (spawn.Barrier(writers),)) as pool:
        works = [pool.submit(write, where, writer, sizes) for writer in range(writers)]
        done = sum(work.result() for work in works)
    return done / SECONDS, (where.size() - before) / done


@contextmanager
def places(directory: Path) -> Iterator[Iterator[tuple[str, Where]]]:
    """Fresh registries, one on each database in turn, as often as one asks."""
    with running(DURABLE) as server:

        def fresh() -> Iterator[tuple[str, Where]]:
            for number in range(sys.maxsize):
                yield "SQLite", Where(directory / f"sqlite-{number}", {})
                url = server.url(server.create()).render_as_string()
                yield "PostgreSQL", Where(directory / f"postgresql-{number}", {ENVIRONMENT: url})

        yield fresh()


def fsyncs(directory: Path) -> float:
    """How many times a second this disk makes 4 KiB more of a file durable."""
    with open(directory / "fsync", "wb", buffering=0) as file:
        began = time.perf_counter()
        for _ in range(100):
            file.write(bytes(4096))
            os.fsync(file.fileno())
    return 100 / (time.perf_counter() - began)


def main() -> None:
    """Print the table."""
    directory = Path(tempfile.mkdtemp(prefix="ptdock-writers-"))
    try:
        print(f"{fsyncs(directory):.0f} fsyncs a second, load average {os.getloadavg()[0]:.1f}\n")
        print(f"{'database':<12}{'blobs':<8}{'writers':>8}{'publishes/s':>13}{'bytes/version':>15}")
        with places(directory) as fresh:
            for blobs, sizes in KINDS.items():
                for writers in WRITERS:
                    for name, where in (next(fresh), next(fresh)):
                        rate, size = measured(where, writers, sizes)
                        print(f"{name:<12}{blobs:<8}{writers:>8}{rate:>13.1f}{size:>15,.0f}", flush=True)
                        shutil.rmtree(where.home)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
