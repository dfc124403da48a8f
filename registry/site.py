"""The static tree that devices read from any web server: what channels offer, and nothing else.

    metadata/<n>.<role>.json, timestamp     TUF metadata, when the tree is signed (registry.signing)
    targets/<sha256>.<channel>.json         each manifest under its digest, as TUF clients ask for it
    targets/v1/<channel>.json               the newest manifest, with its signature in <channel>.json.sig
    blobs/sha256/<hex>                      releases, foundations, programs, …: hard links into the store

`tree` says what the tree holds, `publish` makes a `Target` hold exactly that. Whatever a reader follows is there
before what points to it: blobs, releases, manifests, metadata, the timestamp last; what is no longer offered goes
after that. Only what changes is touched, and a file that is not of this layout is left alone.

    publish(tree(registry_manifests, earlier, blobs.read, now=now), Directory(home / "site"), blobs)

Whoever publishes holds a lock around reading the manifests and writing the tree.
"""

from __future__ import annotations

import errno
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from registry import files
from registry.blobs import BlobStore
from registry.digest import CHUNK, Descriptor, Digest
from registry.manifest import Manifest
from registry.names import NAME_PATTERN
from registry.published import check_not_behind
from registry.release import ReleaseDocument

_BLOBS = "blobs/sha256"
_OURS = {
    _BLOBS: re.compile(r"[0-9a-f]{64}", re.ASCII),
    "targets": re.compile(rf"[0-9a-f]{{64}}\.{NAME_PATTERN}\.json", re.ASCII),
    "targets/v1": re.compile(rf"{NAME_PATTERN}\.json(\.sig)?", re.ASCII),
    "metadata": re.compile(r"([0-9]{1,9}\.(root|targets|snapshot)|timestamp)\.json", re.ASCII),
}
_UNFINISHED = re.compile(r"[0-9a-f]{32}", re.ASCII)  # what a crash in registry.files leaves
_NO_LINK = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP}


@dataclass(frozen=True, slots=True)
class Tree:
    """What a site holds: documents by path and blobs, each in the order in which they are to appear."""

    documents: Mapping[str, bytes]
    blobs: tuple[Descriptor, ...]


@dataclass(frozen=True, slots=True)
class Changes:
    """What `publish` did: paths that were written or replaced, and paths that were removed."""

    written: tuple[str, ...]
    removed: tuple[str, ...]


class Target(Protocol):
    """Where a tree is published to. Paths are relative, with slashes; every change is atomic and durable."""

    @property
    def remote(self) -> bool:
        """Whether others than this machine read it there."""
        ...

    def read(self, path: str) -> bytes | None:
        """A document's bytes; None when it is absent."""
        ...

    def names(self, directory: str) -> list[str]:
        """The names of the files in a directory; none when it is absent."""
        ...

    def put(self, path: str, data: bytes) -> None:
        """Write or replace a document."""
        ...

    def lacking(self, wanted: Iterable[Descriptor], blobs: BlobStore) -> list[Descriptor]:
        """The blobs that are absent here, or not what the store holds any more (it was repaired)."""
        ...

    def put_blob(self, blob: Descriptor, source: Path) -> None:
        """Add or replace a blob from a local file."""
        ...

    def settle(self, directory: str) -> None:
        """Make the names of a directory durable, after blobs were added or files removed."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; one that is gone is fine."""
        ...


def belongs(path: str) -> bool:
    """Whether a path is one of this layout; whatever else lies in a site is not a reader's business."""
    directory, _, name = path.rpartition("/")
    return directory in _OURS and _OURS[directory].fullmatch(name) is not None


def blob_path(digest: Digest) -> str:
    """Where a blob is."""
    return f"{_BLOBS}/{digest.hex}"


def manifest_path(channel: str) -> str:
    """Where a channel's newest manifest is."""
    return f"targets/v1/{channel}.json"


def pinned_path(channel: str, data: bytes) -> str:
    """Where a manifest is under its own digest."""
    return f"targets/{Digest.of(data).hex}.{channel}.json"


def tree(current: Iterable[bytes], earlier: Iterable[bytes], read: Callable[[Digest], bytes], *, now: int) -> Tree:
    """The tree of these manifests: the newest of each channel, and earlier ones that a device may still hold.

    Earlier manifests that expired before `now` (seconds since 1970) are left out. `read` answers a release
    document's bytes. Builds that a newest manifest revokes are not in the tree. Raises FormatError, and what
    `read` raises.
    """
    newest = {Manifest.from_bytes(data): data for data in current}
    older = {manifest: data for data in earlier if (manifest := Manifest.from_bytes(data)).expires >= now}
    revoked = frozenset(digest for manifest in newest for digest in manifest.revoked)
    releases = dict.fromkeys(pin.file for manifest in (*newest, *older) for pin in manifest.releases)
    blobs: dict[Descriptor, None] = {}
    for each in releases:
        blobs |= ReleaseDocument.from_bytes(read(each.digest)).blobs(revoked=revoked)
    documents = {pinned_path(manifest.channel, data): data for manifest, data in (older | newest).items()}
    documents |= {manifest_path(manifest.channel): data for manifest, data in newest.items()}
    return Tree(documents, (*blobs, *releases))


