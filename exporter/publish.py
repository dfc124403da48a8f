"""An adapter's way into the registry: check, fold, template, relink, link, publish. Torch-free.

    published = publish(registry, Path("runs/pirate"), PublishOptions(foundation="smollm2", name="pirate"))

Only a structure that no template exists for needs torch and the checkpoint; every further adapter of it is
written in milliseconds, byte-identical to its full export.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exporter import parts, tokenizer
from exporter.card import Card
from exporter.fold import Folded, fold
from exporter.foundation import add_template
from exporter.foundation_rows import FoundationRows
from exporter.peft.adapter import NormalizedAdapter
from exporter.peft.gate import Checked, check
from exporter.sources import Progress, no_progress
from exporter.structure import Structure
from registry import canonical
from registry.artifacts import Build, Foundation, PublishResult, Source, Template
from registry.digest import Descriptor, Digest
from registry.errors import Conflict, NotFound
from registry.formats.pte import read_pte
from registry.links import check_inline, check_links
from registry.names import check_name, check_version
from registry.publishing import insisting
from registry.relink import relink, unpack
from registry.relocation import RelocationTable
from registry.service import Registry


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """What to publish as what. `foundation` is a name or digest; `version` None means the next patch.

    `context` None takes the foundation's newest base program's; `base` says where the checkpoint is now.
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
    from another source, Unavailable for an unknown structure where torch is missing.
    """
    check_name(options.name, what="adapter")
    if options.version is not None:
        check_version(options.version)
    foundation = registry.foundation(options.foundation)
    card = card_of(registry, foundation)
    progress("checking the adapter")
    checked = check(
        directory,
        card,
        allow_pickle=options.allow_pickle,
        adapter_name=options.adapter_name,
        initial=options.initial,
        base_fingerprint=options.base_fingerprint,
    )
    adapter = checked.accept()
    folded = fold(adapter, card, FoundationRows(registry, foundation))
    context = options.context or default_context(registry, foundation)
    known = len(registry.templates(foundation.file.digest))
    template = add_template(
        registry, foundation, folded.structure, card, context=context, base=options.base, progress=progress
    )
    progress("relinking")
    factors, program = make_program(registry, foundation, template, folded)
    parts_by_role = _parts(registry, foundation, template, adapter, folded)

    def record() -> PublishResult:
        put = registry.blobs.put_bytes
        return registry.publish(
            options.name,
            options.version,
            _store_source(registry, adapter),
            template=template,
            file=put(program),
            factors=put(factors),
            lineage={**adapter.lineage, **options.lineage},
            warnings=(*checked.warnings, *_dead(registry, template)),
            parts={role: put(data) for role, data in parts_by_role.items()},
        )

    result = insisting(record)
    relinked = known == len(registry.templates(foundation.file.digest))
    return Published(result, template, folded.structure, checked, relinked)


def _parts(
    registry: Registry, foundation: Foundation, template: Template, adapter: NormalizedAdapter, folded: Folded
) -> dict[str, Descriptor]:
    table = RelocationTable.from_bytes(registry.blobs.read(template.table.digest))
    found = {}
    prompt = parts.own_prompt(registry.blobs, registry.base(foundation.base), adapter)
    if prompt is not None:
        found["prompt"] = prompt
    wire = parts.wire_form(table, adapter, folded)
    if wire is not None:
        found["wire"], found["wire_table"] = wire
    return found


def card_of(registry: Registry, foundation: Foundation) -> Card:
    """What the gate must know of a recorded foundation."""
    modules = canonical.loads(registry.blobs.read(foundation.modules.digest), what="module table")
    base = registry.base(foundation.base)
    table = canonical.loads(registry.blobs.read(base.tensors.digest), what="tensor table")
    structures = [Structure.from_json(template.structure) for template in registry.templates(foundation.file.digest)]
    described = tokenizer.describe(parts.base_files(registry.blobs, base))
    names = [name for name, digest in registry.foundation_names().items() if digest == foundation.file.digest]
    return Card.from_json(
        {
            **modules,
            "base": str(foundation.base),
            "foundation": str(foundation.file.digest),
            "name": names[0] if names else None,
            "tensors": {
                name: {"dtype": dtype, "shape": shape, "digest": digest} for name, dtype, shape, digest in table
            },
            "structures": [{"digest": str(s.digest), "text": s.describe()} for s in structures if s.modules],
            "quantization": foundation.recipe["quantization"],
            "tokenizer": None if described is None else described.to_json(),
        }
    )


def default_context(registry: Registry, foundation: Foundation) -> int:
    """The context length of the foundation's newest base program. Raises NotFound when there is none."""
    bases = [t for t in registry.templates(foundation.file.digest) if not t.structure["modules"]]
    if not bases:
        raise NotFound("this foundation has no base program", hint="ptdock foundation export DIR --name NAME")
    return bases[-1].context


def make_program(registry: Registry, foundation: Foundation, template: Template, folded: Folded) -> tuple[bytes, bytes]:
    """The factors blob and the `.pte`, its links checked against the foundation. Raises IntegrityError."""
    table = RelocationTable.from_bytes(registry.blobs.read(template.table.digest))
    hollow = unpack(registry.blobs.read(template.hollow.digest), template.program_size)
    factors = b"".join(folded.tensors[slot.names[0]].data for slot in table.slots)
    program = relink(hollow, table, factors)
    pte = read_pte(program)
    check_inline(pte, program)
    check_links(pte, foundation.tensors)
    return factors, program


def _dead(registry: Registry, template: Template) -> tuple[str, ...]:
    table = RelocationTable.from_bytes(registry.blobs.read(template.table.digest))
    return tuple(f"{name} has no effect: the program never uses it" for name in table.dead)


def _store_source(registry: Registry, adapter: NormalizedAdapter) -> Source:
    """Keep what was trained, exactly as the gate read it. Raises Conflict when a file changed in between."""
    for name, expected in (*adapter.source.items(), *adapter.attachments.items()):
        stored: Descriptor = registry.blobs.put_file(adapter.path(name))
        if stored != expected:
            raise Conflict(f"{name} changed while it was being published", hint="publish again", file=name)
    return Source(adapter.source, adapter.attachments)
