"""A blob store in a bucket: objects `blobs/sha256/<hex>`, put once, and local copies for code that needs a path.

    store = BucketStore(open_bucket("s3://bucket/prefix", os.environ), Cache(home / "cache"))
    store.claim(registry_uuid)

S3 has no rename, so a blob is hashed where it is and then uploaded to its final name: small ones by one PUT that fails
when the name is taken, large ones in parts, which appear as a whole, or not at all, when the last one is there. Bytes
that change between the hashing and the upload are found before the upload ends. Whoever is second puts the same bytes.

One prefix belongs to one registry, which an object there names: a second one's collector would delete what it does not
know. Uploads in parts that were interrupted are invisible but paid for; a lifecycle rule of the bucket removes them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO

from registry import canonical, files
from registry.blobs import Progress, check_expected, check_stored, hash_source, open_source
from registry.buckets import PART, Bucket, missing
from registry.cache import Cache
from registry.digest import CHUNK, Descriptor, Digest
from registry.errors import Conflict, NotFound
from registry.grouped import Group, OneByOne

_OWNER = "ptdock.json"
_BLOBS = "blobs/sha256"
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
_ONCE = 1 << 20  # up to so many bytes are sent without asking first whether they are there
_REQUESTS = 16  # small ones that are under way at once
_AT_ONCE = 4  # parts of one upload that are under way, so 64 MiB of memory


class BucketStore:
    """A blob store in a bucket. See registry.blobs.BlobStore for what each method promises."""

    remote = True

    def __init__(self, bucket: Bucket, cache: Cache) -> None:
        self._bucket = bucket
        self._cache = cache

    def group(self) -> Group:
        """Each put is a request of its own, and durable when it is answered."""
        return OneByOne(self.put_bytes, self.put_file)

    def claim(self, registry: str) -> None:
        """Make the prefix this registry's. Raises Conflict when it is another one's, Unavailable."""
        try:  # before putting anything: a server may not know put-if-absent
            self.check_claim(registry)
        except NotFound:
            self._create(_OWNER, canonical.dumps({"schema": 1, "registry": registry}))
            self.check_claim(registry)

    def check_claim(self, registry: str) -> None:
        """Raise NotFound unless there is a store here, Conflict unless it is this registry's, Unavailable."""
        import obstore  # noqa: PLC0415 - installed with the extra [s3]

        with self._bucket.translated():
            try:
                data = bytes(obstore.get(self._bucket.objects, _OWNER).bytes())
            except FileNotFoundError:
                raise NotFound(
                    f"{self._bucket.address} holds no store", hint="make one there with `ptdock init`"
                ) from None
        owner = canonical.loads(data, what=f"{self._bucket.address}/{_OWNER}")
        actual = owner.get("registry") if isinstance(owner, dict) else None
        if actual != registry:
            raise Conflict(
                f"{self._bucket.address} is the store of another registry",
                hint="give each registry a prefix of its own: the collector deletes what its registry does not know",
                expected=registry,
                actual=actual,
            )

    def put_bytes(self, data: bytes) -> Descriptor:
        """Keep these bytes: one PUT that fails when they are there already."""
        blob = Descriptor.of(data)
        if blob.size <= _ONCE or self.size(blob.digest) != blob.size:
            self._upload(blob, data)
        return blob

    def put_file(
        self, path: Path, *, expected: Digest | None = None, move: bool = False, progress: Progress | None = None
    ) -> Descriptor:
        """Keep a file's bytes, hashed first; with `move` the file becomes the local copy."""
        with open_source(path) as source, files.translated(path):
            blob = hash_source(source, progress)
            check_expected(path, blob, expected)
            if self.size(blob.digest) != blob.size:
                source.seek(0)
                self._upload(blob, _again(source, blob, path))
        if move:
            self._cache.adopt(path, blob.digest)
            files.unlink(path)
        return blob

    def size(self, digest: Digest) -> int | None:
        """The stored size in bytes; None when the blob is absent."""
        import obstore  # noqa: PLC0415 - as above

        with self._bucket.translated():
            try:
                return int(obstore.head(self._bucket.objects, _key(digest))["size"])
            except FileNotFoundError:
                return None

    def sizes(self, digests: Collection[Digest]) -> Mapping[Digest, int | None]:
        """The stored sizes of several blobs: a publish asks while others wait for it, so not one after another."""
        if not digests:
            return {}
        with ThreadPoolExecutor(min(len(digests), _REQUESTS)) as pool:
            return dict(zip(digests, pool.map(self.size, digests), strict=True))

    def path(self, digest: Digest) -> Path:
        """A local copy, fetched and hashed when there is none yet."""
        return self._cache.fetch(digest, lambda: self.chunks(digest))

    def chunks(self, digest: Digest, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """The object's bytes by ranged reads, so that a broken connection costs one part. Raises NotFound."""
        import obstore  # noqa: PLC0415 - as above

        size = self.size(digest)
        if size is None:
            raise NotFound(f"the store holds no blob {digest}", hint="see `ptdock verify`", digest=str(digest))
        end = size if stop is None else min(stop, size)
        for at in range(start, end, PART):
            with self._bucket.translated():
                yield bytes(obstore.get_range(self._bucket.objects, _key(digest), start=at, end=min(at + PART, end)))

    def url(self, digest: Digest, seconds: int) -> str | None:
        """A presigned address. Whoever has it may fetch the blob until it expires: hand it to its reader alone."""
        import obstore  # noqa: PLC0415 - as above

        with self._bucket.translated():
            return obstore.sign(self._bucket.objects, "GET", _key(digest), timedelta(seconds=seconds))

    def read(self, digest: Digest) -> bytes:
        """A small blob's bytes, hashed again; a damaged copy is fetched anew."""
        data = self.path(digest).read_bytes()
        if Digest.of(data) != digest:
            self._cache.forget(digest)
            data = self.path(digest).read_bytes()
            check_stored(digest, Digest.of(data))
        return data

    def descriptors(self) -> Iterator[Descriptor]:
        """Every blob with its stored size, in the order of digests; other objects are passed over."""
        import obstore  # noqa: PLC0415 - as above

        found: list[Descriptor] = []
        with self._bucket.translated():
            for page in obstore.list(self._bucket.objects, _BLOBS):
                found += [blob for blob in map(_blob, page) if blob]
        yield from sorted(found, key=lambda blob: blob.digest)

    def delete(self, digest: Digest) -> None:
        """Forget a blob and its local copy; one that is absent is fine."""
        import obstore  # noqa: PLC0415 - as above

        files.announce("delete object", Path(_key(digest)))
        with self._bucket.translated(), suppress(FileNotFoundError):  # some servers say that it was absent
            obstore.delete(self._bucket.objects, _key(digest))
        self._cache.forget(digest)

    def stale(self, before: float) -> list[Path]:
        """Copies that were never finished; the bucket's own unfinished uploads are its lifecycle rule's business."""
        return self._cache.stale(before)

    def _upload(self, blob: Descriptor, content: bytes | Iterator[bytes]) -> None:
        key = _key(blob.digest)
        if blob.size > PART:
            self._send(key, content, use_multipart=True, chunk_size=PART, max_concurrency=_AT_ONCE)
            return
        data = content if isinstance(content, bytes) else b"".join(content)
        if not self._create(key, data) and self.size(blob.digest) != blob.size:
            self._send(key, data, use_multipart=False)  # the object there is damaged: only these are the right bytes

    def _create(self, key: str, data: bytes) -> bool:
        """Put an object unless there is one; answers whether it did."""
        from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415 - as above

        try:
            self._send(key, data, mode="create")
        except AlreadyExistsError:
            return False
        return True

    def _send(self, key: str, content: bytes | Iterator[bytes], **how: Any) -> None:
        import obstore  # noqa: PLC0415 - as above

        files.announce("upload", Path(key))
        with self._bucket.translated():
            try:
                obstore.put(self._bucket.objects, key, content, **how)
            except FileNotFoundError:
                raise missing(self._bucket) from None
        files.announce("uploaded", Path(key))


def _key(digest: Digest) -> str:
    return f"{_BLOBS}/{digest.hex}"


def _blob(found: Mapping[str, Any]) -> Descriptor | None:
    """The blob that a listed object is; None for a stranger."""
    name = found["path"].removeprefix(f"{_BLOBS}/")
    return Descriptor(Digest(bytes.fromhex(name)), found["size"]) if _HEX.fullmatch(name) else None


def _again(source: BinaryIO, blob: Descriptor, path: Path) -> Iterator[bytes]:
    """A hashed file's bytes; raises IntegrityError at the end, so before they are complete, when they have changed."""
    hasher = hashlib.sha256()
    files.announce("read again", path)
    while chunk := source.read(CHUNK):
        hasher.update(chunk)
        yield chunk
        files.announce("part", path)
    check_expected(path, Descriptor(Digest(hasher.digest()), blob.size), blob.digest)
