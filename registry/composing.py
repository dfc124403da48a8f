"""What a release is made of: adapter versions, or another release with changes, become lines and the document.

`registry.lines` has the rules; `compose` joins them with the catalog and writes nothing but the segment tables of
foundations.

    composed = compose(session, store, Contents(["pirate@1.3.1"], base=11, drop=["robot"]), number=12)
    composed.document.to_bytes()
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from registry import lookup
from registry import release as wire
from registry.artifacts import Build, Line, Version
from registry.blobs import BlobStore
from registry.catalog import adapters, channels, foundations
from registry.digest import Descriptor, Digest
from registry.errors import Conflict, InputError, NotFound
from registry.lines import Needs, Parts, Wanted, choose_lines, write_line
from registry.segments import SegmentTable


@dataclass(frozen=True, slots=True)
class LineSpec:
    """A line that is asked for: a foundation by name or digest, and its needs."""

    foundation: str | Digest
    needs: Needs = field(default_factory=Needs)


@dataclass(frozen=True, slots=True)
class Contents:
    """What a release is asked to hold.

    `refs` are NAME@VERSION, or NAME for its highest version. With `base`, the number of another release, they replace
    or join that release's adapters, `drop` names those that go, and lines, needs and deliveries are its own where
    nothing else is said; `live`: it is what the channel offers, and must be so still when the release is recorded.
    `lines` None without a base: every foundation on which all versions have a build, the newest first. `needs`
    hold for every line; `on_demand` and `prefetch` name adapters. `allow_holes` lets a line lack some.
    """

    refs: Sequence[str] = ()
    lines: Sequence[LineSpec] | None = None
    base: int | None = None
    live: bool = False
    drop: Sequence[str] = ()
    needs: Needs = field(default_factory=Needs)
    on_demand: Sequence[str] = ()
    prefetch: Sequence[str] = ()
    allow_holes: bool = False


@dataclass(frozen=True, slots=True)
class Composed:
    """A release before it is recorded: its document, the same as rows, and the versions in it as NAME@VERSION."""

    document: wire.ReleaseDocument
    lines: tuple[Line, ...]
    refs: tuple[str, ...]


def compose(session: Session, store: BlobStore, contents: Contents, number: int) -> Composed:
    """The release that these contents make.

    Raises Conflict for yanked and revoked versions and for holes that are not allowed (with `values["matrix"]`),
    NotFound for what is not recorded, InputError for contents that can never be a release.
    """
    asked = _Asked(session, store, contents)
    wanted = asked.wanted()
    named = asked.lines()
    order = list(reversed(foundations.digests(session))) if named is None else list(named)
    lines = choose_lines(wanted, order, given=named is not None, holes=contents.allow_holes)
    on_demand = asked.on_demand(wanted)
    parts = {}
    for line in lines:
        needs = contents.needs if named is None else named[line.foundation]
        parts[line.foundation] = _parts(session, store, line.foundation, needs, on_demand)
    document = wire.ReleaseDocument(
        release=number,
        lines=tuple(write_line(line, parts[line.foundation]) for line in lines),
        holes=len({frozenset(line.builds) for line in lines}) > 1,
    )
    wire.ReleaseDocument.from_bytes(document.to_bytes())  # what nobody could read is never recorded
    return Composed(document, lines, tuple(sorted(each.ref for each in wanted)))


class _Asked:
    """Contents with their base, if they have one, looked up."""

    def __init__(self, session: Session, store: BlobStore, contents: Contents) -> None:
        self._session = session
        self._contents = contents
        self._base: wire.ReleaseDocument | None = None
        if contents.base is not None:
            file = lookup.release(session, contents.base).document
            self._base = wire.ReleaseDocument.from_bytes(store.read(file.digest))

    def wanted(self) -> list[Wanted]:
        """The versions and their builds; at least one."""
        versions = self._versions()
        if not versions:
            raise InputError("a release holds at least one adapter", hint="name one: --adapter NAME@VERSION")
        yanked = [f"{each.adapter}@{each.version} ({each.yanked})" for each in versions if each.yanked is not None]
        if yanked:
            raise Conflict(f"yanked: {', '.join(yanked)}", hint="no new release may take a yanked version: use another")
        return [Wanted(each, self._builds(each)) for each in versions]

    def lines(self) -> dict[Digest, Needs] | None:
        """The foundations that are asked for, with their needs; the base's where none are; None for all that fit.

        A line's own needs go before those for every line, which go before those of the base.
        """
        general = self._contents.needs
        if self._contents.lines is not None and not self._contents.lines:
            raise InputError("a release has at least one line", hint="name a foundation: --line NAME")
        if self._contents.lines is not None:
            specs = [(lookup.foundation_digest(self._session, s.foundation), s.needs) for s in self._contents.lines]
            return {foundation: needs.over(general) for foundation, needs in specs}
        if self._base is None:
            return None
        return {
            line.foundation.file.digest: general.over(Needs(line.requires.ram_bytes, line.requires.app))
            for line in self._base.lines
        }

    def on_demand(self, wanted: Iterable[Wanted]) -> frozenset[str]:
        """The adapters of the release that are fetched at first use."""
        names = {each.version.adapter for each in wanted}
        unknown = sorted({*self._contents.on_demand, *self._contents.prefetch} - names)
        if unknown:
            raise InputError(f"{', '.join(unknown)}: not in the release", hint=f"it holds {', '.join(sorted(names))}")
        before = {entry.name for entry in self._entries() if entry.delivery == "on-demand"}
        return frozenset(({*before, *self._contents.on_demand} - {*self._contents.prefetch}) & names)

    def _versions(self) -> list[Version]:
        named = [lookup.version(self._session, ref) for ref in dict.fromkeys(self._contents.refs)]
        replaced = {each.adapter for each in named} | set(self._contents.drop)
        kept = dict.fromkeys(f"{each.name}@{each.version}" for each in self._entries() if each.name not in replaced)
        self._check_drop()
        return [*(lookup.version(self._session, ref) for ref in kept), *named]

    def _check_drop(self) -> None:
        there = {entry.name for entry in self._entries()}
        named = {ref.partition("@")[0] for ref in self._contents.refs}
        both = sorted(named & set(self._contents.drop))
        if both:
            raise InputError(f"{', '.join(both)}: named, and dropped as well", hint="either set it or drop it")
        unknown = [name for name in self._contents.drop if name not in there]
        if unknown and self._contents.base is None:
            raise InputError("there is nothing to drop from", hint="name the release: --base live, or its number")
        if unknown:
            raise NotFound(
                f"{', '.join(unknown)}: not in release {self._contents.base}",
                hint=f"it holds {', '.join(sorted(there))}",
            )

    def _entries(self) -> Iterable[wire.AdapterEntry]:
        return [entry for line in self._base.lines for entry in line.adapters] if self._base else []

    def _builds(self, version: Version) -> tuple[Build, ...]:
        found = adapters.builds(self._session, version.adapter, version.version)
        usable = tuple(build for build in found if not build.revoked)
        if found and not usable:
            raise Conflict(
                f"{version.adapter}@{version.version} is revoked: {found[-1].revoked}",
                hint="no release may take it: use another version, or leave the adapter out",
            )
        return usable


def _parts(session: Session, store: BlobStore, foundation: Digest, needs: Needs, on_demand: Collection[str]) -> Parts:
    found = lookup.foundation(session, foundation)
    templates = foundations.templates(session, foundation)
    base = lookup.base(session, found.base)
    return Parts(found.file, templates, base, _segments(session, store, foundation), needs, on_demand)


def _segments(session: Session, store: BlobStore, foundation: Digest) -> Descriptor:
    """The foundation's segment table: from the newest release that has it, so that a file is cut and hashed once."""
    newest = channels.newest_on(session, foundation)
    if newest is not None:
        for line in wire.ReleaseDocument.from_bytes(store.read(newest)).lines:
            if line.foundation.file.digest == foundation and line.foundation.segments:
                return line.foundation.segments
    return store.put_bytes(SegmentTable.of_file(store.path(foundation)).to_bytes())
