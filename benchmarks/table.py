"""Publishing against upstream's export of the same adapter, as a table.

    make bench              three minutes; upstream's figures are those recorded in benchmarks/upstream.json
    make bench-upstream     measures upstream first, on this machine: seven minutes and 3 GB more

A process is measured from the outside, by the kernel's own accounting. "The work inside" is what remains when the
interpreter, the database and the disk are taken away: factors folded, template unpacked, program written.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from measure import Cost, run

from exporter.fold import fold
from exporter.foundation_rows import FoundationRows
from exporter.peft.gate import check
from exporter.publish import card_of
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
    return run([script, "--home", HOME, *words], log=BENCH / "ptdock.log")


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


def upstream() -> dict[str, Any]:
    """Upstream's figures: measured on this machine if they were, else the recorded ones."""
    measured = BENCH / "upstream.json"
    record: dict[str, Any] = json.loads((measured if measured.exists() else RECORDED).read_text())
    return record


def main() -> None:
    shutil.rmtree(HOME, ignore_errors=True)
    theirs = upstream()
    ptdock("init", "init")
    export = ("foundation", "export", BUILD / "smollm2", "--name", "smollm2", "--context", "512")
    base = ptdock("export the foundation", *export)
    first = publish("pirate", "1.0.0")
    further = statistics.median(publish("json", f"1.0.{patch}").seconds for patch in range(REPEATS))
    registry = Registry.open(HOME)
    work = statistics.median(work_inside(registry, "json") for _ in range(REPEATS))
    seconds, peak = theirs["seconds"], theirs["peak_bytes"]
    print(f"\nupstream's export_llm of one adapter ({theirs['date']}): {seconds:.0f} s, {peak / 1e9:.2f} GB\n")
    row("", "measured", "against upstream")
    row("first adapter of a structure, wall", f"{first.seconds:.1f} s", f"1/{seconds / first.seconds:.1f}")
    row(
        "first adapter of a structure, peak memory",
        f"{first.peak_bytes / 1e9:.2f} GB",
        f"{first.peak_bytes / peak:.2f}",
    )
    row("foundation and base program, wall", f"{base.seconds:.1f} s", "")
    row("foundation and base program, peak memory", f"{base.peak_bytes / 1e9:.2f} GB", "")
    row("further adapter, whole process", f"{further:.3f} s", f"1/{seconds / further:,.0f}")
    row("further adapter, the work inside", f"{work * 1e3:.1f} ms", f"1/{seconds / work:,.0f}")
    print()
    for what, size in sizes(registry).items():
        row(what, f"{size:,} B", "")


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


def row(what: str, measured: str, ratio: str) -> None:
    """One line of the table."""
    print(f"{what:<44}{measured:>16}{ratio:>20}".rstrip())


if __name__ == "__main__":
    main()
