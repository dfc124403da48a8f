"""Who is where: what a manifest, of now or of any time before, tells one device. Anyone can replay it."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from registry import lookup, rollout
from registry.catalog import channels
from registry.digest import Descriptor
from registry.errors import NotFound
from registry.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Who:
    """What one device is offered: its bucket, the release (None: keep what you have) and why.

    `arm` is the index of the arm in the manifest of `sequence`; None when every arm that it may take is halted.
    """

    channel: str
    device: str
    bucket: int
    release: int | None
    arm: int | None
    reason: str
    sequence: int
    issued: int


def told(manifest: Manifest, device: str, active: int | None) -> Who:
    """What a manifest offers a device that runs the release `active` (None: none)."""
    bucket = rollout.bucket(manifest.salt, device)
    choice = rollout.choose(manifest.arms, bucket, active)
    return Who(
        channel=manifest.channel,
        device=device,
        bucket=bucket,
        release=choice.release,
        arm=choice.arm,
        reason=choice.reason,
        sequence=manifest.sequence,
        issued=manifest.issued,
    )


def manifest_then(session: Session, channel: str, at: int | None) -> Descriptor:
    """A channel's newest manifest, or the one that it had at a time in Unix seconds, even if it is deleted now.

    Raises NotFound when it offered nothing then.
    """
    if at is None:
        return lookup.manifest(session, channel, None)
    found = channels.manifest_at(session, channel, at)
    if found is None:
        raise NotFound(f"{channel} offered nothing at that time", hint="`ptdock log` says what happened when")
    return found
