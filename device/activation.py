"""How a channel's state changes: pure steps from one state to the next, each stored by one rename.

A set that is switched away from stays as `previous`, for a rollback on the device; a build that is revoked leaves
both sets at once, whatever else happens.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from device.sets import Need, needs_of
from registry.device_state import ActiveSet, ChannelState
from registry.digest import Digest
from registry.errors import Conflict
from registry.manifest import Manifest


def accepted(before: ChannelState | None, manifest: Manifest, root: int) -> ChannelState:
    """The channel after a manifest was verified: older ones are refused from now on, revoked builds are gone.

    What the device went back from is remembered as long as the manifest still pins it.
    """
    state = before or ChannelState(manifest.registry, root, manifest.sequence, manifest.issued)
    pinned = {pin.file.digest for pin in manifest.releases}
    return replace(
        state,
        registry=manifest.registry,
        root=root,
        sequence=manifest.sequence,
        issued=max(state.issued, manifest.issued),
        active=without(state.active, manifest.revoked),
        previous=without(state.previous, manifest.revoked),
        refused=tuple(digest for digest in state.refused if digest in pinned),
    )


def switched(state: ChannelState, to: ActiveSet) -> ChannelState:
    """The channel with another set active; the one before stays at hand unless it is of the same release and line."""
    before = state.active
    same = before and (before.document, before.line.foundation) == (to.document, to.line.foundation)
    return replace(state, active=to, previous=state.previous if same or before is None else before)


def rolled_back(state: ChannelState, channel: str) -> tuple[ChannelState, ActiveSet]:
    """The channel with its previous set active, and that set; the release that it leaves is not taken again.

    Raises Conflict without a previous set.
    """
    if state.previous is None:
        raise Conflict(
            f"channel {channel} has no earlier set on this device", hint="a set is kept until the next but one"
        )
    left = refusing(state, state.active.document.digest) if state.active else state
    return replace(left, active=state.previous, previous=None), state.previous


def refusing(state: ChannelState, document: Digest) -> ChannelState:
    """The channel that never takes this release again, as long as the manifest pins it."""
    return replace(state, refused=(*(digest for digest in state.refused if digest != document), document))


def forgetting(state: ChannelState, gone: Collection[Digest]) -> ChannelState:
    """The channel without the sets that need a file which is `gone`, in every form that it has."""

    def whole(each: ActiveSet | None) -> ActiveSet | None:
        if each is None or not any(_lost(need, gone) for need in needs_of(each)):
            return each
        return None

    return replace(state, active=whole(state.active), previous=whole(state.previous))


def _lost(need: Need, gone: Collection[Digest]) -> bool:
    return all(any(blob.digest in gone for blob in form) for form in need.forms)


def without(active: ActiveSet | None, revoked: Collection[Digest]) -> ActiveSet | None:
    """A set without the builds that are revoked."""
    if active is None:
        return None
    kept = tuple(entry for entry in active.line.adapters if entry.file.digest not in revoked)
    return replace(active, line=replace(active.line, adapters=kept))
