"""Proof of a build: the published files in ExecuTorch's runtime against PEFT on the base. Torch comes with it.

proven = prove_build(registry, registry.build("pirate@1.2.0"), ProofOptions(probes=asked))
proven.figures.error                   # the largest difference of a logit

A build that is off the reference, or no different from the plain base, is refused with both figures. What is kept is
a document of probes and figures, and of a text model a self-test that devices replay after each install. Text models
are proven by exporter.text_proof, a factory's modules by exporter.module_proof.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, cast

from exporter.base import Checkpoint
from exporter.candidate import Candidate, Evidence, ProofOptions
from exporter.figures import Distances, Figures
from exporter.module_export import ModuleSource
from exporter.module_proof import ModuleBench
from exporter.quiet import quiet
from exporter.sources import Progress, no_progress, open_source, recipe_for
from exporter.stored import laid_out
from exporter.text_proof import TextBench
from registry import canonical
from registry.artifacts import Build, Proof
from registry.blobs import check_stored
from registry.digest import Descriptor, Digest
from registry.service import Registry

LIBRARIES = ("executorch", "torch", "transformers", "peft")


@dataclass(frozen=True, slots=True)
class Proven:
    """A proof that succeeded, its documents in the store; `first_layers` only for a deep quantized model.

    `self_test` is None for a module that is no text model.
    """

    figures: Distances
    first_layers: Figures | None
    document: Descriptor
    self_test: Descriptor | None


def prove_build(
    registry: Registry, build: Build, options: ProofOptions, progress: Progress = no_progress
) -> tuple[Proven, Proof]:
    """Prove a recorded build from its stored source, and record the proof. Raises what `prove` raises."""
    of = registry.version(f"{build.adapter}@{build.version}")
    _check_whole(registry, registry.source(of).files.values())
    with laid_out(registry, of) as (directory, gate):
        candidate = Candidate(
            name=f"{build.adapter}@{build.version}",
            foundation=registry.foundation(build.foundation),
            template=registry.template_of(build),
            program=build.file,
            factors=build.factors,
            directory=directory,
            gate=gate,
            prompt=build.parts.get("prompt"),
        )
        proven = prove(registry, candidate, options, progress)
    return proven, registry.add_proof(build, proven.document, proven.self_test)


def prove(registry: Registry, candidate: Candidate, options: ProofOptions, progress: Progress = no_progress) -> Proven:
    """Run a program that is in the store against the reference, and put the proof's documents into the store.

    Raises ProofFailed with the figures, NotFound or IntegrityError for lost or damaged files, with Conflict for the
    checkpoint, InputError, IntegrityError or Conflict for a factory that is gone or has changed.
    """
    recipe = recipe_for(registry, candidate.foundation)
    _check_whole(registry, (candidate.program, candidate.foundation.file))
    with open_source(registry, candidate.foundation, options.base, progress) as source, quiet():
        if recipe.module:
            evidence = ModuleBench(registry, candidate, recipe, progress).prove(cast("ModuleSource", source))
        else:
            evidence = TextBench(registry, candidate, recipe, progress).prove(cast("Checkpoint", source), options)
    return _kept(registry, candidate, evidence)


def _check_whole(registry: Registry, files: Iterable[Descriptor]) -> None:
    """Raise IntegrityError for damaged files, NotFound for lost ones: nothing would be proven of what was published."""
    for file in files:
        check_stored(file.digest, Digest.of_file(registry.blobs.path(file.digest)))


def _kept(registry: Registry, candidate: Candidate, evidence: Evidence) -> Proven:
    put, test, first = registry.blobs.put_bytes, evidence.self_test, evidence.first_layers
    replayed = put(test.to_bytes()) if test else None
    document: dict[str, Any] = {
        "schema": 1,
        "build": str(candidate.program.digest),
        "foundation": str(candidate.foundation.file.digest),
        "libraries": {name: version(name) for name in LIBRARIES},
        "probes": list(evidence.probes),
        "figures": evidence.figures.to_json(),
        "allowed_error": evidence.allowed_error,
        "warnings": list(evidence.warnings),
        **({"self_test": replayed.to_json()} if replayed else {}),
        **evidence.more,
    }
    return Proven(evidence.figures, first, put(canonical.dumps(document)), replayed)


__all__ = ["Candidate", "ProofOptions", "Proven", "prove", "prove_build"]
