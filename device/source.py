"""Where documents and blobs come from: the static tree that a registry publishes.

A source yields bytes and is never trusted: whoever reads checks digest and size. Paths are ptdock's own
(`targets/v1/<channel>.json`, `blobs/sha256/<hex>`), built from checked names and digests only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from registry import site
from registry.digest import CHUNK
from registry.errors import FormatError, InputError, NotFound, Unavailable
from registry.names import check_name

MANIFEST_LIMIT = 4 << 20
"""No channel's manifest is larger, in bytes: the one read whose size nothing has pinned yet."""


class Source(Protocol):
    """A static tree, somewhere."""

    @property
    def near(self) -> bool:
        """Whether nobody can sit between it and the device: a directory, or a loopback address."""

    def read(self, path: str, limit: int) -> bytes:
        """The whole document at `path`; never reads more than `limit` bytes and one.

        Raises NotFound if there is none, FormatError if it is longer than `limit`, Unavailable if it cannot be had.
        """

    def stream(self, path: str, start: int, stop: int, *, ranged: bool = False) -> Iterator[bytes]:
        """The bytes of `path` from offset `start` up to `stop`, in chunks; fewer only if the file is shorter.

        `ranged`: these bytes are a part, and nothing else may be sent for them. Raises NotFound and Unavailable, the
        latter also in mid-stream, and where a part cannot be had alone.
        """


def manifest_path(channel: str) -> str:
    """Where the tree keeps a channel's manifest. Raises InputError for an impossible name."""
    return site.manifest_path(check_name(channel, what="channel"))


class DirectorySource:
    """A static tree in a directory of this machine."""

    near = True

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise InputError(
                f"{root} is not a directory", hint="a source is a registry's site directory, or an http(s) address"
            )
        self.root = root

    def __str__(self) -> str:
        return str(self.root)

    def read(self, path: str, limit: int) -> bytes:
        """See Source."""
        data = b"".join(self.stream(path, 0, limit + 1))
        if len(data) > limit:
            raise FormatError(f"{path} is larger than {limit} bytes", hint="this is not a ptdock document")
        return data

    def stream(self, path: str, start: int, stop: int, *, ranged: bool = False) -> Iterator[bytes]:  # noqa: ARG002
        """See Source."""
        try:
            with open(self.root / path, "rb") as file:
                file.seek(start)
                while chunk := file.read(min(CHUNK, stop - start)):
                    start += len(chunk)
                    yield chunk
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound(
                f"{self} has no {path}", hint="check the source; has the channel published a release?"
            ) from None
        except OSError as error:
            raise Unavailable(f"cannot read {path} from {self}: {error.strerror}") from error


class Through:
    """A source that is another one: what a wrapper does not change."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @property
    def near(self) -> bool:
        """See Source."""
        return self._source.near

    def __str__(self) -> str:
        return str(self._source)

    def read(self, path: str, limit: int) -> bytes:
        """See Source."""
        return self._source.read(path, limit)

    def stream(self, path: str, start: int, stop: int, *, ranged: bool = False) -> Iterator[bytes]:
        """See Source."""
        return self._source.stream(path, start, stop, ranged=ranged)


class Metered(Through):
    """A source that counts what is streamed from it: `fetched`, in bytes."""

    fetched = 0

    def stream(self, path: str, start: int, stop: int, *, ranged: bool = False) -> Iterator[bytes]:
        """See Source."""
        for chunk in super().stream(path, start, stop, ranged=ranged):
            self.fetched += len(chunk)
            yield chunk


def open_source(address: str | Path, note: Callable[[str], None] | None = None) -> Source:
    """The source at a directory path, or at an http, https or file address; `note` hears of waits for a server.

    Raises InputError for an address that is none of these or not there.
    """
    text = str(address)
    if "://" not in text:
        return DirectorySource(Path(text))
    scheme, _, rest = text.partition("://")
    if scheme == "file":
        return DirectorySource(Path(rest))
    if scheme in ("http", "https"):
        return _http(text, note)
    raise InputError(f"cannot sync from {scheme} addresses", hint="give the registry's site directory, or http(s)")


def _http(address: str, note: Callable[[str], None] | None) -> Source:
    try:
        from device.http import HttpSource  # noqa: PLC0415 - the one module that needs urllib3
    except ModuleNotFoundError:
        raise Unavailable("http sources need urllib3", hint="pip install 'ptdock[device]'") from None
    return HttpSource(address, note=note)
