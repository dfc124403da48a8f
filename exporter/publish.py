"""An adapter's way into the registry: check, fold, template, relink, link, publish. Torch-free.

    published = publish(registry, Path("runs/pirate"), PublishOptions(foundation="smollm2", name="pirate"))

Only a structure that no template exists for needs torch and the checkpoint; every further adapter of it is
written in milliseconds, byte-identical to its full export.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter.asking import read_asked
from exporter.linker import Gate, Linked, Linker, default_context
from exporter.peft.adapter import NormalizedAdapter
from exporter.peft.gate import Checked
from exporter.probes import Probe
from exporter.sources import Progress, check_prover, load_prover, no_progress, recipe_for
from exporter.structure import Structure
from exporter.templates import add_template, find_template
from registry.artifacts import Build, PublishResult, Source, Template
from registry.digest import Digest
from registry.errors import Conflict
from registry.grouped import Group
from registry.lineage import check as check_lineage
from registry.lineage import merged
from registry.names import check_name, check_version
from registry.publishing import Publication, insisting
from registry.service import Registry

if TYPE_CHECKING:
    from exporter.proof import Proven


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """What to publish as what. `foundation` is a name or digest; `version` None means the next patch.

    `context` None takes the foundation's newest base program's; `base` says where the checkpoint is now. With `prove`
    nothing is recorded before the program was proven, on a user's `probes` if given (exporter.proof).
    """

    foundation: str
    name: str
    version: str | None = None
    context: int | None = None
    base: Path | None = None
    lineage: Mapping[str, Any] = field(default_factory=dict)
    allow_pickle: bool = False
    adapter_name: str | None = None
    initial: Path | None = None
    base_fingerprint: Digest | None = None
    prove: bool = False
    probes: Path | None = None

    @property
    def gate(self) -> Gate:
        """How the gate is to read the directory."""
        return Gate(self.allow_pickle, self.adapter_name, self.initial, self.base_fingerprint)

    def check(self) -> None:
        """Raise InputError for a name or a version that can never be recorded."""
        check_name(self.name, what="adapter")
        if self.version is not None:
            check_version(self.version)


@dataclass(frozen=True, slots=True)
class Published:
    """What a publish recorded. `relinked` is False when the structure had to be exported first."""

    result: PublishResult
    template: Template
    structure: Structure
    findings: Checked
    relinked: bool

    @property
    def build(self) -> Build:
        """The build that now stands in the registry."""
        return self.result.build


def publish(
    registry: Registry, directory: Path, options: PublishOptions, progress: Progress = no_progress
) -> Published:
    """Check the adapter in `directory`, make its `.pte` and record both. Publishing twice is publishing once.

    Raises AdapterRefused with all findings, NotFound for the foundation, Conflict for a version that was made
    from another source, ProofFailed, Unavailable for an unknown structure or a proof where torch is missing.
    """
    options.check()
    return publish_with(Linker(registry, registry.foundation(options.foundation)), directory, options, progress)


def publish_with(
    linker: Linker, directory: Path, options: PublishOptions, progress: Progress = no_progress
) -> Published:
    """`publish` on the linker's foundation, for one adapter after another."""
    registry, foundation = linker.registry, linker.foundation
    progress("checking the adapter")
    checked = linker.check(directory, options.gate)
    adapter = checked.accept()
    check_lineage(lineage_of(adapter, options))
    folded = linker.fold(adapter)
    context = options.context or default_context(registry, foundation)
    asked = _asked(linker, adapter, options, context)
    found = find_template(registry, foundation, folded.structure, context, recipe_for(registry, foundation))
    if found is None and options.version is not None:  # said now, not after the export
        source = Source(adapter.source, adapter.attachments).digest
        registry.keeper().standing(options.name, options.version, source, None)
    template = found or add_template(
        registry, foundation, folded.structure, linker.card, context=context, base=options.base, progress=progress
    )
    progress("relinking")
    linked = linker.link(template, adapter, folded)
    ready = Ready(adapter, linked, checked.warnings)
    proven = _prove(linker, options, template, ready, asked, progress) if options.prove else None
    result = insisting(lambda: _record(registry, options, template, ready))
    if proven is not None:
        registry.add_proof(result.build, proven.document, proven.self_test)
    return Published(result, template, folded.structure, checked, relinked=found is not None)


@dataclass(frozen=True, slots=True)
class Ready:
    """An adapter that can be recorded: what it was, what was made of it, what the gate warned of."""

    adapter: NormalizedAdapter
    linked: Linked
    warnings: tuple[str, ...]


def lineage_of(adapter: NormalizedAdapter, options: PublishOptions) -> dict[str, Any]:
    """What is kept of where it comes from: which of several adapters it was, too, to read its source again."""
    named = {} if options.adapter_name is None else {"adapter_name": options.adapter_name}
    return merged(adapter.lineage, options.lineage, named)


def _asked(linker: Linker, adapter: NormalizedAdapter, options: PublishOptions, context: int) -> tuple[Probe, ...]:
    """A user's probes, before a template is exported for them. Raises InputError, Unavailable without [prove]."""
    if options.prove:
        check_prover("adapter publish --prove")
    if options.probes is None:
        return ()
    return read_asked(linker.registry, linker.foundation, options.probes, context, linker.own_prompt(adapter))


def _prove(
    linker: Linker,
    options: PublishOptions,
    template: Template,
    ready: Ready,
    asked: tuple[Probe, ...],
    progress: Progress,
) -> Proven:
    """Prove the program as it will stand in the store."""
    proof, put = load_prover("adapter publish --prove", progress), linker.registry.blobs.put_bytes
    prompt = ready.linked.parts.get("prompt")
    candidate = proof.Candidate(
        name=options.name,
        foundation=linker.foundation,
        template=template,
        program=put(ready.linked.program),
        factors=put(ready.linked.factors),
        directory=ready.adapter.directory,
        gate=options.gate,
        prompt=put(prompt) if prompt else None,
    )
    proven: Proven = proof.prove(linker.registry, candidate, proof.ProofOptions(asked, options.base), progress)
    return proven


def publication(group: Group, options: PublishOptions, template: Template, ready: Ready) -> Publication:
    """Put everything that will be recorded into a group. Raises Conflict when a file changed since the gate read it."""
    put, linked, adapter = group.put_bytes, ready.linked, ready.adapter
    source = Source(adapter.source, adapter.attachments)
    for name, expected in (*source.files.items(), *source.attachments.items()):
        if group.put_file(adapter.path(name)) != expected:
            raise Conflict(f"{name} changed while it was being published", hint="publish again", file=name)
    put(source.to_bytes())
    factors = put(linked.factors)
    return Publication(
        options.name,
        options.version,
        source,
        template=template,
        file=put(linked.program),
        factors=factors,
        lineage=lineage_of(adapter, options),
        warnings=tuple(dict.fromkeys((*ready.warnings, *linked.warnings))),
        # What travels folded is the factors themselves, which need not be hashed again.
        parts={role: factors if data is linked.factors else put(data) for role, data in linked.parts.items()},
    )


def _record(registry: Registry, options: PublishOptions, template: Template, ready: Ready) -> PublishResult:
    """Put everything into the store, then record it in one transaction."""
    with registry.blobs.group() as group:
        new = publication(group, options, template, ready)
        group.settle()
    return registry.keeper().publish([new])[0]
