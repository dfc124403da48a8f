"""`ptdock keys`: whom devices trust. The root is kept apart; online keys sign each change of a channel."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console import render
from console.app import App, pass_app
from console.options import COUNT, PATH, read_file
from console.secrets import passphrase
from console.verbs import Noun

if TYPE_CHECKING:
    from securesystemslib.signer import Signer

    from registry.signed_site import SignedSite
    from registry.signing.store import Elsewhere, RoleStatus

EXPIRING = 3
ROLES = ("targets", "snapshot", "timestamp", "light")

_signer = click.option(
    "--signer",
    "elsewhere",
    nargs=3,
    multiple=True,
    type=(click.Choice(ROLES), str, PATH),
    metavar="ROLE URI FILE",
    help="A key in a KMS or HSM: its URI, and its public key (PEM); repeatable.",
)
_secret = click.option("--passphrase-file", "secret", type=PATH, metavar="FILE", help="Where the passphrase stands.")
_root_keys = click.option(
    "--root-key", "root_keys", multiple=True, type=PATH, metavar="FILE", help="A root key; as many as must sign."
)


@click.group(cls=Noun)
def keys() -> None:
    """Who signs what devices read, and until when."""


@keys.command()
@click.option("--to", "directory", type=PATH, required=True, metavar="DIR", help="Where the root keys go: not here.")
@click.option("--count", type=COUNT, default=1, show_default=True, help="How many root keys.")
@click.option("--threshold", type=COUNT, default=1, show_default=True, help="How many of them must sign.")
@_secret
@_signer
@pass_app
def init(
    app: App, directory: Path, count: int, threshold: int, secret: Path | None, elsewhere: tuple[tuple[str, str, Path]]
) -> None:
    """Replace the development keys by real ones.

    The root keys are encrypted with a passphrase: keep them and it apart from this machine. Devices that trust the
    development root follow.
    """
    from registry.signing.ceremony import RootKeys

    desk = app.registry().signed_site()
    to = RootKeys(directory, passphrase(secret, fresh=True), count, threshold)
    paths = desk.init_keys(to, _elsewhere(elsewhere))
    app.answer(_document(desk, root_keys=paths), _made(desk, paths))


@keys.command("list")
@pass_app
def list_(app: App) -> None:
    """List the keys, and what devices and apps are given: the root, and the light profile's public key."""
    desk = app.registry().signed_site()
    document = _document(desk)
    apart = "this home: for development" if document["development"] else "kept apart"
    rows = [(each["role"], key["id"][:16], key["uri"] or apart) for each in document["roles"] for key in each["keys"]]
    head = render.fields([("root", document["root"]), ("fingerprint", document["fingerprint"])])
    kind = render.doubtful("development keys: for this machine only") if document["development"] else ""
    parts = [head, kind, render.table(("role", "key", "where"), rows), f"light profile:\n{document['light']}"]
    app.answer(document, "\n\n".join(part for part in parts if part).rstrip())


@keys.command()
@click.option("--warn-days", type=COUNT, default=14, show_default=True, help="Exit with 3 when less is left.")
@pass_app
@click.pass_context
def status(context: click.Context, app: App, warn_days: int) -> None:
    """Say how long every signature is good.

    Exit code 3 when one has fewer than --warn-days left.
    """
    desk = app.registry().signed_site()
    now = int(time.time())
    rows = [_role(each) for each in desk.store.status()]
    rows += [_channel(name, expires) for name, expires in desk.expiries().items()]
    for row in rows:
        row["days_left"] = None if row["expires"] is None else (row["expires"] - now) / 86400
        row["warn"] = row["days_left"] is not None and row["days_left"] < warn_days
    app.answer({"warn_days": warn_days, "roles": rows, "warn": any(row["warn"] for row in rows)}, _status_text(rows))
    if any(row["warn"] for row in rows):
        context.exit(EXPIRING)


@keys.command()
@click.argument("roles", nargs=-1, required=True, type=click.Choice((*ROLES, "root")), metavar="ROLE...")
@_root_keys
@click.option("--to", "directory", type=PATH, metavar="DIR", help="For the role root: where the new keys go.")
@click.option("--count", type=COUNT, help="For the role root: how many keys; by default as many as there are.")
@click.option("--threshold", type=COUNT, help="For the role root: how many must sign; by default as many as now.")
@_secret
@_signer
@pass_app
def rotate(app: App, /, roles: tuple[str, ...], root_keys: tuple[Path, ...], secret: Path | None, **new: Any) -> None:
    """Give roles new keys, by a new root that the root keys sign.

    ROLE is targets, snapshot, timestamp, light or root. What the old keys sign is believed no longer; sequences may
    start again.
    """
    desk = app.registry().signed_site()
    word = _once(secret)
    signers = _signers(desk, root_keys, word)
    paths: list[Path] = []
    if "root" in roles:
        paths = _rotate_root(desk, signers, word, new["directory"], new["count"], new["threshold"])
        signers = [*signers, *_signers(desk, tuple(paths), word)]
    online = [role for role in roles if role != "root"]
    if online:
        desk.rotate(online, signers, _elsewhere(new["elsewhere"]))
    app.answer(_document(desk, root_keys=paths), _made(desk, paths))


