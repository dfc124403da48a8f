"""`ptdock adapter publish --batch FILE.jsonl`: many adapters in one go."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console import render
from console.app import App

if TYPE_CHECKING:
    from exporter.batch import Done
    from exporter.publish import PublishOptions

_SHOWN = 20  # adapters that people see; scripts get them all


def publish_many(app: App, file: Path, defaults: PublishOptions) -> None:
    """Publish what a batch file lists, and answer one summary."""
    from exporter.batch import publish_batch
    from exporter.batch_file import read_batch

    registry = app.registry()
    entries = read_batch(file, defaults)
    began = time.monotonic()
    with app.progress() as progress:
        done = [_document(each) for each in publish_batch(registry, entries, progress)]
    took = time.monotonic() - began
    counts = Counter(each["outcome"] for each in done)
    document = {
        "batch": str(file),
        **{outcome: counts[outcome] for outcome in ("version", "build", "unchanged")},
        "seconds": took,
        "per_second": len(done) / took,
        "adapters": done,
    }
    app.answer(document, _text(document))


def _document(done: Done) -> dict[str, Any]:
    name, _, version = done.ref.partition("@")
    return {
        "line": done.entry.line,
        "name": name,
        "version": version,
        "digest": str(done.program),
        "outcome": done.outcome,
        "warnings": list(done.warnings),
    }


def _text(document: dict[str, Any]) -> str:
    words = {"version": "published", "build": "built", "unchanged": "unchanged"}
    done = document["adapters"]
    rows = [(f"{each['name']}@{each['version']}", words[each["outcome"]], each["digest"]) for each in done]
    more = len(rows) - _SHOWN
    table = render.table(("adapter", "", "digest"), rows[:_SHOWN]) + (f"\nand {more} more" if more > 0 else "")
    warned = [each for each in done if each["warnings"]]
    warnings = render.findings([("warning", each["name"], each["warnings"][0], "") for each in warned[:_SHOWN]])
    counted = ", ".join(f"{document[outcome]} {word}" for outcome, word in words.items() if document[outcome])
    speed = f"{render.seconds(document['seconds'])}, {document['per_second']:.0f} a second"
    return "\n".join(part for part in (table, warnings, f"{render.good('done')}: {counted} in {speed}") if part)
