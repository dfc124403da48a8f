"""Staged rollout without device state on a server: every device computes its own bucket, and anyone can replay it.

    bucket = int.from_bytes(sha256(f"{salt}:{device}".encode()).digest()[:4], "big") % 10000

Arms are taken in order by cumulated `share_bp`. All verbs are pure, arms to arms, and each moves as few devices as
it can: a new or widened arm takes from the arms behind it, nearest first, so that only entrants move. A share is
not access control.

    arms = start(NOTHING, 11, 10000)         # a channel's first release, for everyone
    arms = start(arms, 12, 1000)             # 12 takes the first 10 %, 11 keeps 90 %
    arms = widen(arms, 12, 5000)             # nobody leaves 12; 40 % enter it
    choose(arms, bucket(salt, device), 11)   # Choice(release=12 or 11, reason="…")
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import accumulate

from registry.errors import InputError
from registry.manifest import WHOLE, Arm, check_arms

Arms = tuple[Arm, ...]
NOTHING: Arms = (Arm(None, WHOLE),)  # a channel before its first release: everyone keeps what they have


@dataclass(frozen=True, slots=True)
class Choice:
    """What a bucket is offered: a release, or None for "keep what you have"; `arm` is the index of that arm.

    `arm` is None when every arm that the bucket may take is halted.
    """

    release: int | None
    arm: int | None
    reason: str


def bucket(salt: str, device: str) -> int:
    """The device's bucket, 0 to 9999: the first 4 bytes of SHA-256 of `salt:device`, big-endian, modulo 10000."""
    head = hashlib.sha256(f"{salt}:{device}".encode()).digest()[:4]
    return int.from_bytes(head, "big") % WHOLE


def choose(arms: Arms, bucket: int, active: int | None) -> Choice:
    """Which release a bucket (0 to 9999) is offered, given the release that is active on the device.

    A halted arm is taken only by a device whose active release it already is; any other goes on to the next open arm.
    """
    first = _arm_of(arms, bucket)
    for index in range(first, len(arms)):
        arm = arms[index]
        if arm.state == "open" or arm.release == active:
            return Choice(arm.release, index, _reason(arms, bucket, first, index))
    return Choice(None, None, f"bucket {bucket}: release {arms[first].release} is halted and nothing else is open")


def start(arms: Arms, release: int, share_bp: int) -> Arms:
    """Offer a new release to a share of the devices, in basis points; its arm stands first.

    Raises InputError when the release has an arm already, or the share is more than the holdout leaves.
    """
    if any(arm.release == release for arm in arms):
        raise InputError(f"release {release} is being rolled out already", hint="widen it instead", release=release)
    return _checked((Arm(release, _share(share_bp)), *_taken(arms, share_bp)))


def widen(arms: Arms, release: int, share_bp: int) -> Arms:
    """Grow a release's arm to a share, in basis points; devices that are in it stay, entrants come from behind.

    Raises InputError for a smaller share, a halted arm, or more than the arms behind it can give.
    """
    index = _index(arms, release)
    arm = arms[index]
    _refuse_halted(arm)
    if _share(share_bp) < arm.share_bp:
        raise InputError(
            f"release {release} has {percent(arm.share_bp)} and cannot shrink to {percent(share_bp)}",
            hint="a share only grows; to take a release back: halt or rollback",
            expected=arm.share_bp,
            actual=share_bp,
        )
    behind = _taken(arms[index + 1 :], share_bp - arm.share_bp)
    return _checked((*arms[:index], replace(arm, share_bp=share_bp), *behind))


def complete(arms: Arms) -> Arms:
    """Give the first arm's release to every device but the holdout; all other arms are retired.

    Raises InputError when it is halted, or when no arm offers a release.
    """
    newest = arms[0]
    if newest.release is None:
        raise _nothing()
    return widen(arms, newest.release, sum(arm.share_bp for arm in arms if not arm.holdout))


def halt(arms: Arms, release: int) -> Arms:
    """Stop offering a release to devices that do not run it; those that do keep it. Twice is once."""
    index = _index(arms, release)
    return (*arms[:index], replace(arms[index], state="halted"), *arms[index + 1 :])


def resume(arms: Arms, release: int) -> Arms:
    """Undo `halt`. Twice is once."""
    index = _index(arms, release)
    return (*arms[:index], replace(arms[index], state="open"), *arms[index + 1 :])


