"""What a registry keeps of its keys and its TUF metadata: the directory `keys/` of its home.

    keys.json                   where each private key is: key id to URI
    online/<role>-<id>.pem      the private keys of targets, snapshot, timestamp and light, unless they live elsewhere
    root/<id>.pem               development only: real root keys are encrypted and kept apart
    metadata/<n>.root.json …    what was issued: every root, the last few targets and snapshots, the timestamp
    metadata/<channel>.json.sig the light signature of the channel's newest manifest

Private keys are written before the root that names them, so a crash leaves at worst a key that nobody trusts. Whoever
changes anything here holds the site's lock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from securesystemslib.signer import Key, Signer, SSlibKey

from registry import canonical, files
from registry.documents import SCHEMA, opened
from registry.errors import FormatError, IntegrityError, NotFound
from registry.signing.keys import file_uri, generate, open_signer, write_private
from registry.signing.metadata import ONLINE, Keys, Online, expires, follows, keys_of, parse_root, version

KEPT = 3
"""How many versions of targets and snapshot stay: whoever read an earlier timestamp finds what it points to."""
_DAY = 86400
_NUMBERED = re.compile(r"([0-9]{1,9})\.(targets|snapshot)\.json", re.ASCII)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A private key that a KMS, an HSM or another directory holds: its URI and its public key."""

    uri: str
    key: SSlibKey


@dataclass(frozen=True, slots=True)
class RoleStatus:
    """One role: its public keys' ids, how many must sign, its document's version and when that expires.

    The light key has no document: its `version` is 0 and nothing expires.
    """

    role: str
    keys: tuple[str, ...]
    threshold: int
    version: int
    expires: int | None

    def days_left(self, now: int) -> float | None:
        """Days until the document expires; negative afterwards."""
        return None if self.expires is None else (self.expires - now) / _DAY


@contextmanager
def own(directory: Path) -> Iterator[None]:
    """Say of a damaged document of this directory where it is and what brings it back."""
    try:
        yield
    except FormatError as error:
        raise IntegrityError(
            f"{directory} is damaged: {error.message}", hint=f"restore {directory} from a backup of the home"
        ) from error


