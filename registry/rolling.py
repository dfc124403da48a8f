"""The verbs of a rollout: everything that moves one channel's pointer, each in one transaction.

    stable = registry.rollout("stable")
    stable.create(Contents(["pirate@1.3.1"], base=stable.live()), 1000)   # to 10 % of the devices
    stable.widen(5000)                                                    # nobody leaves, 40 % enter
    stable.halt()                  # no new devices; those that run it keep it
    stable.rollback()              # the release before is offered again, under a higher sequence
    stable.who("phone-1")          # what this device is offered, and why

What a verb does to the arms is `registry.rollout`'s, what a channel demands `registry.admission`'s. Here they meet the
catalog: look, decide, record the event, issue the manifest, and afterwards write the site and run the hook.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from registry import lookup, releasing, rollout, settings
from registry.admission import admit, check_coverage, left_behind, let_go
from registry.artifacts import Channel, Release, ReleaseResult
from registry.blobs import BlobStore
from registry.catalog import channels
from registry.catalog.log import Change
from registry.composing import Composed, Contents, compose
from registry.database import Database
from registry.digest import Descriptor, Digest
from registry.errors import Conflict, IntegrityError, NotFound
from registry.hooks import Hooks, Outcome
from registry.manifest import WHOLE, Arm, Manifest
from registry.names import check_name
from registry.release import ReleaseDocument
from registry.replaying import Who, manifest_then, told
from registry.rollout import Arms


@dataclass(frozen=True, slots=True)
class Preview:
    """What `create` would do: the release that it would record, its document, the arms before and after."""

    release: Release
    document: ReleaseDocument
    before: Arms
    after: Arms
    warnings: tuple[str, ...]


class Rollout:
    """One channel's rollout. `change` opens a transaction; `follow` brings the site after what was `done`."""

    def __init__(
        self,
        channel: str,
        home: Path,
        database: Database,
        blobs: BlobStore,
        *,
        change: Callable[[], AbstractContextManager[Change]],
        follow: Callable[[str], None],
    ) -> None:
        self.channel = check_name(channel, what="channel")
        self.hooks = Hooks(home)
        self._database = database
        self._blobs = blobs
        self._change = change
        self._follow = follow

    def live(self) -> int:
        """The release that the channel offers now: that of its first open arm. Raises Conflict when there is none."""
        with self._database.read() as session:
            return _live(lookup.channel(session, self.channel))

    def create(self, contents: Contents, share_bp: int = WHOLE, *, draft: bool = False) -> ReleaseResult:
        """Record a release and, unless it is a draft, offer it to a share of the devices, in basis points.

        Raises what `compose`, `admit` and `rollout.start` raise; then nothing is recorded.
        """
        composed = self._composed(contents)[1]  # outside of the transaction: a new foundation's file is read for it
        offer = None if draft else {"channel": self.channel, "share_bp": share_bp}
        with self._change() as change:
            channel = lookup.channel(change.session, self.channel)
            _check_base(channel, contents)
            release = releasing.record(change, self._blobs, composed, offer)
            warnings = admit(change.session, channel, release, new=True)
            warnings += self._lost(change.session, channel, contents, composed.document)
            if draft:
                return ReleaseResult(release, channel, None, warnings)
            arms = _with_arm(channel, release, share_bp)
            channel, file = releasing.issue(change, self._blobs, releasing.draw_salt(change, channel), arms)
        self._follow(f"release {release.number} is recorded and offered")
        return self._told("release.create", ReleaseResult(release, channel, file, warnings))

    def preview(self, contents: Contents, share_bp: int = WHOLE) -> Preview:
        """What `create` would do; nothing is recorded. Raises the same."""
        channel, composed = self._composed(contents)
        file = Descriptor.of(composed.document.to_bytes())
        release = Release(composed.document.release, file, composed.lines, "", composed.document.holes)
        with self._database.read() as session:
            warnings = admit(session, channel, release, new=True)
            warnings += self._lost(session, channel, contents, composed.document)
        after = rollout.start(channel.arms, release.number, share_bp)
        return Preview(release, composed.document, channel.arms, after, warnings)

    def start(self, number: int, share_bp: int = WHOLE, *, allow_revoked: bool = False) -> ReleaseResult:
        """Offer a recorded release, such as a draft, to a share of the devices."""
        with self._change() as change:
            done = self._started(change, "release.start", number, share_bp, {}, allow_revoked=allow_revoked)
        self._follow(f"release {number} is offered")
        return self._told("release.start", done)

    def promote(
        self, source: str, share_bp: int = WHOLE, *, number: int | None = None, allow_revoked: bool = False
    ) -> ReleaseResult:
        """Offer here what another channel offers: its live release, or release `number`, which it must have offered."""
        with self._change() as change:
            giver = lookup.channel(change.session, source)
            chosen = _live(giver) if number is None else number
            if source not in channels.ever_offered(change.session).get(chosen, ()):
                raise NotFound(f"{source} never offered release {chosen}", hint="to offer it here: release start")
            done = self._started(
                change, "release.promote", chosen, share_bp, {"from": source}, allow_revoked=allow_revoked
            )
        self._follow(f"release {chosen} is offered")
        return self._told("release.promote", done)

    def widen(self, share_bp: int, number: int | None = None) -> ReleaseResult:
        """Grow a release's share, by default the newest one's; only entrants move.

        Raises InputError for a smaller share or a halted release, Conflict below the channel's coverage.
        """

        def widened(channel: Channel, release: Release) -> Arms:
            check_coverage(channel, release)
            return rollout.widen(channel.arms, release.number, share_bp)

        return self._moved("release.widen", number, widened)

    def complete(self) -> ReleaseResult:
        """Give the newest release to every device but the holdout; older arms are retired."""

        def completed(channel: Channel, release: Release) -> Arms:
            check_coverage(channel, release)
            return rollout.complete(channel.arms)

        return self._moved("release.complete", None, completed)

    def halt(self, number: int | None = None) -> ReleaseResult:
        """Offer a release, by default the newest one, to no further device; those that run it keep it."""
        return self._moved("release.halt", number, lambda channel, release: rollout.halt(channel.arms, release.number))

    def resume(self, number: int | None = None) -> ReleaseResult:
        """Undo `halt`."""
        return self._moved(
            "release.resume", number, lambda channel, release: rollout.resume(channel.arms, release.number)
        )

    def rollback(self, number: int | None = None, *, allow_revoked: bool = False) -> ReleaseResult:
        """Offer an earlier release again in place of what came after it, under a higher sequence.

        By default the one behind the newest arm, else what most devices were offered before this one first was; never a
        halted one. Raises Conflict for a release with revoked builds unless they are allowed, and when there is nothing
        to go back to.
        """
        with self._change() as change:
            channel = lookup.channel(change.session, self.channel)
            target = _before(change, channel) if number is None else number
            release = lookup.release(change.session, target)
            if self.channel not in channels.ever_offered(change.session).get(target, ()):
                raise Conflict(f"{self.channel} never offered release {target}", hint="to offer it: release start")
            warnings = admit(change.session, channel, release, allow_revoked=allow_revoked)
            arms = rollout.rollback(channel.arms, target)
            said = {"release": target, **_allowed(allow_revoked)}
            channel, file = self._issued(change, "release.rollback", channel, arms, said)
        self._follow(f"release {target} is offered again")
        return ReleaseResult(release, channel, file, warnings)

    def configure(self, holdout_bp: int | None = None, **changes: Any) -> Channel:
        """Change the channel's settings (registry.settings; None puts one back) and its holdout in basis points."""
        with self._change() as change:
            channel = lookup.channel(change.session, self.channel)
            after = settings.changed(channel.settings, changes)
            arms = channel.arms if holdout_bp is None else rollout.hold_out(channel.arms, holdout_bp)
            if after == channel.settings and arms == channel.arms:
                return channel
            channels.update_channel(change, self.channel, settings=after)
            said = {"settings": dict(channel.settings), "arms": _json(channel.arms)}
            change.record(
                "channel.set", f"channel {self.channel}", before=said, after={"settings": after, "arms": _json(arms)}
            )
            tell = arms != channel.arms or any(after[name] != channel.settings[name] for name in settings.IN_MANIFEST)
            channel = lookup.channel(change.session, self.channel)
            if tell and (channel.sequence or arms != channel.arms):
                channel, _ = releasing.issue(change, self._blobs, channel, arms)
        self._follow(f"channel {self.channel} is changed")
        return channel

    def who(self, device: str, *, active: int | None = None, at: int | None = None) -> Who:
        """What a device is offered, by the newest manifest or by that of a time in Unix seconds.

        `active` is the release that it runs: a halted arm keeps only such devices. Raises NotFound when the channel
        offered nothing then.
        """
        with self._database.read() as session:
            file = manifest_then(session, self.channel, at)
        return told(Manifest.from_bytes(self._blobs.read(file.digest)), device, active)

    def _composed(self, contents: Contents) -> tuple[Channel, Composed]:
        with self._database.read() as session:
            channel = lookup.channel(session, self.channel)
            return channel, compose(session, self._blobs, contents, channels.next_number(session))

    def _started(
        self, change: Change, action: str, number: int, share_bp: int, said: Mapping[str, Any], *, allow_revoked: bool
    ) -> ReleaseResult:
        """Give a recorded release its arm; the event says what is `said` besides."""
        channel = lookup.channel(change.session, self.channel)
        release = lookup.release(change.session, number)
        warnings = admit(change.session, channel, release, allow_revoked=allow_revoked)
        warnings += self._left_behind(change.session, channel, self._document(release.document.digest))
        arms = _with_arm(channel, release, share_bp)
        channel = releasing.draw_salt(change, channel)
        said = {**said, "release": number, **_allowed(allow_revoked)}
        channel, file = self._issued(change, action, channel, arms, said)
        return ReleaseResult(release, channel, file, warnings)

    def _lost(self, session: Session, channel: Channel, contents: Contents, new: ReleaseDocument) -> tuple[str, ...]:
        """What apps, and devices, lose by this release: adapters too, unless they were dropped by name."""
        lost = self._left_behind(session, channel, new)
        if contents.drop or all(arm.release is None for arm in channel.arms):
            return lost
        before = lookup.release(session, _newest(channel))
        return (*lost, *let_go(new, self._document(before.document.digest)))

    def _left_behind(self, session: Session, channel: Channel, new: ReleaseDocument) -> tuple[str, ...]:
        """What the apps of the releases that are offered now lose by this one."""
        offered = {arm.release for arm in channel.arms if arm.release is not None} - {new.release}
        before = (lookup.release(session, number).document.digest for number in sorted(offered))
        return left_behind(new, map(self._document, before))

    def _document(self, digest: Digest) -> ReleaseDocument:
        return ReleaseDocument.from_bytes(self._blobs.read(digest))

    def _moved(self, action: str, number: int | None, verb: Callable[[Channel, Release], Arms]) -> ReleaseResult:
        """Do a verb to the arm of a release, by default the newest; what changes nothing issues nothing."""
        with self._change() as change:
            channel = lookup.channel(change.session, self.channel)
            release = lookup.release(change.session, _newest(channel) if number is None else number)
            arms = verb(channel, release)
            if arms == channel.arms:
                return ReleaseResult(release, channel, None)
            channel, file = self._issued(change, action, channel, arms, {"release": release.number})
        self._follow(f"channel {self.channel} is changed")
        return ReleaseResult(release, channel, file)

    def _issued(
        self, change: Change, action: str, channel: Channel, arms: Arms, said: Mapping[str, Any]
    ) -> tuple[Channel, Descriptor]:
        before, after = {"arms": _json(channel.arms)}, {"arms": _json(arms), **said}
        change.record(action, f"channel {self.channel}", before=before, after=after)
        return releasing.issue(change, self._blobs, channel, arms)

    def _told(self, event: str, result: ReleaseResult) -> ReleaseResult:
        """Run the hook, and say how it ended."""
        try:
            if not self.hooks.get(self.channel):
                return result
        except IntegrityError as error:  # what is offered stays so, whatever became of the hook
            return result.after(Outcome(("on_release",), None, f"{error.message}; {error.hint}"))
        document = {
            "schema": 1,
            "event": event,
            "channel": self.channel,
            "sequence": result.channel.sequence,
            "arms": _json(result.channel.arms),
            "release": result.release.number,
            **result.release.document.to_json(),
            "document": self._document(result.release.document.digest).to_json(),
        }
        return result.after(self.hooks.run(self.channel, document))


