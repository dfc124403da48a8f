"""`ptdock adapter publish --batch`: many adapters, checked before the first is written, a few at a time made durable.

    entries = read_batch(Path("nightly.jsonl"), defaults)          # exporter.batch_file
    for done in publish_batch(registry, entries):
        print(done.entry.line, done.ref, done.outcome)

What is published already is passed over, so a batch that was stopped goes on where it was; memory does not grow
with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from exporter.batch_file import Entry
from exporter.linker import Linker, default_context
from exporter.publish import PublishOptions, Ready, lineage_of, publication, publish_with
from exporter.sources import Progress, no_progress, recipe_for
from exporter.structure import Structure
from exporter.templates import add_template, find_template
from registry.artifacts import PublishResult, Source, Template
from registry.digest import Descriptor, Digest
from registry.errors import AdapterRefused, BlobMissing, Conflict, PtdockError
from registry.grouped import Group
from registry.lineage import check as check_lineage
from registry.names import check_version
from registry.publishing import Publication, following
from registry.service import Registry

GROUP = 16  # adapters that are made durable together and recorded in one transaction
_WRITERS = 2

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Done:
    """What came of one line: the version and its program, and whether it was new (registry.artifacts.PublishResult)."""

    entry: Entry
    ref: str
    outcome: str
    program: Digest
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, entry: Entry, result: PublishResult) -> Done:
        """A line's result, without what would pile up."""
        version, build = result.version, result.build
        ref = f"{version.adapter}@{version.version}"
        return cls(entry, ref, result.outcome, build.file.digest, tuple(build.warnings))


def publish_batch(registry: Registry, entries: Sequence[Entry], progress: Progress = no_progress) -> Iterator[Done]:
    """Check all entries, then publish them; answers each when it is recorded.

    Raises before anything is written: AdapterRefused with the findings of all entries, NotFound for a foundation,
    Unavailable for a structure without a template where torch is missing.
    """
    batch = _Batch(registry, progress)
    seen = batch.check(entries)
    batch.export_missing()
    return batch.publish(entries, seen)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What checking left of an entry: its files, what was warned of, and what is recorded of it already."""

    source: Digest
    files: Mapping[str, Descriptor]
    warnings: tuple[str, ...]
    known: Done | None


@dataclass(frozen=True, slots=True)
class _Missing:
    """A structure without a template."""

    linker: Linker
    structure: Structure
    context: int
    base: Path | None


class _Batch:
    """Linkers and templates, shared by the lines of one batch and by the threads that work on them."""

    def __init__(self, registry: Registry, progress: Progress) -> None:
        self._registry = registry
        self._progress = progress
        self._names = frozenset(registry.adapters())
        self._linkers: dict[str, Linker] = {}
        self._contexts: dict[str, int] = {}
        self._templates: dict[tuple[str, Digest, int], Template | None] = {}
        self._missing: dict[tuple[str, Digest, int], _Missing] = {}

    def check(self, entries: Sequence[Entry]) -> list[_Seen]:
        """Hold every adapter against the gate and the registry. Raises AdapterRefused with all that was found."""
        for foundation in dict.fromkeys(entry.options.foundation for entry in entries):
            found = self._registry.foundation(foundation)
            self._linkers[foundation] = Linker(self._registry, found)
            self._contexts[foundation] = default_context(self._registry, found)
        seen: list[_Seen] = []
        findings: list[dict[str, Any]] = []
        refused = 0
        told = _Told(self._progress, "checking", len(entries))
        for entry in entries:
            try:
                seen.append(self._seen(entry))
            except PtdockError as error:
                refused += 1
                findings += _labelled(entry, error)
            told.done(1)
        findings += self._contradictions(entries, seen) if not refused else []
        if findings:
            message = f"{refused or len(findings)} of {len(entries)} adapters are refused; nothing was published"
            raise AdapterRefused(message, hint="mend them, or take their lines out", findings=findings)
        return seen

    def _seen(self, entry: Entry) -> _Seen:
        options = entry.options
        linker = self._linkers[options.foundation]
        checked = linker.check(entry.directory, options.gate)
        adapter = checked.accept()
        check_lineage(lineage_of(adapter, options))
        structure = linker.fold(adapter).structure
        source = Source(adapter.source, adapter.attachments).digest
        template = self._template(linker, structure, options)
        known = None
        if options.name in self._names:
            known = self._registry.keeper().standing(options.name, options.version, source, template)
        files = {**adapter.source, **adapter.attachments}
        return _Seen(source, files, checked.warnings, Done.of(entry, known) if known else None)

    def _contradictions(self, entries: Sequence[Entry], seen: Sequence[_Seen]) -> list[dict[str, Any]]:
        """Lines that would make one version from two sources, as it is given or as it would be chosen."""
        planned: dict[str, dict[str, tuple[int, Digest]]] = {}
        found = []
        for entry, each in zip(entries, seen, strict=True):
            name = entry.options.name
            if name not in planned:
                recorded = self._registry.versions(name) if name in self._names else ()
                planned[name] = {version.version: (0, version.source) for version in recorded}
            number = entry.options.version or _chosen(planned[name], each.source)
            line, source = planned[name].setdefault(number, (entry.line, each.source))
            if source != each.source:
                message = f"{name}@{number} is another source than in line {line}"
                found += _labelled(entry, Conflict(message, hint="a version has one source: give one of them another"))
        return found

    def _template(self, linker: Linker, structure: Structure, options: PublishOptions) -> Template | None:
        context = options.context or self._contexts[options.foundation]
        key = (options.foundation, structure.digest, context)
        if key not in self._templates:
            recipe = recipe_for(self._registry, linker.foundation)
            found = find_template(self._registry, linker.foundation, structure, context, recipe)
            if found is None:
                self._missing[key] = _Missing(linker, structure, context, options.base)
            self._templates[key] = found
        return self._templates[key]

    def export_missing(self) -> None:
        """Export the templates that none of the adapters before had made. Raises Unavailable without torch."""
        for key, need in self._missing.items():
            self._templates[key] = add_template(
                self._registry,
                need.linker.foundation,
                need.structure,
                need.linker.card,
                context=need.context,
                base=need.base,
                progress=self._progress,
            )

    def publish(self, entries: Sequence[Entry], seen: Sequence[_Seen]) -> Iterator[Done]:
        """Publish group by group: while one is written, made durable and recorded, the next is being linked."""
        told = _Told(self._progress, "publishing", len(entries))
        with ThreadPoolExecutor(_WRITERS) as writers, ThreadPoolExecutor(1) as settler:
            under_way: _Flight | None = None
            try:
                for some in _groups(zip(entries, seen, strict=True)):
                    before, under_way = under_way, self._start(some, writers, settler)
                    if before is not None:
                        yield from self._finish(before)
                    told.done(len(some))
                before, under_way = under_way, None
                if before is not None:
                    yield from self._finish(before)
            finally:
                if under_way is not None:
                    under_way.abandon()

    def _start(
        self, some: Sequence[tuple[Entry, _Seen]], writers: ThreadPoolExecutor, settler: ThreadPoolExecutor
    ) -> _Flight:
        """Link a group's adapters here; hashing and writing them needs no Python, so others do it meanwhile."""
        group = self._registry.blobs.group()
        written: list[Future[Publication]] = []
        try:
            for entry, seen in some:
                if seen.known is None:
                    written.append(writers.submit(self._make(entry, seen), group))
                    if len(written) > _WRITERS:
                        written[-1 - _WRITERS].exception()  # waits: what is linked and not yet written is in memory
        except BaseException:
            _Flight(group, some, settler.submit(_settled, group, written)).abandon()
            raise
        return _Flight(group, some, settler.submit(_settled, group, written))

    def _make(self, entry: Entry, seen: _Seen) -> Callable[[Group], Publication]:
        """Link an adapter; answers what puts it into a group."""
        options = entry.options
        linker = self._linkers[options.foundation]
        adapter = linker.check(entry.directory, options.gate, seen.files).accept()
        if Source(adapter.source, adapter.attachments).digest != seen.source:
            raise Conflict(f"{entry.label} changed since it was checked", hint="run the batch again")
        folded = linker.fold(adapter)
        template = self._template(linker, folded.structure, options)
        if template is None:
            raise Conflict(f"{entry.label} has another structure than when it was checked", hint="run the batch again")
        ready = Ready(adapter, linker.link(template, adapter, folded), seen.warnings)
        return lambda group: publication(group, options, template, ready)

    def _finish(self, flight: _Flight) -> Iterator[Done]:
        """Record a group that is durable in one transaction, and answer its lines in order."""
        with flight.group:
            made = flight.settled.result()
        try:
            results = iter(self._registry.keeper().publish(made) if made else [])
        except BlobMissing:  # the collector came in between: one by one, each insists
            results = iter([self._alone(entry) for entry, seen in flight.entries if seen.known is None])
        for entry, seen in flight.entries:
            yield seen.known or Done.of(entry, next(results))

    def _alone(self, entry: Entry) -> PublishResult:
        return publish_with(self._linkers[entry.options.foundation], entry.directory, entry.options).result


