"""Processes that die: a forked child works under an observer of the disk, which kills it as kill -9 does."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from registry.files import Step, observed


def in_a_child(work: Callable[[], object], observer: Callable[[Step], None]) -> int:
    """Do something in a forked process under an observer; answers its exit code, -9 when it was killed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with observed(observer):
                work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killing(after: int) -> Callable[[Step], None]:
    """Kill the process, as kill -9 does, at the step after the first `after` ones."""
    left = iter(range(after))

    def observe(_step: Step) -> None:
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    return observe
