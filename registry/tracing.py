"""`ptdock trace`: what some bytes or a version are, what they were made from, and who was ever offered them.

    found = trace(session, Digest.parse("sha256:…"), now)      # or trace(session, "pirate@1.0.0", now)
    for origin in found.origins: print(origin.version, origin.template, origin.foundation)
    for span in found.offers: print(span.channel, span.release, span.since)

Everything is read from rows that are never changed or removed, and from the log for what was collected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlalchemy.orm import Session

from registry import lookup
from registry.artifacts import Base, Build, Foundation, Source, Template, Version
from registry.audit import Event
from registry.catalog import adapters, offers
from registry.catalog.edges import Edge, edges_of
from registry.catalog.offers import Span
from registry.digest import Digest
from registry.errors import NotFound
from registry.origins import origins
from registry.reachability import Words


@dataclass(frozen=True, slots=True)
class Origin:
    """What something was made from: all of it for a build, else the part that it has."""

    base: Base
    foundation: Foundation | None = None
    template: Template | None = None
    version: Version | None = None
    source: Source | None = None
    build: Build | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """One answer: `roles` say in words what it is; `events` are what the log says of it, oldest first."""

    digest: Digest | None
    roles: tuple[str, ...]
    origins: tuple[Origin, ...]
    offers: tuple[Span, ...]
    events: tuple[Event, ...]


def trace(session: Session, ref: str | Digest, now: float) -> Trace:
    """What a digest or a version (`NAME@VERSION`) is. `now` is Unix time in seconds.

    Raises NotFound for what the registry never knew.
    """
    return _digest(session, ref, now) if isinstance(ref, Digest) else _version(session, ref)


def _version(session: Session, ref: str) -> Trace:
    version = lookup.version(session, ref)
    builds = adapters.builds(session, version.adapter, version.version)
    exact = f"{version.adapter}@{version.version}"
    told = offers.offers(session, offers.releases_with(session, builds))
    return Trace(
        None, (f"the version {exact}",), tuple(_of_builds(session, builds)), told, offers.events(session, exact)
    )


def _digest(session: Session, digest: Digest, now: float) -> Trace:
    edges = list(edges_of(session, [digest]))
    if not edges:
        return _gone(session, digest)
    words = Words.of(session, now)
    found = origins(session, digest)
    of_versions = (adapters.builds(session, each.adapter, each.version) for each in found.versions)
    builds = list({id_of(build): build for some in (found.builds, *of_versions) for build in some}.values())
    holds = [edge for edge in edges if edge.kind in {"foundations.digest", "foundations.modules"}]
    lone = [lookup.foundation(session, Digest.parse(edge.owner)) for edge in holds]
    releases = {
        *offers.releases_with(session, builds),
        *(number for each in found.templates for number in offers.releases_through(session, each)),
        *(number for each in lone for number in offers.releases_on(session, each.file.digest)),
        *(int(edge.owner) for edge in edges if edge.kind in {"releases.document", "release_files.blob"}),
    }
    return Trace(
        digest,
        tuple(dict.fromkeys(words.role(edge) for edge in edges if edge.release is None)),
        (
            *_of_builds(session, builds),
            *_of_templates(session, found.templates),
            *(Origin(lookup.base(session, each.base), each) for each in lone),
            *map(Origin, found.bases),
        ),
        _of_manifest(session, edges) or offers.offers(session, releases),
        offers.events(session, str(digest)),
    )


def id_of(build: Build) -> tuple[object, ...]:
    """What tells builds apart; a build's own mapping of parts has no hash."""
    return build.adapter, build.version, build.foundation, build.template, build.file


def _of_builds(session: Session, builds: Iterable[Build]) -> Iterator[Origin]:
    for build in builds:
        version = lookup.version(session, f"{build.adapter}@{build.version}")
        foundation = lookup.foundation(session, build.foundation)
        yield Origin(
            base=lookup.base(session, foundation.base),
            foundation=foundation,
            template=lookup.template_of(session, build),
            version=version,
            source=adapters.source(session, version),
            build=build,
        )


def _of_templates(session: Session, templates: Iterable[Template]) -> Iterator[Origin]:
    for template in templates:
        foundation = lookup.foundation(session, template.foundation)
        yield Origin(lookup.base(session, foundation.base), foundation, template)


def _of_manifest(session: Session, edges: Iterable[Edge]) -> tuple[Span, ...]:
    """What a manifest offered, when these edges are one's."""
    for edge in edges:
        if edge.kind == "manifests.digest":
            channel, _, sequence = edge.owner.partition(" ")
            return offers.manifest(session, channel, int(sequence))
    return ()


def _gone(session: Session, digest: Digest) -> Trace:
    """What the log says of bytes to which nothing refers."""
    told = offers.mentions(session, digest)
    if not told:
        raise NotFound(f"nothing here has the digest {digest}", hint="it was never recorded in this registry")
    return Trace(digest, ("nothing refers to it any more",), (), (), told)