@dataclass(frozen=True, slots=True)
class _Flight:
    """A group on its way: its lines, and what is to be recorded of them once all of it is durable."""

    group: Group
    entries: Sequence[tuple[Entry, _Seen]]
    settled: Future[list[Publication]]

    def abandon(self) -> None:
        """Wait for what is being written, and leave nothing unfinished behind."""
        with self.group:
            self.settled.exception()


def _settled(group: Group, written: Sequence[Future[Publication]]) -> list[Publication]:
    wait(written)  # also behind one that fails: whoever clears up must find all that was written
    made = [future.result() for future in written]
    group.settle()
    return made


class _Told:
    """Tells how far a pass is, twenty times in all."""

    def __init__(self, progress: Progress, what: str, total: int) -> None:
        self._progress = progress
        self._what = what
        self._total = total
        self._done = self._shown = 0
        progress(f"{what} {total} adapters")

    def done(self, count: int) -> None:
        """So many more are done."""
        self._done += count
        if self._done - self._shown > self._total / 20:
            self._shown = self._done
            self._progress(f"{self._what}: {self._done} of {self._total}")


def _groups(items: Iterable[T]) -> Iterator[list[T]]:
    left = iter(items)
    return iter(lambda: list(islice(left, GROUP)), [])


def _chosen(planned: Mapping[str, tuple[int, Digest]], source: Digest) -> str:
    """The version that publishing chooses where none is given."""
    highest = max(planned, key=check_version, default=None)
    return highest if highest and planned[highest][1] == source else following(highest)


def _labelled(entry: Entry, error: PtdockError) -> list[dict[str, Any]]:
    """An entry's findings, each saying whose it is."""
    found = error.values.get("findings") or [
        {"level": "error", "code": error.code, "subject": "", "message": error.message, "hint": error.hint}
    ]
    return [
        {**finding, "subject": f"{entry.label} {finding['subject']}".rstrip(), "line": entry.line}
        for finding in found
        if finding["level"] == "error"
    ]
