"""Which blob store a registry has: the directory of its home, or the bucket that PTDOCK_BLOBS names.

store = make_store(home, os.environ, registry_uuid)      # `ptdock init`
store = open_store(home, os.environ, registry_uuid)      # everything else
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from registry.blobs import BlobStore, LocalStore
from registry.bucket_store import BucketStore
from registry.buckets import open_bucket
from registry.cache import Cache
from registry.errors import InputError

ENVIRONMENT = "PTDOCK_BLOBS"


def make_store(home: Path, environment: Mapping[str, str], registry: str) -> BlobStore:
    """The registry's store, made where it is missing; `registry` is its UUID.

    Raises InputError for another kind of address, Conflict for another registry's bucket, Unavailable.
    """
    bucket = _bucket(home, environment)
    if bucket is None:
        return LocalStore.create(home)
    bucket.claim(registry)
    return bucket


def open_store(home: Path, environment: Mapping[str, str], registry: str) -> BlobStore:
    """The registry's store. Raises NotFound when there is none, and as `make_store`."""
    bucket = _bucket(home, environment)
    if bucket is None:
        return LocalStore.open(home)
    bucket.check_claim(registry)
    return bucket


def _bucket(home: Path, environment: Mapping[str, str]) -> BucketStore | None:
    address = environment.get(ENVIRONMENT)
    if not address:
        return None
    if not address.startswith("s3://"):
        raise InputError(
            f"{ENVIRONMENT} names a store of another kind: {address.partition(':')[0]}",
            hint="write s3://bucket/prefix, or unset it: then blobs are kept in the store's directory",
        )
    return BucketStore(open_bucket(address, environment), Cache(home / "cache"))
