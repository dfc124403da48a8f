"""What a server allows: sizes in bytes, rates per minute."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """The bounds of one server: `plan` of a question's body, `upload` of a published adapter.

    A token publishes at most `publishes` times in a minute. `blobs` is the address at which blobs are served instead
    of here, if they are; an address that a bucket has signed is good for `signed_seconds`.
    """

    plan: int = 8 << 20
    upload: int = 1 << 30
    publishes: int = 60
    blobs: str | None = None
    signed_seconds: int = 3600
