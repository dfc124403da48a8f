"""Where a site can be published to, by address: a directory, or a bucket with an S3 interface.

    target = open_target("s3://bucket/prefix")       # credentials come from the environment's usual variables
    registry.signed_site().publish(target)

A bucket has no rename and needs none: an object appears whole when its upload ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from registry.blobs import BlobStore
from registry.digest import Descriptor
from registry.errors import InputError, Unavailable
from registry.site import Directory, Target, blob_path

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_BLOBS = "blobs/sha256"
_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable", "Content-Type": "application/octet-stream"}
_DOCUMENT = {"Cache-Control": "no-cache", "Content-Type": "application/json"}
_SIGNATURE = {"Cache-Control": "no-cache", "Content-Type": "application/octet-stream"}


def open_target(address: str) -> Target:
    """The target at a path or at `s3://bucket/prefix`. Raises InputError, Unavailable without obstore."""
    scheme, separator, _ = address.partition("://")
    if not separator:
        return Directory(Path(address))
    if scheme == "file":
        return Directory(Path(address.removeprefix("file://")))
    if scheme == "s3":
        return Bucket(_connected(address), address)
    raise InputError(f"cannot publish to {scheme} addresses", hint="give a directory, or s3://bucket/prefix")


class Bucket:
    """A target in an object store; `address` names it in messages."""

    remote = True

    def __init__(self, store: ObjectStore, address: str) -> None:
        self._store = store
        self._address = address

    def read(self, path: str) -> bytes | None:
        """A document's bytes; None when it is absent."""
        import obstore  # noqa: PLC0415 - installed with the extra [s3]

        with self._translated():
            try:
                return bytes(obstore.get(self._store, path).bytes())
            except FileNotFoundError:
                return None

    def names(self, directory: str) -> list[str]:
        """The names of the objects directly under a prefix, sorted."""
        return sorted(self._listed(directory))

    def put(self, path: str, data: bytes) -> None:
        """Write or replace a document."""
        self._put(path, data, _DOCUMENT if path.endswith(".json") else _SIGNATURE)

    def lacking(self, wanted: Iterable[Descriptor], blobs: BlobStore) -> list[Descriptor]:  # noqa: ARG002 - see Target
        """The blobs that have no object of their size here."""
        there = self._listed(_BLOBS)
        return [each for each in wanted if there.get(each.digest.hex) != each.size]

    def put_blob(self, blob: Descriptor, source: Path) -> None:
        """Upload a blob, in parts when it is large."""
        self._put(blob_path(blob.digest), source, _FOREVER)

    def settle(self, directory: str) -> None:
        """Nothing to do: an upload that has ended is durable."""

    def remove(self, path: str) -> None:
        """Remove an object; one that is gone is fine."""
        import obstore  # noqa: PLC0415 - as above

        with self._translated():
            try:
                obstore.delete(self._store, path)
            except FileNotFoundError:
                return

    def _put(self, path: str, content: Any, attributes: dict[str, str]) -> None:
        import obstore  # noqa: PLC0415 - as above

        with self._translated():
            obstore.put(self._store, path, content, attributes=attributes)

    def _listed(self, directory: str) -> dict[str, int]:
        """The sizes of the objects directly under a prefix, by name."""
        import obstore  # noqa: PLC0415 - as above

        with self._translated():
            objects = obstore.list_with_delimiter(self._store, directory)["objects"]
        return {each["path"].rpartition("/")[2]: each["size"] for each in objects}

    @contextmanager
    def _translated(self) -> Iterator[None]:
        from obstore.exceptions import BaseError  # noqa: PLC0415 - as above

        try:
            yield
        except (BaseError, OSError) as error:
            if isinstance(error, FileNotFoundError):
                raise
            raise Unavailable(
                f"{self._address} cannot be used: {type(error).__name__}",
                hint="check the bucket's name, the credentials in the environment and the network",
            ) from error


def _connected(address: str) -> ObjectStore:
    try:
        from obstore.exceptions import BaseError  # noqa: PLC0415 - as above
        from obstore.store import from_url  # noqa: PLC0415 - as above
    except ModuleNotFoundError:
        raise Unavailable("buckets need obstore", hint="pip install 'ptdock[s3]'") from None
    try:
        return from_url(address)
    except (BaseError, ValueError) as error:
        raise InputError(f"{address} is not a bucket's address", hint="write s3://bucket/prefix") from error
