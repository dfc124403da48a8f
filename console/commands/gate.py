"""`ptdock adapter check` and `publish`: the ways through the gate."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console import documents, render
from console.app import App, pass_app
from console.commands.prove import probes_option, proof_lines, proof_of
from console.options import COUNT, FC, PATH, digest, foundation_option, out_options, read_lineage
from console.verbs import Verb
from registry.digest import Digest
from registry.errors import AdapterRefused
from registry.lineage import merged

if TYPE_CHECKING:
    from exporter.card import Card
    from exporter.foundation_rows import FoundationRows
    from exporter.publish import Published
    from registry.service import Registry


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


@click.command(cls=Verb)
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
    from exporter.checking import check_whole
    from exporter.peft.gate import check as check_adapter

    card, weights = _card(app, foundation)
    checked = check_adapter(
        directory,
        card,
        allow_pickle=allow_pickle,
        adapter_name=adapter_name,
        initial=initial,
        base_fingerprint=base_fingerprint,
    )
    document = check_whole(checked, card, weights).to_json(card)
    app.answer(document, _checked_text(document))
    if not document["accepted"]:
        context.exit(AdapterRefused.exit_code)


def _card(app: App, foundation: str) -> tuple[Card, FoundationRows | None]:
    """A card's file when there is one of that name, else what the store knows of that foundation, and its weights."""
    from exporter.card import Card
    from registry import canonical

    file = Path(foundation)
    if file.is_file():
        return Card.from_json(canonical.loads(file.read_bytes(), what=foundation)), None
    from exporter.foundation_rows import FoundationRows
    from exporter.linker import card_of

    registry = app.registry()
    found = registry.foundation(foundation)
    return card_of(registry, found), FoundationRows(registry, found)


def _checked_text(document: dict[str, Any]) -> str:
    rows = [(each["level"], each["subject"], each["message"], each["hint"]) for each in document["findings"]]
    findings = render.findings(rows)
    if not document["accepted"]:
        return f"{findings}\n{render.bad('refused')}"
    verdict = f"{render.good('accepted')}: {document['structure']}; {_TEMPLATES[document['template']]}"
    return f"{findings}\n{verdict}" if findings else verdict


_TEMPLATES = {
    True: "its template exists",
    False: "the first of its structure: publish exports it",
    None: "publish sees whether its template exists: that takes the foundation's weights",
}


@click.command(cls=Verb)
@click.argument("directory", metavar="DIR", type=PATH, required=False)
@click.option("--batch", type=PATH, metavar="FILE", help="Publish many: a JSON object a line, with directory and name.")
@foundation_option(required=False)
@click.option("--name", help="The adapter's name.")
@click.option("--version", help="SemVer; by default the next patch.")
@click.option("--base", type=PATH, metavar="DIR", help="Where the checkpoint is now; only a new structure needs it.")
@click.option("--context", type=COUNT, help="Positions; by default those of the base program.")
@click.option("--meta", multiple=True, metavar="KEY=VALUE|FILE", help="Where it comes from: pairs or JSON files.")
@click.option("--prove", is_flag=True, help="Run the files against transformers and PEFT first; record only if right.")
@probes_option
@out_options
@click.option("--server", metavar="URL", help="Publish to the store of that `ptdock serve` instead of one here.")
@click.option("--token-file", type=PATH, metavar="FILE", help="For --server; by default PTDOCK_TOKEN holds the token.")
@gate_options
@pass_app
def publish(
    app: App,
    directory: Path | None,
    batch: Path | None,
    foundation: str | None,
    name: str | None,
    version: str | None,
    base: Path | None,
    context: int | None,
    meta: tuple[str, ...],
    prove: bool,
    probes: Path | None,
    out: Path | None,
    force: bool,
    server: str | None,
    token_file: Path | None,
    adapter_name: str | None,
    initial: Path | None,
    allow_pickle: bool,
    base_fingerprint: Digest | None,
) -> None:
    """Check the adapter in DIR, make its .pte, record both.

    With --batch many at once: all are checked before the first is written; what is published already is passed over.
    """
    if batch is not None:
        one = {"DIR": directory, "--name": name, "--version": version, "--prove": prove, "--probes": probes}
        only = {"--server": server, "--adapter-name": adapter_name, "--initial": initial, "--out": out}
        _refuse_beside_batch({**one, **only, "--base-fingerprint": base_fingerprint})
        publish_listed(app, batch, foundation, base, context, read_lineage(meta), allow_pickle=allow_pickle)
        return
    if directory is None or name is None or foundation is None:
        needed = {"DIR": directory, "--foundation": foundation, "--name": name}
        missing = ", ".join(word for word, value in needed.items() if value is None)
        raise click.UsageError(f"{missing} missing: give DIR, --foundation and --name, or --batch FILE")
    if force and out is None:
        raise click.UsageError("--force is for plain files: say where, --out DIR")
    if server is not None:
        local = {"--base": base, "--prove": prove, "--probes": probes, "--initial": initial, "--out": out}
        _refuse_local({**local, "--allow-pickle": allow_pickle, "--base-fingerprint": base_fingerprint})
        asked = {"foundation": foundation, "version": version, "context": context, "adapter_name": adapter_name}
        given = {key: value for key, value in asked.items() if value is not None}
        document = _publish_there(app, server, token_file, name, directory, {**given, "lineage": read_lineage(meta)})
        app.answer(document, _published_text(document))
        return
    from console.plain import written_text
    from exporter.publish import PublishOptions
    from exporter.publish import publish as publish_adapter

    meant = read_lineage(meta)
    options = PublishOptions(
        foundation=foundation,
        name=name,
        version=version,
        context=context,
        base=base,
        lineage=meant,
        adapter_name=adapter_name,
        initial=initial,
        allow_pickle=allow_pickle,
        base_fingerprint=base_fingerprint,
        prove=prove or probes is not None,
        probes=probes,
    )
    registry = app.registry()
    began = time.monotonic()
    with app.progress() as progress:
        published = publish_adapter(registry, directory, options, progress)
    document = published_document(registry, published, time.monotonic() - began)
    written = _written(app, registry, published, foundation, out, force=force)
    text = _published_text(document)
    answered = {**document, "files": written}
    app.answer(answered, f"{text}\n{written_text(written)}" if written else text)
    if merged(document["lineage"], meant) != document["lineage"]:
        app.note("the version keeps the lineage that it was published with first: --meta changed nothing")


