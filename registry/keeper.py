"""What keeps a registry whole, behind one door: `Registry.keeper()`.

    keeper = registry.keeper()
    for item in keeper.survey(): ...        # why each blob is kept
    done = keeper.collect(grace=86400)      # what nothing keeps is condemned, then deleted

Each method is one question or one change; the rules are in the modules that they call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from registry import collecting, files
from registry.artifacts import PublishResult, Template
from registry.blobs import BlobStore, open_source
from registry.catalog import foundations
from registry.catalog.log import Change
from registry.catalog.matrix import Coverage, coverage
from registry.collecting import GRACE_SECONDS, Collected
from registry.database import Database
from registry.digest import Descriptor, Digest
from registry.origins import Origins, origins
from registry.publishing import Publication, publish_all, standing
from registry.reachability import Item, survey
from registry.tracing import Trace, trace

if TYPE_CHECKING:
    from registry.archive.contents import Contents
    from registry.archive.loading import Loaded

Progress = Callable[[int], None]


class Keeper:
    """A registry's collector. `follow` brings the site after what was done to the channels."""

    def __init__(
        self,
        home: Path,
        database: Database,
        blobs: BlobStore,
        change: Callable[[], AbstractContextManager[Change]],
        clock: Callable[[], float],
        follow: Callable[[str], None],
    ) -> None:
        self._home = home
        self._database = database
        self._blobs = blobs
        self._change = change
        self._clock = clock
        self._follow = follow

    def survey(self) -> Iterator[Item]:
        """Every blob in the order of digests, and what keeps it. Raises IntegrityError for a damaged release."""
        with self._database.read() as session:
            yield from survey(session, self._blobs, self._clock())

    def unfinished(self) -> list[Path]:
        """What interrupted commands left behind more than a day ago."""
        return collecting.unfinished(self._home, self._blobs)

    def collect(self, *, grace: float = GRACE_SECONDS) -> Collected:
        """Condemn what nothing keeps; delete what has been condemned for `grace` seconds.

        Safe beside everything else, and when it is killed: the next run goes on. What gives space back comes first, and
        after each batch that is condemned, for there may be little left. Raises IntegrityError for a release document
        that cannot be read.
        """
        removed = collecting.remove_unfinished(self.unfinished())
        kept, size = 0, 0
        loose: list[Descriptor] = []
        sentenced: list[Descriptor] = []
        back: list[Descriptor] = []
        for item in self.survey():
            if item.kept_by is None:
                (loose if item.condemned_at is None else sentenced).append(item.blob)
            else:
                kept, size = kept + 1, size + item.blob.size
                if item.condemned_at is not None:
                    back.append(item.blob)
        taken_back = collecting.in_batches(back, self._take_back)
        gone = collecting.in_batches(sentenced, lambda some: self._delete(some, grace))
        waiting = tuple(sorted({*sentenced} - {*gone}, key=lambda blob: blob.digest))
        condemned: list[Descriptor] = []

        def sentence(some: Sequence[Descriptor]) -> list[Descriptor]:
            condemned.extend(self._condemn(some))
            return self._delete(some, grace)

        deleted = (*gone, *collecting.in_batches(loose, sentence))
        return Collected(kept, size, tuple(condemned), waiting, deleted, taken_back, removed)

    def publish(self, new: Sequence[Publication]) -> list[PublishResult]:
        """Record several publications in one transaction; their blobs are in the store. All of them, or none.

        Raises as Registry.publish does.
        """
        for each in new:
            each.check()
        with self._change() as change:
            return publish_all(change, self._blobs, new)

    def standing(
        self, adapter: str, version: str | None, source: Digest, template: Template | None
    ) -> PublishResult | None:
        """What a publication would come to that is recorded already; None for one that is new.

        Raises Conflict for a version that was made from another source.
        """
        with self._database.read() as session:
            return standing(session, adapter, version, source, template)

    def save(
        self, path: Path, refs: Sequence[str] = (), named: Sequence[str] = (), progress: Progress | None = None
    ) -> tuple[Contents, Descriptor]:
        """Write adapters and foundations with all that they link to, or everything, into an archive.

        Answers what is in it, and the file's digest and size. See registry.archive.saving.
        """
        from registry.archive import saving  # noqa: PLC0415 - every publish would pay for it

        with self._database.read() as session:
            contents = saving.select(session, refs, named)
        return contents, saving.write(self._blobs, contents, path, progress)

    def load(self, path: Path, progress: Progress | None = None) -> Loaded:
        """Take an archive in, whole or not at all; twice is once. See registry.archive.loading."""
        from registry.archive import loading, tar  # noqa: PLC0415 - every publish would pay for it

        with open_source(path) as file:
            members = tar.open_members(file, path)
            contents = loading.read_contents(members)
            loading.store_blobs(self._blobs, members, contents, self._home, progress)
        with self._database.read() as session:
            loading.check(session, self._blobs, contents)
        with self._change() as change:
            loaded = loading.record(change, self._blobs, contents)
        if loaded.channels:
            self._follow(f"{path} is loaded")
        return loaded

    def coverage(self, adapter: str | None = None) -> Iterator[Coverage]:
        """Every version, of one adapter or of all, and the foundations on which it has a build."""
        with self._database.read() as session:
            yield from coverage(session, adapter)

    def dependants(self, foundation: Digest) -> tuple[str, ...]:
        """What would lose its foundation: `adapter NAME@VERSION` and `release N`."""
        with self._database.read() as session:
            return foundations.dependants(session, foundation)

    def trace(self, ref: str | Digest) -> Trace:
        """What a digest or a version (`NAME@VERSION`) is, came from, and was offered as. Raises NotFound."""
        with self._database.read() as session:
            return trace(session, ref, self._clock())

    def origins(self, digest: Digest) -> Origins:
        """What names a blob, and as what."""
        with self._database.read() as session:
            return origins(session, digest)

    def set_aside(self, digest: Digest) -> Path | None:
        """Move a damaged file out of the store, so that the next put of its bytes is kept; None where there is none.

        What is left of it stays in `damaged/` for whoever can make use of it.
        """
        if self._blobs.size(digest) is None:
            return None
        target = self._home / "damaged" / digest.hex
        with files.translated(target):
            files.make_directory(target.parent)
            files.rename(self._blobs.path(digest), target)
        return target

    def restored(self, blobs: Sequence[tuple[Digest, str]]) -> None:
        """Write down that damaged blobs are whole again, each with how that was done."""
        with self._change() as change:
            for digest, how in blobs:
                change.record("store.repair", str(digest), after=how)

    def _take_back(self, some: Sequence[Descriptor]) -> list[Descriptor]:
        with self._change() as change:
            return collecting.take_back(change, some)

    def _condemn(self, some: Sequence[Descriptor]) -> list[Descriptor]:
        with self._change() as change:
            return collecting.condemn(change, some)

    def _delete(self, some: Sequence[Descriptor], grace: float) -> list[Descriptor]:
        with self._change() as change:
            return collecting.delete(change, self._blobs, some, grace=grace)
