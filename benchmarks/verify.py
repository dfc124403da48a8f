"""How fast `ptdock verify` is beside SHA-256 itself, on the demo's store and on one with 2,000 adapters more.

    make demo && python -m benchmarks.verify         five minutes and 16 GB of disk

Beside `verify`, a whole process, stands another one that reads and hashes the same files on as many processors, with
the same library, and does nothing else. An empty store shows what `verify` takes before it has read anything.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.batch import BENCH, HOME, generate, publish
from benchmarks.measure import Cost, run

ADAPTERS = 2000
PTDOCK = (sys.executable, "-m", "cli", "--quiet", "--json", "--home")
ROUNDS = 3


def main() -> None:
    """Print the table."""
    BENCH.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="verify-", dir=BENCH))
    try:
        print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors\n")
        print(f"{'store':<16}{'':<16}{'wall':>9}{'CPU':>9}{'memory':>10}")
        empty, home = work / "empty", work / "home"
        run([*PTDOCK, empty, "init"], log=work / "log")
        compare("empty", empty)
        shutil.copytree(HOME, home)
        run([*PTDOCK, home, "db", "upgrade"], log=work / "log")
        compare("the demo's", home)
        generate(work / "adapters", ADAPTERS)
        publish(work, home, ADAPTERS)
        shutil.rmtree(work / "adapters")
        compare(f"{ADAPTERS:,} adapters", home)
    finally:
        shutil.rmtree(work)


def compare(name: str, home: Path) -> None:
    """Print what hashing a store's blobs and what verifying it costs, the least of some rounds."""
    blobs = home / "blobs" / "sha256"
    size = sum(path.stat().st_size for path in blobs.iterdir())
    hashing = least([sys.executable, "-m", "benchmarks.hashing", blobs], home)
    verifying = least([*PTDOCK, home, "verify"], home)
    for what, cost in ((f"SHA-256 {size / 1e9:.1f} GB", hashing), ("verify", verifying)):
        figures = f"{cost.seconds:>7.2f} s{cost.cpu_seconds:>7.2f} s{cost.peak_bytes / 1e6:>7.0f} MB"
        print(f"{name:<16}{what:<16}{figures}", flush=True)
    wall, cpu = hashing.seconds / verifying.seconds, hashing.cpu_seconds / verifying.cpu_seconds
    print(f"{'':<16}{'of its speed':<16}{wall:>8.0%} {cpu:>8.0%}\n", flush=True)


def least(command: list[str | Path], home: Path) -> Cost:
    """The least processor time of some rounds, the first of which also brings the files into memory."""
    return min((run(command, log=home / "log") for _ in range(ROUNDS)), key=lambda cost: cost.cpu_seconds)


if __name__ == "__main__":
    main()
