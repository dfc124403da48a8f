"""What a publish means: which version it is, and whether it adds a version, a build or nothing.

A version is what was trained, so its source never changes; a build is that version through one template. Publishing
the same again is a no-op, and so is publishing other files that give the very same program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy.orm import Session

from registry import states
from registry.artifacts import Build, PublishResult, Source, Template, Version
from registry.blobs import BlobStore
from registry.catalog import adapters, content, foundations
from registry.catalog.log import Change
from registry.digest import Descriptor, Digest
from registry.errors import BlobMissing, Conflict, InputError, IntegrityError, NotFound
from registry.lineage import check as check_lineage
from registry.names import check_name, check_version

FIRST = "1.0.0"
_TRIES = 8


@dataclass(frozen=True, slots=True)
class Publication:
    """Everything that a publisher hands over; its bytes are in the store already. `version` None: choose one."""

    adapter: str
    version: str | None
    source: Source
    template: Template
    file: Descriptor
    factors: Descriptor
    lineage: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    parts: Mapping[str, Descriptor] = field(default_factory=dict)

    def check(self) -> None:
        """Raise InputError for a name, version, source or lineage that can never be recorded."""
        check_name(self.adapter, what="adapter")
        if self.version is not None:
            check_version(self.version)
        check_lineage(self.lineage)
        if not self.source.files:
            raise InputError(f"{self.adapter} has no source files", hint="an adapter has at least a config and tensors")

    def blobs(self) -> list[Descriptor]:
        """Every blob that the rows will refer to, the source list among them."""
        beside = [*self.source.files.values(), *self.source.attachments.values()]
        return [self.file, self.factors, Descriptor.of(self.source.to_bytes()), *beside, *self.parts.values()]


def insisting(record: Callable[[], PublishResult]) -> PublishResult:
    """Call what puts blobs and then records them, again while the collector takes one in between."""
    for _ in range(_TRIES - 1):
        with suppress(BlobMissing):
            return record()
    return record()


def publish(change: Change, store: BlobStore, new: Publication, *, even_revoked: bool = False) -> PublishResult:
    """Record a publication. Raises Conflict ("immutable"), NotFound, IntegrityError (an export that varies).

    A program that is revoked, under whatever name, is refused too, or with `even_revoked` recorded as such.
    """
    return publish_all(change, store, [new], even_revoked=even_revoked)[0]


def publish_all(
    change: Change, store: BlobStore, new: Sequence[Publication], *, even_revoked: bool = False
) -> list[PublishResult]:
    """Record publications in this order, each as `publish` does; their blobs are looked for all at once."""
    templates = [_template(change, each) for each in new]
    content.require(change, store, [blob for each in new for blob in each.blobs()])
    return [
        _record(change, each, template, even_revoked=even_revoked)
        for each, template in zip(new, templates, strict=True)
    ]


def _template(change: Change, new: Publication) -> int:
    row = foundations.template_id(change.session, new.template)
    if row is None:
        raise NotFound(
            "the template is not recorded", hint="record it before the build", digest=str(new.template.digest)
        )
    return row


def _record(change: Change, new: Publication, template: int, *, even_revoked: bool) -> PublishResult:
    number = new.version or _next(change, new)
    known = adapters.version(change.session, new.adapter, number)
    if known is not None:
        return _judged(change, _add_to(change, new, known, template), even_revoked=even_revoked)
    version = Version(new.adapter, number, new.source.digest, new.lineage, change.at, None)
    adapters.insert_version(change, version, new.source)
    beside = states.version(new.lineage, states.digests(new.source.attachments))
    made = PublishResult(version, _insert(change, new, version, template, beside), "version")
    return _judged(change, made, even_revoked=even_revoked)


def _judged(change: Change, made: PublishResult, *, even_revoked: bool) -> PublishResult:
    """What was recorded, revoked if its program is: devices know it by its digest alone."""
    build = made.build
    revoked = adapters.revoked_program(change.session, build.file.digest)
    if made.outcome == "unchanged" or revoked is None:
        return made
    other, reason = revoked
    ref = f"{build.adapter}@{build.version}"
    if not even_revoked:
        raise Conflict(
            f"{ref} is the same program as {other}, which is revoked: {reason}",
            hint="devices were told never to run it: publish another one",
        )
    adapters.set_revoked(change, [build], reason)
    change.record("adapter.revoke", ref, after={"reason": reason, "builds": [str(build.file.digest)]})
    return replace(made, build=replace(build, revoked=reason))


def standing(
    session: Session, adapter: str, version: str | None, source: Digest, template: Template | None
) -> PublishResult | None:
    """What publishing this source through this template would find recorded already; None when it would add something.

    `version` None means the highest one. Raises Conflict for a version that was made from another source.
    """
    versions = adapters.versions(session, adapter) if version is None else ()
    known = adapters.version(session, adapter, version) if version is not None else next(reversed(versions), None)
    if known is None:
        return None
    if known.source != source:
        if version is not None:
            raise _immutable(known, source)
        return None
    row = foundations.template_id(session, template) if template else None
    build = adapters.through_template(session, adapter, known.version, row) if row is not None else None
    return PublishResult(known, build, "unchanged") if build else None


def _immutable(version: Version, source: Digest) -> Conflict:
    return Conflict(
        f"{version.adapter}@{version.version} is immutable: it was made from another source",
        hint="publish under another version, or without one: the next is chosen then",
        expected=str(version.source),
        actual=str(source),
    )


def _next(change: Change, new: Publication) -> str:
    """The next patch after the highest version; the highest itself when it has this source, or this very program."""
    versions = adapters.versions(change.session, new.adapter)
    if not versions:
        return following(None)
    highest = versions[-1]
    builds = adapters.builds(change.session, new.adapter, highest.version, new.template.foundation)
    if highest.source == new.source.digest or any(build.file == new.file for build in builds):
        return highest.version
    return following(highest.version)


def following(version: str | None) -> str:
    """The version that is chosen after this one; None stands for an adapter without any."""
    return FIRST if version is None else str(check_version(version).next_version("patch"))


def _add_to(change: Change, new: Publication, version: Version, template: int) -> PublishResult:
    """A publication of a version that is recorded: one more build of it, or nothing new."""
    builds = adapters.builds(change.session, version.adapter, version.version, new.template.foundation)
    equal = [build for build in builds if build.file == new.file]
    if equal:
        return PublishResult(version, equal[-1], "unchanged")
    if version.source != new.source.digest:
        raise _immutable(version, new.source.digest)
    before = adapters.through_template(change.session, version.adapter, version.version, template)
    if before is not None:
        raise IntegrityError(
            f"{version.adapter}@{version.version} through the same template gave another program before",
            hint="the first one stays; please report this: relinking must be reproducible",
            expected=str(before.file.digest),
            actual=str(new.file.digest),
        )
    return PublishResult(version, _insert(change, new, version, template), "build")


def _insert(
    change: Change, new: Publication, version: Version, template: int, beside: Mapping[str, Any] | None = None
) -> Build:
    """Record a build; its event tells `beside` what came with a version that is new."""
    build = Build(
        adapter=version.adapter,
        version=version.version,
        foundation=new.template.foundation,
        template=new.template.digest,
        file=new.file,
        factors=new.factors,
        warnings=tuple(new.warnings),
        revoked=None,
        parts=new.parts,
    )
    adapters.insert_build(change, build, template)
    told = {**_state(version, build), **(beside or {})}
    change.record("adapter.publish", f"{version.adapter}@{version.version}", after=told)
    return build


def _state(version: Version, build: Build) -> dict[str, Any]:
    return states.build(
        source=version.source,
        foundation=build.foundation,
        template=build.template,
        program=build.file.digest,
        factors=build.factors.digest,
        warnings=build.warnings,
        parts=states.digests(build.parts),
    )
