"""What the log's events came to: every row that may change or go, by a name in words, and what stands in it now."""

from __future__ import annotations

from typing import Any

from registry.audit import Event


def follow(facts: dict[str, Any], event: Event) -> None:
    """Take one more event into the facts, oldest first; registry.catalog.records.facts has the rows in the same words.

    An event that was edited may say anything at all: the chain has said so, and then the facts differ too.
    """
    after = event.after if isinstance(event.after, dict) else {}
    if event.action == "channel.create":
        facts[event.subject] = event.after
    elif event.action == "channel.set":
        facts[event.subject] = after.get("settings")
    elif event.action == "channel.delete":
        facts[event.subject] = "deleted"
    elif event.action == "foundation.add":
        facts[f"foundation {event.subject}"] = after.get("base")
    elif event.action == "foundation.name":
        facts[f"foundation name {event.subject}"] = event.after
    elif event.action == "template.add":
        facts[f"template {event.subject} of {after.get('foundation')}, context {after.get('context')}"] = True
    elif event.action == "token.create":
        facts[event.subject] = after.get("scope")
    elif event.action == "token.revoke":
        facts[event.subject] = "revoked"
    elif event.action == "foundation.remove":
        _forget(facts, event.subject)


def moved(event: Event) -> str | None:
    """The channel whose manifest an event led to, which names that event as the log's head; None for other events."""
    after = event.after if isinstance(event.after, dict) else {}
    if event.action == "release.create":
        offer = after.get("offer")
        channel = offer.get("channel") if isinstance(offer, dict) else None
        return channel if isinstance(channel, str) else None
    moving = event.action.startswith("release.") or event.action in {"channel.advance", "channel.refresh"}
    return event.subject.removeprefix("channel ") if moving else None


def _forget(facts: dict[str, Any], foundation: str) -> None:
    """A foundation goes with its names and templates."""
    gone = [
        name
        for name, value in facts.items()
        if name == f"foundation {foundation}"
        or (name.startswith("template ") and f" of {foundation}," in name)
        or (name.startswith("foundation name ") and value == foundation)
    ]
    for name in gone:
        del facts[name]