@keys.command()
@_root_keys
@_secret
@pass_app
def renew(app: App, root_keys: tuple[Path, ...], secret: Path | None) -> None:
    """Give the root another year, with the keys that it has."""
    desk = app.registry().signed_site()
    desk.renew_root(_signers(desk, root_keys, _once(secret)))
    app.answer(_document(desk), _made(desk, []))


@keys.command()
@pass_app
def refresh(app: App) -> None:
    """Sign again what is past half of its life: manifests and metadata.

    Needs only the online keys; run it every day.
    """
    done = app.registry().signed_site().renew()
    names = [channel.name for channel in done.channels]
    document = {"channels": names, "written": list(done.changes.written), "removed": list(done.changes.removed)}
    issued = f"issued {', '.join(names)} again" if names else "no manifest is past half of its life"
    app.answer(document, f"{issued}; {render.plural(len(done.changes.written), 'file')} written")


def _once(secret: Path | None) -> Callable[[], bytes]:
    """Asks for the passphrase when it is needed first, and remembers it."""
    found: list[bytes] = []

    def word() -> bytes:
        if not found:
            found.append(passphrase(secret, fresh=False))
        return found[0]

    return word


def _signers(desk: SignedSite, root_keys: tuple[Path, ...], word: Callable[[], bytes]) -> list[Signer]:
    """The root's signers: the files that are named, or a development root's own."""
    from registry.signing.ceremony import open_root

    if not root_keys and desk.store.keys.development:
        return desk.store.root_signers()
    if not root_keys:
        raise click.UsageError("the root keys must sign: --root-key FILE, as many as the threshold says")
    return open_root(root_keys, word())


def _rotate_root(
    desk: SignedSite,
    signers: list[Signer],
    word: Callable[[], bytes],
    directory: Path | None,
    count: int | None,
    threshold: int | None,
) -> list[Path]:
    from registry.signing.ceremony import RootKeys

    if directory is None:
        raise click.UsageError("new root keys need a place: --to DIR")
    now = desk.store.keys
    count, threshold = count or len(now.root), threshold or now.threshold
    return desk.rotate_root(RootKeys(directory, word(), count, threshold), signers)


def _elsewhere(given: tuple[tuple[str, str, Path], ...]) -> dict[str, Elsewhere]:
    from registry.signing.keys import read_public
    from registry.signing.store import Elsewhere

    hint = "the public key of that signer, in PEM"
    return {role: Elsewhere(uri, read_public(read_file(path, hint=hint))) for role, uri, path in given}


def _document(desk: SignedSite, *, root_keys: list[Path] | None = None) -> dict[str, Any]:
    """What `list` answers, and every verb that changes keys."""
    from registry.signing.trust import fingerprint

    store = desk.store
    roots = store.roots()
    uris = store.uris()
    return {
        "development": store.keys.development,
        "root": str(desk.here.root / "metadata" / f"{len(roots)}.root.json"),
        "root_version": len(roots),
        "fingerprint": str(fingerprint(store.root)),
        "first_fingerprint": str(fingerprint(roots[0])),
        "roles": [_role_keys(each, uris) for each in store.status()],
        "light": store.light_key.decode(),
        "root_keys": [str(path) for path in root_keys or []],
    }


def _role_keys(status: RoleStatus, uris: dict[str, str]) -> dict[str, Any]:
    found = [{"id": key, "uri": uris.get(key)} for key in status.keys]
    return {"role": status.role, "threshold": status.threshold, "keys": found}


def _made(desk: SignedSite, paths: list[Path]) -> str:
    lines = [f"root {len(desk.store.roots())} signs from now on; the site is signed again"]
    if paths:
        lines += [f"{render.bold(render.clean(path))}" for path in paths]
        lines.append("Keep these files and their passphrase apart from this machine: they are needed to rotate keys.")
    return "\n".join(lines)


def _role(status: RoleStatus) -> dict[str, Any]:
    return {
        "role": status.role,
        "keys": len(status.keys),
        "threshold": status.threshold,
        "version": status.version,
        "expires": status.expires,
    }


def _channel(name: str, expires: int) -> dict[str, Any]:
    return {"role": f"manifest {name}", "keys": 0, "threshold": 0, "version": 0, "expires": expires}


def _status_text(rows: list[dict[str, Any]]) -> str:
    cells = []
    for row in rows:
        left = "-" if row["days_left"] is None else f"{row['days_left']:.1f}"
        until = "-" if row["expires"] is None else f"{datetime.fromtimestamp(row['expires'], UTC):%Y-%m-%d}"
        need = f"{row['threshold']} of {row['keys']}" if row["keys"] else ""
        cells.append((row["role"], need, row["version"] or "", until, left, "soon" if row["warn"] else ""))
    return render.table(("role", "keys", "version", "expires", "days left", ""), cells, right={2, 4})
