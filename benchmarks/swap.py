"""What a language model's further adapter costs in Python's runtime, with XNNPACK's weight cache and without.

python -m benchmarks.swap [HOME]

HOME is a store with a language model and adapters, by default the one that `make demo` made. Python has no switch for
the cache: examples/device-cpp/switch.cpp is it. Each mode runs twice, in processes of their own that keep all programs.
"""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from registry.service import Registry
from tests.clients.native import build

RUNS = 2
ROOT = Path(__file__).parents[1]


def memory() -> int:
    """Bytes of this process that are no file's."""
    match = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match
    return int(match[1]) * 1024


def child(on: str, switch: str, foundation: str, *programs: str) -> None:
    """Load the programs one after another; the figures of each as a line of JSON."""
    from device.doctor import File  # noqa: PLC0415 - the parent needs no torch
    from device.run import Model  # noqa: PLC0415

    assert ctypes.CDLL(switch).ptdock_weight_cache(int(on)) == 0
    loaded, before = [], memory()
    for program in programs:
        wall, cpu = time.perf_counter(), time.process_time()
        loaded.append(Model(File(Path(program), "program"), File(Path(foundation), "foundation")))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        next(loaded[-1].generate([1], 1))
        print(json.dumps({"wall": wall, "cpu": cpu, "memory": memory() - before}), flush=True)


def measured(on: int, switch: Path, paths: list[Path]) -> list[dict[str, float]]:
    """One process: a figure for each loaded program."""
    command: list[str | Path] = [sys.executable, "-m", "benchmarks.swap", "--child", str(on), switch, *paths]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    return [json.loads(line) for line in done.splitlines() if line.startswith(b"{")]


def main(home: Path) -> None:
    registry = Registry.open(home)
    builds = [registry.build(f"{name}@{registry.versions(name)[-1].version}") for name in registry.adapters()]
    builds = [build for build in builds if build.foundation == builds[0].foundation]
    paths = [registry.blobs.path(each) for each in (builds[0].foundation, *(build.file.digest for build in builds))]
    print(f"foundation {paths[0].stat().st_size / 1e6:.0f} MB, {len(builds)} adapters")
    with tempfile.TemporaryDirectory() as directory:
        switch = build(Path(directory), optimized=True) / "libweight_cache_switch.so"
        runs = {on: [measured(on, switch, paths) for _ in range(RUNS)] for on in (0, 1)}
    print("          without the cache                  with the cache")
    print("loaded  load (CPU) of the last  memory    load (CPU) of the last  memory")
    for index in range(len(builds)):
        cells = []
        for on in (0, 1):
            rows = [run[index] for run in runs[on]]
            wall, cpu, taken = (min(row[key] for row in rows) for key in ("wall", "cpu", "memory"))
            cells.append(f"{wall * 1e3:6.0f} ms ({cpu * 1e3:4.0f} ms) {taken / 1e6:9.0f} MB")
        print(f"{index + 1:6}  {'   '.join(cells)}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        main(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "build" / "home")
