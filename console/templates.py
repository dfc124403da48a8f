"""Templates as the command line asks for them and shows them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console import documents, render

if TYPE_CHECKING:
    from registry.artifacts import Foundation, Template
    from registry.service import Registry


def describe(template: Template) -> str:
    """A template in one line."""
    from exporter.structure import Structure  # noqa: PLC0415 - most commands that import this show no template

    structure = Structure.from_json(template.structure).describe()
    size = render.size(template.program_size)
    return f"{structure}, context {template.context}, {size}, ExecuTorch {template.executorch}"


def template_document(template: Template) -> dict[str, Any]:
    """A template as JSON, its structure in words beside."""
    from exporter.structure import Structure  # noqa: PLC0415 - most commands that import this show no template

    return documents.template(template, Structure.from_json(template.structure).describe())


def check_structures(specs: Sequence[str], base: Path | None) -> None:
    """Refuse specs that an export of this checkpoint, or of any, would be in vain for. Raises InputError."""
    from exporter.base import open_base  # noqa: PLC0415 - as above
    from exporter.specs import check_spec, check_targets  # noqa: PLC0415

    for spec in specs:
        check_spec(spec)
    if specs and base is not None:
        with open_base(base)[1] as weights:
            for spec in specs:
                check_targets(spec, weights.names)


def add_structure(
    registry: Registry, found: Foundation, spec: str, context: int, base: Path | None, progress: Any
) -> Template:
    """Find or export the template that a spec such as `r8:q_proj,v_proj` means."""
    from exporter.linker import card_of  # noqa: PLC0415 - as above
    from exporter.specs import parse_spec  # noqa: PLC0415
    from exporter.templates import add_template  # noqa: PLC0415

    card = card_of(registry, found)
    return add_template(registry, found, parse_spec(spec, card), card, context=context, base=base, progress=progress)
