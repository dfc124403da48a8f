"""The manifest: what a device reads first, one small document per channel, pinning releases by digest and size.

Its *arms* say which release is offered to which share of devices, in basis points that sum to 10000
(registry.rollout has the arithmetic and the bucket formula). `releases` pins each offered release document.
`revoked` lists builds that no device may run. Times are seconds since 1970, UTC.

    manifest = Manifest.from_bytes(data)      # strict: FormatError, or a value whose every name is checked
    pin = manifest.pin(12)                    # ReleasePin(release=12, file=Descriptor(digest, size))
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from registry import canonical
from registry.digest import Descriptor, Digest
from registry.documents import MAX_INTEGER, SCHEMA, Fields, descriptor, opened
from registry.errors import FormatError

MAX_BYTES = 4 << 20  # a reader that knows no pinned size stops here
WHOLE = 10_000
STATES = ("open", "halted")
KNOWN = (
    "arms channel critical digest expires holdout issued log_head poll_seconds registry release releases revoked"
    " salt schema sequence share_bp size state"
)
_SALT = re.compile(r"[0-9a-f]{32}", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Arm:
    """A share of devices, and the release that they are offered; `release` None means "keep what you have".

    `share_bp` is in basis points, 1 to 10000; `state` is `open` or `halted`. `holdout` marks the last arm, of
    release None, that no release ever takes from.
    """

    release: int | None
    share_bp: int
    state: str = "open"
    holdout: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.share_bp <= WHOLE:
            raise FormatError(f"an arm's share is 1 to {WHOLE} basis points, not {self.share_bp}")
        if self.release is None and self.state != "open":
            raise FormatError("an arm without a release cannot be halted")
        if self.release is not None and self.holdout:
            raise FormatError(f"a holdout offers no release, but names {self.release}")

    def to_json(self) -> dict[str, Any]:
        """As it stands in the document."""
        extra = {"holdout": True} if self.holdout else {}
        return {"release": self.release, "share_bp": self.share_bp, "state": self.state, **extra}

    @classmethod
    def read(cls, fields: Fields) -> Arm:
        """From the document. Raises FormatError."""
        release = fields.get("release")
        return cls(
            release=None if release is None else fields.integer("release", low=1),
            share_bp=fields.integer("share_bp", low=1, high=WHOLE),
            state=fields.choice("state", STATES),
            holdout=fields.flag("holdout", default=False),
        )


@dataclass(frozen=True, slots=True)
class ReleasePin:
    """A release's number, and the digest and size of its document."""

    release: int
    file: Descriptor

    def to_json(self) -> dict[str, Any]:
        """As it stands in the document."""
        return {"release": self.release, **self.file.to_json()}

    @classmethod
    def read(cls, fields: Fields) -> ReleasePin:
        """From the document. Raises FormatError."""
        return cls(fields.integer("release", low=1), descriptor(fields))


@dataclass(frozen=True, slots=True)
class Manifest:
    """One channel's manifest.

    `registry` is the store's UUID, `sequence` grows with each issue, `salt` (32 hex digits) enters the bucket,
    `poll_seconds` is how often a device should ask. `log_head` is the audit chain's head when it was issued.
    """

    registry: str
    channel: str
    sequence: int
    issued: int
    expires: int
    poll_seconds: int
    salt: str
    arms: tuple[Arm, ...]
    releases: tuple[ReleasePin, ...]
    revoked: tuple[Digest, ...] = ()
    log_head: Digest | None = None

    def __post_init__(self) -> None:
        if self.expires <= self.issued:
            raise FormatError(f"manifest: expires {self.expires}, but was issued {self.issued}")
        check_arms(self.arms)
        pinned = [pin.release for pin in self.releases]
        if len(set(pinned)) != len(pinned):
            raise FormatError("manifest: a release is pinned twice")
        missing = [arm.release for arm in self.arms if arm.release is not None and arm.release not in pinned]
        if missing:
            raise FormatError(f"manifest: an arm offers release {missing[0]}, which is not pinned", release=missing[0])

    def pin(self, release: int) -> ReleasePin:
        """The pin of a release. Raises FormatError if the manifest has none."""
        for pin in self.releases:
            if pin.release == release:
                return pin
        raise FormatError(f"manifest {self.channel}: release {release} is not pinned", release=release)

    def to_json(self) -> dict[str, Any]:
        """The document as JSON values."""
        head = {"log_head": str(self.log_head)} if self.log_head else {}
        return {
            "schema": SCHEMA,
            "critical": [],
            "registry": self.registry,
            "channel": self.channel,
            "sequence": self.sequence,
            "issued": self.issued,
            "expires": self.expires,
            "poll_seconds": self.poll_seconds,
            "salt": self.salt,
            "arms": [arm.to_json() for arm in self.arms],
            "releases": [pin.to_json() for pin in self.releases],
            "revoked": [str(digest) for digest in self.revoked],
            **head,
        }

    def to_bytes(self) -> bytes:
        """The document's only bytes (canonical JSON)."""
        return canonical.dumps(self.to_json())

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Read a document strictly; unknown fields are ignored unless critical. Raises FormatError."""
        fields = opened(data, what="manifest", known=KNOWN, limit=MAX_BYTES)
        return cls(
            registry=fields.matching("registry", _UUID, "a UUID in lower case"),
            channel=fields.name("channel", what="channel"),
            sequence=fields.integer("sequence", low=1),
            issued=fields.integer("issued"),
            expires=fields.integer("expires"),
            poll_seconds=fields.integer("poll_seconds", low=1, high=MAX_INTEGER),
            salt=fields.matching("salt", _SALT, "32 lower-case hex digits"),
            arms=tuple(Arm.read(each) for each in fields.objects("arms")),
            releases=tuple(ReleasePin.read(each) for each in fields.objects("releases")),
            revoked=fields.digests("revoked"),
            log_head=fields.optional("log_head", fields.digest),
        )


def check_arms(arms: tuple[Arm, ...]) -> None:
    """Shares sum to 10000, no release has two arms, a holdout stands last. Raises FormatError."""
    total = sum(arm.share_bp for arm in arms)
    if total != WHOLE:
        raise FormatError(f"the arms' shares sum to {total}, not {WHOLE}", expected=WHOLE, actual=total)
    if any(arm.holdout for arm in arms[:-1]):
        raise FormatError("a holdout stands last")
    offered = [arm.release for arm in arms if not arm.holdout]
    if len(set(offered)) != len(offered):
        raise FormatError("a release stands in two arms")
