"""The audit log's arithmetic: each event carries the digest of the one before, so a changed history shows.

The chain starts at a digest of the registry's own identity and every manifest names its head, so events can be neither
edited nor removed nor rewritten as a whole without a manifest that a device holds disagreeing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from registry import canonical
from registry.digest import Digest


@dataclass(frozen=True, slots=True)
class Event:
    """One change: `at` in ISO 8601 (UTC), who, what, to which object, and the object's state before and after."""

    id: int
    at: str
    actor: str
    action: str
    subject: str
    before: Any
    after: Any
    prev: Digest

    def to_json(self) -> dict[str, Any]:
        """The event as the document that its digest covers."""
        return {
            "id": self.id,
            "at": self.at,
            "actor": self.actor,
            "action": self.action,
            "subject": self.subject,
            "before": self.before,
            "after": self.after,
            "prev": str(self.prev),
        }

    @property
    def digest(self) -> Digest:
        """SHA-256 of the event's canonical JSON, the link that the next event carries."""
        return Digest.of(canonical.dumps(self.to_json()))


def genesis(registry: str) -> Digest:
    """What the first event of the registry with this UUID carries as the digest before it."""
    return Digest.of(f"ptdock registry {registry}".encode())


def broken_links(start: Digest, events: Iterable[tuple[Event, Digest]]) -> Iterator[tuple[Event, str]]:
    """Each event, oldest first beside its recorded digest, at which the chain from `start` breaks, and why."""
    prev, number = start, 1
    for event, recorded in events:
        if event.id != number:
            yield event, f"event {number} is missing"
        elif event.prev != prev:
            yield event, f"event {event.id} follows {event.prev.short}, but the one before it is {prev.short}"
        if event.digest != recorded:
            yield event, f"event {event.id} was edited: recorded as {recorded.short}, reads {event.digest.short}"
        prev, number = recorded, event.id + 1
