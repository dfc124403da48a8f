"""Whether a target is ahead of the store that is about to publish to it: a restored backup, or the wrong target.

Devices refuse what is older than what they saw, so publishing from behind would strand them; it stops instead, and
`ptdock channel advance` goes past what is published.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from registry import canonical
from registry.errors import Conflict, FormatError
from registry.manifest import Manifest

Read = Callable[[str], bytes | None]
"""Answers a published document's bytes; None when it is absent."""

TIMESTAMP = "metadata/timestamp.json"
_ROOT = re.compile(r"([0-9]{1,9})\.root\.json", re.ASCII)
_NUMBERED = re.compile(r"([0-9]{1,9})\.(targets|snapshot)\.json", re.ASCII)


def check_not_behind(documents: Mapping[str, bytes], read: Read) -> None:
    """Compare what is to be published with what is. Raises Conflict.

    It stops a manifest or metadata that is not newer than other bytes in its place, another registry's manifest, an
    unsigned tree in place of a signed one, roots that this store does not know, and a blob store in place of a site.
    Damaged documents are no obstacle.
    """
    if read("oci-layout") is not None:
        raise Conflict("a store of blobs is there, not a site", hint="publish to a directory of its own")
    if TIMESTAMP not in documents and read(TIMESTAMP) is not None:
        raise Conflict("a signed site is published there, this tree is unsigned", hint="`ptdock keys init` makes keys")
    for path, data in documents.items():
        if path == TIMESTAMP:
            _compare_roots(documents, read)
            _compare_timestamps(read(path), data)
        elif path.startswith("targets/v1/") and path.endswith(".json"):
            _compare_manifests(path, read(path), data)


def newest_root(names: Iterable[str]) -> int:
    """The highest version of a root; 0 when there is none. `names` are in `metadata/`."""
    return max((int(match[1]) for match in map(_ROOT.fullmatch, names) if match), default=0)


def signed_version(names: Iterable[str], read: Read) -> int:
    """The highest version of metadata that online keys signed there; 0 when nothing is. `names` are in `metadata/`."""
    numbers = [int(match[1]) for match in map(_NUMBERED.fullmatch, names) if match]
    return max([_version(read(TIMESTAMP)), *numbers])


def _compare_roots(documents: Mapping[str, bytes], read: Read) -> None:
    """Every root that is published must be ours: devices that follow another one believe nothing that we sign."""
    newest = newest_root(path.removeprefix("metadata/") for path in documents)
    for number in range(1, newest + 2):
        path = f"metadata/{number}.root.json"
        there = read(path)
        if there is not None and there != documents.get(path):
            raise Conflict(
                f"root {number} is published there and is not one of this registry's keys",
                hint="put the newest backup of the home's keys/ back, or publish to another target",
                root=number,
            )


def _compare_timestamps(there: bytes | None, data: bytes) -> None:
    published, ours = _version(there), _version(data)
    if there != data and published >= ours:
        raise Conflict(
            f"signed metadata {published} is published, this store is at {ours}",
            hint="is this store a restored backup? `ptdock channel advance` goes past it",
            expected=published,
            actual=ours,
        )


def _version(timestamp: bytes | None) -> int:
    """The version in a TUF document; 0 for none and for a damaged one."""
    try:
        version = canonical.loads(timestamp or b"", what=TIMESTAMP)["signed"]["version"]
    except (FormatError, KeyError, TypeError):
        return 0
    return version if type(version) is int else 0


def _compare_manifests(path: str, there: bytes | None, data: bytes) -> None:
    if there is None or there == data:
        return
    try:
        published, ours = Manifest.from_bytes(there), Manifest.from_bytes(data)
    except FormatError:
        return
    if published.registry != ours.registry:
        raise Conflict(
            f"{path}: registry {published.registry} is published there, this one is {ours.registry}",
            hint="publish to another target, or remove what is there",
            expected=ours.registry,
            actual=published.registry,
        )
    if published.sequence >= ours.sequence:
        raise Conflict(
            f"{ours.channel}: sequence {published.sequence} is published, this store is at {ours.sequence}",
            hint=f"is this store a restored backup? `ptdock channel advance {ours.channel}` goes past it",
            channel=ours.channel,
            expected=published.sequence,
            actual=ours.sequence,
        )
