"""The documents of a release of 1,000 adapters: how long they take, how large they are, what a change sends again.

python -m benchmarks.documents

Aims: manifest and release built in under 50 ms; a widened rollout sends the manifest and its signatures again and
nothing else; publishing one changed adapter touches only what changed.
"""

from __future__ import annotations

import hashlib
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

from registry.artifacts import Base, Build, Line, Runtime, Template
from registry.blobs import LocalStore
from registry.digest import Digest
from registry.lines import Parts, write_line
from registry.manifest import Arm, Manifest, ReleasePin
from registry.release import ReleaseDocument
from registry.rollout import NOTHING, Arms, start, widen
from registry.signing.ceremony import create_development
from registry.signing.store import KeyStore
from registry.signing.tree import signed
from registry.site import Changes, Directory, publish, tree

ADAPTERS = 1000
ROUNDS = 30
NOW = 1_780_000_000
RUNTIME = Runtime((1, 5), (1, 6), ("XnnpackBackend",), ("llama::custom_sdpa",))


class Shelf:
    """A store with a foundation and builds on it, as a registry would hold them; the files are a few bytes each."""

    def __init__(self, home: Path) -> None:
        self.store = LocalStore.create(home)
        put = self.store.put_bytes
        self.base = Base(
            _digest("base"), put(b"tensors"), {"tokenizer.json": put(b"tokenizer")}, "/checkpoint", put(b"p")
        )
        self.foundation = put(b"foundation")
        self.templates = (self._template(0), self._template(8))
        self.segments = put(b"segments")

    def _template(self, rank: int) -> Template:
        modules = {"q_proj": {"lora": rank}} if rank else {}
        return Template(
            digest=_digest(f"template {rank}"),
            foundation=self.foundation.digest,
            structure={"schema": 1, "modules": modules, "equal": []},
            context=2048,
            graph=1,
            executorch="1.5.1",
            hollow=self.store.put_bytes(b"hollow %d" % rank),
            table=self.store.put_bytes(b"table %d" % rank),
            program_size=2_130_560,
            runtime=RUNTIME,
            kv_cache_bytes=1 << 20,
        )

    def build(self, number: int, version: str = "1.0.0") -> Build:
        """One build with everything that a release pins of it."""
        put, label = self.store.put_bytes, f"adapter {number} {version}".encode()
        parts = {"wire": put(label + b" wire"), "wire_table": put(b"wire table"), "self_test": put(label + b" test")}
        return Build(
            adapter=f"adapter-{number}",
            version=version,
            foundation=self.foundation.digest,
            template=self.templates[1].digest,
            file=put(label),
            factors=put(label + b" factors"),
            warnings=(),
            revoked=None,
            parts=parts,
        )

    def release(self, number: int, builds: list[Build]) -> ReleaseDocument:
        """The release of these builds, on one line."""
        line = Line(self.foundation.digest, {build.adapter: build for build in builds})
        return ReleaseDocument(
            number, (write_line(line, Parts(self.foundation, self.templates, self.base, self.segments)),)
        )


def manifest(sequence: int, arms: Arms, pins: list[ReleasePin]) -> Manifest:
    """The channel's manifest with these arms."""
    offered = [pin for pin in pins if any(arm.release == pin.release for arm in arms)]
    return Manifest(
        registry="123e4567-e89b-42d3-a456-426614174000",
        channel="stable",
        sequence=sequence,
        issued=NOW,
        expires=NOW + 30 * 86400,
        poll_seconds=14_400,
        salt="0" * 32,
        arms=arms,
        releases=tuple(offered),
        log_head=_digest("log"),
    )


def _digest(text: str) -> Digest:
    return Digest(hashlib.sha256(text.encode()).digest())


def milliseconds(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """The median of some rounds."""
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken)


class Site:
    """A signed site that is published to a directory."""

    def __init__(self, shelf: Shelf, home: Path) -> None:
        self.store = shelf.store
        self.target = Directory(home / "site")
        self.keys = KeyStore(home / "keys")
        create_development(self.keys, now=NOW)
        self.earlier: list[bytes] = []

    def publish(self, document: Manifest) -> tuple[Changes, float]:
        """Publish a channel's next manifest; what it changed, and milliseconds."""
        data = document.to_bytes()
        began = time.perf_counter()
        plain = tree([data], self.earlier, self.store.read, now=NOW)
        changes = publish(signed(self.keys, plain, now=NOW), self.target, self.store)
        self.earlier.append(data)
        return changes, (time.perf_counter() - began) * 1000


def main() -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        shelf = Shelf(home)
        builds = [shelf.build(number) for number in range(ADAPTERS)]
        document = shelf.release(1, builds)
        data = document.to_bytes()
        pins = [ReleasePin(1, shelf.store.put_bytes(data))]
        arms = start(NOTHING, 1, 10_000)
        print_documents(shelf, builds, data, manifest(1, arms, pins))
        print_publishing(shelf, builds, pins, arms, Site(shelf, home))


def print_documents(shelf: Shelf, builds: list[Build], data: bytes, head: Manifest) -> None:
    """How long the documents take and how large they are."""
    built = milliseconds(lambda: (shelf.release(1, builds).to_bytes(), head.to_bytes()))
    read = milliseconds(lambda: (ReleaseDocument.from_bytes(data), Manifest.from_bytes(head.to_bytes())))
    print(f"{len(builds):,} adapters on one line")
    print(f"  built in {built:.1f} ms (aim: under 50), read in {read:.1f} ms")
    print(f"  release {len(data):,} B ({len(data) / len(builds):.0f} an adapter), zlib {len(zlib.compress(data)):,} B")
    print(f"  manifest {len(head.to_bytes()):,} B\n")


def print_publishing(shelf: Shelf, builds: list[Build], pins: list[ReleasePin], arms: Arms, site: Site) -> None:
    """What each step of a rollout writes, and how many bytes of it a device on the release before reads."""
    changed = [shelf.build(0, "1.0.1"), *builds[1:]]
    pins.append(ReleasePin(2, shelf.store.put_bytes(shelf.release(2, changed).to_bytes())))
    ten = start(arms, 2, 1000)
    steps: list[tuple[str, tuple[Arm, ...]]] = [
        ("first release", arms),
        ("one adapter changed, to 10 %", ten),
        ("widened to 50 %", widen(ten, 2, 5000)),
        ("nothing changed", widen(ten, 2, 5000)),
    ]
    print(f"{'site publish':<30} {'ms':>8} {'blobs':>6} {'documents':>10} {'bytes written':>14}")
    sequence, last = 0, None
    for what, state in steps:
        sequence += state != last
        last = state
        head = manifest(sequence, state, pins)
        changes, taken = site.publish(head)
        blobs = [path for path in changes.written if path.startswith("blobs/")]
        size = sum((site.target.root / path).stat().st_size for path in changes.written)
        print(f"{what:<30} {taken:>8.1f} {len(blobs):>6} {len(changes.written) - len(blobs):>10} {size:>14,}")


if __name__ == "__main__":
    main()
