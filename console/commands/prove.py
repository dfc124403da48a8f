"""`ptdock adapter prove`, and how a proof is shown wherever a build is."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console import documents, render
from console.app import App, pass_app
from console.options import FC, PATH, foundation_option
from console.verbs import Verb
from registry import canonical

if TYPE_CHECKING:
    from registry.artifacts import Build, Proof
    from registry.service import Registry


def probes_option(command: FC) -> FC:
    """--probes: a user's prompts."""
    option = click.option(
        "--probes", type=PATH, metavar="FILE", help='Prompts: one {"prompt": …, "completion": …} a line.'
    )
    return option(command)


@click.command(cls=Verb)
@click.argument("refs", metavar="NAME[@V]…", nargs=-1, required=True)
@foundation_option(required=False)
@click.option("--base", type=PATH, metavar="DIR", help="Where the checkpoint is now.")
@probes_option
@pass_app
def prove(app: App, refs: tuple[str, ...], foundation: str | None, base: Path | None, probes: Path | None) -> None:
    """Run builds' files against transformers and PEFT, or against the factory's module with PEFT.

    Refused when one is off that reference, or no different from the plain base; those before it are proven. Releases of
    text models then carry a self-test that devices replay.
    """
    from exporter.asking import asked_of
    from exporter.sources import load_prover

    registry = app.registry()
    builds = [registry.build(ref, foundation) for ref in refs]
    asked = [asked_of(registry, build, probes) for build in builds]
    answers = []
    with app.progress() as progress:
        proof = load_prover("adapter prove", progress)
        for build, questions in zip(builds, asked, strict=True):
            began = time.monotonic()
            _, kept = proof.prove_build(registry, build, proof.ProofOptions(questions, base), progress)
            proven = {"proof": proof_document(registry, kept), "seconds": time.monotonic() - began}
            answers.append({**documents.build(build), **proven})
    text = "\n".join(_proven_text(each) for each in answers)
    app.answer(answers if len(refs) > 1 else answers[0], text)


def _proven_text(document: Mapping[str, Any]) -> str:
    head = f"{render.good('proven')}: {document['name']}@{document['version']} {document['digest']}"
    warnings = render.findings([("warning", document["name"], each, "") for each in document["proof"]["warnings"]])
    lines = render.fields([*proof_lines(document["proof"]), ("took", render.seconds(document["seconds"]))])
    return "\n".join(part for part in (head, lines, warnings) if part)


def proof_of(registry: Registry, build: Build) -> dict[str, Any] | None:
    """A build's newest proof as JSON, None for an unproven one."""
    kept = registry.proof(build)
    return proof_document(registry, kept) if kept else None


def proof_document(registry: Registry, kept: Proof) -> dict[str, Any]:
    """A recorded proof as JSON: its figures, and where the whole document is."""
    document = canonical.loads(registry.blobs.read(kept.document.digest), what="proof")
    return {
        **kept.document.to_json(),
        "created": kept.created,
        "self_test": kept.self_test.to_json() if kept.self_test else None,
        "probes": len(document["probes"]),
        **{name: document[name] for name in ("figures", "allowed_error", "libraries", "warnings")},
        "first_layers": document.get("first_layers"),
    }


def proof_lines(proof: Mapping[str, Any] | None) -> list[tuple[str, str | None]]:
    """A proof for people, as fields."""
    if proof is None:
        return [("proof", None)]
    figures, libraries, first = proof["figures"], proof["libraries"], proof["first_layers"]
    judged = first or figures
    error = f"largest error {judged['max_error']:.2g}, {proof['allowed_error']:.2g} allowed"
    where = f" (first {first['layers']} layers)" if first else ""
    off, away = figures["distance_from_reference"], figures["distance_from_base"]
    return [
        ("proof", f"{error}{where}, {_asked(figures)} of {render.plural(proof['probes'], 'probe')}"),
        ("distance", f"{off:.2g} from PEFT, {away:.2g} from the plain base"),
        ("mean loss", _losses(figures)),
        ("proven by", f"executorch {libraries['executorch']}, peft {libraries['peft']}"),
    ]


def _asked(figures: Mapping[str, Any]) -> str:
    """On how much the figures stand: a text model's answers, or a module's outputs."""
    if "greedy_agreement" not in figures:
        return f"{figures['values']} values"
    return f"{figures['greedy_agreement']:.0%} of the answers agree; {figures['positions']} positions"


def _losses(figures: Mapping[str, Any]) -> str | None:
    if "loss_of_base" not in figures:
        return None
    return f"{figures['loss_with_adapter']:.3f}, of the plain base {figures['loss_of_base']:.3f}"
