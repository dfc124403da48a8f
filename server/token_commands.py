"""`ptdock token`: who may change this store over HTTP."""

from __future__ import annotations

from typing import Any

import click

from console import render
from console.app import App, pass_app
from console.verbs import Noun
from registry.access import SCOPES, Token


@click.group(cls=Noun)
def token() -> None:
    """Who may change this store over HTTP."""


@token.command()
@click.option("--scope", type=click.Choice(SCOPES), required=True, help="What it may do; admin may do all.")
@click.option("--name", required=True, help="How the audit log names it; never used again.")
@pass_app
def create(app: App, scope: str, name: str) -> None:
    """Make a token and print it, this once: the store keeps only its digest."""
    made = app.registry().tokens().create(name, scope)
    app.note("Keep it where no one else reads it; `ptdock token revoke` ends it.")
    app.answer({**_document(made.token), "token": made.text}, made.text)


@token.command("list")
@pass_app
def list_(app: App) -> None:
    """List the tokens, the revoked ones too."""
    found = app.registry().tokens().all()
    rows = [
        (
            each.name,
            each.scope,
            render.when(each.created),
            f"revoked {render.when(each.revoked)}" if each.revoked else "",
        )
        for each in found
    ]
    app.answer([_document(each) for each in found], render.table(("name", "scope", "created (UTC)", ""), rows))


@token.command()
@click.argument("name")
@pass_app
def revoke(app: App, name: str) -> None:
    """Let a token do nothing from now on."""
    done = app.registry().tokens().revoke(name)
    app.answer(_document(done), f"{render.clean(done.name)} is revoked")


def _document(each: Token) -> dict[str, Any]:
    return {
        "name": each.name,
        "id": each.id,
        "scope": each.scope,
        "created": each.created,
        "revoked": each.revoked,
    }
