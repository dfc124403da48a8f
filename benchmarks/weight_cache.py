"""What each further adapter costs on one foundation, with XNNPACK's weight cache and without: load time and memory.

python -m benchmarks.weight_cache

A foundation of 134 MB (32 linear layers of width 1024, fp32) and eight adapters of rank 8 on all of them, loaded one
after another by examples/device-cpp in a process of its own for each mode, all staying loaded. Of the seven runs the
least load time is shown: the machine may be busy.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from exporter.foundation import ExportOptions
from exporter.module_foundation import export_module
from exporter.publish import PublishOptions, publish
from registry.service import Registry
from tests.clients import towers
from tests.clients.native import build

ADAPTERS, RANK, RUNS = 8, 8, 7
SHOWN = (1, 2, 4, 8)


def files(work: Path) -> list[Path]:
    """The foundation's `.ptd`, then the adapters' `.pte` files."""
    registry = Registry.init(work / "home")
    foundation = export_module(registry, "tests.clients.towers:large", "large", ExportOptions()).foundation
    found = [registry.blobs.path(foundation.file.digest)]
    for seed in range(ADAPTERS):
        where = towers.write_adapter(work / f"adapter-{seed}", seed, towers.LARGE, RANK)
        made = publish(registry, where, PublishOptions("large", f"adapter-{seed}"))
        found.append(registry.blobs.path(made.build.file.digest))
    return found


def measured(program: Path, mode: str, paths: list[Path]) -> list[dict[str, float]]:
    """One process: a figure for each number of loaded adapters."""
    inputs = np.array(towers.inputs(towers.LARGE[0]), "<f4").tobytes()
    done = subprocess.run([program, mode, *paths], input=inputs, stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        paths = files(work)
        program = build(work / "build", optimized=True) / "weight_cache"
        runs = {mode: [measured(program, mode, paths) for _ in range(RUNS)] for mode in ("off", "on")}
        foundation, adapter = (path.stat().st_size / 1e6 for path in paths[:2])
    print(f"foundation {foundation:.0f} MB, each adapter {adapter:.2f} MB")
    print("          without the cache             with the cache")
    print("loaded  load of the last  memory    load of the last  memory")
    for count in SHOWN:
        cells = []
        for mode in ("off", "on"):
            rows = [run[count - 1] for run in runs[mode]]
            load, memory = min(row["load_ms"] for row in rows), statistics.median(row["rss"] for row in rows)
            cells.append(f"{load:13.1f} ms {memory / 1e6:6.0f} MB")
        print(f"{count:6}  {'   '.join(cells)}")


if __name__ == "__main__":
    main()
