"""What a device believes: the manifests that a site's TUF metadata vouches for, read from a site that is not trusted.

    trust = Trust(directory, root=pinned_root)        # or root=None to go on from what is trusted already
    verified = trust.verified(source.read, ["stable"])
    verified.manifests["stable"], verified.root       # the bytes, and the root's version for (root, sequence)

python-tuf's own client does the work: it stops replay, rollback, mixed snapshots, endless data and what too few keys
signed; a freeze shows as metadata that has expired. `verified_light` is the same for the light profile, which knows
one key and stops less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tuf.api.exceptions import (
    DownloadError,
    DownloadHTTPError,
    DownloadLengthMismatchError,
    ExpiredMetadataError,
    RepositoryError,
)
from tuf.ngclient import FetcherInterface, Updater

from registry.digest import Digest
from registry.errors import FormatError, IntegrityError, NotFound, Unavailable
from registry.manifest import MAX_BYTES, Manifest
from registry.names import check_name
from registry.signing import light
from registry.signing.metadata import keys_of, parse_root
from registry.site import manifest_path

Read = Callable[[str, int], bytes]
"""Answers the document at a path of the site, never reading more than so many bytes and one.

Raises NotFound, FormatError for a longer one, Unavailable.
"""

_BASE = "site:/"
_LARGEST = 5_000_000  # python-tuf's own bound for targets, the largest of its documents


@dataclass(frozen=True, slots=True)
class Verified:
    """Manifests by channel, as signed; the version of the root behind them; whether its keys are for development."""

    manifests: dict[str, bytes]
    root: int
    development: bool


class Trust:
    """The root of trust of one device, and the newest metadata that it has seen, in a directory.

    `root` is the document that the user pins; None goes on from what is trusted here already.
    """

    def __init__(self, directory: Path, root: bytes | None = None) -> None:
        self._directory = directory
        self._pinned = root
        if root is not None:
            parse_root(root)

    @property
    def root(self) -> bytes:
        """The newest root that is trusted here, or else the pinned one. Raises NotFound when there is neither."""
        try:
            return (self._directory / "root.json").read_bytes()
        except FileNotFoundError:
            if self._pinned is None:
                raise NotFound("no root is trusted here", hint="give one: --root FILE") from None
            return self._pinned

    def verified(self, read: Read, channels: Sequence[str]) -> Verified:
        """The channels' manifests, verified, with the newest metadata of the site remembered.

        Raises IntegrityError for whatever is not signed, or older than what was seen; Unavailable when the metadata
        has expired, or the site cannot be read; NotFound for a channel that is not in the signed list.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        with _translated():
            updater = Updater(
                metadata_dir=str(self._directory),
                metadata_base_url=f"{_BASE}metadata/",
                fetcher=_Fetcher(read),
                bootstrap=self._pinned or self.root,
            )
            updater.refresh()
            manifests = {channel: _target(updater, read, channel) for channel in channels}
        root = parse_root(self.root)
        return Verified(manifests, root.version, keys_of(root).development)


def first_root(read: Read) -> bytes:
    """The first root of a site, to be trusted on first use; show `fingerprint` to whoever decides. Raises NotFound."""
    data = read("metadata/1.root.json", _LARGEST)
    parse_root(data)
    return data


def fingerprint(root: bytes) -> Digest:
    """What people compare: the digest of a root's document."""
    return Digest.of(root)


def verified_light(read: Read, channel: str, public_key: bytes) -> bytes:
    """A channel's manifest, checked against the one key (PEM) that an app was built with.

    The manifest and its signature are two files: a reader that comes between their two renames sees a mismatch and
    tries again. Raises IntegrityError, FormatError, NotFound, Unavailable.
    """
    path = manifest_path(check_name(channel, what="channel"))
    data, signature = read(path, MAX_BYTES), read(f"{path}.sig", light.MAX_BYTES)
    light.verify(public_key, data, signature)
    return _of_channel(data, channel)


class _Fetcher(FetcherInterface):
    """Lets python-tuf read a site; `_fetch` is where its interface wants it."""

    def __init__(self, read: Read) -> None:
        self._read = read

    def _fetch(self, url: str) -> Iterator[bytes]:
        path = url.removeprefix(_BASE)
        try:
            return iter([self._read(path, _LARGEST)])
        except NotFound as error:
            raise DownloadHTTPError(error.message, 404) from error
        except FormatError as error:
            raise DownloadLengthMismatchError(error.message) from error
        except Unavailable as error:
            raise DownloadError(error.message) from error


@contextmanager
def _translated() -> Iterator[None]:
    """Turn python-tuf's refusals into ptdock's errors."""
    try:
        yield
    except ExpiredMetadataError as error:
        hint = "nothing changes until the registry signs again: `ptdock keys refresh`; is this clock right?"
        raise Unavailable(f"the site's metadata has expired: {error}", hint=hint) from error
    except (DownloadLengthMismatchError, RepositoryError) as error:
        raise IntegrityError(f"the site's metadata is not to be trusted: {error}", hint=_NOTHING) from error
    except DownloadHTTPError as error:
        raise NotFound(f"the site lacks signed metadata: {error}", hint="is it a signed site?") from error
    except DownloadError as error:
        raise Unavailable(f"the site cannot be read: {error}", hint="try again later") from error


_NOTHING = "nothing was changed; the site is damaged, behind, or not the one that was trusted"


def _target(updater: Updater, read: Read, channel: str) -> bytes:
    """A channel's manifest under the digest that the signed targets name."""
    check_name(channel, what="channel")
    info = updater.get_targetinfo(f"{channel}.json")
    if info is None or "sha256" not in info.hashes:
        hint = "is its name right, and does it offer a release yet?"
        raise NotFound(f"the signed list has no channel {channel}", hint=hint)
    try:
        data = read(f"targets/{info.hashes['sha256']}.{channel}.json", info.length)
    except FormatError as error:
        raise IntegrityError(f"{channel}: more bytes than the signed {info.length}", hint=_NOTHING) from error
    info.verify_length_and_hashes(data)
    return _of_channel(data, channel)


def _of_channel(data: bytes, channel: str) -> bytes:
    named = Manifest.from_bytes(data).channel
    if named != channel:
        raise IntegrityError(f"the manifest of {named} stands where {channel}'s should", hint=_NOTHING)
    return data
