"""One run of verify: what it reads from, and what it has found so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from heapq import nsmallest

from sqlalchemy.orm import Session

from registry.artifacts import Damage, Report
from registry.blobs import BlobStore
from registry.catalog import edges
from registry.catalog.reach import RECORDED, Hold
from registry.digest import Descriptor, Digest
from registry.engines import translated
from registry.errors import DAMAGE
from registry.reachability import Words, pinned

_SHOWN = 20  # as many dependants are named; what everything uses would name everything


@contextmanager
def looking(session: Session) -> Iterator[None]:
    """A look at the database that may fail without ending the session: PostgreSQL would refuse all that follows."""
    with translated("the database"), session.begin_nested():
        yield


@dataclass(slots=True)
class Inspection:
    """Where to look, what was found; `bad` are the blobs that are not worth looking into."""

    session: Session
    store: BlobStore
    fast: bool
    words: Words
    damage: list[Damage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    bad: set[Digest] = field(default_factory=set)
    blobs: int = 0
    size: int = 0
    builds: int = 0

    @classmethod
    def of(cls, session: Session, store: BlobStore, *, now: float, fast: bool) -> Inspection:
        """A run that has found nothing yet. Where the rows give no words for dependants, damage is named without."""
        words = Words({}, {})
        with suppress(*DAMAGE), looking(session):
            words = Words.of(session, now)
        return cls(session, store, fast, words)

    def found(self, kind: str, subject: str, message: str, dependants: Sequence[str] = ()) -> None:
        """Note one damage."""
        self.damage.append(Damage(kind, subject, message, tuple(dependants)))

    def blob_found(self, digest: Digest, message: str) -> None:
        """Note one damaged blob with what needs it; one that nothing needs is only a note."""
        self.bad.add(digest)
        dependants = self.dependants(digest)
        if dependants:
            self.found("blob", str(digest), message, dependants)
        else:  # recorded, but of no use to anything: a collection that was killed leaves such rows
            self.notes.append(f"{digest}, to which nothing refers: {message}")

    def dependants(self, digest: Digest) -> tuple[str, ...]:
        """What needs a blob, in words, the strongest first."""
        holds = {self.words.ranked(edge) for edge in edges.edges_of(self.session, [digest])} or self._pins(digest)
        shown = [hold.text for hold in nsmallest(_SHOWN, holds)]
        return (*shown, f"and {len(holds) - len(shown)} more") if len(holds) > len(shown) else tuple(shown)

    def _pins(self, digest: Digest) -> set[Hold]:
        """The strongest release whose document pins a blob that no row names."""
        try:
            return set(pinned(self.session, self.store, {digest}, self.words).values())
        except DAMAGE as error:
            return {Hold(RECORDED, f"perhaps a release: {error.message}")}

    def sound(self, blob: Descriptor) -> bool:
        """Whether a blob is worth looking into."""
        return blob.digest not in self.bad

    @contextmanager
    def finding(self, kind: str, subject: str, dependants: Callable[[], Sequence[str]] = tuple) -> Iterator[None]:
        """What is refused inside the block is damage of this subject; only then is asked what depends on it.

        Raises Unavailable, which is no damage: an outage must not send anyone to `ptdock repair`.
        """
        try:
            yield
        except DAMAGE as error:
            self.found(kind, subject, error.message, dependants())

    def report(self) -> Report:
        """What was found, in the order in which it was."""
        return Report(tuple(self.damage), tuple(self.notes), self.blobs, self.size, self.builds)
