"""What a sync is asked for and what it answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from device.store import DeviceStore
from registry.device_state import ActiveSet, DeviceState
from registry.errors import FormatError, InputError, IntegrityError, NotFound, PtdockError, Unavailable
from registry.plan import Plan
from registry.release import AdapterEntry

SelfTester = Callable[[DeviceStore, ActiveSet, Sequence[AdapterEntry]], None]
"""Runs these adapters of a set whose files are all here. Raises IntegrityError for a wrong answer."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to sync.

    `facts` is who the device is and what it wants (None: as at the last sync; a new device gets a random id and says
    which ExecuTorch is installed); its `holds`, `free_disk` and `channels` are found here, not taken from it.
    `root` is the registry's root of trust to pin (None: what is trusted already, or on first use; device.trust).
    `demand` names adapters of delivery `on-demand` to fetch, now and from now on. `self_test` runs an install's
    adapters before they become active (device.selftest.replay) and raises what is wrong. `progress` hears (bytes
    done, bytes in all); `note` hears of waits. `clock` answers seconds since 1970.
    """

    facts: DeviceState | None = None
    root: bytes | None = field(default=None, repr=False)
    demand: tuple[str, ...] = ()
    self_test: SelfTester | None = None
    delete_first: bool = False
    note: Callable[[str], None] = lambda _: None
    progress: Callable[[int, int], None] = lambda _done, _total: None
    clock: Callable[[], float] = time.time


@dataclass(frozen=True, slots=True)
class ChannelResult:
    """What became of one channel.

    `outcome` is `activated` (another set is active now), `repaired` (files were missing or damaged), `unchanged`, or
    `failed` with the `error`'s message. `code` is the outcome, or why it failed (`code_of`). `release` and `adapters`
    (name to version) are what is active now; `offered` is the release that was to become active, if one was.
    """

    channel: str
    outcome: str
    code: str
    release: int | None
    adapters: dict[str, str]
    error: str | None = None
    offered: int | None = None

    def to_json(self) -> dict[str, object]:
        """As the command line prints it."""
        return {
            "channel": self.channel,
            "outcome": self.outcome,
            "code": self.code,
            "release": self.release,
            "adapters": self.adapters,
            "error": self.error,
            "offered": self.offered,
        }


@dataclass(frozen=True, slots=True)
class SyncResult:
    """What a sync came to: the channels in the order asked for, the plan that was carried out, bytes from the source.

    `poll_seconds` is when to sync again, as the channels wish.
    """

    device: str
    channels: tuple[ChannelResult, ...]
    plan: Plan
    fetched: int
    poll_seconds: int


CODES: tuple[tuple[type[PtdockError], str], ...] = (
    (FormatError, "format"),
    (InputError, "input"),
    (NotFound, "not-found"),
    (IntegrityError, "integrity"),
    (Unavailable, "unavailable"),
)


def code_of(error: PtdockError) -> str:
    """A failure's stable code, for programs and for what a device may report: nothing of it names a path or a person.

    The plan's reason where it refused (`older`, `expired`, `no-room`, …), `digest` for bytes that are not the pinned
    ones, `self-test`, and otherwise the error's kind.
    """
    reason = error.values.get("reason")
    return (
        reason if isinstance(reason, str) else next((code for kind, code in CODES if isinstance(error, kind)), "error")
    )
