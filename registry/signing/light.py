"""The light profile: one ECDSA P-256/SHA-256 signature over a manifest's bytes, in DER, beside the manifest.

Apple's CryptoKit (`P256.Signing.ECDSASignature(derRepresentation:)`), Java's `SHA256withECDSA` and
`openssl dgst -sha256 -verify` check it. The manifest itself names its registry, its channel and its sequence, so a
signature vouches for nothing else.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from securesystemslib.signer import Signer

from registry.errors import FormatError, IntegrityError

MAX_BYTES = 256  # DER of two 256-bit integers is at most 72


def sign(signer: Signer, manifest: bytes) -> bytes:
    """The signature of these bytes."""
    return bytes.fromhex(signer.sign(manifest).signature)


def verify(public_key: bytes, manifest: bytes, signature: bytes) -> None:
    """Check a manifest's bytes against the public key (PEM, P-256) that an app was built with.

    Raises IntegrityError when they do not match, FormatError for what is no P-256 key.
    """
    try:
        load(public_key).verify(signature, manifest, ec.ECDSA(SHA256()))
    except InvalidSignature:
        raise IntegrityError(
            "the manifest's signature does not match this key",
            hint="was the key rotated, or the manifest changed on its way?",
        ) from None


def load(public_key: bytes) -> ec.EllipticCurvePublicKey:
    """The P-256 key in a PEM document. Raises FormatError."""
    try:
        key = load_pem_public_key(public_key)
    except ValueError as error:
        raise FormatError("not a public key in PEM") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise FormatError("the light profile's key is ECDSA on P-256", hint="`ptdock keys list` prints it")
    return key
