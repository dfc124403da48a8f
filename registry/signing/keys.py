"""Private keys as signers, by URI.

`file2:NAME.pem` is a file of the registry's `keys/online`; any other URI that securesystemslib knows (`awskms:…`,
`gcpkms:…`, `azurekms:…`, `hsm:…`, `file2:/absolute/path`) keeps the key where it is. Root keys are PEM files of their
own, encrypted with a passphrase, in a directory that the operator keeps apart.
"""

from __future__ import annotations

from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from securesystemslib.exceptions import UnsupportedLibraryError
from securesystemslib.signer import CryptoSigner, Key, Signer, SSlibKey

from registry import files
from registry.errors import FormatError, InputError, NotFound, Unavailable

PrivateKey = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey
_FILE = "file2:"


def generate(role: str) -> tuple[PrivateKey, SSlibKey]:
    """A new key for a role: P-256 for the light profile, Ed25519 for TUF's roles."""
    key = ec.generate_private_key(ec.SECP256R1()) if role == "light" else ed25519.Ed25519PrivateKey.generate()
    return key, SSlibKey.from_crypto(key.public_key())


def read_public(pem: bytes) -> SSlibKey:
    """The public key of a signer that lives elsewhere, from its PEM. Raises FormatError."""
    try:
        return SSlibKey.from_crypto(load_pem_public_key(pem))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise FormatError("not a public key in PEM that TUF can use", hint="Ed25519, ECDSA or RSA") from error


def write_private(path: Path, key: PrivateKey, passphrase: bytes | None) -> None:
    """Write a private key as PEM (PKCS #8), readable by its owner alone; encrypted when there is a passphrase."""
    cipher = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    data = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, cipher)
    with files.translated(path):
        files.make_directory(path.parent)
        with files.unfinished(path.parent) as (fresh, file):
            fresh.chmod(0o600)  # before the first byte is in it
            files.write(fresh, file, data)
            files.sync(fresh)
            files.rename(fresh, path)
        files.sync(path.parent)


def read_signer(path: Path, passphrase: bytes | None = None) -> CryptoSigner:
    """The signer of a private key's file. Raises NotFound, InputError for a wrong passphrase, FormatError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise NotFound(f"no private key at {path}", hint="`ptdock keys list` says where keys are") from None
    except OSError as error:
        raise Unavailable(f"cannot read the private key {path}: {error.strerror}") from error
    encrypted = b"ENCRYPTED" in data
    try:
        return CryptoSigner(load_pem_private_key(data, passphrase if encrypted else None))
    except TypeError:  # encrypted, and no passphrase given
        raise InputError(f"{path} is encrypted", hint="give its passphrase") from None
    except (ValueError, UnsupportedAlgorithm):
        if encrypted:
            raise InputError(f"the passphrase does not open {path}", hint="try again") from None
        raise FormatError(f"{path} is not a private key in PEM") from None


def open_signer(uri: str, key: Key, directory: Path) -> Signer:
    """The signer at a URI, whose public key is `key`. Raises InputError, NotFound, Unavailable."""
    try:
        if uri.startswith(_FILE):
            signer: Signer = read_signer(directory / uri.removeprefix(_FILE))
        else:
            signer = Signer.from_priv_key_uri(uri, key)
    except UnsupportedLibraryError as error:
        raise Unavailable(f"{uri}: {error}", hint="install what this kind of key needs") from error
    except (ValueError, OSError) as error:
        raise InputError(f"cannot open the key {uri}: {error}", hint="check the URI") from error
    if signer.public_key.keyid != key.keyid:
        raise InputError(f"{uri} holds another key than the root names", hint="`ptdock keys list` shows both")
    return signer


def file_uri(name: str) -> str:
    """The URI of a key file in the registry's own directory."""
    return f"{_FILE}{name}"
