"""What a device may report of its syncs: typed codes, and an id that nobody can follow from one day to the next.

    Reports(anonymous_id(secret, now), (Report("stable", 12, "activated"),)).to_json()

The vocabulary is closed: a code says what happened, never where, to whom, or in what words.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import asdict, dataclass
from typing import Any

CODES = frozenset({
    "activated", "repaired", "unchanged",
    "older", "another-registry", "expired", "no-line", "no-room", "digest", "self-test",
    "not-found", "format", "input", "integrity", "unavailable", "error",
    "load", "crash",
})  # fmt: skip
"""What a sync answers (docs/devices.md), and `load` and `crash` for a program that failed after a switch."""
MOST = 100
"""Reports in one document."""
_DAY = 86_400


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a channel's release: the one that was to become active, or that is."""

    channel: str
    release: int
    code: str


@dataclass(frozen=True, slots=True)
class Reports:
    """One device's reports; `id` is 32 hex digits."""

    id: str
    reports: tuple[Report, ...]

    def to_json(self) -> dict[str, Any]:
        """As it is sent."""
        return {"schema": 1, "id": self.id, "reports": [asdict(report) for report in self.reports]}


def anonymous_id(secret: bytes, now: float) -> str:
    """A device's id on the day (UTC) of `now`, seconds since 1970: HMAC-SHA-256 of the day, cut to 16 bytes.

    The secret never leaves the device, so that two days' ids cannot be told to be one device's.
    """
    return hmac.new(secret, b"ptdock health %d" % (int(now) // _DAY), hashlib.sha256).hexdigest()[:32]
