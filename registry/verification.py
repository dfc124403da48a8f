"""`ptdock verify`: bytes against digests, rows against bytes, links against foundations, and the log against itself.

Nothing here raises for damage, and nothing is changed: all of it is reported at once, each with what depends on it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from registry import audit
from registry.artifacts import Damage, ExternalTensor, Foundation, Release, Report
from registry.blobs import BlobStore
from registry.catalog import adapters, channels, content, foundations, log
from registry.digest import Descriptor, Digest
from registry.errors import PtdockError
from registry.formats import mapped
from registry.formats.ptd import read_ptd
from registry.formats.pte import read_pte
from registry.links import check_links, verify_foundation
from registry.manifest import Manifest
from registry.release import ReleaseDocument

Progress = Callable[[int], None]
STALE_SECONDS = 24 * 3600


@dataclass(slots=True)
class Inspection:
    """One run: what it reads from and what it has found so far; `bad` are the blobs that are not worth looking into."""

    session: Session
    store: BlobStore
    damage: list[Damage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    bad: set[Digest] = field(default_factory=set)

    def found(self, kind: str, subject: str, message: str, dependants: Sequence[str] = ()) -> None:
        """Note one damage."""
        self.damage.append(Damage(kind, subject, message, tuple(dependants)))

    def blob_found(self, digest: Digest, message: str) -> None:
        """Note one damaged blob, with the rows that refer to it."""
        self.bad.add(digest)
        users = content.users(self.session, digest) or self._pinning(digest)
        if users:
            self.found("blob", str(digest), message, users)
        else:  # recorded, but of no use to anything: a collection that was killed leaves such rows
            self.notes.append(f"{digest}, to which nothing refers: {message}")

    def _pinning(self, digest: Digest) -> tuple[str, ...]:
        """The releases whose documents pin a blob that no row names, such as a segment table."""
        found = []
        for release in channels.releases(self.session):
            with suppress(PtdockError):  # a document that is damaged itself is found by its own digest
                document = ReleaseDocument.from_bytes(self.store.read(release.document.digest))
                if any(pin.digest == digest for pin in document.blobs()):
                    found.append(f"releases: {release.number}")
        return tuple(found)

    @contextmanager
    def finding(self, kind: str, subject: str) -> Iterator[None]:
        """What is refused inside the block is damage of this subject."""
        try:
            yield
        except PtdockError as error:
            self.found(kind, subject, error.message)


def verify(session: Session, store: BlobStore, *, fast: bool, progress: Progress | None) -> Report:
    """Look at everything; `fast` compares sizes instead of hashing. `progress` gets the bytes that were hashed."""
    inspection = Inspection(session, store)
    blobs = list(content.recorded(session))
    tables = [found for digest in foundations.digests(session) if (found := foundations.foundation(session, digest))]
    for fault in content.faults(session):
        inspection.found("database", "registry.db", fault)
    _check_sizes(inspection, blobs)
    if not fast:
        _check_digests(inspection, blobs, {table.file.digest: table for table in tables}, progress)
    builds = sum(_check_foundation(inspection, table) for table in tables)
    heads = _check_log(inspection)
    _check_releases(inspection)
    _check_manifests(inspection, heads)
    _note_leftovers(inspection, {blob.digest for blob in blobs})
    size = sum(blob.size for blob in blobs)
    return Report(tuple(inspection.damage), tuple(inspection.notes), len(blobs), size, builds)


def _check_sizes(inspection: Inspection, blobs: Sequence[Descriptor]) -> None:
    for blob in blobs:
        actual = inspection.store.size(blob.digest)
        if actual is None:
            inspection.blob_found(blob.digest, "the blob is missing from the store")
        elif actual != blob.size:
            inspection.blob_found(blob.digest, f"has {actual} bytes, recorded are {blob.size}")


def _check_digests(
    inspection: Inspection, blobs: Sequence[Descriptor], tables: dict[Digest, Foundation], progress: Progress | None
) -> None:
    """Hash every blob, on all processors: hashing runs outside of Python's lock."""
    lock = threading.Lock()

    def tell(size: int) -> None:
        with lock:
            if progress:
                progress(size)

    def fault(blob: Descriptor) -> str | None:
        return _content_fault(inspection.store, blob, tables.get(blob.digest), tell)

    whole = [blob for blob in blobs if blob.digest not in inspection.bad]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for blob, message in zip(whole, pool.map(fault, whole), strict=True):
            if message:
                inspection.blob_found(blob.digest, message)


