"""A registry's keys and its signed site: everything that happens under the site's lock.

    desk = registry.signed_site()
    desk.refresh()                             # the home's own site, after each change of a channel
    desk.publish(Directory(Path("/srv/www")))  # the same tree elsewhere
    desk.rotate(["timestamp"], root_signers)   # new keys, and the site signed with them

Signing needs python-tuf and cryptography, so this module is imported only when something is signed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from securesystemslib.signer import Signer

from registry import files, lookup, site
from registry.artifacts import Channel
from registry.blobs import BlobStore
from registry.catalog import channels, log
from registry.catalog.log import Change
from registry.database import Database
from registry.errors import Conflict, FormatError, InputError
from registry.manifest import Manifest
from registry.published import TIMESTAMP, signed_version
from registry.releasing import issue
from registry.signing import ceremony
from registry.signing.ceremony import RootKeys
from registry.signing.store import Elsewhere, KeyStore, own
from registry.signing.tree import signed
from registry.site import Changes, Directory, Target, Tree, manifest_path


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What `renew` did: the channels that got a new manifest, and what changed in the site."""

    channels: tuple[Channel, ...]
    changes: Changes


class SignedSite:
    """One registry's keys and site; every method holds the site's lock while it changes either.

    `change` opens a transaction of the registry; `clock` answers seconds since 1970.
    """

    def __init__(
        self,
        home: Path,
        database: Database,
        blobs: BlobStore,
        change: Callable[[], AbstractContextManager[Change]],
        clock: Callable[[], float],
    ) -> None:
        self.store = KeyStore(home / "keys")
        self._home = home
        self._database = database
        self._blobs = blobs
        self._change = change
        self._clock = clock

    @property
    def here(self) -> Directory:
        """The home's own site, which `device sync` reads by default."""
        return Directory(self._home / "site")

    def create_development(self) -> None:
        """Make development keys unless there are keys."""
        with self._locked():
            ceremony.create_development(self.store, now=self._now())

    def refresh(self) -> Changes:
        """Write the home's site from what the channels offer now. Doing it again changes nothing.

        Raises Conflict when the site is ahead of this store, NotFound without keys, Unavailable.
        """
        return self.publish(self.here)

    def publish(self, target: Target) -> Changes:
        """Make the target hold the signed tree.

        Raises Conflict when the target is ahead of this store or another registry's, and for development keys where
        the target is remote; Unavailable.
        """
        with self._locked():
            self._refuse_development(target)
            return self._write(target)

    def renew(self) -> Refreshed:
        """Issue again every manifest that is past half its life, and sign what is past half of its own.

        Needs only the online keys. Again at once changes nothing.
        """
        with self._locked():
            with self._change() as change:
                renewed = tuple(self._reissued(change, channel) for channel in _past_half(change))
            return Refreshed(renewed, self._write(self.here))

    def advance(self, names: Sequence[str], target: Target) -> tuple[Channel, ...]:
        """Go past what is published at the target: its sequences, and its versions of signed metadata.

        For a store that was restored from a backup. Each channel of `names` (none: all) that is behind issues its arms
        again under a higher sequence; those are answered. New releases get numbers above the published ones. Raises
        Conflict for another registry's manifest.
        """
        with self._locked():
            with self._change() as change:
                chosen = [lookup.channel(change.session, name) for name in names] or channels.channels(change.session)
                advanced = [self._advanced(change, channel, target) for channel in chosen]
            self._write(self.here, above=max(self._behind(target), self._behind(self.here)))
        return tuple(channel for channel in advanced if channel is not None)

    def init_keys(self, to: RootKeys, elsewhere: Mapping[str, Elsewhere]) -> list[Path]:
        """Replace development keys by real ones; answers the root keys' files. See ceremony.init."""
        if to.directory.resolve().is_relative_to(self._home.resolve()):
            raise InputError(f"{to.directory} is inside the registry's home", hint="root keys are kept apart from it")
        with self._rekeying():
            return ceremony.init(self.store, to, elsewhere, now=self._now())

    def rotate(self, roles: Sequence[str], signers: Sequence[Signer], elsewhere: Mapping[str, Elsewhere]) -> None:
        """Give online roles new keys; `signers` are enough of the root's. See ceremony.rotate."""
        with self._rekeying():
            ceremony.rotate(self.store, roles, signers, elsewhere, now=self._now())

    def rotate_root(self, to: RootKeys, signers: Sequence[Signer]) -> list[Path]:
        """Replace the root's own keys; answers their files. See ceremony.rotate_root."""
        if self.store.keys.development:
            raise Conflict("development keys sign this registry", hint="replace them: `ptdock keys init`")
        with self._rekeying():
            return ceremony.rotate_root(self.store, to, signers, now=self._now())

    def renew_root(self, signers: Sequence[Signer]) -> None:
        """Give the root a new expiry. See ceremony.renew_root."""
        with self._rekeying():
            ceremony.renew_root(self.store, signers, now=self._now())

    def expiries(self) -> dict[str, int]:
        """When each channel's newest manifest expires, by channel, in seconds since 1970."""
        with self._database.read() as session:
            offering = [channel for channel in channels.channels(session) if channel.sequence]
            return {each.name: channels.lifetime(session, each.name, each.sequence)[1] for each in offering}

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with files.locked(self._home / "site.lock"):
            yield

    @contextmanager
    def _rekeying(self) -> Iterator[None]:
        """Change keys, then sign the site with them."""
        with self._locked():
            before = len(self.store.roots())
            yield
            with self._change() as change:
                change.record("keys.change", f"root {len(self.store.roots())}", before=before)
            self._write(self.here)

    def _now(self) -> int:
        return int(self._clock())

    def _tree(self) -> Tree:
        with self._database.read() as session:
            current, earlier = channels.unexpired(session, self._clock())
        read = self._blobs.read
        return site.tree(map(read, current), map(read, earlier), read, now=self._now())

    def _write(self, target: Target, *, above: int = 0) -> Changes:
        tree = self._tree()
        with own(self.store.directory):
            tree = signed(self.store, tree, now=self._now(), above=above)
        return site.publish(tree, target, self._blobs)

    def _refuse_development(self, target: Target) -> None:
        if target.remote and self.store.keys.development:
            raise Conflict(
                "development keys sign this registry, and a remote target is for real devices",
                hint="make real keys first: `ptdock keys init`",
            )

    def _behind(self, target: Target) -> int:
        """The version of signed metadata to go above; 0 where the target holds this store's own."""
        ours = self.store.online()
        if ours and target.read(TIMESTAMP) == ours.timestamp:
            return 0
        return signed_version(target.names("metadata"), target.read)

    def _reissued(self, change: Change, channel: Channel, *, after: int = 0) -> Channel:
        return issue(change, self._blobs, channel, channel.arms, after=after)[0]

    def _advanced(self, change: Change, channel: Channel, target: Target) -> Channel | None:
        """The channel past what is published, None where it is so already."""
        there = _published(target, channel.name)
        if there is None or there.sequence < channel.sequence:
            return None
        if there.registry != log.identity(change.session):
            raise Conflict(
                f"{channel.name}: what is published belongs to registry {there.registry}",
                hint="name the target of this registry",
            )
        if there == _own(change, self._blobs, channel):
            return None
        after = {
            "published": there.sequence,
            "release": max((pin.release for pin in there.releases), default=0),
            "log_head": str(there.log_head),
        }
        change.record(channels.ADVANCE, f"channel {channel.name}", before=channel.sequence, after=after)
        return self._reissued(change, channel, after=there.sequence)


def _past_half(change: Change) -> Iterator[Channel]:
    """The channels whose newest manifest has less than half its life left; each is recorded as refreshed."""
    for channel in channels.channels(change.session):
        if channel.sequence:
            issued, expires = channels.lifetime(change.session, channel.name, channel.sequence)
            if change.now > (issued + expires) / 2:
                change.record("channel.refresh", f"channel {channel.name}", before=expires)
                yield channel


def _published(target: Target, channel: str) -> Manifest | None:
    """The manifest that stands at the target; None for none and for a damaged one."""
    data = target.read(manifest_path(channel))
    try:
        return Manifest.from_bytes(data) if data is not None else None
    except FormatError:
        return None


def _own(change: Change, blobs: BlobStore, channel: Channel) -> Manifest | None:
    file = channels.manifest(change.session, channel.name, channel.sequence)
    return Manifest.from_bytes(blobs.read(file.digest)) if file else None
