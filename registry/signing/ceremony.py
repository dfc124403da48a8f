"""What operators do with keys: make them, replace them, renew the root. Each is one new root, or nothing.

    create_development(store, now=now)                       # `ptdock init`
    paths = init(store, RootKeys(usb_stick, passphrase), now=now)
    rotate(store, ["timestamp"], open_root(paths, passphrase), now=now)

A new root is signed by enough of the old root's keys as well as of its own, so devices follow from any earlier one.
`now` is seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from securesystemslib.signer import Signer

from registry import files
from registry.errors import Conflict, InputError, PtdockError
from registry.signing.keys import generate, read_signer, write_private
from registry.signing.metadata import SIGNING, Keys, make_root
from registry.signing.store import Elsewhere, KeyStore


@dataclass(frozen=True, slots=True)
class RootKeys:
    """Where new root keys go, and what closes them: `count` keys, of which `threshold` must sign."""

    directory: Path
    passphrase: bytes
    count: int = 1
    threshold: int = 1

    def __post_init__(self) -> None:
        if not self.passphrase:
            raise InputError("a root key needs a passphrase", hint="choose one that you can keep")
        if not 1 <= self.threshold <= self.count:
            raise InputError(
                f"{self.count} root keys cannot give {self.threshold} signatures",
                hint="make more, or lower the threshold",
            )


def create_development(store: KeyStore, *, now: int) -> None:
    """Make development keys, marked so in the root; a store that has keys is left as it is."""
    if store.roots():
        return
    with files.translated(store.directory):
        files.make_directory(store.directory)
        store.directory.chmod(0o700)
    private, public = generate("root")
    write_private(store.directory / "root" / f"{public.keyid[:16]}.pem", private, None)
    keys = Keys((public,), 1, store.add_keys(SIGNING, {}), development=True)
    store.add_root(
        make_root(keys, [read_signer(store.directory / "root" / f"{public.keyid[:16]}.pem")], number=1, now=now)
    )


def init(store: KeyStore, to: RootKeys, elsewhere: Mapping[str, Elsewhere] | None = None, *, now: int) -> list[Path]:
    """Replace development keys by real ones: a root kept apart, and new online keys (or those `elsewhere`).

    The development root signs too, so devices that trusted it follow. Answers the root keys' files, which belong on
    another machine. Raises Conflict when the registry has real keys already.
    """
    create_development(store, now=now)
    if not store.keys.development:
        raise Conflict("this registry has its keys", hint="to replace some: `ptdock keys rotate`")
    old = store.root_signers()
    paths, new = _new_root(to)
    keys = Keys(tuple(each.public_key for each in new), to.threshold, store.add_keys(SIGNING, elsewhere or {}))
    _next(store, keys, [*new, *old], now)
    for path in (store.directory / "root").glob("*.pem"):
        files.unlink(path)
    store.forget_unused()
    return paths


def rotate(
    store: KeyStore,
    roles: Sequence[str],
    signers: Sequence[Signer],
    elsewhere: Mapping[str, Elsewhere] | None = None,
    *,
    now: int,
) -> None:
    """Give online roles new keys by a new root, which `signers`, enough of the root's, sign.

    A client that has seen that root takes nothing more from the old keys; those in the registry's home are deleted.
    The light key is known to apps by their build: ship the new one before it is rotated. Raises InputError for a
    role that is not online, IntegrityError for too few signers.
    """
    wrong = [role for role in roles if role not in SIGNING]
    if wrong or not roles:
        raise InputError(f"cannot rotate {', '.join(wrong) or 'no role'}", hint=f"online roles: {', '.join(SIGNING)}")
    keys = store.keys
    fresh = store.add_keys(roles, elsewhere or {})
    _next(store, replace(keys, online={**keys.online, **fresh}), signers, now)
    store.forget_unused()


def rotate_root(store: KeyStore, to: RootKeys, signers: Sequence[Signer], *, now: int) -> list[Path]:
    """Replace the root's own keys; `signers`, enough of the old ones, sign too. Answers the new keys' files."""
    paths, new = _new_root(to)
    public = tuple(each.public_key for each in new)
    try:
        _next(store, replace(store.keys, root=public, threshold=to.threshold), [*new, *signers], now)
    except PtdockError:
        for path in paths:  # keys that sign nothing would only be taken for the new ones
            files.unlink(path)
        raise
    return paths


def renew_root(store: KeyStore, signers: Sequence[Signer], *, now: int) -> None:
    """Issue the same root again with a new expiry."""
    _next(store, store.keys, signers, now)


def open_root(paths: Iterable[Path], passphrase: bytes) -> list[Signer]:
    """The signers of root keys' files. Raises NotFound, InputError for a wrong passphrase, FormatError."""
    return [read_signer(path, passphrase) for path in paths]


def _new_root(to: RootKeys) -> tuple[list[Path], list[Signer]]:
    paths: list[Path] = []
    signers: list[Signer] = []
    for _ in range(to.count):
        private, public = generate("root")
        path = to.directory / f"ptdock-root-{public.keyid[:16]}.pem"
        write_private(path, private, to.passphrase)
        paths.append(path)
        signers.append(read_signer(path, to.passphrase))  # as it will be opened: a key that cannot be is found now
    return paths, signers


def _next(store: KeyStore, keys: Keys, signers: Iterable[Signer], now: int) -> None:
    """Sign and add the next root; each key signs once."""
    once = {signer.public_key.keyid: signer for signer in signers}
    store.add_root(make_root(keys, once.values(), number=len(store.roots()) + 1, now=now))
