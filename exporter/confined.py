"""Runs what comes from outside and is a program, chat templates and regular expressions, in a process of its own.

Nobody can tell by looking how long they take or how much memory; the kernel ends that process when it is too much.

    confined("match", {"patterns": [".*q_proj"], "names": names}, seconds=2)   # [None]: nothing wrong with it
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from registry.errors import Unavailable

MEMORY = 1 << 30
"""Bytes of address space; an interpreter with jinja2 takes a tenth of it."""
PATIENCE = 30
"""Wall seconds that we wait for each second of processor time: the machine may be busy."""

_CHILD = Path(__file__).with_name("confined_child.py")


def confined(task: str, ask: Mapping[str, Any], *, seconds: int, memory: int = MEMORY) -> list[Any]:
    """The answers of a task of `confined_child` (`match` or `render`); fewer than asked for where a limit ended it.

    `seconds` of processor time and `memory` in bytes are what it may take. Raises Unavailable where no process can be
    started.
    """
    command = [sys.executable, "-P", str(_CHILD), str(seconds), str(memory)]
    try:
        done = subprocess.run(
            command,
            input=json.dumps({"task": task, **ask}).encode(),
            capture_output=True,
            timeout=PATIENCE * seconds,
            check=False,
        )
        written = done.stdout
    except subprocess.TimeoutExpired as late:
        written = late.stdout or b""
    except OSError as error:
        raise Unavailable(f"cannot start a process: {error.strerror}", hint="free memory, then repeat") from None
    whole, _, _unfinished = written.rpartition(b"\n")
    return [json.loads(line) for line in whole.splitlines()]
