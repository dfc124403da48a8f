"""Signed twice over the same bytes: TUF for clients that have it, one ECDSA signature for those that do not.

* `metadata` (pure): TUF's root, targets, snapshot and timestamp; the targets are the channels' manifests.
* `keys`: private keys as signers, by URI; root keys apart and encrypted, online keys in the home.
* `store`: a registry's `keys/` directory: make, rotate, refresh, and sign a site's tree.
* `light`: the signature beside `targets/v1/<channel>.json`, which phones check with their platform's crypto.
* `trust`: what a device does: verified manifests out of a site that is not trusted.

    signing = KeyStore.create(home / "keys", now=now)                # development keys, marked so
    publish(signing.signed(site_tree, now=now), Directory(site), blobs)
    verified = Trust(directory, root=pinned).manifests(read, ["stable"])

What each profile stops is in `docs/signing.md`. All of it needs python-tuf and cryptography, so nothing imports this
package at start-up.
"""
