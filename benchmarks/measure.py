"""What a process costs: wall time, processor time and peak memory, as the kernel counted them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

_KIB = 1024  # ru_maxrss counts in KiB on Linux, in bytes on macOS

# A process inherits the peak memory of whoever starts it, so it is started by one that is nearly empty.
_LAUNCHER = """
import json, os, sys, time
start = time.perf_counter()
_, status, usage = os.wait4(os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ), 0)
figures = time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss
with open(sys.argv[1], "w") as file:
    json.dump([*figures, os.waitstatus_to_exitcode(status)], file)
"""


@dataclass(frozen=True)
class Cost:
    """Wall and processor time in seconds; peak resident memory in bytes."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int

    def to_json(self) -> dict[str, float]:
        """For a record in a file."""
        return asdict(self)


def run(command: Sequence[str | Path], *, log: Path, env: dict[str, str] | None = None) -> Cost:
    """Run a command as its own process, its output going to `log`; a failure ends the benchmark with that log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    result = log.with_suffix(".cost")
    launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER, result, *command]
    with log.open("wb") as out:
        subprocess.run(launcher, stdout=out, stderr=subprocess.STDOUT, env=os.environ | (env or {}), check=True)
    seconds, cpu_seconds, peak, code = json.loads(result.read_text())
    if code:
        raise SystemExit(f"{log.read_text(errors='replace')}\n{' '.join(map(str, command))} failed; its log is {log}")
    return Cost(seconds, cpu_seconds, peak * (1 if sys.platform == "darwin" else _KIB))
