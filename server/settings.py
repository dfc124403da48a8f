"""What a server allows: sizes in bytes, rates per minute."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """The bounds of one server. `blobs` is the address at which blobs are served instead of here, if they are.

    `publishes` are a token's uploads per minute, `upload` the bytes of one; `plan` bounds a question's body.
    """

    plan: int = 8 << 20
    upload: int = 1 << 30
    publishes: int = 60
    blobs: str | None = None
