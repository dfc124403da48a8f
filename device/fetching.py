"""Fetch what a set needs in its cheapest form, and fall back to whole files when a form disappoints.

A foundation comes as the pieces that changed where the device holds another one, a program as its trained factors.
Neither is believed more than a download is: one digest decides, and any surprise leads to the file itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from device.checks import Checks
from device.forms import write_program
from device.intake import Intake
from device.patch import Patched
from device.source import Metered, Source
from device.store import DeviceStore
from registry.device_state import ActiveSet
from registry.digest import Descriptor
from registry.errors import FormatError, IntegrityError, PtdockError
from registry.release import AdapterEntry, FoundationEntry
from registry.segments import SegmentTable
from registry.site import blob_path


class Fetcher:
    """Brings blobs from a source into a store.

    `note` hears why a cheaper form was given up, `progress` how many bytes more of the plan's are in.
    """

    def __init__(self, source: Source, store: DeviceStore, checks: Checks, note: Callable[[str], None]) -> None:
        self._source = Metered(source)
        self._store = store
        self._checks = checks
        self._note = note
        self._done = 0
        self.progress: Callable[[int], None] = lambda _: None

    @property
    def fetched(self) -> int:
        """How many bytes of blobs came from the source."""
        return self._source.fetched

    def take(self, blob: Descriptor) -> None:
        """Make one blob stand in the store, sound. Raises what `Intake.take` raises."""
        self._intake(self._source).take(blob)

    def foundation(self, entry: FoundationEntry, held: Iterable[Descriptor]) -> None:
        """Fetch a foundation, by its pieces when one of the foundations in `held` is here and sound."""
        old = next((blob for blob in held if blob != entry.file and self._checks.damage(blob) is None), None)
        if entry.segments and old and self._checks.damage(entry.file):
            before = self._done
            try:
                self._pieces(entry.file, entry.segments, self._store.path(old.digest))
            except PtdockError as error:
                self._report(before - self._done)
                self._note(f"{error.message}; fetching the foundation whole")
        self.take(entry.file)

    def _pieces(self, file: Descriptor, segments: Descriptor, old: Path) -> None:
        self._intake(self._source, silent=True).take(segments)
        table = SegmentTable.from_bytes(self._store.path(segments.digest).read_bytes())
        if table.size != file.size:
            raise FormatError(f"the segment table describes {table.size} bytes, the foundation has {file.size}")
        self._intake(Patched.between(self._source, old, blob_path(file.digest), table)).take(file)

    def program(self, entry: AdapterEntry) -> None:
        """Write an adapter's program from its factors, where it is not here; else fetch the program itself."""
        if entry.factors is None or self._checks.damage(entry.file) is None:
            return
        try:
            write_program(self._store, self._checks, entry)
        except (IntegrityError, FormatError) as error:
            self._note(f"{error.message}; fetching the program itself")
            self.take(entry.file)

    def _intake(self, source: Source, *, silent: bool = False) -> Intake:
        return Intake(self._store, source, self._checks, (lambda _: None) if silent else self._report)

    def _report(self, size: int) -> None:
        self._done += size
        self.progress(size)


def foundations_of(sets: Iterable[ActiveSet]) -> list[Descriptor]:
    """The foundations of these sets, each once."""
    return list(dict.fromkeys(each.line.foundation.file for each in sets))
