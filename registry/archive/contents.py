"""What an archive holds, as values: the registry's nouns with everything that they link to. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from registry.artifacts import Base, Build, Foundation, Proof, Source, Template, Version
from registry.digest import Descriptor, Digest
from registry.errors import FormatError


@dataclass(frozen=True, slots=True)
class SavedFoundation:
    """A foundation with its names and all recipes that led to it, the first one first."""

    foundation: Foundation
    names: tuple[str, ...]
    recipes: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class SavedVersion:
    """A version with its source."""

    version: Version
    source: Source


@dataclass(frozen=True, slots=True)
class SavedBuild:
    """A build; `template` is the index of its template in the archive."""

    build: Build
    template: int


@dataclass(frozen=True, slots=True)
class SavedProof:
    """A proof; `build` is the index of its build in the archive."""

    build: int
    proof: Proof


@dataclass(frozen=True, slots=True)
class Contents:
    """Everything in an archive, in an order in which it can be recorded; `registry` is the UUID of where it is from."""

    registry: str
    bases: tuple[Base, ...]
    foundations: tuple[SavedFoundation, ...]
    templates: tuple[Template, ...]
    versions: tuple[SavedVersion, ...]
    builds: tuple[SavedBuild, ...]
    proofs: tuple[SavedProof, ...]

    def blobs(self) -> dict[Digest, Descriptor]:
        """Every blob, by digest, in the order of digests. Raises FormatError for one of two sizes."""
        found: dict[Digest, Descriptor] = {}
        for blob in self._blobs():
            if found.setdefault(blob.digest, blob) != blob:
                raise FormatError(f"archive: {blob.digest} has {blob.size} bytes, and {found[blob.digest].size}")
        return dict(sorted(found.items()))

    def _blobs(self) -> Iterator[Descriptor]:
        for base in self.bases:
            yield from (base.tensors, *base.files.values(), *([base.prompt] if base.prompt else []))
        for each in self.foundations:
            yield from (each.foundation.file, each.foundation.modules)
        for template in self.templates:
            yield from (template.hollow, template.table)
        for saved in self.versions:
            files = (*saved.source.files.values(), *saved.source.attachments.values())
            yield from (Descriptor.of(saved.source.to_bytes()), *files)
        for made in self.builds:
            yield from (made.build.file, made.build.factors, *made.build.parts.values())
        for proven in self.proofs:
            yield from (proven.proof.document, *([proven.proof.self_test] if proven.proof.self_test else []))

    def linked(self) -> Contents:
        """These contents, each build with its template's own digest and foundation. Raises FormatError for a gap."""
        bases = {base.fingerprint for base in self.bases}
        made = {each.foundation.file.digest for each in self.foundations}
        versions = {(each.version.adapter, each.version.version) for each in self.versions}
        for each in self.foundations:
            _must(each.foundation.base in bases, f"foundation {each.foundation.file.digest}", "its base")
        for template in self.templates:
            _must(template.foundation in made, f"template {template.digest}", "its foundation")
        builds = []
        for saved in self.builds:
            ref = f"{saved.build.adapter}@{saved.build.version}"
            _must((saved.build.adapter, saved.build.version) in versions, f"a build of {ref}", "its version")
            _must(saved.template < len(self.templates), f"a build of {ref}", "its template")
            template = self.templates[saved.template]
            build = replace(saved.build, foundation=template.foundation, template=template.digest)
            builds.append(replace(saved, build=build))
        for proven in self.proofs:
            _must(proven.build < len(builds), "a proof", "its build")
        return replace(self, builds=tuple(builds))


_HINT = "save it again: an archive holds every link"


def _must(there: bool, what: str, lacks: str) -> None:
    if not there:
        raise FormatError(
            f"archive: {what} is there, {lacks} is not", hint="save it again: an archive holds every link"
        )
