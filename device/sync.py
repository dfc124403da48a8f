"""Bring a device's directory to what its channels offer; what was active stays so until all of the new set is there.

    result = sync(open_source("site"), ["stable"], Path("phone"))
    result.channels[0].outcome            # "activated", "unchanged", …

In order: the manifests, the release documents that they pin for this device, the device's own plan, the downloads,
and for each channel one rename that makes its new set the active one. A failure in one channel leaves that channel
as it was and does not hold up the others; the first one is raised at the end.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path

from device.activation import accepted, forgetting, refusing, switched
from device.checks import Checks
from device.fetching import Fetcher, foundations_of
from device.manage import check_whole, surveyed
from device.result import ChannelResult, Options, SyncResult, code_of
from device.sets import kept_sets, with_channel
from device.source import Source
from device.store import DeviceStore
from device.trust import believed
from registry.device_state import ENCODINGS, ActiveSet, DeviceState
from registry.digest import Descriptor, Digest
from registry.errors import InputError, IntegrityError, PtdockError, Unavailable
from registry.manifest import Manifest
from registry.offer import Reason
from registry.plan import Plan, pins, plan
from registry.release import ReleaseDocument

__all__ = ["ChannelResult", "Options", "SyncResult", "sync"]

ATTACKS = frozenset({"older", "another-registry"})
STALE = ATTACKS | {"expired"}
"""The plan's reasons for which a manifest changes nothing at all."""


def sync(source: Source, channels: Sequence[str], directory: Path, options: Options | None = None) -> SyncResult:
    """Sync `directory` (made when absent) with these channels of `source`.

    Raises the first channel's failure after the others had their turn: NotFound for an unknown channel, IntegrityError
    for bytes or documents that are not what was pinned, Unavailable for a source that cannot be reached, a full disk
    or an offer that this device cannot take. `values["channels"]` of the error says what became of each.
    """
    if not channels:
        raise InputError("no channel to sync", hint="name at least one")
    store = DeviceStore.create(directory)
    with store.locked((options or Options()).note):
        return _Sync(source, store, options or Options()).run(list(dict.fromkeys(channels)))


_TODO = {
    "older": "if the registry was restored from a backup, its owner goes past what was published: channel advance",
    "expired": "the registry has to sign again: keys refresh, daily, and site publish; is this device's clock right?",
    "no-line": "a newer app may run it, or a release with a line for this device",
    "no-room": "free some space, or let --delete-first give up what runs",
}


