"""What a registry of 10,000 and of 100,000 versions costs to check, survey and plan from.

    python -m benchmarks.registry_size      minutes and 2 GB of disk, most of it to fill the registries

Each figure is of a whole process, as `ptdock` is used: its start takes about half a second of it. A version here is a
real program, its factors and a source, all tiny and all its own.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Cost, run
from benchmarks.registry_writers import Where
from registry.artifacts import Source, Template
from registry.device_state import DeviceState
from registry.publishing import Publication
from registry.service import Registry
from tests.registry.exporting import export_pair
from tests.registry.files import Pair
from tests.registry.stock import Stock

SIZES = (10_000, 100_000)
GROUP = 500
OFFERED = 200
PTDOCK = (sys.executable, "-m", "cli")


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory(prefix="ptdock-bench-") as scratch:
        print(f"{'versions':>9} {'command':<16} {'wall':>9} {'CPU':>9} {'memory':>9}  {'database':>9}")
        for count in SIZES:
            for name, cost, size in surveyed(Path(scratch, str(count)), count):
                figures = f"{cost.seconds:>7.2f} s {cost.cpu_seconds:>7.2f} s {cost.peak_bytes / 1e6:>6.0f} MB"
                print(f"{count:>9,} {name:<16} {figures}  {size / count:>7,.0f} B", flush=True)


def surveyed(home: Path, count: int) -> Iterator[tuple[str, Cost, int]]:
    """Fill a registry with so many versions; what commands on it cost, and the bytes of its database."""
    home.mkdir()
    export_pair(home)
    stock = Stock(Registry.init(home, environment={}), Pair(home / "program.pte", home / "foundation.ptd"))
    foundation = stock.foundation("tiny")
    stock.template(foundation, rank=0)
    template = stock.template(foundation)
    for first in range(0, count, GROUP):
        publish(stock, template, range(first, first + GROUP))
    stock.registry.create_channel("stable")
    stock.registry.create_release("stable", [f"adapter-{n}@1.0.0" for n in range(OFFERED)])
    stock.registry.database.close()
    phone = home / "phone.json"
    phone.write_bytes(DeviceState("phone", "1.5.1").to_bytes())
    size = Where(home, {}).size()
    for words in (("plan", "stable", "--device", str(phone)), ("gc", "--dry-run"), ("verify", "--fast")):
        yield " ".join(words[:2]), called(home, *words), size


def publish(stock: Stock, template: Template, numbers: range) -> None:
    """Publish one version of each of these adapters, in one transaction."""
    made: list[Publication] = []
    with stock.registry.blobs.group() as group:
        for n in numbers:
            tensors = group.put_bytes(b"tensors of adapter %d" % n)
            source = Source({"adapter_model.safetensors": tensors}, {})
            group.put_bytes(source.to_bytes())
            program, factors = group.put_bytes(stock.program(n)), group.put_bytes(stock.factors(n))
            made.append(Publication(f"adapter-{n}", "1.0.0", source, template, program, factors))
        group.settle()
    stock.registry.keeper().publish(made)


def called(home: Path, *words: str) -> Cost:
    """What `ptdock` costs with these words, as a process."""
    return run([*PTDOCK, "--home", home, "--json", "--quiet", *words], log=home / "bench.log")


if __name__ == "__main__":
    main()
