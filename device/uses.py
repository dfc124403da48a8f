"""When each program was last loaded, so that a full device first drops what nobody asks for; it may be lost."""

from __future__ import annotations

import json
import math
from contextlib import suppress

from device.store import DeviceStore
from registry import files
from registry.digest import Digest
from registry.errors import Unavailable

_RESOLUTION = 60
"""Seconds within which a program that is used again is not written down again."""


class Uses:
    """The last use of programs by digest, in seconds since 1970, in `used.json`."""

    def __init__(self, store: DeviceStore) -> None:
        self._path = store.root / "used.json"
        self._table = self._read()

    def last(self, digest: Digest) -> float:
        """When a program was last used; 0 when that is not known."""
        return self._table.get(digest.hex, 0.0)

    def mark(self, digest: Digest, now: float) -> None:
        """Remember that a program is used now; a device without room forgets it."""
        if abs(now - self.last(digest)) >= _RESOLUTION:
            self._table[digest.hex] = now
            with suppress(Unavailable):
                files.replace(self._path, json.dumps(self._table).encode())

    def _read(self) -> dict[str, float]:
        try:
            table = json.loads(self._path.read_bytes())
            return {str(name): float(value) for name, value in table.items() if math.isfinite(value)}
        except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            return {}