class KeyStore:
    """A registry's keys; `directory` need not exist yet."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def roots(self) -> list[bytes]:
        """Every root, oldest first."""
        found: list[bytes] = []
        while data := self.read(f"{len(found) + 1}.root.json"):
            found.append(data)
        return found

    @property
    def root(self) -> bytes:
        """The newest root's document. Raises NotFound when there are no keys."""
        roots = self.roots()
        if not roots:
            raise NotFound("this registry has no keys", hint="make them: `ptdock keys init`")
        return roots[-1]

    @property
    def keys(self) -> Keys:
        """The public keys that the newest root names."""
        root = self.root
        with own(self.directory):
            return keys_of(parse_root(root))

    @property
    def light_key(self) -> bytes:
        """The light profile's public key in PEM: what an app is built with."""
        key = self.keys.online["light"]
        return str(key.to_dict()["keyval"]["public"]).encode()

    def signer(self, role: str) -> Signer:
        """An online role's signer. Raises NotFound, InputError or Unavailable when it cannot be opened."""
        return self._open(self.keys.online[role])

    def root_signers(self) -> list[Signer]:
        """The signers of a development root, which lie in `root/`."""
        found = []
        for key in self.keys.root:
            path = self.directory / "root" / f"{key.keyid[:16]}.pem"
            found.append(open_signer(file_uri(path.name), key, path.parent))
        return found

    def add_keys(self, roles: Iterable[str], elsewhere: Mapping[str, Elsewhere]) -> dict[str, Key]:
        """New keys for online roles, generated here unless `elsewhere` has them; recorded before anyone trusts them."""
        public: dict[str, Key] = {}
        uris = self.uris()
        for role in roles:
            found = elsewhere.get(role) or self._generated(role)
            public[role] = found.key
            uris[found.key.keyid] = found.uri
        self._write_uris(uris)
        return public

    def add_root(self, data: bytes) -> None:
        """Make a root the newest one. Raises IntegrityError for one that devices would not follow."""
        roots = self.roots()
        if not follows(data, roots[-1] if roots else None):
            raise IntegrityError(
                "too few of the root's keys have signed",
                hint="sign with as many keys as the old and the new threshold say",
            )
        files.replace(self._metadata(f"{len(roots) + 1}.root.json"), data)

    def forget_unused(self) -> None:
        """Delete the online private keys that the newest root does not name."""
        named = {key.keyid for key in self.keys.online.values()}
        uris = self.uris()
        used = {keyid: uri for keyid, uri in uris.items() if keyid in named}
        here = {self.directory / "online" / uri.partition(":")[2] for uri in used.values()}
        for path in (self.directory / "online").glob("*.pem"):
            if path not in here:
                files.unlink(path)
        self._write_uris(used)

    def read(self, name: str) -> bytes | None:
        """A document of `metadata/`; None when it is absent."""
        try:
            return self._metadata(name).read_bytes()
        except FileNotFoundError:
            return None

    def keep(self, name: str, data: bytes) -> None:
        """Write a document of `metadata/` unless it is there already."""
        if self.read(name) != data:
            files.replace(self._metadata(name), data)

    def online(self) -> Online | None:
        """The newest targets, snapshot and timestamp; None before the first."""
        timestamp = self.read("timestamp.json")
        newest = {
            role: self.read(f"{max(numbers, default=0)}.{role}.json") for role, numbers in self._numbers().items()
        }
        targets, snapshot = newest["targets"], newest["snapshot"]
        return Online(targets, snapshot, timestamp) if targets and snapshot and timestamp else None

    def recent(self) -> dict[str, bytes]:
        """The last few targets and snapshots, by name; older ones are deleted."""
        kept: dict[str, bytes] = {}
        for role, numbers in self._numbers().items():
            for number in sorted(numbers):
                name = f"{number}.{role}.json"
                data = self.read(name)
                if data and number > max(numbers) - KEPT:
                    kept[name] = data
                else:
                    files.unlink(self._metadata(name))
        return kept

    def status(self) -> list[RoleStatus]:
        """Every role: keys, threshold, version and expiry."""
        with own(self.directory):
            return self._status()

    def _status(self) -> list[RoleStatus]:
        keys, online = self.keys, self.online()
        documents = {role: getattr(online, role) if online else None for role in ONLINE} | {"light": None}
        signing = [_status(role, (keys.online[role],), 1, document) for role, document in documents.items()]
        return [_status("root", keys.root, keys.threshold, self.root), *signing]

    def uris(self) -> dict[str, str]:
        """Where each online private key is, by key id."""
        path = self.directory / "keys.json"
        if not path.exists():
            return {}
        with own(self.directory):
            fields = opened(path.read_bytes(), what="keys.json", known="schema critical uris", limit=1 << 20)
            uris = fields.object("uris")
            return {keyid: uris.label(keyid) for keyid in uris.keys()}  # noqa: SIM118 - not a dict

    def _generated(self, role: str) -> Elsewhere:
        private, key = generate(role)
        name = f"{role}-{key.keyid[:16]}.pem"
        write_private(self.directory / "online" / name, private, None)
        return Elsewhere(file_uri(name), key)

    def _open(self, key: Key) -> Signer:
        uri = self.uris().get(key.keyid)
        if uri is None:
            raise NotFound(f"no private key for {key.keyid[:16]}", hint="`ptdock keys rotate` makes a new one")
        try:
            return open_signer(uri, key, self.directory / "online")
        except NotFound as error:
            lost = "put it back from your backup; if it is lost, a new one takes its place: `ptdock keys rotate ROLE`"
            raise NotFound(error.message, hint=lost) from error

    def _write_uris(self, uris: Mapping[str, str]) -> None:
        document = {"schema": SCHEMA, "critical": [], "uris": dict(uris)}
        files.replace(self.directory / "keys.json", canonical.dumps(document))

    def _numbers(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {"targets": [], "snapshot": []}
        folder = self.directory / "metadata"
        for path in folder.iterdir() if folder.is_dir() else ():
            match = _NUMBERED.fullmatch(path.name)
            if match:
                found[match[2]].append(int(match[1]))
        return found

    def _metadata(self, name: str) -> Path:
        return self.directory / "metadata" / name


def _status(role: str, keys: Iterable[Key], threshold: int, document: bytes | None) -> RoleStatus:
    number, until = (version(document), expires(document)) if document else (0, None)
    return RoleStatus(role, tuple(key.keyid for key in keys), threshold, number, until)
