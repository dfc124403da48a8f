"""What a release is made of: adapter versions, or another release with changes, become lines and the document.

The rules are pure: `choose_lines` decides which builds stand on which foundation, `write_line` what devices read of
it. `compose` joins them with the catalog and writes nothing but the segment tables of foundations.

    composed = compose(session, store, Contents(["pirate@1.3.1"], base=11, drop=["robot"]), number=12)
    composed.document.to_bytes()
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy.orm import Session

from registry import lookup
from registry import release as wire
from registry.artifacts import Base, Build, Line, Template, Version
from registry.blobs import BlobStore
from registry.catalog import adapters, channels, foundations
from registry.digest import Descriptor, Digest
from registry.errors import Conflict, InputError, NotFound
from registry.segments import SegmentTable

_TOKENIZERS = {"tokenizer.json": "hf-json", "tokenizer.model": "sentencepiece"}


@dataclass(frozen=True, slots=True)
class Needs:
    """What a line needs beyond what its programs do: the device's memory in bytes, the app's build per platform."""

    ram_bytes: int | None = None
    app: Mapping[str, int] = field(default_factory=dict)

    def over(self, others: Needs) -> Needs:
        """These needs, with the others' where these say nothing."""
        ram = others.ram_bytes if self.ram_bytes is None else self.ram_bytes
        return Needs(ram, {**others.app, **self.app})


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
    nothing else is said. `lines` None without a base: every foundation on which all versions have a build, the newest
    first. `needs` hold for every line; `on_demand` and `prefetch` name adapters. `allow_holes` lets a line lack some.
    """

    refs: Sequence[str] = ()
    lines: Sequence[LineSpec] | None = None
    base: int | None = None
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


@dataclass(frozen=True, slots=True)
class Wanted:
    """A version that a release is to hold, and its builds that are not revoked, oldest first."""

    version: Version
    builds: tuple[Build, ...]

    @property
    def ref(self) -> str:
        """`NAME@VERSION`."""
        return f"{self.version.adapter}@{self.version.version}"

    def on(self, foundation: Digest) -> Build | None:
        """The newest build on a foundation."""
        found = [build for build in self.builds if build.foundation == foundation]
        return found[-1] if found else None


@dataclass(frozen=True, slots=True)
class Parts:
    """What a line's document is written from, besides the builds: its foundation's file, templates and base.

    `segments` is the foundation's segment table, `needs` what the line needs beyond its programs, `on_demand` the
    adapters that are fetched at first use.
    """

    file: Descriptor
    templates: tuple[Template, ...]
    base: Base
    segments: Descriptor | None = None
    needs: Needs = field(default_factory=Needs)
    on_demand: Collection[str] = ()


def compose(session: Session, store: BlobStore, contents: Contents, number: int) -> Composed:
    """The release that these contents make.

    Raises Conflict for yanked versions and for holes that are not allowed (with `values["matrix"]`), NotFound for what
    is not recorded, InputError for contents that can never be a release.
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
    return Composed(document, lines, tuple(sorted(each.ref for each in wanted)))


def choose_lines(wanted: Sequence[Wanted], order: Sequence[Digest], *, given: bool, holes: bool) -> tuple[Line, ...]:
    """The lines of a release on the foundations in `order`, with the newest usable build of each adapter.

    `given`: the caller named these foundations, so each becomes a line; else only complete ones do, or with `holes`
    those that have any build. Raises Conflict with `values["matrix"]` when adapters are missing, or when a line would
    hold two versions of one.
    """
    lines = [Line(foundation, _builds_on(wanted, foundation)) for foundation in order]
    names = {each.version.adapter for each in wanted}
    complete = [line for line in lines if line.builds.keys() == names]
    chosen = lines if given else complete or ([line for line in lines if line.builds] if holes else [])
    if not chosen or (len(complete) < len(chosen) and not holes):
        raise _incomplete(wanted, chosen or lines)
    return tuple(chosen)


def write_line(line: Line, parts: Parts) -> wire.Line:
    """What devices read of a line. Raises Conflict when its foundation has no base program."""
    used = {build.template for build in line.builds.values()}
    templates = [template for template in parts.templates if template.digest in used]
    program = _base_program(line.foundation, parts.templates, templates)
    entries = [_entry(build, parts.templates) for _, build in sorted(line.builds.items())]
    return wire.Line(
        foundation=wire.FoundationEntry(parts.file, parts.segments),
        base=program.hollow,
        requires=_requires([program, *templates], parts.needs),
        adapters=tuple(
            replace(entry, delivery="on-demand") if entry.name in parts.on_demand else entry for entry in entries
        ),
        tokenizer=_tokenizer(parts.base),
        prompt=parts.base.prompt,
    )


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
        return tuple(build for build in found if not build.revoked)


def _builds_on(wanted: Sequence[Wanted], foundation: Digest) -> dict[str, Build]:
    found: dict[str, Build] = {}
    for each in sorted(wanted, key=lambda one: one.ref):
        build = each.on(foundation)
        if build is None:
            continue
        if build.adapter in found:
            raise Conflict(
                f"{build.adapter} {found[build.adapter].version} and {build.version} both have a build on {foundation}",
                hint="a line holds one version of each adapter: name one of them",
            )
        found[build.adapter] = build
    return found


def _incomplete(wanted: Sequence[Wanted], lines: Sequence[Line]) -> Conflict:
    matrix = {
        str(line.foundation): {each.ref: each.on(line.foundation) is not None for each in wanted} for line in lines
    }
    missing = [
        f"{ref} on {foundation[:19]}" for foundation, row in matrix.items() for ref, there in row.items() if not there
    ]
    without = [each.ref for each in wanted if not each.builds]
    return Conflict(
        f"no build for {', '.join(without or missing)}",
        hint="publish the versions on that foundation, name other lines, or allow holes explicitly",
        matrix=matrix,
    )


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


def _entry(build: Build, templates: Sequence[Template]) -> wire.AdapterEntry:
    parts = build.parts
    template = next(template for template in templates if template.digest == build.template)
    return wire.AdapterEntry(
        build.adapter,
        build.version,
        build.file,
        self_test=parts.get("self_test"),
        prompt=parts.get("prompt"),
        factors=wire.Factors(parts["wire"], template.hollow, parts["wire_table"]) if "wire" in parts else None,
    )


def _base_program(foundation: Digest, templates: Sequence[Template], used: Sequence[Template]) -> Template:
    """The newest program without an adapter, if possible made for the same context and ExecuTorch as the builds."""
    programs = [template for template in templates if not template.structure["modules"]]
    if not programs:
        raise Conflict(f"{foundation} has no base program", hint="run `ptdock foundation export` again: it adds one")
    alike = {(template.context, template.executorch) for template in used}
    return [p for p in programs if (p.context, p.executorch) in alike or p is programs[-1]][-1]


def _requires(templates: Sequence[Template], needs: Needs) -> wire.Requires:
    """What runs all of these programs."""
    runtimes = [template.runtime for template in templates]
    return wire.Requires(
        minimum=max(runtime.minimum for runtime in runtimes),
        guaranteed=min(runtime.guaranteed for runtime in runtimes),
        backends=tuple(sorted({name for runtime in runtimes for name in runtime.backends})),
        operators=tuple(sorted({name for runtime in runtimes for name in runtime.operators})),
        ram_bytes=needs.ram_bytes,
        app=dict(sorted(needs.app.items())),
    )


def _tokenizer(base: Base) -> wire.Tokenizer | None:
    for name, form in _TOKENIZERS.items():
        if name in base.files:
            return wire.Tokenizer(form, base.files[name])
    return None