def _written(
    app: App, registry: Registry, published: Published, foundation: str, out: Path | None, *, force: bool
) -> list[dict[str, Any]]:
    """The pair of --out; none without it."""
    from console.plain import contents, put

    if out is None:
        return []
    return put(app, registry, contents(registry, published.build, foundation), out, force=force)


def publish_listed(
    app: App,
    batch: Path,
    foundation: str | None,
    base: Path | None,
    context: int | None,
    lineage: dict[str, Any],
    *,
    allow_pickle: bool,
) -> None:
    """Publish what a file lists; what its lines leave out is as given here."""
    from console.commands.many import publish_many
    from exporter.publish import PublishOptions

    defaults = PublishOptions(
        foundation=foundation or "", name="", base=base, context=context, lineage=lineage, allow_pickle=allow_pickle
    )
    publish_many(app, batch, defaults)


def _refuse_beside_batch(options: dict[str, Any]) -> None:
    given = [name for name, value in options.items() if value]
    if given:
        raise click.UsageError(f"{', '.join(given)}: not with --batch, whose lines say it for each adapter")


def _refuse_local(options: dict[str, Any]) -> None:
    given = [name for name, value in options.items() if value]
    if given:
        raise click.UsageError(f"{', '.join(given)}: not with --server, which has only the files that are sent")


def _publish_there(
    app: App, server: str, token_file: Path | None, name: str, directory: Path, options: dict[str, Any]
) -> dict[str, Any]:
    """Send the adapter to a server, which does there what `publish` does here."""
    from console.remote import Server
    from console.secrets import token

    with app.progress() as progress:
        progress(f"publishing to {server}")
        return Server(server, token(token_file)).publish(name, directory, options)


def published_document(registry: Registry, published: Published, took: float) -> dict[str, Any]:
    """What a publish recorded; `took` is seconds. schemas/publish.json describes it."""
    return {
        **documents.version(published.result.version),
        **documents.build(published.build),
        "outcome": published.result.outcome,
        "structure": published.structure.describe(),
        "relinked": published.relinked,
        "proof": proof_of(registry, published.build),
        "findings": [finding.to_json() for finding in published.findings.findings],
        "seconds": took,
    }


def _published_text(document: dict[str, Any]) -> str:
    words = {"version": "published", "build": "built", "unchanged": "was published already:"}
    how = "relinked" if document["relinked"] else "exported (the first of its structure and context)"
    made = how if document["outcome"] != "unchanged" else None
    ref = render.good(f"{document['name']}@{document['version']}")
    head = f"{ref} {words[document['outcome']]} {document['digest']}"
    lines = render.fields(
        [
            ("size", render.size(document["size"])),
            ("structure", document["structure"]),
            ("made", f"{made} in {render.seconds(document['seconds'])}" if made else None),
            ("foundation", document["foundation"]),
            *proof_lines(document["proof"]),
        ]
    )
    warnings = render.findings([("warning", document["name"], text, "") for text in document["warnings"]])
    return "\n".join(part for part in (head, lines, warnings) if part)
