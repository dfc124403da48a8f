"""`ptdock repair`: what the store has lost or what is damaged, made again from what is left. Torch-free.

A program is its template and its factors; factors stand in their program, and follow from the source; a hollow
template follows from any program that went through it. What cannot be made may be found: in the site, which has names
of its own for what channels offer, in other stores, in the checkpoint. Nothing is believed: whatever comes must have
the digest that was recorded. What was mended may mend more, so the rounds go on until one mends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from exporter.base import read_base, tensor_table
from exporter.linker import Linker
from exporter.sources import Progress, no_progress
from exporter.stored import rebuild
from registry import canonical, wire
from registry.artifacts import Base, Build, Damage, Template, Version
from registry.digest import Digest
from registry.errors import PtdockError
from registry.relink import extract, hollow, pack, relink, unpack
from registry.relocation import RelocationTable
from registry.service import Registry

Made = bytes | Path
Way = tuple[str, Callable[[], Made | None]]
"""How something is made again, in words, and the making of it."""


@dataclass(frozen=True, slots=True)
class Mended:
    """A blob that is whole again: `how` it was made, or where it was found."""

    digest: Digest
    size: int
    how: str


@dataclass(frozen=True, slots=True)
class Lost:
    """A blob that could not be made again: the damage with what depends on it, and where its file was moved to."""

    damage: Damage
    aside: Path | None


@dataclass(frozen=True, slots=True)
class Repairs:
    """What a repair came to."""

    mended: tuple[Mended, ...]
    lost: tuple[Lost, ...]


def repair(
    registry: Registry,
    *,
    places: Sequence[Path] = (),
    base: Path | None = None,
    fast: bool = False,
    progress: Progress = no_progress,
    hashed: Callable[[int], None] | None = None,
) -> Repairs:
    """Find what is damaged and mend what can be; `fast` looks at sizes only and finds only what is missing or cut.

    `places` are directories with `blobs/sha256/…` (other stores, published sites); `base` is where the checkpoint is
    now. `hashed` gets the bytes that verifying hashed. What cannot be mended is moved to `damaged/`, so that whoever
    has the bytes can put them: a later publish, export or load. Never raises for damage.
    """
    progress("looking for damage")
    damaged = [each for each in registry.verify(fast=fast, progress=hashed).damage if each.kind == "blob"]
    progress("mending")
    mender = _Mender(registry, (registry.site, *places), base)
    left = {Digest.parse(each.subject): each for each in damaged}
    mended: list[Mended] = []
    while fresh := [done for digest in left if (done := mender.mend(digest)) is not None]:
        mended += fresh
        for each in fresh:
            del left[each.digest]
    if mended:
        registry.keeper().restored([(each.digest, each.how) for each in mended])
    lost = (Lost(damage, registry.keeper().set_aside(digest)) for digest, damage in left.items())
    return Repairs(tuple(mended), tuple(lost))


class _Mender:
    """Knows the ways to make a blob again."""

    def __init__(self, registry: Registry, places: Sequence[Path], base: Path | None) -> None:
        self._registry = registry
        self._places = places
        self._directory = base
        self._linkers: dict[Digest, Linker] = {}

    def mend(self, digest: Digest) -> Mended | None:
        """Make a blob again, or answer None. The damaged file goes only when the right bytes are there."""
        for how, make in self._ways(digest):
            try:
                made = make()
            except PtdockError:  # what this way needs is lost too, so far
                continue
            if made is not None and (Digest.of(made) if isinstance(made, bytes) else Digest.of_file(made)) == digest:
                return Mended(digest, self._put(digest, made), how)
        return None

    def _put(self, digest: Digest, made: Made) -> int:
        blobs = self._registry.blobs
        blobs.delete(digest)  # a put would take a file of the right size for the blob
        return (blobs.put_bytes(made) if isinstance(made, bytes) else blobs.put_file(made, expected=digest)).size

    def _ways(self, digest: Digest) -> Iterator[Way]:
        """All ways to a blob, the cheap and near ones first."""
        found = self._registry.keeper().origins(digest)
        for place in self._places:
            yield f"found in {place}", partial(_copy, place, digest)
        for version in found.versions:
            if version.source == digest:
                yield "written from its rows", partial(self._source_list, version)
        for build in found.builds:
            yield from self._from_build(digest, build)
        for template in found.templates:
            yield from self._from_siblings(digest, template, found.siblings)
        for base in found.bases:
            yield from self._from_checkpoint(digest, base)

    def _from_build(self, digest: Digest, build: Build) -> Iterator[Way]:
        if build.file.digest == digest:
            yield "relinked from its template and its factors", partial(self._relinked, build)
        if build.factors.digest == digest:
            yield f"read out of {_ref(build)}", partial(self._extracted, build)
        yield f"made again from the source of {_ref(build)}", partial(self._rebuilt, digest, build)

    def _from_siblings(self, digest: Digest, template: Template, siblings: Sequence[Build]) -> Iterator[Way]:
        """A template from programs that went through it; each may be damaged too, so all of them are tried."""
        for build in siblings if template.structure["modules"] else ():
            if template.hollow.digest == digest:
                yield f"emptied from {_ref(build)}", partial(self._emptied, template, build)
            elif "wire_table" in build.parts:
                yield f"read out of the wire table of {_ref(build)}", partial(self._table, build)

    def _from_checkpoint(self, digest: Digest, base: Base) -> Iterator[Way]:
        directory = self._directory or Path(base.hint)
        for name, file in base.files.items():
            if file.digest == digest:
                yield f"found in {directory}", partial(_present, directory / name)
        if base.tensors.digest == digest:
            yield f"read from {directory}", partial(_tensors, directory)

    def _source_list(self, version: Version) -> bytes:
        return self._registry.source(version).to_bytes()

    def _relinked(self, build: Build) -> bytes:
        template = self._registry.template_of(build)
        packed = self._registry.blobs.read(template.hollow.digest)
        factors = self._registry.blobs.read(build.factors.digest)
        return relink(unpack(packed, template.program_size), self._slots(template), factors)

    def _extracted(self, build: Build) -> bytes:
        program = self._registry.blobs.read(build.file.digest)
        return extract(program, self._slots(self._registry.template_of(build)))

    def _emptied(self, template: Template, build: Build) -> bytes:
        return pack(hollow(self._registry.blobs.read(build.file.digest), self._slots(template)))

    def _table(self, build: Build) -> bytes:
        """A wire table without what it says of the wire (registry.wire)."""
        document = canonical.loads(
            wire.inflated(self._registry.blobs.read(build.parts["wire_table"].digest)), what="wire table"
        )
        for entry in document["tensors"]:
            del entry["source"], entry["scale"]
        return canonical.dumps(document)

    def _slots(self, template: Template) -> RelocationTable:
        return RelocationTable.from_bytes(self._registry.blobs.read(template.table.digest))

    def _rebuilt(self, digest: Digest, build: Build) -> bytes | None:
        linker = self._linkers.get(build.foundation)
        if linker is None:
            linker = Linker(self._registry, self._registry.foundation(build.foundation))
            self._linkers[build.foundation] = linker
        _, linked = rebuild(self._registry, linker, build)
        made = (linked.program, linked.factors, *linked.parts.values())
        return next((data for data in made if Digest.of(data) == digest), None)


def _copy(place: Path, digest: Digest) -> Path | None:
    """A blob in another store or in a site, where a manifest stands under its digest among the targets."""
    pinned = place.glob(f"targets/{digest.hex}.*.json")
    return next(filter(None, map(_present, (place / "blobs" / "sha256" / digest.hex, *pinned))), None)


def _present(path: Path) -> Path | None:
    return path if path.is_file() else None


def _tensors(directory: Path) -> bytes:
    with read_base(directory) as checkpoint:
        return tensor_table(checkpoint.tensors)


def _ref(build: Build) -> str:
    return f"{build.adapter}@{build.version}"
