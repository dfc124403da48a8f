"""How versions are withdrawn: yanked (no new release takes it) or revoked (no device may run its builds any more)."""

from __future__ import annotations

from collections.abc import Iterable

from registry import lookup, releasing
from registry.artifacts import Build, Version
from registry.blobs import BlobStore
from registry.catalog import adapters, channels
from registry.catalog.log import Change
from registry.digest import Digest
from registry.errors import InputError, NotFound


def yank(change: Change, ref: str, reason: str | None) -> Version:
    """Yank a version for a reason, or undo it with None; twice is once."""
    if reason == "":
        raise InputError("a yank needs a reason", hint="say why, in a few words")
    before = lookup.version(change.session, ref)
    if before.yanked == reason:
        return before
    adapters.set_yanked(change, before, reason)
    action = "adapter.unyank" if reason is None else "adapter.yank"
    subject = f"{before.adapter}@{before.version}"
    change.record(action, subject, before=before.yanked, after=reason)
    return lookup.version(change.session, subject)


def revoke(
    change: Change, store: BlobStore, ref: str, reason: str, foundation: str | Digest | None
) -> tuple[Build, ...]:
    """Revoke a version's builds and issue the manifest of every channel that ever offered one; twice is once.

    Devices know a program by its digest alone, so whatever else is the same program is revoked with it. Answers all.
    """
    if not reason:
        raise InputError("a revocation needs a reason", hint="say why, in a few words")
    session = change.session
    of = lookup.version(session, ref)
    where = None if foundation is None else lookup.foundation_digest(session, foundation)
    builds = adapters.builds(session, of.adapter, of.version, where)
    if not builds:
        raise NotFound(f"{of.adapter}@{of.version} has no build there", hint="see `ptdock adapter show`")
    programs = {build.file.digest: None for build in builds}
    revoke_programs(change, store, f"{of.adapter}@{of.version}", programs, reason)
    return tuple(build for digest in programs for build in _same(change, digest))


def revoke_programs(
    change: Change, store: BlobStore, ref: str, programs: Iterable[Digest], reason: str
) -> tuple[tuple[Build, ...], tuple[str, ...]]:
    """Revoke what is of these programs, under whatever name; `ref` is whose they were said to be.

    Answers the builds that were not revoked before, and the channels whose manifest was issued for them.
    """
    fresh = tuple(build for digest in programs for build in _same(change, digest) if build.revoked is None)
    if not fresh:
        return (), ()
    adapters.set_revoked(change, fresh, reason)
    digests = [str(digest) for digest in dict.fromkeys(build.file.digest for build in fresh)]
    change.record("adapter.revoke", ref, after={"reason": reason, "builds": digests})
    names = sorted({name for build in fresh for name in channels.reaching(change.session, build)})
    for channel in [lookup.channel(change.session, name) for name in names]:
        releasing.issue(change, store, channel, channel.arms)
    return fresh, tuple(names)


def _same(change: Change, program: Digest) -> list[Build]:
    return [build for build in adapters.builds_with(change.session, program) if build.file.digest == program]
