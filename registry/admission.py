"""What a channel demands before it offers a release: proofs, lineage, nothing revoked; and before it is widened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlalchemy.orm import Session

from registry import lookup
from registry.artifacts import Build, Channel, Release
from registry.errors import Conflict
from registry.lineage import missing
from registry.manifest import WHOLE
from registry.proving import require_proofs
from registry.release import ReleaseDocument
from registry.rollout import percent


def admit(
    session: Session, channel: Channel, release: Release, *, new: bool = False, allow_revoked: bool = False
) -> tuple[str, ...]:
    """Check a release that the channel is about to offer; answers warnings.

    Raises Conflict for revoked builds unless they are allowed, for yanked versions in a `new` release, for unproven
    builds and for versions that lack a lineage key where the channel requires them.
    """
    if not allow_revoked:
        _refuse_revoked(release)
    if channel.settings.get("require_proof"):
        require_proofs(session, release.lines)
    _require_lineage(session, channel, release)
    yanked = [f"{ref} is yanked: {reason}" for ref, reason in _yanked(session, release)]
    if new and yanked:
        raise Conflict(", ".join(yanked), hint="no new release may take a yanked version: use another")
    revoked = [f"{_ref(build)} is revoked: {build.revoked}" for build in _builds(release) if build.revoked]
    return tuple(dict.fromkeys([*revoked, *yanked]))


def coverage_bp(release: Release) -> int:
    """The share of the release's adapters that its poorest line holds, in basis points, rounded down."""
    names = {name for line in release.lines for name in line.builds}
    return min(len(line.builds) * WHOLE // len(names) for line in release.lines)


def check_coverage(channel: Channel, release: Release) -> None:
    """Raise Conflict when the poorest line of a release holds less than the channel demands for a wider rollout."""
    demanded = channel.settings.get("min_coverage_bp", 0)
    covered = coverage_bp(release)
    if covered >= demanded:
        return
    names = {name for line in release.lines for name in line.builds}
    poorest = min(release.lines, key=lambda line: len(line.builds))
    without = sorted(names - set(poorest.builds))
    raise Conflict(
        f"release {release.number} covers {percent(covered)} of its adapters on {poorest.foundation.short}, "
        f"{channel.name} demands {percent(demanded)}",
        hint=f"build {', '.join(without[:5])}{' …' if len(without) > 5 else ''} there (`ptdock adapter rebase`), "
        "then release again",
        expected=demanded,
        actual=covered,
        missing=without,
    )


def left_behind(new: ReleaseDocument, before: Iterable[ReleaseDocument]) -> tuple[str, ...]:
    """A warning for each earlier release that runs on an older ExecuTorch than any line of the new one does. Pure."""
    needed = _oldest(new)
    return tuple(
        f"release {new.release} needs ExecuTorch {_dotted(needed)}: devices with {_dotted(_oldest(each))} keep release "
        f"{each.release}, and those that have nothing get nothing; a channel of their own can offer them that release"
        for each in before
        if _oldest(each) < needed
    )


def let_go(new: ReleaseDocument, before: ReleaseDocument) -> tuple[str, ...]:
    """A warning for the adapters that the release before holds and the new one does not. Pure."""
    gone = sorted(_names(before) - _names(new))
    lost = f"release {new.release} is without {', '.join(gone)}, which release {before.release} has"
    return (f"{lost}: devices will drop what is not in it; --base live takes along what is",) if gone else ()


def _names(release: ReleaseDocument) -> set[str]:
    return {entry.name for line in release.lines for entry in line.adapters}


def _oldest(release: ReleaseDocument) -> tuple[int, int]:
    return min(line.requires.minimum for line in release.lines)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _refuse_revoked(release: Release) -> None:
    revoked = sorted({f"{_ref(build)} ({build.revoked})" for build in _builds(release) if build.revoked})
    if revoked:
        raise Conflict(
            f"release {release.number} holds revoked builds: {', '.join(revoked)}",
            hint="devices would leave them out; to offer it all the same: --allow-revoked",
            revoked=revoked,
        )


def _require_lineage(session: Session, channel: Channel, release: Release) -> None:
    required = channel.settings.get("require_lineage", ())
    lacking = {}
    for ref in dict.fromkeys(map(_ref, _builds(release))) if required else ():
        absent = missing(lookup.version(session, ref).lineage, required)
        if absent:
            lacking[ref] = list(absent)
    if lacking:
        listed = "; ".join(f"{ref}: {', '.join(absent)}" for ref, absent in lacking.items())
        raise Conflict(
            f"{channel.name} requires lineage that is not recorded: {listed}",
            hint="publish the next version with --meta KEY=VALUE",
            lacking=lacking,
        )


def _yanked(session: Session, release: Release) -> Iterator[tuple[str, str]]:
    for ref in dict.fromkeys(map(_ref, _builds(release))):
        reason = lookup.version(session, ref).yanked
        if reason is not None:
            yield ref, reason


def _builds(release: Release) -> list[Build]:
    return [build for line in release.lines for build in line.builds.values()]


def _ref(build: Build) -> str:
    return f"{build.adapter}@{build.version}"
