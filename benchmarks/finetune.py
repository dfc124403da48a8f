"""A foundation of another fine-tune of SmolLM2, beside copying and hashing its file into a store.

    python -m benchmarks.finetune

The demo's store (`make demo`) holds SmolLM2's foundation with the base program and two templates. Every weight of the
checkpoint is changed a little, and `foundation export` has to find that no export is needed. It is measured in this
process, so starting Python (0.3 s) is left out on both sides.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.phases import peak
from exporter.foundation import ExportOptions, export_foundation
from registry.service import Registry

BUILD = Path("build")
CONTEXT = 512
ROUNDS = 3


def main() -> None:
    print(f"{'':<28}{'wall':>9}{'CPU':>9}{'wall ÷':>9}{'CPU ÷':>9}")
    with tempfile.TemporaryDirectory(dir=BUILD) as work:
        checkpoint = _fine_tuned(Path(work) / "checkpoint")
        rounds = [_round(Path(work) / str(number), checkpoint) for number in range(ROUNDS)]
    copied, made = ((min(row[at][0] for row in rounds), min(row[at][1] for row in rounds)) for at in (0, 1))
    print(f"{'copying and hashing':<28}{copied[0]:>7.2f} s{copied[1]:>7.2f} s{1:>9.1f}{1:>9.1f}")
    print(
        f"{'foundation of a fine-tune':<28}{made[0]:>7.2f} s{made[1]:>7.2f} s"
        f"{made[0] / copied[0]:>9.1f}{made[1] / copied[1]:>9.1f}"
    )
    print(f"peak memory {peak():.2f} GB")


def _fine_tuned(target: Path) -> Path:
    """The checkpoint with other weights: the lowest bit of every 16-bit value is turned, in a file of the same form."""
    shutil.copytree(BUILD / "smollm2", target)
    with open(target / "model.safetensors", "r+b") as file:
        at = 8 + int.from_bytes(file.read(8), "little")
        file.seek(at)
        while piece := bytearray(file.read(1 << 20)):
            piece[::2] = bytes(each ^ 1 for each in piece[::2])
            file.seek(at)
            file.write(piece)
            at += len(piece)
    return target


def _round(work: Path, checkpoint: Path) -> tuple[tuple[float, float], tuple[float, float]]:
    """Wall and processor time of both, in fresh stores."""
    registry = Registry.open(Path(shutil.copytree(BUILD / "home", work / "home")))
    other = Registry.init(work / "other")
    file = registry.blobs.path(registry.foundation("smollm2").file.digest)
    copied = _cost(lambda: other.blobs.put_file(file))
    made = _cost(lambda: _export(registry, checkpoint))
    shutil.rmtree(work)
    return copied, made


def _export(registry: Registry, checkpoint: Path) -> None:
    made = export_foundation(registry, checkpoint, "other", ExportOptions(CONTEXT))
    if made.twin is None:
        raise SystemExit("an export was needed: is the demo's store of the installed ExecuTorch?")


def _cost(call: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu


if __name__ == "__main__":
    main()
