"""What `adapter publish --batch` takes: up to 1,000 adapters of one structure from one process, all made durable.

    make demo && python -m benchmarks.batch          three minutes and 8 GB of disk

The adapters are random ones of the demo's structure in fp32, 1.8 MB each, published into a copy of the demo's store.
Each makes a program of 2.1 MB and factors of 1.8 MB, and its source of 1.8 MB is kept. Peak memory must not grow with
the batch. Before the table stands what this disk can do.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from benchmarks.measure import Cost, run
from benchmarks.registry_writers import fsyncs

HOME, MODEL = Path("build/home"), Path("build/adapters/json")
SIZES = (10, 100, 1000)
BENCH = Path("build/bench")


def main() -> None:
    """Print the table."""
    BENCH.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="batch-", dir=BENCH))
    try:
        size = generate(work / "adapters", max(SIZES))
        print(
            f"{fsyncs(work):.0f} fsyncs a second, load average {os.getloadavg()[0]:.1f}; adapters of {size:,} bytes\n"
        )
        print(f"{'adapters':>8}{'wall':>10}{'CPU':>10}{'adapters/s':>12}{'CPU each':>12}{'peak memory':>14}")
        for count in SIZES:
            rate, cost = measured(work, count)
            each = cost.cpu_seconds / count * 1e3
            walls = f"{cost.seconds:>8.1f} s{cost.cpu_seconds:>8.1f} s"
            print(f"{count:>8}{walls}{rate:>12.0f}{each:>9.1f} ms{cost.peak_bytes / 1e6:>11.0f} MB", flush=True)
    finally:
        shutil.rmtree(work)


def generate(directory: Path, count: int) -> int:
    """Write random adapters in fp32, spelled and shaped like MODEL; answers the bytes of one's weights."""
    shapes = {name: tensor.shape for name, tensor in load_file(MODEL / "adapter_model.safetensors").items()}
    random = np.random.default_rng(0)
    for number in range(count):
        adapter = directory / f"{number:04}"
        adapter.mkdir(parents=True)
        shutil.copy(MODEL / "adapter_config.json", adapter)
        tensors = {name: random.standard_normal(shape, np.float32) / 50 for name, shape in shapes.items()}
        save_file(tensors, adapter / "adapter_model.safetensors")
    return (directory / "0000" / "adapter_model.safetensors").stat().st_size


def measured(work: Path, count: int) -> tuple[float, Cost]:
    """Adapters a second, by the command's own clock, and what the whole process cost."""
    home = work / "home"
    shutil.copytree(HOME, home)
    rate, cost = publish(work, home, count)
    shutil.rmtree(home)
    return rate, cost


def publish(work: Path, home: Path, count: int) -> tuple[float, Cost]:
    """Publish so many of the adapters in `work` into a store: adapters a second, and what the process cost."""
    lines = ({"directory": f"adapters/{number:04}", "name": f"batch-{number:04}"} for number in range(count))
    (work / "batch.jsonl").write_text("\n".join(map(json.dumps, lines)))
    words: list[str | Path] = ["adapter", "publish", "--foundation", "smollm2", "--batch", work / "batch.jsonl"]
    os.sync()  # what was generated and copied is not the command's to write
    log = work / "log"
    cost = run([sys.executable, "-m", "cli", "--quiet", "--json", "--home", home, *words], log=log)
    answer = json.loads(log.read_text())
    if answer["version"] != count:
        raise SystemExit(f"{answer['version']} of {count} adapters were published")
    return answer["per_second"], cost


if __name__ == "__main__":
    main()
