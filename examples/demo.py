"""One foundation, small adapters, one registry, one device: the real commands on a real language model.

    make demo            or, where ptdock[export,prove] and gguf are installed:    python examples/demo.py

Everything is written below `build`. What was made once is kept: a second run only asks and answers, in seconds.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from chain import APP, BUILD, CHAIN, HOME, PHONE, Step

JOURNAL = BUILD / "demo.json"
ENVIRONMENT = os.environ | {
    "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))),
    "PTDOCK_HOME": str(HOME),
    "HF_HUB_OFFLINE": "1",
}


@dataclass(frozen=True)
class Cost:
    """What a step took and said: wall seconds, the bytes by which its directory grew, its standard output."""

    seconds: float
    grew: int
    output: str

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s" + (f", {size(self.grew)} more on the disk" if self.grew else "")


def main() -> None:
    """Go through the chain; what the journal remembers is not made again."""
    os.chdir(Path(__file__).resolve().parent.parent)
    start = time.perf_counter()
    costs = remembered()
    for number, step in enumerate(CHAIN, 1):
        print(f"\n{number}. {step.say}\n\n  $ {step.command}", flush=True)
        if step.into and step.key in costs:
            print(f"{costs[step.key].output}\n  [done before: {costs[step.key]}]", flush=True)
            continue
        cost = carry_out(step)
        print(f"\n  [{cost}]", flush=True)
        costs.setdefault(step.key, cost)
        JOURNAL.write_text(json.dumps({key: asdict(cost) for key, cost in costs.items()}, indent=2))
    summarize(costs, time.perf_counter() - start)


def remembered() -> dict[str, Cost]:
    """What each step took and said when it was first done; without the store everything begins anew."""
    if not HOME.exists():
        for directory in (PHONE, APP):
            shutil.rmtree(directory, ignore_errors=True)
        return {}
    journal = json.loads(JOURNAL.read_text()) if JOURNAL.exists() else {}
    there = {step.key for step in CHAIN if step.into is None or step.into.exists()}
    return {key: Cost(**cost) for key, cost in journal.items() if key in there}


def carry_out(step: Step) -> Cost:
    """Run the step's command, passing on what it says as it says it; a failure ends the demo."""
    before = occupied(step.into)
    start = time.perf_counter()
    process = subprocess.Popen(shlex.split(step.command), env=ENVIRONMENT, stdout=subprocess.PIPE)
    output = passed_on(process.stdout)
    if process.wait():
        sys.exit(f"\nThat failed with exit code {process.returncode}. To begin anew: rm -r {HOME} {PHONE} {APP}")
    return Cost(time.perf_counter() - start, occupied(step.into) - before, output)


def passed_on(stream: IO[bytes] | None) -> str:
    """Copy a process's output to ours while it comes; answers all of it, ending in a line break."""
    whole = b""
    while stream and (piece := os.read(stream.fileno(), 1 << 16)):
        whole += piece
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    if whole and not whole.endswith(b"\n"):
        print(flush=True)
        whole += b"\n"
    return whole.decode()


def occupied(directory: Path | None) -> int:
    """Bytes below a directory; a file with several links counts once."""
    files = [path.lstat() for path in directory.rglob("*") if path.is_file()] if directory else []
    return sum({file.st_ino: file.st_size for file in files}.values())


def answer(command: str) -> dict[str, Any]:
    """What a command answers with --json."""
    words = shlex.split(f"{command} --json")
    document: dict[str, Any] = json.loads(subprocess.check_output(words, env=ENVIRONMENT))
    return document


def summarize(costs: dict[str, Cost], seconds: float) -> None:
    """What it all came to, as a table."""
    sizes = {name: answer(f"ptdock adapter show {name}@1.0.0")["size"] for name in ("pirate", "robot")}
    rows = [
        ("the foundation, once per device", size(answer("ptdock foundation show smollm2")["size"])),
        ("an adapter of rank 8 on q and v", size(sizes["pirate"])),
        ("an adapter of rank 16 on seven modules", size(sizes["robot"])),
        ("publish the first adapter of a structure", f"{costs['pirate'].seconds:.1f} s"),
        ("publish the next one", f"{costs['json'].seconds:.1f} s"),
        ("first sync: foundation and two adapters", size(costs["first sync"].grew)),
        ("second sync: one more adapter", size(costs["second sync"].grew)),
    ]
    print(f"\nWhat it came to, {seconds:.0f} s in all\n")
    for what, measured in rows:
        print(f"  {what:<42}{measured:>9}")


def size(count: int) -> str:
    """Bytes in decimal units."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


if __name__ == "__main__":
    main()