def publish(tree: Tree, target: Target, blobs: BlobStore) -> Changes:
    """Make the target hold this tree. Doing it again changes nothing.

    Raises Conflict, before anything is written, when the target is ahead of the tree or another registry's (see
    registry.published); NotFound for a blob that the store lacks; Unavailable.
    """
    check_not_behind(tree.documents, target.read)
    written = _add_blobs(tree, target, blobs)
    for path, data in tree.documents.items():
        if target.read(path) != data:
            target.put(path, data)
            written.append(path)
    return Changes(tuple(written), tuple(_remove_others(tree, target)))


def _add_blobs(tree: Tree, target: Target, blobs: BlobStore) -> list[str]:
    missing = target.lacking(tree.blobs, blobs)
    for each in missing:
        target.put_blob(each, blobs.path(each.digest))
    if missing:
        target.settle(_BLOBS)
    return [blob_path(each.digest) for each in missing]


def _remove_others(tree: Tree, target: Target) -> Iterable[str]:
    """Remove what is of this layout and not in the tree, first what points to other files."""
    kept = {*tree.documents, *(blob_path(each.digest) for each in tree.blobs)}
    removed: list[str] = []
    for directory in ("metadata", "targets/v1", "targets", _BLOBS):
        pattern = _OURS[directory]
        for name in target.names(directory):
            path = f"{directory}/{name}"
            if path not in kept and (pattern.fullmatch(name) or _UNFINISHED.fullmatch(name)):
                target.remove(path)
                removed.append(path)
        if removed:
            target.settle(directory)
    return removed


class Directory:
    """A target that is a local directory. Blobs are hard links where the file system can, copies elsewhere."""

    remote = False

    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self, path: str) -> bytes | None:
        """A document's bytes; None when it is absent."""
        try:
            return (self.root / path).read_bytes()
        except FileNotFoundError:
            return None

    def names(self, directory: str) -> list[str]:
        """The names of the files in a directory, sorted."""
        try:
            return sorted(each.name for each in (self.root / directory).iterdir() if each.is_file())
        except FileNotFoundError:
            return []

    def put(self, path: str, data: bytes) -> None:
        """Write or replace a document by a rename."""
        files.replace(self.root / path, data)

    def lacking(self, wanted: Iterable[Descriptor], blobs: BlobStore) -> list[Descriptor]:
        """The blobs whose file here is neither the store's own nor, where that is elsewhere, one of its size."""
        return [each for each in wanted if not self._has(each, blobs)]

    def _has(self, blob: Descriptor, blobs: BlobStore) -> bool:
        try:
            here = (self.root / blob_path(blob.digest)).stat()
        except FileNotFoundError:
            return False
        if blobs.remote:
            return here.st_size == blob.size
        there = blobs.path(blob.digest).stat()
        return here.st_ino == there.st_ino if here.st_dev == there.st_dev else here.st_size == blob.size

    def put_blob(self, blob: Descriptor, source: Path) -> None:
        """Link a blob, or copy it where links are impossible; `settle` makes its name durable."""
        at = self.root / blob_path(blob.digest)
        with files.translated(at):
            files.make_directory(at.parent)
            try:
                if not files.link(source, at):
                    _replace_link(source, at)
            except OSError as error:
                if error.errno not in _NO_LINK:
                    raise
                _copy(source, at)

    def settle(self, directory: str) -> None:
        """Make the names of a directory durable."""
        if (self.root / directory).is_dir():
            files.sync(self.root / directory)

    def remove(self, path: str) -> None:
        """Remove a file; one that is gone is fine."""
        files.unlink(self.root / path)


def _copy(source: Path, at: Path) -> None:
    with open(source, "rb") as blob, files.unfinished(at.parent) as (fresh, file):
        while chunk := blob.read(CHUNK):
            files.write(fresh, file, chunk)
        files.protect(fresh)
        files.sync(fresh)
        files.rename(fresh, at)


def _replace_link(source: Path, at: Path) -> None:
    fresh = at.with_name(secrets.token_hex(16))
    files.link(source, fresh)
    files.rename(fresh, at)
