"""Long answers, item by item: one JSON document all the same, in the memory of one item."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import click

from console.app import App, colour


def stream(app: App, head: Mapping[str, Any], name: str, items: Iterable[tuple[Mapping[str, Any], str]]) -> None:
    """Answer `head` with the list `name` of documents behind it; or, for people, only each item's line."""
    if not app.json:
        for _, line in items:
            click.echo(line, color=colour())
        return
    opening = json.dumps(dict(head), indent=2, ensure_ascii=False, default=str).removesuffix("}").rstrip()
    click.echo(f'{opening}{"," if head else ""}\n  "{name}": [', nl=False)
    comma = ""
    for document, _ in items:
        click.echo(f"{comma}\n    {json.dumps(document, ensure_ascii=False, default=str)}", nl=False)
        comma = ","
    click.echo("\n  ]\n}")
