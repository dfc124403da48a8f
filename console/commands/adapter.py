"""`ptdock adapter`: check, publish, show, unpack and withdraw adapters."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console import documents, render
from console.app import App, pass_app
from console.options import COUNT, FC, PATH, digest, directory_option, foundation_option, read_lineage
from console.verbs import Noun
from registry.digest import Digest
from registry.errors import AdapterRefused, NotFound
from registry.names import parse_reference

if TYPE_CHECKING:
    from exporter.card import Card
    from exporter.peft.gate import Checked
    from exporter.publish import Published
    from registry.artifacts import Build


@click.group(cls=Noun)
def adapter() -> None:
    """Check, publish, show and withdraw adapters."""


def gate_options(command: FC) -> FC:
    """How the gate reads an adapter's directory."""
    options = (
        click.option("--adapter-name", metavar="NAME", help="Which of several adapters in the file."),
        click.option("--initial", type=PATH, metavar="DIR", help="The untrained adapter of PiSSA, OLoRA and the like."),
        click.option("--allow-pickle", is_flag=True, help="Read adapter_model.bin, weights only."),
        click.option("--base-fingerprint", metavar="DIGEST", callback=digest, help="The base that training saw."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@adapter.command()
@click.argument("directory", metavar="DIR", type=PATH)
@click.option("--foundation", required=True, metavar="NAME|CARD", help="A name, a digest, or a card's file.")
@gate_options
@pass_app
@click.pass_context
def check(
    context: click.Context,
    app: App,
    directory: Path,
    foundation: str,
    adapter_name: str | None,
    initial: Path | None,
    allow_pickle: bool,
    base_fingerprint: Digest | None,
) -> None:
    """Say all that is wrong with the adapter in DIR; write nothing.

    Exit code 4 when it would be refused.
    """
    from exporter.peft.gate import check as check_adapter

    card = _card(app, foundation)
    checked = check_adapter(
        directory,
        card,
        allow_pickle=allow_pickle,
        adapter_name=adapter_name,
        initial=initial,
        base_fingerprint=base_fingerprint,
    )
    document = _checked_document(checked, card)
    app.answer(document, _checked_text(checked, document))
    if not document["accepted"]:
        context.exit(AdapterRefused.exit_code)


def _card(app: App, foundation: str) -> Card:
    """A card's file when there is one of that name, else what the store knows of that foundation."""
    from exporter.card import Card
    from registry import canonical

    file = Path(foundation)
    if file.is_file():
        return Card.from_json(canonical.loads(file.read_bytes(), what=foundation))
    from exporter.publish import card_of

    registry = app.registry()
    return card_of(registry, registry.foundation(foundation))


def _checked_document(checked: Checked, card: Card) -> dict[str, Any]:
    structure = checked.adapter.structure if checked.adapter else None
    known = {each.digest for each in card.structures}
    return {
        "accepted": checked.adapter is not None,
        "foundation": str(card.foundation) if card.foundation else None,
        "findings": [finding.to_json() for finding in checked.findings],
        "structure": structure.describe() if structure else None,
        "template": structure.digest in known if structure else None,
    }


def _checked_text(checked: Checked, document: dict[str, Any]) -> str:
    findings = render.findings([(each.level, each.subject, each.message, each.hint) for each in checked.findings])
    if not document["accepted"]:
        return f"{findings}\n{render.bad('refused')}"
    template = "its template exists" if document["template"] else "the first of its structure: publish exports it"
    verdict = f"{render.good('accepted')}: {document['structure']}; {template}"
    return f"{findings}\n{verdict}" if findings else verdict


@adapter.command()
@click.argument("directory", metavar="DIR", type=PATH)
@foundation_option()
@click.option("--name", required=True, help="The adapter's name.")
@click.option("--version", help="SemVer; by default the next patch.")
@click.option("--base", type=PATH, metavar="DIR", help="Where the checkpoint is now; only a new structure needs it.")
@click.option("--context", type=COUNT, help="Positions; by default those of the base program.")
@click.option("--meta", multiple=True, metavar="KEY=VALUE|FILE", help="Where it comes from: pairs or JSON files.")
@gate_options
@pass_app
def publish(
    app: App,
    directory: Path,
    foundation: str,
    name: str,
    version: str | None,
    base: Path | None,
    context: int | None,
    meta: tuple[str, ...],
    adapter_name: str | None,
    initial: Path | None,
    allow_pickle: bool,
    base_fingerprint: Digest | None,
) -> None:
    """Check the adapter in DIR, make its .pte, record both."""
    from exporter.publish import PublishOptions
    from exporter.publish import publish as publish_adapter

    options = PublishOptions(
        foundation=foundation,
        name=name,
        version=version,
        context=context,
        base=base,
        lineage=read_lineage(meta),
        adapter_name=adapter_name,
        initial=initial,
        allow_pickle=allow_pickle,
        base_fingerprint=base_fingerprint,
    )
    registry = app.registry()
    began = time.monotonic()
    with app.progress() as progress:
        published = publish_adapter(registry, directory, options, progress)
    document = _published_document(published, time.monotonic() - began)
    app.answer(document, _published_text(published, document))


def _published_document(published: Published, took: float) -> dict[str, Any]:
    return {
        **documents.version(published.result.version),
        **documents.build(published.build),
        "outcome": published.result.outcome,
        "structure": published.structure.describe(),
        "relinked": published.relinked,
        "findings": [finding.to_json() for finding in published.findings.findings],
        "seconds": took,
    }


def _published_text(published: Published, document: dict[str, Any]) -> str:
    words = {"version": "published", "build": "built", "unchanged": "was published already:"}
    how = "relinked" if published.relinked else "exported (the first of its structure)"
    made = how if published.result.outcome != "unchanged" else None
    ref = render.good(f"{document['name']}@{document['version']}")
    head = f"{ref} {words[published.result.outcome]} {document['digest']}"
    lines = render.fields(
        [
            ("size", render.size(document["size"])),
            ("structure", document["structure"]),
            ("made", f"{made} in {render.seconds(document['seconds'])}" if made else None),
            ("foundation", document["foundation"]),
        ]
    )
    warnings = render.findings([("warning", document["name"], text, "") for text in document["warnings"]])
    return "\n".join(part for part in (head, lines, warnings) if part)


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
@foundation_option(required=False)
@pass_app
def show(app: App, ref: str, foundation: str | None) -> None:
    """Show a version: its build, its lineage, its warnings."""
    from exporter.structure import Structure

    registry = app.registry()
    version = registry.version(ref)
    exact = f"{version.adapter}@{version.version}"
    builds = registry.builds(exact)
    build = _newest(builds, registry.foundation(foundation).file.digest if foundation else None)
    source = registry.source(version)
    document = {
        **documents.version(version),
        **documents.build(build),
        "structure": Structure.from_json(registry.template_of(build).structure).describe(),
        "files": {name: file.to_json() for name, file in source.files.items()},
        "attachments": {name: file.to_json() for name, file in source.attachments.items()},
        "builds": documents.builds(builds),
    }
    app.answer(document, _version_text(document))


def _newest(builds: tuple[Build, ...], foundation: Digest | None) -> Build:
    """The newest build on a foundation, or on any; one that is revoked only where no other is left."""
    there = [build for build in builds if foundation in (None, build.foundation)]
    if not there:
        raise NotFound("this version has no build on that foundation", hint="publish it on that foundation first")
    return max(there, key=lambda build: (build.revoked is None, there.index(build)))


def _version_text(document: dict[str, Any]) -> str:
    lineage = [(key, value) for key, value in document["lineage"].items()]
    text = render.fields(
        [
            ("adapter", f"{document['name']}@{document['version']}"),
            ("digest", document["digest"]),
            ("size", render.size(document["size"])),
            ("structure", document["structure"]),
            ("foundation", document["foundation"]),
            ("source", document["source"]),
            ("published", f"{render.when(document['created'])} UTC"),
            ("yanked", document["yanked"]),
            ("revoked", document["revoked"]),
            ("builds", len(document["builds"])),
            *lineage,
        ]
    )
    warnings = render.findings([("warning", document["name"], each, "") for each in document["warnings"]])
    return f"{text}\n{warnings}" if warnings else text


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
    from console.plain import contents
    from console.plain import unpack as write_files

    registry = app.registry()
    build = registry.build(ref, foundation)
    wanted = contents(registry, build, foundation)
    with app.progress() as progress:
        progress.phase(f"writing into {directory}", sum(file.size for file in wanted.values()))
        done = write_files(registry, wanted, directory, force=force, progress=progress.bytes)
    listed = [{"file": str(each.path), **each.file.to_json(), "written": each.written} for each in done]
    rows = [
        (each.path, render.size(each.file.size), "written" if each.written else "was there already") for each in done
    ]
    document = {"name": build.adapter, "version": build.version, "directory": str(directory), "files": listed}
    app.answer(document, render.table(("file", "size", ""), rows, right={1}))


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
    gone = app.registry().revoke(ref, reason, foundation)
    app.answer(
        {"ref": ref, "reason": reason, "builds": documents.builds(gone)},
        f"revoked {render.bold(ref)} ({render.plural(len(gone), 'build')}): devices deactivate it at their next sync",
    )
