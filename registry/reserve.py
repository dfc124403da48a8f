"""A few megabytes that a home sets aside, so that there is room to delete when there is room for nothing else.

SQLite needs some space even to read, so on a full disk `ptdock gc` could not begin. It gives the reserve up while it
runs, and sets it aside again when it has ended. `ptdock init` makes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from registry import files

SIZE = 4 << 20  # bytes: SQLite's write-ahead log reaches as many before it starts again
_NAME = "reserve"


@contextmanager
def lent(home: Path) -> Iterator[None]:
    """Give a home's reserve up inside the block. Where there was none before, only a block that succeeds makes one."""
    path = home / _NAME
    there = path.exists()
    if there:
        files.unlink(path)
    try:
        yield
        there = True
    finally:
        if there:
            _set_aside(path)


def _set_aside(path: Path) -> None:
    """Make the file where there is room for it; it is a help, and nothing depends on it."""
    try:
        with open(path, "xb", buffering=0) as file:
            files.write(path, file, bytes(SIZE))
    except FileExistsError:  # another collection was first
        pass
    except OSError:
        files.unlink(path)
