"""What the log's events came to: every row that is one of few, or may change or go, by a name in words, with fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from registry import canonical
from registry.audit import Event
from registry.catalog.retold import numbered
from registry.digest import Digest

Facts = dict[str, dict[str, Any]]


def follow(facts: Facts, event: Event) -> None:
    """Take one more event into the facts, oldest first; registry.catalog.retold.facts has the rows in the same words.

    An event that was edited may say anything at all: the chain has said so, and then the facts differ too.
    """
    rule = _RULES.get(event.action)
    if rule:
        rule(facts, event, event.after if isinstance(event.after, dict) else {})


def _create_channel(facts: Facts, event: Event, settings: Mapping[str, Any]) -> None:
    """A channel that was deleted comes back, and is as old as it was."""
    created = facts.get(event.subject, {}).get("created", event.at)
    facts[event.subject] = {"settings": dict(settings), "created": created, "deleted": None}


def _add_recipe(facts: Facts, event: Event, recipe: Mapping[str, Any]) -> None:
    name = f"recipe {Digest.of(canonical.dumps(recipe))} of foundation {event.subject}"
    facts[name] = {"created": event.at}


def _add_template(facts: Facts, event: Event, after: Mapping[str, Any]) -> None:
    name = numbered(facts, f"template {event.subject} of foundation {after.get('foundation')}")
    facts[name] = {**after, "created": event.at}


def _make(facts: Facts, name: str, event: Event, **fields: Any) -> None:
    facts[name] = {**fields, "created": event.at}


def _change(facts: Facts, name: str, **fields: Any) -> None:
    facts[name] = {**facts.get(name, {}), **fields}


def _forget(facts: Facts, foundation: str) -> None:
    """A foundation goes with its names, recipes and templates."""
    gone = [
        name
        for name, fields in facts.items()
        if name == f"foundation {foundation}"
        or f" of foundation {foundation}" in name
        or (name.startswith("foundation name ") and fields.get("foundation") == foundation)
    ]
    for name in gone:
        del facts[name]


_RULES: dict[str, Callable[[Facts, Event, dict[str, Any]], None]] = {
    "registry.init": lambda facts, event, _: _make(facts, "registry", event, uuid=event.subject),
    "base.add": lambda facts, event, after: _make(facts, f"base {event.subject}", event, **after),
    "base.update": lambda facts, event, after: _change(facts, f"base {event.subject}", **after),
    "foundation.add": lambda facts, event, after: _make(facts, f"foundation {event.subject}", event, **after),
    "foundation.recipe": _add_recipe,
    "foundation.name": lambda facts, event, _: facts.update(
        {f"foundation name {event.subject}": {"foundation": event.after}}
    ),
    "foundation.remove": lambda facts, event, _: _forget(facts, event.subject),
    "template.add": _add_template,
    "channel.create": _create_channel,
    "channel.set": lambda facts, event, after: _change(facts, event.subject, settings=after.get("settings")),
    "channel.delete": lambda facts, event, _: _change(facts, event.subject, deleted=event.at),
    "token.create": lambda facts, event, after: _make(facts, event.subject, event, **after, revoked=None),
    "token.revoke": lambda facts, event, _: _change(facts, event.subject, revoked=event.at),
}


def moved(event: Event) -> str | None:
    """The channel whose manifest an event led to, which names that event as the log's head; None for other events."""
    after = event.after if isinstance(event.after, dict) else {}
    if event.action == "release.create":
        offer = after.get("offer")
        channel = offer.get("channel") if isinstance(offer, dict) else None
        return channel if isinstance(channel, str) else None
    moving = event.action.startswith("release.") or event.action in {"channel.advance", "channel.refresh"}
    return event.subject.removeprefix("channel ") if moving else None


def differences(now: Mapping[str, Any] | None, told: Mapping[str, Any] | None) -> list[str]:
    """How a row differs from what the log tells of it, in words: only what is told is compared."""
    if now is None:
        return ["it is not there, the log tells of it"] if told is not None else []
    if told is None:
        return ["the log does not tell of it"]
    fields = (name for name in told if name in now and now[name] != told[name])
    return [f"its {_called(name)} {_shown(now[name])}, the log tells of {_shown(told[name])}" for name in fields]


def _called(field: str) -> str:
    called = {"created": "date", "deleted": "deletion", "revoked": "revocation"}.get(field, field.replace("_", " "))
    return f"{called} are" if called.endswith("s") else f"{called} is"


def _shown(value: Any) -> str:
    return "none" if value is None else canonical.dumps(value).decode()[:200]