def _check_base(channel: Channel, contents: Contents) -> None:
    """Two who change what is live at once: the second would take back what the first did."""
    live = _live(channel) if contents.live else contents.base
    if live != contents.base:
        raise Conflict(
            f"{channel.name} offers release {live} by now, and this one was made from release {contents.base}",
            hint="see what changed (`ptdock release diff`), then repeat the command",
            expected=contents.base,
            actual=live,
        )


def _with_arm(channel: Channel, release: Release, share_bp: int) -> Arms:
    """The arms with a release's own; it goes to everyone at once only with the coverage that the channel demands."""
    arms = rollout.start(channel.arms, release.number, share_bp)
    if all(arm.holdout for arm in arms[1:]):
        check_coverage(channel, release)
    return arms


def _allowed(flag: bool) -> dict[str, bool]:
    """The flag as the log has it: only where it was given."""
    return {"allow_revoked": True} if flag else {}


def _json(arms: Arms) -> list[dict[str, Any]]:
    return [arm.to_json() for arm in arms]


def _newest(channel: Channel) -> int:
    """The release that is being rolled out: that of the first arm which has one."""
    for arm in channel.arms:
        if arm.release is not None:
            return arm.release
    raise Conflict(
        f"{channel.name} offers no release", hint=f"start one: ptdock release create --channel {channel.name}"
    )


def _live(channel: Channel) -> int:
    for arm in channel.arms:
        if arm.release is not None and arm.state == "open":
            return arm.release
    raise Conflict(f"{channel.name} offers no release", hint="name one by its number")


def _before(change: Change, channel: Channel) -> int:
    """The release to go back to from the newest one."""
    newest = _newest(channel)
    behind = _going_on(arm for arm in channel.arms if arm.release != newest)
    if behind:
        return behind[0]
    earlier = channels.before_release(change.session, channel.name, newest)
    targets = _going_on(sorted(earlier, key=lambda arm: -arm.share_bp))  # most devices come from the widest
    if not targets:
        raise Conflict(
            f"{channel.name} offered nothing before release {newest} that was not halted",
            hint="to stop it: halt; to replace it: release create; a halted one is offered again by its number: --to N",
        )
    return targets[0]


def _going_on(arms: Iterable[Arm]) -> list[int]:
    """The releases of these arms that go on: one that somebody halted is nothing to go back to by itself."""
    return [arm.release for arm in arms if arm.release is not None and arm.state == "open"]
