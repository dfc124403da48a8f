"""TUF metadata as values: which documents some keys and manifests give.

The format is https://theupdateframework.github.io/specification/v1.0.33/, with consistent snapshots; the targets are
`<channel>.json`, the manifests. The root also names the light profile's key, and whether the keys are for
development, in fields that TUF clients carry along unread. Nothing here touches files or clocks; times are seconds
since 1970, UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from securesystemslib.signer import Key, Signer, SSlibKey
from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, MetaFile, Root, Signed, Snapshot, TargetFile, Targets, Timestamp
from tuf.api.serialization import DeserializationError
from tuf.api.serialization.json import JSONSerializer

from registry.errors import FormatError

ONLINE = ("targets", "snapshot", "timestamp")
SIGNING = (*ONLINE, "light")
DAYS = {"root": 365, "targets": 90, "snapshot": 90, "timestamp": 30}
"""How long each role's metadata lives. The timestamp as long as a manifest: `keys refresh` renews both."""
LIGHT = "x-ptdock-light"
DEVELOPMENT = "x-ptdock-development"
_COMPACT = JSONSerializer(compact=True)


@dataclass(frozen=True, slots=True)
class Online:
    """The three documents that online keys sign, as bytes."""

    targets: bytes
    snapshot: bytes
    timestamp: bytes

    def documents(self) -> dict[str, bytes]:
        """By the names that clients ask for under `metadata/`, the timestamp last."""
        return {
            f"{version(self.targets)}.targets.json": self.targets,
            f"{version(self.snapshot)}.snapshot.json": self.snapshot,
            "timestamp.json": self.timestamp,
        }


@dataclass(frozen=True, slots=True)
class Keys:
    """The public keys that a root names: its own with their threshold, and one for each role of `SIGNING`."""

    root: tuple[Key, ...]
    threshold: int
    online: Mapping[str, Key]
    development: bool = False


def parse_root(data: bytes) -> Root:
    """The root in a document. Raises FormatError."""
    signed = _parse(data, "root").signed
    if not isinstance(signed, Root):
        raise FormatError(f"expected TUF root metadata, got {signed.type}")
    return signed


def version(data: bytes) -> int:
    """The version of any metadata document. Raises FormatError."""
    return int(_parse(data, "metadata").signed.version)


def keys_of(root: Root) -> Keys:
    """The public keys that a root names. Raises FormatError for a root that ptdock did not make."""
    online = {role: root.get_key(root.roles[role].keyids[0]) for role in ONLINE}
    return Keys(
        root=tuple(root.get_key(keyid) for keyid in root.roles["root"].keyids),
        threshold=root.roles["root"].threshold,
        online={**online, "light": _light_key(root)},
        development=bool(root.unrecognized_fields.get(DEVELOPMENT)),
    )


def _light_key(root: Root) -> Key:
    try:
        fields = dict(root.unrecognized_fields[LIGHT])
        return SSlibKey.from_dict(fields.pop("keyid"), fields)
    except (KeyError, TypeError, ValueError):
        raise FormatError("the root names no key for the light profile", hint="did another tool make it?") from None


def make_root(keys: Keys, signers: Iterable[Signer], *, number: int, now: int) -> bytes:
    """The root's version `number`: these keys, signed by these signers (a new root by the old one's keys as well)."""
    light = {"keyid": keys.online["light"].keyid, **keys.online["light"].to_dict()}
    development = {DEVELOPMENT: True} if keys.development else {}
    root = Root(version=number, expires=_expiry("root", now), unrecognized_fields={LIGHT: light, **development})
    for key in keys.root:
        root.add_key(key, "root")
    root.roles["root"].threshold = keys.threshold
    for role in ONLINE:
        root.add_key(keys.online[role], role)
    return _signed(Metadata(root), signers)


def follows(root: bytes, before: bytes | None) -> bool:
    """Whether a client that trusts `before` takes `root` as its next version; None: as the first one."""
    new, old = _parse(root, "root"), parse_root(before) if before else None
    if not isinstance(new.signed, Root):
        return False
    enough = new.signed.get_root_verification_result(old, new.signed_bytes, new.signatures)
    return bool(enough) and new.signed.version == (old.version if old else 0) + 1


def issue(
    manifests: Mapping[str, bytes],
    root: Root,
    signer: Callable[[str], Signer],
    before: Online | None,
    *,
    now: int,
    above: int = 0,
) -> Online:
    """The online documents for these channels' manifests.

    What is unchanged, has half its life left and is signed by the root's keys stays byte for byte. New versions are
    one above the last ones, and above `above`. `signer` opens a role's signer when it is needed.
    """
    files = {f"{name}.json": TargetFile.from_data(f"{name}.json", data, ["sha256"]) for name, data in manifests.items()}
    issuer = _Issuer(root, signer, now, above)
    targets = issuer.renewed(Targets(targets=files), before.targets if before else None)
    meta = {"targets.json": MetaFile.from_data(version(targets), targets, ["sha256"])}
    snapshot = issuer.renewed(Snapshot(meta=meta), before.snapshot if before else None)
    pointer = MetaFile.from_data(version(snapshot), snapshot, ["sha256"])
    timestamp = issuer.renewed(Timestamp(snapshot_meta=pointer), before.timestamp if before else None)
    return Online(targets, snapshot, timestamp)


def expires(data: bytes) -> int:
    """When a document expires."""
    return int(_parse(data, "metadata").signed.expires.timestamp())


class _Issuer:
    """Makes the next version of a role's document, or keeps the last one."""

    def __init__(self, root: Root, signer: Callable[[str], Signer], now: int, above: int) -> None:
        self._root = root
        self._signer = signer
        self._now = now
        self._above = above

    def renewed(self, content: Signed, before: bytes | None) -> bytes:
        last = _parse(before, content.type) if before else None
        number = last.signed.version if last else 0
        if last and number > self._above and self._still_good(last, content):
            return before or b""
        content.version = max(number, self._above) + 1
        content.expires = _expiry(content.type, self._now)
        return _signed(Metadata(content), [self._signer(content.type)])

    def _still_good(self, last: Metadata[Any], content: Signed) -> bool:
        """Whether the last document says the same, has half its life left, and is signed by the right key."""
        content.version, content.expires = last.signed.version, last.signed.expires
        if last.signed != content:
            return False
        left = last.signed.expires - _moment(self._now)
        if left < timedelta(days=DAYS[content.type]) / 2:
            return False
        try:
            self._root.verify_delegate(content.type, last.signed_bytes, last.signatures)
        except RepositoryError:
            return False
        return True


def _parse(data: bytes, what: str) -> Metadata[Any]:
    try:
        return Metadata.from_bytes(data)
    except DeserializationError as error:
        raise FormatError(f"{what}: not TUF metadata", hint="fetch or make it again") from error


def _signed(document: Metadata[Any], signers: Iterable[Signer]) -> bytes:
    for signer in signers:
        document.sign(signer, append=True)
    return document.to_bytes(_COMPACT)


def _expiry(role: str, now: int) -> datetime:
    return _moment(now) + timedelta(days=DAYS[role])


def _moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