@dataclass(slots=True)
class _Sync:
    """One sync under the directory's lock."""

    source: Source
    store: DeviceStore
    options: Options
    failures: dict[str, PtdockError] = field(default_factory=dict)
    outcomes: dict[str, str] = field(default_factory=dict)
    offered: dict[str, int] = field(default_factory=dict)
    checks: Checks = field(init=False)
    fetcher: Fetcher = field(init=False)
    state: DeviceState = field(init=False)

    def __post_init__(self) -> None:
        self.checks = Checks(self.store)
        self.fetcher = Fetcher(self.source, self.store, self.checks, self.options.note)
        self.state = _identity(self.store.read_state(), self.options)

    def run(self, channels: Sequence[str]) -> SyncResult:
        self._write(self.state)
        trusted = believed(self.source, self.store.trust, channels, self.options.root, self.options.note)
        self.failures |= trusted.failures
        releases = self._releases(trusted.manifests.values())
        manifests = [each for each in trusted.manifests.values() if each.channel not in self.failures]
        answer = plan(
            manifests,
            releases,
            surveyed(self.store, self.state, self.checks),
            now=int(self.options.clock()),
            root=trusted.root,
            delete_first=self.options.delete_first,
        )
        self._accept(manifests, answer, trusted.root)
        if answer.order != "beside":
            self._delete(answer.delete)
        self._switch(answer)
        if not self.failures:
            self._delete(answer.delete if answer.order == "beside" else ())
            self._drop_unfinished()
        self.checks.save()
        return self._result(channels, answer, manifests)

    def _write(self, state: DeviceState) -> None:
        self.store.write_state(state)
        self.state = state

    def _releases(self, manifests: Iterable[Manifest]) -> dict[Digest, ReleaseDocument]:
        """The release documents that the plan reads, fetched where they are not here."""
        found: dict[Digest, ReleaseDocument] = {}
        for manifest in manifests:
            try:
                for pin in pins([manifest], self.state):
                    self.fetcher.take(pin)
                    found[pin.digest] = ReleaseDocument.from_bytes(self.store.path(pin.digest).read_bytes())
            except PtdockError as error:
                self.failures[manifest.channel] = error
        return found

    def _accept(self, manifests: Sequence[Manifest], answer: Plan, root: int) -> None:
        """From here on no older manifest is taken, and no revoked build runs, even if a download fails below."""
        refused = {reason.channel: reason for reason in answer.refused}
        state = self.state
        for manifest in manifests:
            channel = manifest.channel
            if channel in refused:
                self.failures[channel] = _refusal(refused[channel])
            if channel not in refused or refused[channel].code not in STALE:
                after = accepted(state.channels.get(channel), manifest, root)
                state = with_channel(state, channel, after)
        self._write(state)

    def _switch(self, answer: Plan) -> None:
        """Fetch and switch channel by channel, in the plan's order."""
        wanted = {each.channel: each.set for each in answer.activate}
        self.offered = {name: to.release for name, to in wanted.items()}
        self._announce(answer.bytes)
        for channel in dict.fromkeys([*(each.channel for each in answer.download), *wanted]):
            try:
                self._fetch(channel, wanted.get(channel), answer)
                if channel in wanted:
                    self._activate(channel, wanted[channel])
                self.outcomes[channel] = "activated" if channel in wanted else "repaired"
            except PtdockError as error:
                self.failures[channel] = error

    def _announce(self, total: int) -> None:
        done = 0

        def progress(size: int) -> None:
            nonlocal done
            done += size
            self.options.progress(done, total)

        self.fetcher.progress = progress

    def _fetch(self, channel: str, to: ActiveSet | None, answer: Plan) -> None:
        target = to or self.state.channels[channel].active
        held = foundations_of(each for state in self.state.channels.values() for each in kept_sets(state))
        for download in answer.download:
            if download.channel != channel:
                continue
            if target and download.file == target.line.foundation.file:
                self.fetcher.foundation(target.line.foundation, held)
            else:
                self.fetcher.take(download.file)

    def _activate(self, channel: str, to: ActiveSet) -> None:
        for entry in to.line.adapters:
            self.fetcher.program(entry)
        check_whole(to, self.checks)
        self._test(channel, to)
        self._write(with_channel(self.state, channel, switched(self.state.channels[channel], to)))

    def _test(self, channel: str, to: ActiveSet) -> None:
        """Replay the self-tests of what is new; the release of a set that fails is not taken again."""
        if self.options.self_test is None:
            return
        state = self.state.channels[channel]
        known = state.active.line if state.active else None
        same = known and known.foundation == to.line.foundation
        new = [entry for entry in to.line.adapters if not (same and known and entry in known.adapters)]
        if not any(entry.self_test for entry in new):
            return
        try:
            self.options.self_test(self.store, to, new)
        except IntegrityError:
            self._write(with_channel(self.state, channel, refusing(state, to.document.digest)))
            raise

    def _delete(self, blobs: Sequence[Descriptor]) -> None:
        """Delete, after no set names the files any more."""
        gone = {blob.digest for blob in blobs}
        channels = {name: forgetting(channel, gone) for name, channel in self.state.channels.items()}
        if channels != self.state.channels:
            self._write(replace(self.state, channels=channels))
        for digest in gone:
            self.store.remove(digest)

    def _drop_unfinished(self) -> None:
        """All that was wanted is here: what is begun belongs to an offer that is gone."""
        for digest in self.store.unfinished():
            self.store.remove_partial(digest)

    def _result(self, channels: Sequence[str], answer: Plan, manifests: Sequence[Manifest]) -> SyncResult:
        results = tuple(self._channel_result(name) for name in channels)
        if self.failures:
            first = next(self.failures[name] for name in channels if name in self.failures)
            first.values["channels"] = [each.to_json() for each in results]
            raise first
        return SyncResult(
            device=self.state.id,
            channels=results,
            plan=answer,
            fetched=self.fetcher.fetched,
            poll_seconds=min(manifest.poll_seconds for manifest in manifests),
        )

    def _channel_result(self, name: str) -> ChannelResult:
        channel = self.state.channels.get(name)
        active = channel.active if channel else None
        error = self.failures.get(name)
        return ChannelResult(
            channel=name,
            outcome="failed" if error else self.outcomes.get(name, "unchanged"),
            code=code_of(error) if error else self.outcomes.get(name, "unchanged"),
            release=active.release if active else None,
            adapters={entry.name: entry.version for entry in active.line.adapters} if active else {},
            error=error.message if error else None,
            offered=self.offered.get(name),
        )


def _identity(before: DeviceState | None, options: Options) -> DeviceState:
    """Who the device is: new facts replace the old ones, what it holds, follows and asked for stays."""
    known = options.facts or before or DeviceState(str(uuid.uuid4()), executorch=_installed_executorch())
    demand = dict.fromkeys([*known.on_demand, *(before.on_demand if before else ()), *options.demand])
    known = replace(known, encodings=known.encodings or ENCODINGS, on_demand=tuple(demand))
    return replace(known, holds=(), free_disk=None, channels=before.channels if before else {})


def _installed_executorch() -> str | None:
    try:
        return metadata.version("executorch")
    except metadata.PackageNotFoundError:
        return None


def _refusal(reason: Reason) -> PtdockError:
    kind = IntegrityError if reason.code in ATTACKS else Unavailable
    todo = _TODO.get(reason.code)
    hint = f"{todo}; what was active still is" if todo else "what was active still is"
    return kind(f"channel {reason.channel}: {reason.text}", hint=hint, reason=reason.code)
