"""Sign a site's tree: the light signatures beside the manifests, and TUF's metadata behind everything.

What is still good is not signed again, so publishing twice changes nothing; `keys refresh` is this, run again.
"""

from __future__ import annotations

from collections.abc import Mapping

from registry.errors import IntegrityError
from registry.manifest import Manifest
from registry.signing import light
from registry.signing.metadata import issue, parse_root
from registry.signing.store import KeyStore
from registry.site import Tree, manifest_path


def signed(store: KeyStore, tree: Tree, *, now: int, above: int = 0) -> Tree:
    """The tree with its signatures and metadata, in the order in which a reader may find them.

    `now` is seconds since 1970; `above` a version that all new metadata exceeds, for a registry that was restored
    behind what it had published. Raises NotFound without keys, and what opening a signer raises.
    """
    manifests = newest(tree)
    copies: dict[str, bytes] = {}
    key = store.light_key
    for channel, data in manifests.items():
        copies[f"{manifest_path(channel)}.sig"] = _light_signature(store, channel, data, key)
        copies[manifest_path(channel)] = data
    pinned = {path: data for path, data in tree.documents.items() if path not in copies and path.startswith("targets/")}
    metadata = _metadata(store, manifests, now=now, above=above)
    return Tree({**pinned, **copies, **{f"metadata/{name}": data for name, data in metadata.items()}}, tree.blobs)


def newest(tree: Tree) -> dict[str, bytes]:
    """The newest manifest of each channel in the tree, by channel."""
    found = {}
    for path, data in tree.documents.items():
        if path.startswith("targets/v1/") and path.endswith(".json"):
            found[Manifest.from_bytes(data).channel] = data
    return found


def _metadata(store: KeyStore, manifests: Mapping[str, bytes], *, now: int, above: int) -> dict[str, bytes]:
    """All metadata that a client may ask for, kept in the store first; the timestamp last."""
    online = issue(manifests, parse_root(store.root), store.signer, store.online(), now=now, above=above)
    for name, data in online.documents().items():
        store.keep(name, data)
    roots = {f"{number}.root.json": data for number, data in enumerate(store.roots(), start=1)}
    return {**roots, **store.recent(), "timestamp.json": online.timestamp}


def _light_signature(store: KeyStore, channel: str, manifest: bytes, key: bytes) -> bytes:
    """The kept signature when it is one of this manifest by this public key, else a new one."""
    name = f"{channel}.json.sig"
    kept = store.read(name)
    if kept is not None:
        try:
            light.verify(key, manifest, kept)
        except IntegrityError:
            pass
        else:
            return kept
    signature = light.sign(store.signer("light"), manifest)
    store.keep(name, signature)
    return signature
