"""Where a site can be published to, by address: a directory, or a bucket with an S3 interface.

    target = open_target("s3://bucket/prefix")       # credentials come from the environment's usual variables
    registry.signed_site().publish(target)

A bucket has no rename and needs none: an object appears whole when its upload ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from registry.blobs import BlobStore
from registry.buckets import PART, Bucket, missing, open_bucket
from registry.digest import Descriptor
from registry.errors import InputError
from registry.site import Directory, Target, blob_path

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
        return BucketTarget(open_bucket(address, os.environ))
    raise InputError(f"cannot publish to {scheme} addresses", hint="give a directory, or s3://bucket/prefix")


class BucketTarget:
    """A target in a bucket."""

    remote = True

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def read(self, path: str) -> bytes | None:
        """A document's bytes; None when it is absent."""
        import obstore  # noqa: PLC0415 - installed with the extra [s3]

        with self._bucket.translated():
            try:
                return bytes(obstore.get(self._bucket.objects, path).bytes())
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

        with self._bucket.translated(), suppress(FileNotFoundError):
            obstore.delete(self._bucket.objects, path)

    def _put(self, path: str, content: Any, attributes: dict[str, str]) -> None:
        import obstore  # noqa: PLC0415 - as above

        with self._bucket.translated():
            try:
                obstore.put(
                    self._bucket.objects, path, content, attributes=attributes, chunk_size=PART, max_concurrency=4
                )
            except FileNotFoundError:
                raise missing(self._bucket) from None

    def _listed(self, directory: str) -> dict[str, int]:
        """The sizes of the objects directly under a prefix, by name."""
        import obstore  # noqa: PLC0415 - as above

        with self._bucket.translated():
            objects = obstore.list_with_delimiter(self._bucket.objects, directory)["objects"]
        return {each["path"].rpartition("/")[2]: each["size"] for each in objects}
