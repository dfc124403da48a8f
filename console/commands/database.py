"""`ptdock db`: the database's schema."""

from __future__ import annotations

import os
from pathlib import Path

import click

from console import render
from console.app import App, pass_app
from console.options import PATH
from console.verbs import Noun
from registry.errors import IntegrityError


@click.group(cls=Noun)
def db() -> None:
    """The database: upgrade its schema, check it, copy it."""


@db.command()
@pass_app
def upgrade(app: App) -> None:
    """Bring the schema to this version's, in one transaction.

    Make a backup first; docs/operations.md tells of what else.
    """
    from registry import schema
    from registry.database import SCHEMA, Database

    database = Database.found(app.home, os.environ)
    before = schema.upgrade(database)
    done = f"{render.clean(database.name)} has schema {SCHEMA}"
    app.answer(
        {"database": database.name, "before": before, "schema": SCHEMA},
        f"{done}, as before" if before == SCHEMA else f"{done}, upgraded from {before}",
    )


@db.command()
@pass_app
@click.pass_context
def check(context: click.Context, app: App) -> None:
    """Compare the schema with what the migrations make, to the last trigger.

    Exit code 6 for another version's schema, 7 when something was changed or is damaged.
    """
    from registry import schema
    from registry.database import SCHEMA, Database

    database = Database.found(app.home, os.environ)
    faults = schema.check(database)
    lines = [f"{render.bad('changed')}  {render.clean(fault)}" for fault in faults]
    verdict = render.bad(render.plural(len(faults), "fault")) if faults else render.good("sound")
    app.answer(
        {"database": database.name, "schema": SCHEMA, "faults": list(faults)},
        "\n".join([*lines, f"{verdict}: {render.clean(database.name)}, schema {SCHEMA}"]),
    )
    if faults:
        context.exit(IntegrityError.exit_code)


@db.command()
@click.argument("file", type=PATH)
@pass_app
def backup(app: App, file: Path) -> None:
    """Copy an SQLite database to FILE, while it is in use.

    Copy the blobs after it, not before: then every blob that the copy names is among them.
    """
    from registry import schema
    from registry.database import Database

    database = Database.found(app.home, os.environ)
    schema.backup(database, file)
    size = file.stat().st_size
    app.answer(
        {"database": database.name, "file": str(file), "size": size},
        f"{render.clean(file)}: {render.size(size)}",
    )
