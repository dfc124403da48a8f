"""`ptdock template`: hollow programs, one for each structure of adapters."""

from __future__ import annotations

from pathlib import Path

import click

from console import render
from console.app import App, pass_app
from console.options import COUNT, PATH, foundation_option
from console.templates import add_structure, template_document
from console.verbs import Noun
from registry.digest import Digest

COLUMNS = ("foundation", "structure", "context", "executorch", "program", "stored")


@click.group(cls=Noun)
def template() -> None:
    """Hollow programs, one for each structure of adapters."""


@template.command("list")
@foundation_option(required=False)
@pass_app
def list_(app: App, foundation: str | None) -> None:
    """List the templates of a foundation, or of all, oldest first."""
    registry = app.registry()
    named = registry.foundations() if foundation is None else [registry.foundation(foundation)]
    found = [template_document(each) for one in named for each in registry.templates(one.file.digest)]
    rows = [
        (
            Digest.parse(each["foundation"]).short,
            each["description"],
            each["context"],
            each["executorch"],
            render.size(each["size"]),
            render.size(each["hollow"]["size"]),
        )
        for each in found
    ]
    app.answer(found, render.table(COLUMNS, rows, right={2, 4, 5}))


@template.command()
@foundation_option()
@click.option("--structure", "spec", required=True, metavar="SPEC", help="Such as r16:all-linear or r8:q_proj,v_proj.")
@click.option("--context", type=COUNT, help="Positions; by default those of the base program.")
@click.option("--base", type=PATH, metavar="DIR", help="Where the checkpoint is now.")
@pass_app
def add(app: App, foundation: str, spec: str, context: int | None, base: Path | None) -> None:
    """Export a template ahead; its adapters then need no torch."""
    from exporter.linker import default_context

    registry = app.registry()
    found = registry.foundation(foundation)
    with app.progress() as progress:
        positions = context or default_context(registry, found)
        made = template_document(add_structure(registry, found, spec, positions, base, progress))
    app.answer(
        made,
        f"{render.good('template')} {made['description']}, context {made['context']}: "
        f"{render.size(made['hollow']['size'])} stored",
    )
