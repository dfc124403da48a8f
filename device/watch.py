"""Sync again and again, as often as the channels wish: at `poll_seconds`, sooner after a trouble, never in step.

Every wait is drawn anew around its length, so that a fleet that was switched on together does not ask together.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from device.result import Options, SyncResult
from device.source import Source
from device.sync import sync
from registry.errors import PtdockError

FIRST_RETRY = 60.0
"""Seconds after the first failure in a row; each further one waits twice as long, up to `LONGEST`."""
LONGEST = 14_400.0


def watch(
    source: Source,
    channels: Sequence[str],
    directory: Path,
    options: Options,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[SyncResult | PtdockError]:
    """Sync for ever; answers what each sync came to, and waits when the next answer is asked for."""
    failures = 0
    while True:
        try:
            result: SyncResult | PtdockError = sync(source, channels, directory, options)
        except PtdockError as error:
            failures += 1
            result = error
        else:
            failures = 0
        yield result
        sleep(pause(result, failures, random.random()))  # noqa: S311 - spreads load, guards nothing


def pause(result: SyncResult | PtdockError, failures: int, draw: float) -> float:
    """Seconds until the next sync; `draw` is in [0, 1) and moves it by up to a tenth to either side.

    A server that asked for a wait (Retry-After) gets at least that.
    """
    if isinstance(result, SyncResult):
        return result.poll_seconds * (0.9 + draw / 5)
    asked = result.values.get("retry_after") or 0.0
    return max(float(asked), min(LONGEST, FIRST_RETRY * 2.0 ** (failures - 1)) * (0.9 + draw / 5))
