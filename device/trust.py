"""Which manifests a device believes: those that its root of trust vouches for (registry.signing.trust).

A root is pinned (`Options.root`), or trusted on first use where that is harmless: from a directory or a loopback
address, its fingerprint told. From then on the device takes nothing unsigned; an address that others could sit
between needs a pinned root from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from device.source import MANIFEST_LIMIT, Source, manifest_path
from registry import files
from registry.errors import InputError, IntegrityError, NotFound, PtdockError
from registry.manifest import Manifest

if TYPE_CHECKING:
    from registry.signing.trust import Trust

UNSIGNED = 0
"""The root's version where nothing is signed: every signed manifest counts as newer."""


@dataclass(slots=True)
class Believed:
    """The manifests that may be followed, why the others may not, and the version of the root behind them."""

    root: int = UNSIGNED
    manifests: dict[str, Manifest] = field(default_factory=dict)
    failures: dict[str, PtdockError] = field(default_factory=dict)


def believed(
    source: Source, directory: Path, channels: Sequence[str], pinned: bytes | None, note: Callable[[str], None]
) -> Believed:
    """Read the channels' manifests; `directory` is where the device keeps what it trusts.

    Raises InputError for an address that needs a pinned root; a channel's own failure is in the answer.
    """
    trust = _trust(source, directory, pinned, note)
    answer = Believed()
    with files.translated(directory):
        for channel in channels:
            try:
                if trust is None:
                    answer.manifests[channel] = _unsigned(source, channel)
                else:
                    verified = trust.verified(source.read, [channel])
                    answer.root = verified.root
                    answer.manifests[channel] = Manifest.from_bytes(verified.manifests[channel])
            except PtdockError as error:
                answer.failures[channel] = error
    return answer


def _trust(source: Source, directory: Path, pinned: bytes | None, note: Callable[[str], None]) -> Trust | None:
    """The device's root of trust; None where nothing is signed and nothing has to be."""
    known = (directory / "root.json").exists()
    if pinned is None and not known:
        if not source.near:
            raise InputError(
                f"{source} is not on this machine: whom to trust there has to be said",
                hint="pin the root document that the registry's owner gave you: --root FILE",
            )
        pinned = _first(source, note)
        if pinned is None:
            return None
    from registry.signing.trust import Trust  # noqa: PLC0415 - cryptography and TUF, only where something is signed

    return Trust(directory, pinned)


def _first(source: Source, note: Callable[[str], None]) -> bytes | None:
    """The root to trust on first use; None for a tree that is not signed."""
    from registry.signing.trust import fingerprint, first_root  # noqa: PLC0415 - as above

    try:
        root = first_root(source.read)
    except NotFound:
        return None
    note(f"trusting {source} on first use; its root's fingerprint is {fingerprint(root)}")
    return root


def _unsigned(source: Source, channel: str) -> Manifest:
    manifest = Manifest.from_bytes(source.read(manifest_path(channel), MANIFEST_LIMIT))
    if manifest.channel != channel:
        raise IntegrityError(
            f"{source} answers channel {manifest.channel} for {channel}",
            hint="the source mixes its channels up, or lies",
        )
    return manifest
