"""What was told against what is: the log against itself and the rows, releases and manifests against the rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from registry import audit, canonical
from registry.artifacts import Release
from registry.audit import Event
from registry.catalog import channels, log, reach, records
from registry.catalog.records import Issued
from registry.digest import Descriptor, Digest
from registry.manifest import Manifest, ReleasePin
from registry.release import ReleaseDocument
from registry.verification.facts import follow, moved
from registry.verification.inspection import Inspection

_BATCH = 500  # events that are compared with the rows at a time
_COUNTED: dict[str, str] = {
    "adapter.publish": "builds",
    "release.create": "releases",
}


def check_history(inspection: Inspection) -> None:
    """The log, then every release, then every manifest."""
    _check_log(inspection)
    for number, document in reach.documents(inspection.session):
        if inspection.sound(document):
            with inspection.finding("release", f"release {number}"):
                _check_release(inspection, number)
    for issued in records.manifests(inspection.session):
        if inspection.sound(issued.file):
            with inspection.finding("manifest", _subject(issued)):
                _check_manifest(inspection, issued)


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
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTED.values(), 0))
    facts: dict[str, Any] = field(default_factory=dict)
    moves: list[tuple[str, int, Digest]] = field(default_factory=list)
    yanked: dict[str, str] = field(default_factory=dict)
    revoked: set[Digest] = field(default_factory=set)
    waiting: list[Event] = field(default_factory=list)

    def add(self, event: Event, digest: Digest) -> None:
        """Take one more event and its recorded digest, oldest first. One that was edited may say anything at all."""
        counted = _COUNTED.get(event.action)
        if counted:
            self.counts[counted] += 1
        follow(self.facts, event)
        channel = moved(event)
        if channel is not None:
            self.moves.append((channel, event.id, digest))
        if event.action == "adapter.yank":
            self.yanked[event.subject] = str(event.after)
        elif event.action == "adapter.unyank":
            self.yanked.pop(event.subject, None)
        elif event.action == "adapter.revoke":
            self.revoked.update(_digests(event.after, "builds"))
        elif event.action in {"adapter.publish", "release.create"}:
            self.waiting.append(event)
        if max(len(self.waiting), len(self.moves)) == _BATCH:
            self._compare()

    def close(self) -> None:
        """Compare what is left: the last events, and what all of them came to."""
        self._compare()
        session, found = self.inspection.session, self.inspection.found
        for name, actual in records.counts(session).items():
            told = self.counts[name]
            if actual != told:
                found("log", name, f"there are {actual} {name}, the log tells of {told}")
        with self.inspection.finding("row", "channels, names, templates and tokens"):
            self._compare_facts()
        if records.yanks(session) != self.yanked:
            differing = sorted({*records.yanks(session).items()} ^ {*self.yanked.items()})
            found("log", differing[0][0], "whether it is yanked, and why, is not what the log tells")
        for digest in sorted(records.revocations(session) ^ self.revoked):
            found("log", str(digest), "whether this build is revoked is not what the log tells")

    def _compare_facts(self) -> None:
        there = records.facts(self.inspection.session)
        for name in sorted({*there, *self.facts}):
            now, told = there.get(name), self.facts.get(name)
            if now != told:
                self.inspection.found("log", name, f"it is {_shown(now)}, the log tells of {_shown(told)}")

    def _compare(self) -> None:
        builds = [told for event in self.waiting if (told := _told(event)) is not None]
        there = records.published(self.inspection.session, {told[3] for told in builds})
        for told in builds:
            if told not in there:
                message = f"the log tells of a build {told[3]} that is not there, or is another one"
                self.inspection.found("log", told[0], message)
        self._compare_releases()
        self._compare_manifests()
        self.waiting.clear()
        self.moves.clear()

    def _compare_manifests(self) -> None:
        there = records.issued_at(self.inspection.session, {head for _, _, head in self.moves})
        for channel, number, head in self.moves:
            if (channel, head) not in there:
                message = f"event {number} moved it, but the manifest that followed is not there"
                self.inspection.found("log", f"channel {channel}", message)

    def _compare_releases(self) -> None:
        told = {
            int(event.subject.removeprefix("release ")): _digests(event.after, "document")
            for event in self.waiting
            if event.action == "release.create" and event.subject.removeprefix("release ").isdecimal()
        }
        there = records.released(self.inspection.session, told)
        for number, documents in told.items():
            if [there.get(number)] != documents:
                message = "its document is not the one that the log tells of"
                self.inspection.found("log", f"release {number}", message)


def _shown(value: Any) -> str:
    return "not there" if value is None else canonical.dumps(value).decode()[:200]


def _told(event: Event) -> tuple[str, Digest, Digest, Digest, Digest] | None:
    """The build that an event tells of, as records.published answers it."""
    if event.action != "adapter.publish":
        return None
    parts = [_digests(event.after, name) for name in ("source", "foundation", "build", "factors")]
    if any(len(part) != 1 for part in parts):
        return None  # edited: the chain has said so
    return event.subject, parts[0][0], parts[1][0], parts[2][0], parts[3][0]


def _digests(document: Any, name: str) -> list[Digest]:
    """The digests in a field of an event, whatever else may stand there."""
    value = document.get(name) if isinstance(document, dict) else None
    texts = value if isinstance(value, list) else [value]
    shaped = (text for text in texts if isinstance(text, str) and text.startswith("sha256:") and len(text) == 71)
    return [Digest(bytes.fromhex(text[7:])) for text in shaped]


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


def _subject(issued: Issued) -> str:
    return f"manifest {issued.sequence} of {issued.channel}"


def _check_manifest(inspection: Inspection, issued: Issued) -> None:
    session = inspection.session
    said = Manifest.from_bytes(inspection.store.read(issued.file.digest))
    head = said.log_head
    told = (said.channel, said.sequence, said.arms, said.issued, said.expires, said.registry)
    row = (issued.channel, issued.sequence, issued.arms, issued.issued, issued.expires, log.identity(session))
    offered = [arm.release for arm in issued.arms if arm.release is not None]
    documents = channels.documents(session, offered)
    pins = tuple(ReleasePin(number, documents[number]) for number in offered if number in documents)
    if told != row or said.releases != pins:
        inspection.found("manifest", _subject(issued), "its document and its rows differ")
    if head != issued.log_head or not log.holds(session, head):
        inspection.found("manifest", _subject(issued), f"the log does not hold the event {head} that it names")
    channel = channels.channel(session, issued.channel) if issued.newest else None
    if channel is not None and offered and channel.salt != said.salt:
        inspection.found("manifest", _subject(issued), "its salt is not the channel's: the next one would move devices")
    if channel is not None:
        missing = {*channels.revoked(session, issued.channel, offered)} - {*said.revoked}
        for digest in sorted(missing):
            inspection.found("manifest", _subject(issued), f"it does not name the revoked build {digest}")
