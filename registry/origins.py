"""What a blob is to the things that are recorded: which of them name it, and as what."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from registry.artifacts import Base, Build, Template, Version
from registry.catalog import adapters, foundations
from registry.digest import Digest


@dataclass(frozen=True, slots=True)
class Origins:
    """Everything that names one blob, each the oldest first.

    `builds` as their program, factors or a part; `versions` as their source list, a source file or an attachment;
    `templates` as their hollow program or table; `bases` as their tensor table, prompt or a file; `siblings` are builds
    through `templates`, which hold what those were made of.
    """

    builds: tuple[Build, ...]
    versions: tuple[Version, ...]
    templates: tuple[Template, ...]
    bases: tuple[Base, ...]
    siblings: tuple[Build, ...]


def origins(session: Session, digest: Digest) -> Origins:
    """What names this blob; nothing for one that no row refers to."""
    templates = foundations.templates_with(session, digest)
    through = (adapters.builds_through(session, each.hollow.digest, each.table.digest) for each in templates)
    return Origins(
        adapters.builds_with(session, digest),
        adapters.versions_with(session, digest),
        templates,
        foundations.bases_with(session, digest),
        tuple(build for some in through for build in some),
    )
