"""The static tree over HTTP: every file of `site/` that is of its layout, byte for byte, and nothing else.

An ASGI application that answers the paths below `metadata/`, `targets/` and `blobs/`, and hands on all others. A file's
ETag is the digest of its bytes. What is named by its digest never changes, so it may be cached for ever; manifests and
metadata for a minute. Small files are kept in memory and believed while the file's own identity stays the same:
publishing replaces files, it never writes into them.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import stat
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from registry.digest import CHUNK, Digest
from registry.errors import Unavailable
from registry.site import belongs
from server.conditions import Judged, judge
from server.problems import Problem
from server.wire import answer, said

PREFIXES = ("/metadata/", "/targets/", "/blobs/")
FOREVER = "public, max-age=31536000, immutable, no-transform"
SHORT = "public, max-age=60, no-transform"
_NAMED = re.compile(r"(?:blobs/sha256/|targets/)([0-9a-f]{64})(?:\..+)?", re.ASCII)
_SMALL = 256 << 10
_KEPT = 256


@dataclass(frozen=True, slots=True)
class File:
    """An open file of the tree, or a small one's bytes. `tag` is its ETag."""

    tag: str
    size: int
    descriptor: int = -1
    data: bytes = b""


Elsewhere = Callable[[Digest], str | None]
"""Where a blob is served instead: an address that a client may follow now; None where it is served here."""


class Tree:
    """Serves `root`, and hands what is not of the tree to `others`; GETs of offered blobs are sent `elsewhere`."""

    def __init__(self, root: Path, others: ASGIApp, elsewhere: Elsewhere = lambda _: None) -> None:
        self._root = root
        self._others = others
        self._elsewhere = elsewhere
        self._small: OrderedDict[str, tuple[tuple[int, ...], File]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http" or not scope["path"].startswith(PREFIXES):
            if scope.get("method") == "HEAD":  # FastAPI would refuse it; the body is dropped further out
                scope["method"] = "GET"
            await self._others(scope, receive, send)
            return
        path = scope["path"][1:]
        scope["route"] = f"/{path.partition('/')[0]}"
        if scope["method"] not in ("GET", "HEAD"):
            raise Problem(405, "files are only read", headers={"Allow": "GET, HEAD"})
        file = self._open(path)
        try:
            address = self._address(path) if scope["method"] == "GET" else None
            if address:  # for a while, and for this client
                await answer(send, 307, {"location": address, "cache-control": "no-store"})
            else:
                await _serve(scope, receive, send, path, file)
        finally:
            if file.descriptor >= 0:
                os.close(file.descriptor)

    def _address(self, path: str) -> str | None:
        directory, _, name = path.rpartition("/")
        return self._elsewhere(Digest(bytes.fromhex(name))) if directory == "blobs/sha256" else None

    def _open(self, path: str) -> File:
        """Raises Problem for what is not of the tree."""
        if not belongs(path):
            raise _missing()
        try:
            descriptor = os.open(self._root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):  # the last: a symbolic link is none of ours
                self._small.pop(path, None)
                raise _missing() from None
            raise Unavailable(f"cannot read {path}: {error.strerror}") from error
        try:
            return self._opened(path, descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    def _opened(self, path: str, descriptor: int) -> File:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise _missing()
        named = _NAMED.fullmatch(path)
        if named and about.st_size > _SMALL:
            return File(f'"{named[1]}"', about.st_size, descriptor)
        identity = (about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
        known = self._small.get(path)
        if known is None or known[0] != identity:
            data = _all(descriptor, about.st_size)
            known = self._small[path] = identity, File(f'"{Digest.of(data).hex}"', len(data), data=data)
            while len(self._small) > _KEPT:
                self._small.popitem(last=False)
        self._small.move_to_end(path)
        os.close(descriptor)
        return known[1]


async def _serve(scope: Scope, receive: Receive, send: Send, path: str, file: File) -> None:
    judged = judge(said(scope), file.tag, file.size)
    headers = _headers(path, file, judged)
    if judged.status == 412:
        raise Problem(412, "the file is not the one that If-Match names", headers=headers)
    if judged.status == 416:
        raise Problem(416, f"the file has {file.size} bytes", headers=headers)
    whole = scope["method"] == "HEAD" or judged.status == 304
    if whole or file.descriptor < 0:
        await answer(send, judged.status, headers, b"" if whole else file.data[judged.start : judged.stop])
        return
    await answer(send, judged.status, headers, more=True)
    await _stream(receive, send, file.descriptor, judged)


async def _stream(receive: Receive, send: Send, descriptor: int, judged: Judged) -> None:
    """Send a part of a file piece by piece, reading in a thread; stop when the client is gone."""
    gone = asyncio.ensure_future(_disconnected(receive))
    start = judged.start
    try:
        while start < judged.stop and not gone.done():
            size = min(CHUNK, judged.stop - start)
            chunk = await asyncio.to_thread(os.pread, descriptor, size, start)
            if not chunk:
                raise Unavailable("a file ended early")
            start += len(chunk)
            await send({"type": "http.response.body", "body": chunk, "more_body": start < judged.stop})
    finally:
        gone.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _headers(path: str, file: File, judged: Judged) -> dict[str, str]:
    headers = {
        "etag": file.tag,
        "cache-control": FOREVER if _NAMED.fullmatch(path) else SHORT,
        "accept-ranges": "bytes",
    }
    if judged.status == 206:
        headers["content-range"] = f"bytes {judged.start}-{judged.stop - 1}/{file.size}"
    if judged.status == 416:
        headers["content-range"] = f"bytes */{file.size}"
        headers["cache-control"] = "no-store"
    if judged.status in (200, 206):
        headers["content-length"] = str(judged.stop - judged.start)
        headers["content-type"] = "application/json" if path.endswith(".json") else "application/octet-stream"
    return headers


def _all(descriptor: int, size: int) -> bytes:
    data = bytearray()
    while chunk := os.pread(descriptor, CHUNK, len(data)):
        data += chunk
        if len(data) > size:
            raise Unavailable("a file of the site grew while it was read")
    return bytes(data)


def _missing() -> Problem:
    return Problem(404, "there is no such file", "devices start from targets/v1/<channel>.json")