def rollback(arms: Arms, release: int) -> Arms:
    """Offer an earlier release again in place of what came after it; its arm is open afterwards.

    When it has an arm, the arms in front of it are withdrawn and it takes their shares; else it takes the shares of
    all releases. A first release's remainder and the holdout keep what they have. Raises InputError when the
    release stands first already, or when nothing is released.
    """
    offered = [arm.release for arm in arms if arm.release is not None]
    if not offered:
        raise _nothing()
    if offered[0] == release:
        raise InputError(
            f"release {release} is the newest one already",
            hint="name an earlier release; to stop this one: halt",
            release=release,
        )
    withdrawn = offered[: offered.index(release) + 1] if release in offered else offered
    share = sum(arm.share_bp for arm in arms if arm.release in withdrawn)
    return _checked((Arm(release, share), *(arm for arm in arms if arm.release not in withdrawn)))


def hold_out(arms: Arms, share_bp: int) -> Arms:
    """Set the share of devices, the last buckets, that keep what they have whatever is released; 0 removes it.

    It grows by taking from the arms before it, nearest first, and shrinks by giving back to the nearest.
    Raises InputError for a share that leaves nothing.
    """
    if not 0 <= share_bp < WHOLE:
        raise InputError(f"a holdout is 0 % to under 100 %, not {percent(share_bp)}", actual=share_bp)
    rest = tuple(arm for arm in arms if not arm.holdout) or NOTHING
    growth = share_bp - (WHOLE - sum(arm.share_bp for arm in rest))
    if growth > 0:
        rest = _taken(rest[::-1], growth)[::-1]
    else:
        rest = (*rest[:-1], replace(rest[-1], share_bp=rest[-1].share_bp - growth))
    return _checked((*rest, *([Arm(None, share_bp, holdout=True)] if share_bp else [])))


def percent(share_bp: int) -> str:
    """A share for people: 1000 is `10 %`, 25 is `0.25 %`."""
    return f"{share_bp / 100:g} %"


def _taken(arms: Arms, share_bp: int) -> Arms:
    """What is left of `arms`, nearest first, after `share_bp` is taken from them; a holdout gives nothing."""
    left: list[Arm] = []
    for arm in arms:
        gives = 0 if arm.holdout else min(share_bp, arm.share_bp)
        share_bp -= gives
        if gives < arm.share_bp:
            left.append(replace(arm, share_bp=arm.share_bp - gives))
    if share_bp:
        raise InputError(
            f"the share is {percent(share_bp)} more than the other arms can give",
            hint="choose a smaller share, or a smaller holdout",
            actual=share_bp,
        )
    return tuple(left)


def _arm_of(arms: Arms, bucket: int) -> int:
    """The index of the arm whose interval of buckets holds this one."""
    ends = list(accumulate(arm.share_bp for arm in arms))
    return bisect_right(ends, bucket)


def _index(arms: Arms, release: int) -> int:
    for index, arm in enumerate(arms):
        if arm.release == release:
            return index
    offered = [str(arm.release) for arm in arms if arm.release is not None]
    raise InputError(
        f"release {release} is not being rolled out",
        hint=f"offered: {', '.join(offered)}" if offered else "start it with release start",
        release=release,
    )


def _share(share_bp: int) -> int:
    if not 1 <= share_bp <= WHOLE:
        raise InputError(f"a share is 0.01 % to 100 %, not {percent(share_bp)}", actual=share_bp)
    return share_bp


def _refuse_halted(arm: Arm) -> None:
    if arm.state == "halted":
        raise InputError(f"release {arm.release} is halted", hint="resume it first", release=arm.release)


def _nothing() -> InputError:
    return InputError("no release is being rolled out", hint="start one with release create")


def _checked(arms: Arms) -> Arms:
    check_arms(arms)
    return arms


def _reason(arms: Arms, bucket: int, first: int, index: int) -> str:
    """One sentence: the bucket, the arm it fell into, and what followed from it."""
    arm = arms[index]
    begin = sum(each.share_bp for each in arms[:first])
    where = f"bucket {bucket} is in [{begin}, {begin + arms[first].share_bp})"
    skipped = f"; release {arms[first].release} is halted and not active here" if index != first else ""
    if arm.release is None:
        return f"{where}{skipped}: {'held out, ' if arm.holdout else ''}keep what you have"
    kept = ", halted but active here" if arm.state == "halted" else ""
    return f"{where}{skipped}: release {arm.release}{kept}"
