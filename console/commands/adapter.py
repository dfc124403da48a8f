"""`ptdock adapter`: list, unpack and withdraw what was published.

`gate` has check and publish, `prove` prove, `compare` show and diff, `care` verify.
"""

from __future__ import annotations

from pathlib import Path

import click

from console import documents, render
from console.app import App, pass_app
from console.commands import care, compare, gate, lifting, prove
from console.options import directory_option, foundation_option
from console.verbs import Noun
from registry.names import parse_reference


@click.group(cls=Noun)
def adapter() -> None:
    """Check, publish, show and withdraw adapters."""


adapter.add_command(gate.check)
adapter.add_command(gate.publish)
adapter.add_command(prove.prove)
adapter.add_command(compare.show)
adapter.add_command(compare.diff)
adapter.add_command(care.verify)
adapter.add_command(lifting.rebase)


@adapter.command("list")
@click.argument("name", required=False)
@pass_app
def list_(app: App, name: str | None) -> None:
    """List the adapters, or one adapter's versions."""
    registry = app.registry()
    names = [name] if name is not None else registry.adapters()
    found = [version for each in names for version in registry.versions(each)]
    rows = [
        (each.adapter, each.version, render.when(each.created), f"yanked: {each.yanked}" if each.yanked else "")
        for each in found
    ]
    app.answer(
        [documents.version(each) for each in found], render.table(("adapter", "version", "published (UTC)", ""), rows)
    )


@adapter.command()
@click.argument("ref", metavar="NAME[@V]")
@directory_option("Where to write the files.")
@foundation_option(required=False)
@click.option("--force", is_flag=True, help="Overwrite files that have other content.")
@pass_app
def unpack(app: App, ref: str, directory: Path, foundation: str | None, force: bool) -> None:
    """Write a version as plain files: .ptd, .pte, tokenizer.

    Any ExecuTorch app can load them. Files with other content are not overwritten without --force.
    """
    from console.plain import contents, put, written_text

    registry = app.registry()
    build = registry.build(ref, foundation)
    listed = put(app, registry, contents(registry, build, foundation), directory, force=force)
    document = {"name": build.adapter, "version": build.version, "directory": str(directory), "files": listed}
    app.answer(document, written_text(listed))


@adapter.command()
@click.argument("ref", metavar="NAME@V")
@click.option("--reason", required=True, help="Why, for the log and for whoever asks.")
@pass_app
def yank(app: App, ref: str, reason: str) -> None:
    """Keep a version out of new releases; live ones keep it."""
    parse_reference(ref)
    found = app.registry().yank(ref, reason)
    app.answer(documents.version(found), f"yanked {render.bold(ref)}: no new release may take it")


@adapter.command()
@click.argument("ref", metavar="NAME@V")
@pass_app
def unyank(app: App, ref: str) -> None:
    """Let new releases take a version again."""
    parse_reference(ref)
    found = app.registry().unyank(ref)
    app.answer(documents.version(found), f"{render.bold(ref)} may be released again")


@adapter.command()
@click.argument("ref", metavar="NAME@V")
@click.option("--reason", required=True, help="Why, for the log and for whoever asks.")
@foundation_option(required=False)
@pass_app
def revoke(app: App, ref: str, reason: str, foundation: str | None) -> None:
    """Take a version away from devices at their next sync."""
    parse_reference(ref)
    registry = app.registry()
    version = registry.version(ref)
    gone = registry.revoke(ref, reason, foundation)
    others = sorted({f"{each.adapter}@{each.version}" for each in gone} - {f"{version.adapter}@{version.version}"})
    text = f"revoked {render.bold(ref)} ({render.plural(len(gone), 'build')}): devices deactivate it at their next sync"
    same = f"\nrevoked with it, as the same program: {', '.join(others)}" if others else ""
    app.answer({"ref": ref, "reason": reason, "builds": documents.builds(gone), "same_program": others}, text + same)
