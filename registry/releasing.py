"""How a release is recorded and a channel's manifest issued, inside the one transaction that moves the channel.

The document and the manifest are in the store before the rows that point at them are committed.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from registry import lookup, rollout
from registry.artifacts import Channel, Release
from registry.blobs import BlobStore
from registry.catalog import channels, content, log
from registry.catalog.log import Change
from registry.composing import Composed
from registry.digest import Descriptor
from registry.errors import Conflict
from registry.manifest import Manifest, ReleasePin
from registry.names import check_name


def new_salt() -> str:
    """A salt that nobody could know before: 32 hex digits."""
    return secrets.token_hex(16)


def record(change: Change, store: BlobStore, composed: Composed, offer: Mapping[str, Any] | None) -> Release:
    """Record a release under the next number; the event says which `offer` it is made for, if for any."""
    document = replace(composed.document, release=channels.next_number(change.session))
    file = store.put_bytes(document.to_bytes())
    content.require(change, store, [file, *document.blobs()])
    release = Release(document.release, file, composed.lines, change.at, document.holes)
    channels.insert_release(change, release)
    channels.insert_files(change, release.number, (pin.digest for pin in document.shared()))
    after = {"document": str(file.digest), "adapters": list(composed.refs), "offer": dict(offer) if offer else None}
    change.record("release.create", f"release {release.number}", after=after)
    return release


def draw_salt(change: Change, channel: Channel) -> Channel:
    """The channel with a new salt where one arm holds everything, so that nobody moves: others are first this time."""
    if len(channel.arms) > 1:
        return channel
    salt = new_salt()
    channels.update_channel(change, channel.name, salt=salt)
    return replace(channel, salt=salt)


def create_channel(change: Change, name: str, settings: Mapping[str, Any]) -> Channel:
    """Record a channel; a deleted one comes back with another salt and goes on with its sequence."""
    check_name(name, what="channel")
    if channels.channel(change.session, name) is not None:
        raise Conflict(f"channel {name!r} exists", hint="choose another name, or use it as it is")
    channels.insert_channel(change, name, new_salt(), settings)
    change.record("channel.create", f"channel {name}", after=dict(settings))
    return lookup.channel(change.session, name)


def delete_channel(change: Change, store: BlobStore, name: str) -> None:
    """Withdraw a channel; a last manifest tells devices to keep what they have."""
    channel = lookup.channel(change.session, name)
    change.record("channel.delete", f"channel {name}", before={"arms": [arm.to_json() for arm in channel.arms]})
    if channel.sequence:
        issue(change, store, channel, rollout.NOTHING)
    channels.update_channel(change, name, deleted_at=change.at)


def issue(
    change: Change, store: BlobStore, channel: Channel, arms: rollout.Arms, *, after: int = 0
) -> tuple[Channel, Descriptor]:
    """Write a channel's next manifest with these arms; from the commit on, it is the channel's state.

    The change's events are recorded before, so that the manifest names the log's head after them. Its sequence is above
    all of the channel's, and above `after`, for a store that was restored behind what it had published.
    """
    session = change.session
    offered = [arm.release for arm in arms if arm.release is not None]
    documents = channels.documents(session, offered)
    head = log.head(session)
    manifest = Manifest(
        registry=log.identity(session),
        channel=channel.name,
        sequence=max(channels.last_sequence(session, channel.name), after) + 1,
        issued=int(change.now),
        expires=int(change.now) + channel.settings["lifetime_seconds"],
        poll_seconds=channel.settings["poll_seconds"],
        salt=channel.salt,
        arms=arms,
        releases=tuple(ReleasePin(number, documents[number]) for number in offered),
        revoked=channels.revoked(session, channel.name, offered),
        log_head=head,
    )
    data = manifest.to_bytes()
    Manifest.from_bytes(data)  # what no device could read is never issued
    file = store.put_bytes(data)
    content.require(change, store, [file])
    channels.insert_manifest(change, manifest, file, head)
    return replace(channel, sequence=manifest.sequence, arms=arms), file
