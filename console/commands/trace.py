"""`ptdock trace`: what something is, what it was made from, and who was ever offered it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console import documents, render
from console.app import App, pass_app
from console.templates import template_document
from console.verbs import Verb
from registry.digest import Digest
from registry.errors import NotFound

if TYPE_CHECKING:
    from registry.catalog.offers import Span
    from registry.service import Registry
    from registry.tracing import Origin, Trace

_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)


@click.command(cls=Verb)
@click.argument("ref", metavar="DIGEST|NAME|NAME@V|FILE")
@pass_app
def trace(app: App, ref: str) -> None:
    """Say what a digest, a version or a file is, and who was offered it.

    A name is an adapter's, for its newest version, or a foundation's. Also what it was made from, and every channel,
    release and manifest that ever offered it, with the dates.
    """
    registry = app.registry()
    found = registry.keeper().trace(_target(app, registry, ref))
    names = {digest: documents.names_of(registry.foundation_names(), digest) for digest in _foundations(found)}
    document = _document(registry, found, names)
    app.answer(document, _text(document))


def _target(app: App, registry: Registry, ref: str) -> str | Digest:
    """What the word means: a digest with or without `sha256:`, a file's content, a foundation's name, or a version."""
    if ref.startswith("sha256:"):
        return Digest.parse(ref)
    if _HEX.fullmatch(ref):
        return Digest(bytes.fromhex(ref))
    path = Path(ref)
    if path.is_file():
        with app.progress() as progress:
            progress.phase("hashing the file", path.stat().st_size)
            return Digest.of_file(path, progress.bytes)
    if "/" in ref or path.is_dir():
        raise NotFound(f"{ref}: no such file", hint="give a file, a digest, or NAME@VERSION")
    foundation = registry.foundation_names().get(ref)
    return foundation if foundation and ref not in registry.adapters() else ref


def _foundations(found: Trace) -> set[Digest]:
    return {origin.foundation.file.digest for origin in found.origins if origin.foundation}


def _document(registry: Registry, found: Trace, names: Mapping[Digest, Sequence[str]]) -> dict[str, Any]:
    size = registry.blobs.size(found.digest) if found.digest else None
    return {
        "digest": str(found.digest) if found.digest else None,
        "size": size,
        "is": list(found.roles),
        "made_from": [_origin(origin, names) for origin in found.origins],
        "offered": [_span(span) for span in found.offers],
        "events": [{"at": event.at, "actor": event.actor, "action": event.action} for event in found.events],
    }


def _origin(origin: Origin, names: Mapping[Digest, Sequence[str]]) -> dict[str, Any]:
    """One origin; what it has none of is left out."""
    base, foundation, version, template = origin.base, origin.foundation, origin.version, origin.template
    document: dict[str, Any] = {}
    if version is not None and origin.source is not None:
        document |= documents.version(version)
        document["files"] = {name: file.to_json() for name, file in origin.source.files.items()}
    if origin.build is not None:
        document["build"] = documents.build(origin.build)
    if template is not None:
        document["template"] = template_document(template)
    if foundation is not None:
        document["foundation"] = documents.foundation(foundation, names[foundation.file.digest])
    document["base"] = {"fingerprint": str(base.fingerprint), "hint": base.hint}
    return document


def _span(span: Span) -> dict[str, Any]:
    return {
        "channel": span.channel,
        "release": span.release,
        "share_bp": span.share_bp,
        "state": span.state,
        "sequences": list(span.sequences),
        "since": _at(span.since),
        "until": None if span.until is None else _at(span.until),
        "expires": _at(span.expires),
    }


def _at(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _text(document: dict[str, Any]) -> str:
    head = [
        ("digest", document["digest"]),
        ("size", None if document["size"] is None else render.size(document["size"])),
    ]
    parts = [render.fields([("is", role) for role in document["is"]] + head)]
    parts += [render.fields(_origin_fields(origin)) for origin in document["made_from"]]
    rows = [
        (span["channel"], span["release"], _percent(span), _range(span["sequences"]), *_dates(span))
        for span in document["offered"]
    ]
    offered = render.table(
        ("channel", "release", "share", "manifests", "since (UTC)", "until (UTC)"), rows, right={1, 2}
    )
    parts.append(offered or render.dim("no channel ever offered it"))
    events = [(render.when(event["at"]), event["actor"], event["action"]) for event in document["events"]]
    parts.append(render.table(("at (UTC)", "who", "did"), events))
    return "\n\n".join(part for part in parts if part)


def _origin_fields(origin: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """What a person wants to know of one origin."""
    if "version" in origin:
        yield "version", f"{origin['name']}@{origin['version']}"
        yield "source", origin["source"]
        yield from ((key, value) for key, value in origin["lineage"].items())
    if "build" in origin:
        yield "build", origin["build"]["digest"]
    if "template" in origin:
        made = origin["template"]
        yield "template", f"{made['description']}, context {made['context']}, ExecuTorch {made['executorch']}"
    if "foundation" in origin:
        made = origin["foundation"]
        yield "foundation", f"{', '.join(made['names']) or '(no name)'} {made['digest']}"
        recipe = made["recipe"]
        yield "recipe", ", ".join(f"{key} {value}" for key, value in sorted(recipe.items()) if isinstance(value, str))
    yield "base", f"{origin['base']['fingerprint']} ({origin['base']['hint']})"


def _percent(span: dict[str, Any]) -> str:
    share = f"{span['share_bp'] / 100:g} %"
    return share if span["state"] == "open" else f"{share} {span['state']}"


def _range(sequences: Sequence[int]) -> str:
    first, last = sequences
    return str(first) if first == last else f"{first} to {last}"


def _dates(span: dict[str, Any]) -> tuple[str, str]:
    return render.when(span["since"]), render.when(span["until"]) if span["until"] else "now"
