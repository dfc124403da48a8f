"""What a reference means: a name, a digest or NAME@VERSION becomes what is recorded, or NotFound says what there is."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy.orm import Session

from registry.artifacts import Base, Build, Channel, Foundation, Release, Template, Version
from registry.catalog import adapters, channels, foundations
from registry.digest import Descriptor, Digest
from registry.errors import NotFound
from registry.names import check_name, parse_reference

_SHOWN = 20  # as many names stand in a hint; all of them are in the error's values
_MAKE = {
    "foundations": "ptdock foundation export DIR --name NAME",
    "adapters": "ptdock adapter publish DIR --foundation NAME --name NAME",
    "channels": "ptdock channel create NAME",
}


def foundation_digest(session: Session, ref: str | Digest) -> Digest:
    """The digest that a foundation's name or digest means."""
    names = foundations.names(session)
    known = _digest(ref) if isinstance(ref, Digest) or ref.startswith("sha256:") else names.get(ref)
    if known is None or not foundations.exists(session, known):
        raise NotFound(f"no foundation {str(ref)!r}", hint=_known(names, "foundations"), known=list(names))
    return known


def _digest(ref: str | Digest) -> Digest:
    return ref if isinstance(ref, Digest) else Digest.parse(ref)


def foundation(session: Session, ref: str | Digest) -> Foundation:
    """The foundation with this name or digest."""
    digest = foundation_digest(session, ref)
    found = foundations.foundation(session, digest)
    if found is None:
        raise NotFound(f"no foundation {digest}")
    return found


def base(session: Session, fingerprint: Digest) -> Base:
    """The base with this fingerprint."""
    found = foundations.base(session, fingerprint)
    if found is None:
        raise NotFound(f"no base {fingerprint}", hint="`ptdock foundation export` records one")
    return found


def versions(session: Session, adapter: str) -> tuple[Version, ...]:
    """An adapter's versions, lowest first; there is at least one."""
    found = adapters.versions(session, check_name(adapter, what="adapter"))
    if not found:
        names = adapters.adapters(session)
        raise NotFound(f"no adapter {adapter!r}", hint=_known(names, "adapters"), known=list(names))
    return found


def version(session: Session, ref: str) -> Version:
    """`NAME@VERSION`, or the highest version of `NAME` that is not yanked."""
    if "@" not in ref:
        offered = [found for found in versions(session, ref) if found.yanked is None]
        if not offered:
            raise NotFound(f"every version of {ref!r} is yanked", hint="name one: NAME@VERSION, or un-yank one")
        return offered[-1]
    name, number = parse_reference(ref)
    found = adapters.version(session, name, number)
    if found is None:
        numbers = [each.version for each in versions(session, name)]
        raise NotFound(f"no version {number} of {name!r}", hint=_known(numbers, "versions"), known=numbers)
    return found


def build(session: Session, ref: str, foundation: str | Digest | None) -> Build:
    """The newest build of a version that is not revoked, on a foundation or on any."""
    wanted = version(session, ref)
    where = None if foundation is None else foundation_digest(session, foundation)
    found = [each for each in adapters.builds(session, wanted.adapter, wanted.version, where) if not each.revoked]
    if not found:
        on = f" on {foundation}" if foundation else ""
        raise NotFound(
            f"{wanted.adapter}@{wanted.version} has no usable build{on}", hint="publish it on that foundation first"
        )
    return found[-1]


def channel(session: Session, name: str) -> Channel:
    """The channel with this name."""
    found = channels.channel(session, check_name(name, what="channel"))
    if found is None:
        names = [each.name for each in channels.channels(session)]
        raise NotFound(f"no channel {name!r}", hint=_known(names, "channels"), known=names)
    return found


def release(session: Session, number: int) -> Release:
    """The release with this number."""
    found = channels.release(session, number)
    if found is None:
        newest = channels.newest_number(session)
        raise NotFound(f"no release {number}", hint=f"the newest is {newest}" if newest else "there is none yet")
    return found


def template_of(session: Session, build: Build) -> Template:
    """The template that a build went through."""
    found = foundations.template_of(session, build)
    if found is None:
        raise NotFound(f"no template of {build.adapter}@{build.version} ({build.file.digest})")
    return found


def manifest(session: Session, name: str, sequence: int | None) -> Descriptor:
    """A channel's manifest at a sequence, by default the newest."""
    newest = channel(session, name).sequence
    found = channels.manifest(session, name, newest if sequence is None else sequence)
    if found is None and not newest:
        raise NotFound(f"channel {name!r} offers nothing yet", hint=f"ptdock release create --channel {name} …")
    if found is None:
        raise NotFound(f"channel {name!r} has no manifest {sequence}", hint=f"the newest is {newest}")
    return found


def _known(names: Iterable[str], what: str) -> str:
    listed = list(names)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    if listed:
        return f"known {what}: {', '.join(listed[:_SHOWN])}{more}"
    return f"there are no {what} yet" + (f"; {_MAKE[what]} makes one" if what in _MAKE else "")
