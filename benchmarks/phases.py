"""Where the time and the memory of a first export go: SmolLM2-135M-Instruct in fp32, phase by phase.

    python -m benchmarks.phases [--qmode 8da4w --embedding-bits 4]

It is what `ptdock foundation export` does, in this process, with the same announcements of each phase. Imports are a
phase of their own. The checkpoint is the demo's (`make inputs`).
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from pathlib import Path

from exporter.foundation import ExportOptions, export_foundation
from exporter.recipe import check_quantization, recipe_of
from registry.service import Registry

CHECKPOINT = Path("build/smollm2")
CONTEXT = 512


class Clock:
    """Takes the times of phases as an export announces them."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, float, float, float]] = []
        self._phase = ""
        self._began = (0.0, 0.0)

    def __call__(self, phase: str) -> None:
        """A phase begins, and the one before it has ended."""
        now = (time.perf_counter(), time.process_time())
        if self._phase:
            self.rows.append((self._phase, now[0] - self._began[0], now[1] - self._began[1], peak()))
        self._phase, self._began = phase, now


def peak() -> float:
    """The most memory that the process ever had, in GB, as Linux counts it."""
    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) * 1024 / 1e9 if found else 0.0


def main() -> None:
    asked = _arguments()
    recipe = recipe_of("F32", check_quantization(asked.qmode, None, asked.embedding_bits))
    clock = Clock()
    with tempfile.TemporaryDirectory(prefix="ptdock-") as home:
        registry = Registry.init(Path(home))
        export_foundation(registry, asked.checkpoint, "smollm2", ExportOptions(CONTEXT, recipe), clock)
        clock("")
    _print(clock.rows)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, nargs="?", default=CHECKPOINT)
    parser.add_argument("--qmode")
    parser.add_argument("--embedding-bits", type=int)
    return parser.parse_args()


def _print(rows: list[tuple[str, float, float, float]]) -> None:
    wall, cpu = sum(row[1] for row in rows), sum(row[2] for row in rows)
    print(f"{'':<32}{'wall':>9}{'CPU':>9}{'share of CPU':>15}{'peak so far':>14}")
    for phase, seconds, work, memory in rows:
        print(f"{phase:<32}{seconds:>7.1f} s{work:>7.1f} s{100 * work / cpu:>13.0f} %{memory:>11.2f} GB")
    print(f"{'in all':<32}{wall:>7.1f} s{cpu:>7.1f} s{100:>13} %{rows[-1][3]:>11.2f} GB")


if __name__ == "__main__":
    main()