def _content_fault(store: BlobStore, blob: Descriptor, table: Foundation | None, progress: Progress) -> str | None:
    """What is wrong with a blob's bytes; of a foundation, which tensors."""
    try:
        actual = Digest.of_chunks(store.chunks(blob.digest), progress)
        if actual == blob.digest:
            return None
        if table is not None:
            verify_foundation(store.path(blob.digest), table)
    except PtdockError as error:
        return error.message
    except OSError as error:  # the disk itself refuses to read
        return f"cannot be read: {error.strerror}"
    return f"its bytes have the digest {actual}"


def _check_foundation(inspection: Inspection, table: Foundation) -> int:
    """A foundation's table against its file, and every program against the table; answers how many programs."""
    digest = table.file.digest
    if digest not in inspection.bad:
        with inspection.finding("foundation", str(digest)):
            entries = read_ptd(mapped(inspection.store.path(digest))).entries
            if {(e.key, e.offset, e.size) for e in entries} != {(t.key, t.offset, t.size) for t in table.tensors}:
                dependants = foundations.dependants(inspection.session, digest)
                inspection.found("foundation", str(digest), "its file lists other tensors than its table", dependants)
    programs = [
        (f"the base program of {table.file.digest}", template.hollow.digest)
        for template in foundations.templates(inspection.session, digest)
        if not template.structure["modules"]
    ]
    builds = adapters.builds_on(inspection.session, digest)
    programs += [(f"{build.adapter}@{build.version}", build.file.digest) for build in builds]
    for subject, program in programs:
        _check_program(inspection, subject, program, table.tensors)
    return len(programs)


def _check_program(inspection: Inspection, subject: str, program: Digest, tensors: Sequence[ExternalTensor]) -> None:
    if program not in inspection.bad:
        with inspection.finding("link", subject):
            check_links(read_pte(mapped(inspection.store.path(program))), tensors)


def _check_log(inspection: Inspection) -> set[Digest]:
    """The chain of events; answers the digests that are recorded in it."""
    heads: set[Digest] = set()

    def events() -> Iterator[tuple[audit.Event, Digest]]:
        for event, digest in log.chain(inspection.session):
            heads.add(digest)
            yield event, digest

    start = audit.genesis(log.identity(inspection.session))
    for event, message in audit.broken_links(start, events()):
        inspection.found("log", f"event {event.id}", message)
    return heads


def _check_releases(inspection: Inspection) -> None:
    for release in channels.releases(inspection.session):
        if release.document.digest not in inspection.bad:
            with inspection.finding("release", f"release {release.number}"):
                _check_release(inspection, release)


def _check_release(inspection: Inspection, release: Release) -> None:
    document = ReleaseDocument.from_bytes(inspection.store.read(release.document.digest))
    said = [(line.foundation.file.digest, {a.name: a.file for a in line.adapters}) for line in document.lines]
    rows = [(line.foundation, {name: build.file for name, build in line.builds.items()}) for line in release.lines]
    if (document.release, said) != (release.number, rows):
        inspection.found("release", f"release {release.number}", "its document and its rows differ")


def _check_manifests(inspection: Inspection, heads: set[Digest]) -> None:
    for issued in channels.manifests(inspection.session):
        subject = f"manifest {issued.sequence} of {issued.channel}"
        if issued.file.digest in inspection.bad:
            continue
        with inspection.finding("manifest", subject):
            said = Manifest.from_bytes(inspection.store.read(issued.file.digest))
            if (said.channel, said.sequence, said.arms) != (issued.channel, issued.sequence, issued.arms):
                inspection.found("manifest", subject, "its document and its rows differ")
            if said.log_head not in heads:
                inspection.found("manifest", subject, f"the log does not hold the event {said.log_head} that it names")


def _note_leftovers(inspection: Inspection, known: set[Digest]) -> None:
    """What interrupted commands left behind: harmless, and the collector's business."""
    orphans = [blob for blob in inspection.store.descriptors() if blob.digest not in known]
    if orphans:
        size = sum(blob.size for blob in orphans)
        inspection.notes.append(f"{len(orphans)} blobs ({size} bytes) that nothing refers to")
    stale = inspection.store.stale(time.time() - STALE_SECONDS)
    if stale:
        inspection.notes.append(f"{len(stale)} unfinished files older than a day in {stale[0].parent}")
