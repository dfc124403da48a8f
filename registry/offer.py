"""What one channel offers one device: the arm, the lines it can run, the adapters it would install, and why.

The answer is an `Offer`: the set that the device goes on running when it takes nothing (its active one, without
revoked builds), and the sets that it may switch to, best first. Whether they fit the disk is for `plan` to say.
Nothing here reads a clock, a file or a network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from registry.device_state import ActiveSet, ChannelState, DeviceState
from registry.digest import Digest
from registry.errors import FormatError, NotFound
from registry.manifest import Manifest
from registry.release import AdapterEntry, Line, ReleaseDocument, Requires
from registry.rollout import Choice, bucket, choose

Level = Literal["note", "warning", "refused"]
Say = Callable[[Level, str, str], None]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a plan is what it is: a stable `code` for programs, a sentence for people."""

    channel: str
    level: Level
    code: str
    text: str

    def to_json(self) -> dict[str, str]:
        """As it stands in the plan's document."""
        return {"channel": self.channel, "level": self.level, "code": self.code, "text": self.text}


class View(NamedTuple):
    """What every channel's offer is judged by.

    `held` maps the raw digests in the device's store to sizes; `revoked` are raw digests; `root` is the version of
    the root of trust that verified the manifests.
    """

    device: DeviceState
    held: Mapping[bytes, int]
    revoked: frozenset[bytes]
    root: int
    now: int


@dataclass(frozen=True, slots=True)
class Offer:
    """One channel's answer: `current` goes on when no candidate is taken; `candidates` are in order of preference."""

    channel: str
    current: ActiveSet | None
    candidates: tuple[ActiveSet, ...]
    reasons: tuple[Reason, ...]


def stale(manifest: Manifest, state: ChannelState | None, root: int, now: int) -> tuple[str, str] | None:
    """Why a manifest may change nothing on the device, as a code and a sentence; None when it may."""
    if state and state.registry != manifest.registry:
        return "another-registry", f"registry {manifest.registry}, but this channel followed {state.registry}"
    if state and (root, manifest.sequence) < (state.root, state.sequence):
        seen = f"sequence {state.sequence} under root {state.root} was seen already"
        return "older", f"sequence {manifest.sequence} under root {root} is older: {seen}"
    if now > manifest.expires:
        return "expired", f"the manifest expired at {manifest.expires}, now is {now}; the running set stays"
    return None


def chosen(manifest: Manifest, device: DeviceState) -> Choice:
    """The release that the manifest's arms offer this device."""
    state = device.channels.get(manifest.channel)
    running = state.active.release if state and state.active else None
    return choose(manifest.arms, bucket(manifest.salt, device.id), running)


def offer(manifest: Manifest, releases: Mapping[Digest, ReleaseDocument], view: View) -> Offer:
    """What the manifest's channel offers the device. Raises NotFound for a release document that is not given."""
    channel = manifest.channel
    state = view.device.channels.get(channel)
    active = state.active if state else None
    problem = stale(manifest, state, view.root, view.now)
    if problem:
        return Offer(channel, active, (), (Reason(channel, "refused", *problem),))
    reasons: list[Reason] = []

    def say(level: Level, code: str, text: str) -> None:
        reasons.append(Reason(channel, level, code, text))

    current = _without_revoked(active, state, view, say) if active else None
    candidates = _candidates(manifest, releases, state, view, say)
    return Offer(channel, current, candidates, tuple(reasons))


def _candidates(
    manifest: Manifest,
    releases: Mapping[Digest, ReleaseDocument],
    state: ChannelState | None,
    view: View,
    say: Say,
) -> tuple[ActiveSet, ...]:
    choice = chosen(manifest, view.device)
    say("note", "arm", choice.reason)
    if choice.release is None:
        return ()
    pin = manifest.pin(choice.release)
    if state and pin.file.digest in state.refused:
        say("warning", "went-back", f"release {choice.release}: this device went back from it")
        return ()
    document = releases.get(pin.file.digest)
    if document is None:
        raise NotFound(f"release {choice.release} ({pin.file.digest.short}) is not here", digest=str(pin.file.digest))
    if document.release != choice.release:
        raise FormatError(f"the manifest pins release {choice.release}, its document says {document.release}")
    lines = _runnable(document, view.device, say)
    return tuple(
        ActiveSet(document.release, pin.file, _installable(line, state, view, say if index == 0 else _quiet))
        for index, line in enumerate(lines)
    )


def _runnable(document: ReleaseDocument, device: DeviceState, say: Say) -> list[Line]:
    """The lines whose requirements the device meets, in order."""
    found = []
    for line in document.lines:
        problems = list(unmet(line.requires, device))
        for code, text in problems:
            say("note", code, f"foundation {line.foundation.file.digest.short}: {text}")
        if not problems:
            found.append(line)
    if not found:
        say("refused", "no-line", f"release {document.release}: this device meets no line's requirements")
    return found


