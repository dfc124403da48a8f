"""What was told against what is: the log against itself and the rows, releases against the rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from sqlalchemy.orm import Session

from registry import audit
from registry.artifacts import Release
from registry.audit import Event
from registry.catalog import channels, log, reach, records, retold
from registry.catalog.retold import Told
from registry.digest import Descriptor, Digest
from registry.errors import InputError
from registry.release import ReleaseDocument
from registry.verification.facts import Facts, differences, follow, moved
from registry.verification.inspection import Inspection

_BATCH = 500  # events that are compared with the rows at a time


class _Kind(NamedTuple):
    """Rows that are many, each made by one event: what they are, and the event's field that tells them apart.

    `unsaid` is what an event means that does not say it.
    """

    noun: str
    key: str
    rows: Callable[[Session, Collection[Digest]], Iterator[Told]]
    unsaid: Mapping[str, Any] = MappingProxyType({})

    @property
    def table(self) -> str:
        """What the rows are counted as."""
        return f"{self.noun}s"


_KINDS = {
    "adapter.publish": _Kind("build", "build", retold.published),
    "adapter.prove": _Kind("proof", "proof", retold.proven, {"self_test": None}),
    "release.create": _Kind("release", "document", retold.released),
}


def check_history(inspection: Inspection) -> None:
    """The log, then every release."""
    _check_log(inspection)
    for number, document in reach.documents(inspection.session):
        if inspection.sound(document):
            with inspection.finding("release", f"release {number}"):
                _check_release(inspection, number)


def _check_log(inspection: Inspection) -> None:
    """The chain of events, and what it tells against what is there."""
    session = inspection.session
    account = _Account(inspection)

    def events() -> Iterator[tuple[Event, Digest]]:
        for event, digest in log.chain(session):
            account.add(event, digest)
            yield event, digest

    for event, message in audit.broken_links(audit.genesis(log.identity(session)), events()):
        inspection.found("log", f"event {event.id}", message)
    account.close()


@dataclass(slots=True)
class _Account:
    """What the log says that there must be; compared with the rows some events at a time."""

    inspection: Inspection
    counts: dict[str, int] = field(default_factory=lambda: {kind.table: 0 for kind in _KINDS.values()})
    facts: Facts = field(default_factory=dict)
    moves: list[tuple[str, int, Digest]] = field(default_factory=list)
    yanked: dict[str, tuple[str, str]] = field(default_factory=dict)
    revoked: dict[Digest, set[tuple[str, str]]] = field(default_factory=dict)
    waiting: list[Event] = field(default_factory=list)

    def add(self, event: Event, digest: Digest) -> None:
        """Take one more event and its recorded digest, oldest first. One that was edited may say anything at all."""
        follow(self.facts, event)
        channel = moved(event)
        if channel is not None:
            self.moves.append((channel, event.id, digest))
        if event.action == "adapter.yank":
            self.yanked[event.subject] = str(event.after), event.at
        elif event.action == "adapter.unyank":
            self.yanked.pop(event.subject, None)
        elif event.action == "adapter.revoke":
            for program in _digests(event.after, "builds"):
                self.revoked.setdefault(program, set()).add((str(event.after.get("reason")), event.at))
        elif event.action in _KINDS:
            self.counts[_KINDS[event.action].table] += 1
            self.waiting.append(event)
        if max(len(self.waiting), len(self.moves)) == _BATCH:
            self._compare()

    def close(self) -> None:
        """Compare what is left: the last events, and what all of them came to."""
        self._compare()
        for name, actual in retold.counts(self.inspection.session).items():
            told = self.counts[name]
            if actual != told:
                self.inspection.found("log", name, f"there are {actual} {name}, the log tells of {told}")
        with self.inspection.finding("row", "channels, names, bases, templates and tokens"):
            self._compare_facts()
        self._compare_withdrawn()

    def _compare_facts(self) -> None:
        there = retold.facts(self.inspection.session)
        for name in sorted({*there, *self.facts}):
            for message in differences(there.get(name), self.facts.get(name)):
                self.inspection.found("log", name, message)

    def _compare_withdrawn(self) -> None:
        session, found = self.inspection.session, self.inspection.found
        yanked, revoked = retold.yanks(session), set()
        for ref in sorted(ref for ref in {*yanked, *self.yanked} if yanked.get(ref) != self.yanked.get(ref)):
            found("log", ref, "whether it is yanked, why and since when, is not what the log tells")
        for ref, program, reason, since in retold.revocations(session):
            revoked.add(program)
            if reason is None:
                found("row", ref, f"its program {program} is revoked under another name, but not under this one")
            elif (reason, since) not in self.revoked.get(program, ()):
                found("log", str(program), f"whether {ref} is revoked, why and since when, is not what the log tells")
        for program in sorted({*self.revoked} - revoked):
            found("log", str(program), "whether this program is revoked is not what the log tells")

    def _compare(self) -> None:
        for action, kind in _KINDS.items():
            events = [event for event in self.waiting if event.action == action]
            self._compare_rows(
                kind, [(event, digest) for event in events for digest in _digests(event.after, kind.key)]
            )
        self._compare_manifests()
        self.waiting.clear()
        self.moves.clear()

    def _compare_rows(self, kind: _Kind, events: Sequence[tuple[Event, Digest]]) -> None:
        """Hold each event, and the digest of what it made, against the row that was made."""
        rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in kind.rows(self.inspection.session, {digest for _, digest in events}):
            made = {**row.state, "created": row.created}
            rows.setdefault((row.subject, row.state[kind.key]), []).append(made)
        for event, digest in events:
            told = {**kind.unsaid, **event.after, "created": event.at}
            faults = [differences(row, told) for row in rows.get((event.subject, str(digest)), ())]
            missing = f"the log tells of a {kind.noun} {digest} that is not there, or is another one"
            for message in min(faults, key=len, default=[missing]):
                self.inspection.found("log", event.subject, message)

    def _compare_manifests(self) -> None:
        there = records.issued_at(self.inspection.session, {head for _, _, head in self.moves})
        for channel, number, head in self.moves:
            if (channel, head) not in there:
                message = f"event {number} moved it, but the manifest that followed is not there"
                self.inspection.found("log", f"channel {channel}", message)


def _digests(document: Any, name: str) -> list[Digest]:
    """The digests in a field of an event, whatever else may stand there."""
    value = document.get(name) if isinstance(document, dict) else None
    texts = value if isinstance(value, list) else [value]
    found = []
    for text in texts:
        with suppress(InputError):
            found.append(Digest.parse(str(text)))
    return found


def _check_release(inspection: Inspection, number: int) -> None:
    """A release's document names the builds of its rows, and what devices may want of them."""
    release = channels.release(inspection.session, number)
    if release is None:
        return
    document = ReleaseDocument.from_bytes(inspection.store.read(release.document.digest))
    said = [
        (line.foundation.file.digest, {a.name: (a.version, a.file) for a in line.adapters}) for line in document.lines
    ]
    if (document.release, document.holes, said) != (number, release.holes, _rows(release)):
        inspection.found("release", f"release {number}", "its document and its rows differ")
    elif records.release_files(inspection.session, number) != {pin.digest for pin in document.shared()}:
        inspection.found("release", f"release {number}", "the files that are kept for it are not those that it pins")


def _rows(release: Release) -> list[tuple[Digest, dict[str, tuple[str, Descriptor]]]]:
    return [
        (line.foundation, {name: (build.version, build.file) for name, build in line.builds.items()})
        for line in release.lines
    ]
