"""What a process costs: wall time, processor time and peak memory, as the kernel counted them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

_KIB = 1024  # ru_maxrss counts in KiB on Linux, in bytes on macOS


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
    with log.open("wb") as out:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=os.environ | (env or {}))
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{log.read_text(errors='replace')}\n{' '.join(map(str, command))} failed; its log is {log}")
    unit = 1 if sys.platform == "darwin" else _KIB
    return Cost(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit)