def unmet(requires: Requires, device: DeviceState) -> Iterable[tuple[str, str]]:
    """Each requirement that the device is known not to meet, as a code and a sentence."""
    runtime = device.runtime
    if runtime and runtime < requires.minimum:
        yield "runtime-too-old", f"needs ExecuTorch {_dotted(requires.minimum)}, the app has {device.executorch}"
    missing = _lacking(requires.backends, device.backends)
    if missing:
        yield "backend-missing", f"needs the backend {', '.join(missing)}"
    missing = _lacking(requires.operators, device.operators)
    if missing:
        yield "operator-missing", f"needs the operator {', '.join(missing)}"
    if requires.ram_bytes and device.ram_bytes is not None and device.ram_bytes < requires.ram_bytes:
        yield "ram", f"needs {requires.ram_bytes} bytes of RAM, the device has {device.ram_bytes}"
    build = requires.app.get(device.app.platform, 0) if device.app else 0
    if device.app and device.app.build < build:
        yield "app-build", f"needs build {build} of the {device.app.platform} app, this is {device.app.build}"


def beyond_guarantee(requires: Requires, device: DeviceState) -> str | None:
    """The warning for a runtime that is newer than ExecuTorch guarantees for these programs."""
    runtime = device.runtime
    if runtime is None or runtime <= requires.guaranteed:
        return None
    return (
        f"beyond ExecuTorch's guarantee: the programs are guaranteed up to {_dotted(requires.guaranteed)}, "
        f"the app has {device.executorch}"
    )


def _installable(line: Line, state: ChannelState | None, view: View, say: Say) -> Line:
    """The line with the adapters that this device would install now."""
    device = view.device
    if device.wants is None and not view.revoked and all(entry.delivery == "prefetch" for entry in line.adapters):
        return line  # the common case, thousands of times
    wants = None if device.wants is None else frozenset(device.wants)
    active = state.active if state else None
    used = {*device.on_demand, *(entry.name for entry in active.line.adapters)} if active else {*device.on_demand}
    waiting: list[str] = []
    taken: list[AdapterEntry] = []
    for entry in line.adapters:
        if wants is not None and entry.name not in wants:
            continue
        if entry.file.digest.raw in view.revoked:
            taken += _fallback(entry, line, state, view, say)
        elif entry.delivery == "on-demand" and entry.name not in used:
            waiting.append(entry.name)
        else:
            taken.append(entry)
    if waiting:
        say("note", "on-demand", f"fetched at first use: {', '.join(waiting)}")
    unknown = sorted(wants.difference(entry.name for entry in line.adapters)) if wants else []
    if unknown:
        say("warning", "not-offered", f"wanted, but not in the release: {', '.join(unknown)}")
    return replace(line, adapters=tuple(taken))


def _without_revoked(active: ActiveSet, state: ChannelState | None, view: View, say: Say) -> ActiveSet:
    """The active set with each revoked build replaced by the previous version's, or left out."""
    if not view.revoked or view.revoked.isdisjoint(entry.file.digest.raw for entry in active.line.adapters):
        return active
    kept: list[AdapterEntry] = []
    for entry in active.line.adapters:
        revoked = entry.file.digest.raw in view.revoked
        kept += _fallback(entry, active.line, state, view, say) if revoked else [entry]
    return replace(active, line=replace(active.line, adapters=tuple(kept)))


def _fallback(
    entry: AdapterEntry, line: Line, state: ChannelState | None, view: View, say: Say
) -> Sequence[AdapterEntry]:
    """A build that this device already ran in place of a revoked one: on the same foundation, held, not revoked."""
    name = f"{entry.name}@{entry.version}"
    for earlier in (state.active, state.previous) if state else ():
        other = (
            earlier.adapter(entry.name) if earlier and earlier.line.foundation.file == line.foundation.file else None
        )
        if other and other.file.digest.raw not in view.revoked and present(other, view):
            say("warning", "revoked", f"{name} is revoked: back to {other.version}")
            return [other]
    say("warning", "revoked", f"{name} is revoked: the base program answers instead")
    return []


def present(entry: AdapterEntry, view: View) -> bool:
    """Whether the device can run this build without a download: it holds the program, or all that makes it."""
    if entry.file.digest.raw in view.held:
        return True
    parts = entry.factors
    if parts is None or "factors" not in view.device.encodings:
        return False
    return all(each.digest.raw in view.held for each in parts.pins())


def _quiet(level: Level, code: str, text: str) -> None:
    """Say nothing: reasons about adapters are told once, for the preferred line."""


def _lacking(needed: Sequence[str], has: Sequence[str] | None) -> list[str]:
    return [] if has is None else [name for name in needed if name not in has]


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
