"""Publishing against upstream's export of the same adapter, as a table.

    make bench              three minutes; upstream's figures are those recorded in benchmarks/upstream.json
    make bench-upstream     measures upstream first, on this machine: seven minutes and 3 GB more

A process is measured from the outside, by the kernel's own accounting; processor time is the figure to trust on a
machine that is busy with other things. "The work inside" is what remains when the interpreter, the gate, the database
and the disk are taken away: factors folded, template unpacked, program written.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import time
from dataclasses import astuple
from pathlib import Path

from benchmarks.measure import Cost, run
from exporter.fold import fold
from exporter.foundation_rows import FoundationRows
from exporter.linker import card_of
from exporter.peft.gate import check
from registry.relink import relink, unpack
from registry.relocation import RelocationTable
from registry.service import Registry

BUILD = Path("build")
BENCH = BUILD / "bench"
HOME = BENCH / "home"
RECORDED = Path(__file__).with_name("upstream.json")
REPEATS = 9


def ptdock(label: str, *words: str | Path) -> Cost:
    """What one command of ours costs as a process."""
    print(f"  {label}", file=sys.stderr, flush=True)
    script = Path(sys.executable).with_name("ptdock")
    compiled = {"PYTHONDONTWRITEBYTECODE": ""}  # as in an ordinary installation
    return run([script, "--home", HOME, *words], log=BENCH / "ptdock.log", env=compiled)


def publish(adapter: str, version: str) -> Cost:
    """What it costs to publish one of the example adapters."""
    chosen = ("--foundation", "smollm2", "--name", adapter, "--version", version)
    return ptdock(f"publish {adapter} {version}", "adapter", "publish", BUILD / "adapters" / adapter, *chosen)


def work_inside(registry: Registry, adapter: str) -> float:
    """Seconds from the gate's answer to the bytes of the `.pte`: fold, unpack the template, relink."""
    foundation, template = registry.foundation("smollm2"), registry.template_of(registry.build(f"{adapter}@1.0.0"))
    card, rows = card_of(registry, foundation), FoundationRows(registry, foundation)
    accepted = check(BUILD / "adapters" / adapter, card).accept()
    packed = registry.blobs.read(template.hollow.digest)
    table = RelocationTable.from_bytes(registry.blobs.read(template.table.digest))
    start = time.perf_counter()
    folded = fold(accepted, card, rows)
    factors = b"".join(folded.tensors[slot.names[0]].data for slot in table.slots)
    relink(unpack(packed, template.program_size), table, factors)
    return time.perf_counter() - start


def upstream() -> Cost:
    """Upstream's figures: measured on this machine if they were, else the recorded ones."""
    measured = BENCH / "upstream.json"
    record = json.loads((measured if measured.exists() else RECORDED).read_text())
    busy = f"{record['load_average']:.1f} then, {os.getloadavg()[2]:.1f} now"
    print(f"  upstream's figures are of {record['date']}; load average {busy}", file=sys.stderr, flush=True)
    return Cost(record["seconds"], record["cpu_seconds"], record["peak_bytes"])


def main() -> None:
    shutil.rmtree(HOME, ignore_errors=True)
    ptdock("init", "init")
    export = ("foundation", "export", BUILD / "smollm2", "--name", "smollm2", "--context", "512")
    costs = {
        "upstream's export of an adapter": upstream(),
        "foundation and base program": ptdock("export the foundation", *export),
        "first adapter of a structure": publish("pirate", "1.0.0"),
        "further adapter, whole process": median([publish("json", f"1.0.{patch}") for patch in range(REPEATS)]),
    }
    registry = Registry.open(HOME)
    work = statistics.median(work_inside(registry, "json") for _ in range(REPEATS))
    print_costs(costs | {"further adapter, the work inside": Cost(work, work, 0)})
    print()
    for what, size in sizes(registry).items():
        print(f"{what:<36}{size:>12,} B")


def median(costs: list[Cost]) -> Cost:
    """The middle of several runs, each figure by itself."""
    return Cost(*(statistics.median(figures) for figures in zip(*map(astuple, costs), strict=True)))


def print_costs(costs: dict[str, Cost]) -> None:
    """Each cost, and how many times less wall and processor time it takes than the first of them."""
    yardstick = next(iter(costs.values()))
    print(f"\n{'':<36}{'wall':>10}{'CPU':>10}{'memory':>10}{'wall ÷':>10}{'CPU ÷':>10}{'memory ÷':>10}")
    for what, cost in costs.items():
        ratios = (yardstick.seconds / cost.seconds, yardstick.cpu_seconds / cost.cpu_seconds)
        memory = (f"{cost.peak_bytes / 1e9:.2f} GB", f"{cost.peak_bytes / yardstick.peak_bytes:.2f}")
        size, share = memory if cost.peak_bytes else ("", "")
        times = "".join(f"{ratio:>10,.{0 if ratio >= 100 else 1}f}" for ratio in ratios)
        print(f"{what:<36}{told(cost.seconds):>10}{told(cost.cpu_seconds):>10}{size:>10}{times}{share:>10}".rstrip())


def told(seconds: float) -> str:
    """A duration for people."""
    return f"{seconds * 1e3:.1f} ms" if seconds < 0.1 else f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"


def sizes(registry: Registry) -> dict[str, int]:
    """Bytes of what lies in the store."""
    foundation, build = registry.foundation("smollm2"), registry.build("json@1.0.0")
    template = registry.template_of(build)
    plain = next(each for each in registry.templates(foundation.file.digest) if not each.structure["modules"])
    return {
        "foundation (.ptd)": foundation.file.size,
        "base program (.pte)": plain.program_size,
        "adapter (.pte), rank 8 on q and v": build.file.size,
        "of it trained factors (fp32)": build.factors.size,
        "hollow template, compressed": template.hollow.size,
        "relocation table": template.table.size,
    }


if __name__ == "__main__":
    main()
