"""Why the store keeps what it keeps: for each blob the strongest edge that leads to it, or none.

    for item in survey(session, store, now):
        print(item.blob.digest, item.kept_by or "nothing refers to it")

What devices may be told to run comes first: the releases of a channel's arms, of manifests that have not expired, of
rollback targets. Then what is recorded, all of which stays: versions with their sources, attachments, factors and
programs; their templates, foundations and bases; releases and manifests. One walk over three streams in the order of
digests: the rows, the edges, the files. Only blobs that no row keeps are held in memory, and are looked for in the
release documents, for a release pins files that a base may have replaced since.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import groupby

from sqlalchemy.orm import Session

from registry.blobs import BlobStore
from registry.catalog import foundations, reach
from registry.catalog.edges import Edge, Row, edges, rows
from registry.catalog.reach import Hold
from registry.digest import Descriptor, Digest
from registry.release import ReleaseDocument

_WORDS = {
    "builds.digest": "the program of {}",
    "builds.factors": "the factors of {}",
    "build_parts.blob": "what devices may want of {}",
    "sources.digest": "the source of {}",
    "source_files.blob": "the source of {}",
    "attachments.blob": "an attachment of {}",
    "proofs.document": "a proof of {}",
    "proofs.self_test": "a proof of {}",
    "templates.hollow": "a template of foundation {}",
    "templates.relocations": "a template of foundation {}",
    "foundations.digest": "foundation {}",
    "foundations.modules": "the module table of foundation {}",
    "bases.tensors": "the tensor table of base {}",
    "bases.prompt": "the prompt of base {}",
    "base_files.blob": "a file of base {}",
    "releases.document": "the document of release {}",
    "release_files.blob": "a file of release {}",
    "manifests.digest": "the manifest {}, kept for the record",
}
_LOWEST = reach.RECORDED + 1  # what rows keep, beside what devices may be told


@dataclass(frozen=True, slots=True)
class Item:
    """One blob: whether a row and a file are there, since when it is condemned, and what keeps it (None: nothing)."""

    blob: Descriptor
    recorded: bool
    present: bool
    condemned_at: str | None
    kept_by: str | None


@dataclass(frozen=True, slots=True)
class Words:
    """What turns edges into sentences: what holds each release, and what foundations are called."""

    holds: dict[int, Hold]
    names: dict[str, str]

    @classmethod
    def of(cls, session: Session, now: float) -> Words:
        """As it is now."""
        called = {str(digest): name for name, digest in reversed(foundations.names(session).items())}
        return cls(reach.holds(session, now), called)

    def ranked(self, edge: Edge) -> Hold:
        """How strong an edge is, and what it says."""
        if edge.release is not None:
            return self.holds.get(edge.release, Hold(reach.RECORDED, f"release {edge.release}"))
        if edge.kind in {"releases.document", "release_files.blob"}:
            return self.holds.get(int(edge.owner), Hold(reach.RECORDED, f"release {edge.owner}"))
        return Hold(_LOWEST, self.role(edge))

    def role(self, edge: Edge) -> str:
        """What the blob is to the row that refers to it."""
        owner = " ".join(self.names.get(word, word) for word in edge.owner.split(" "))
        return _WORDS.get(edge.kind, f"{edge.kind.partition('.')[0]} {{}}").format(owner)


def survey(session: Session, store: BlobStore, now: float) -> Iterator[Item]:
    """Every blob that a row or a file knows, and what keeps it, in the order of digests; what no row keeps comes last.

    Raises IntegrityError for a release document that cannot be read: what it pins must not be taken for loose.
    """
    words = Words.of(session, now)
    loose: list[_Seen] = []
    for seen in _walk(session, store, words):
        if seen.hold is not None:
            yield _item(seen, seen.hold)
        else:
            loose.append(seen)
    held = pinned(session, store, {seen.blob.digest for seen in loose}, words)
    yield from (_item(seen, held.get(seen.blob.digest)) for seen in loose)


@dataclass(slots=True)
class _Seen:
    """What the three streams say of one digest."""

    blob: Descriptor
    row: Row | None = None
    present: bool = False
    hold: Hold | None = None


def _item(seen: _Seen, hold: Hold | None) -> Item:
    condemned_at = seen.row.condemned_at if seen.row else None
    return Item(seen.blob, seen.row is not None, seen.present, condemned_at, hold.text if hold else None)


def _walk(session: Session, store: BlobStore, words: Words) -> Iterator[_Seen]:
    """Every digest with its row, its file and its strongest edge; an edge without a row is for verify to find."""
    streams = (
        ((row.blob.digest.raw, 0, row) for row in rows(session)),
        ((file.digest.raw, 1, file) for file in store.descriptors()),
        ((edge.blob.raw, 2, edge) for edge in edges(session)),
    )
    for _, group in groupby(merge(*streams, key=_order), key=lambda each: each[0]):
        seen: _Seen | None = None
        for _, _, value in group:
            if isinstance(value, Row):
                seen = _Seen(value.blob, value)
            elif isinstance(value, Descriptor):
                seen = seen or _Seen(value)
                seen.present = True
            elif seen is not None and isinstance(value, Edge):
                hold = words.ranked(value)
                seen.hold = min(hold, seen.hold or hold)
        if seen is not None:
            yield seen


def _order(each: tuple[bytes, int, object]) -> tuple[bytes, int]:
    return each[:2]


def pinned(session: Session, store: BlobStore, loose: set[Digest], words: Words) -> dict[Digest, Hold]:
    """Those of the loose blobs that a release document pins, and the strongest hold on such a release."""
    found: dict[Digest, Hold] = {}
    for number, document in reach.documents(session) if loose else ():
        pins = ReleaseDocument.from_bytes(store.read(document.digest)).blobs()
        for digest in loose.intersection(pin.digest for pin in pins):
            hold = words.holds[number]
            found[digest] = min(hold, found.get(digest, hold))
    return found
