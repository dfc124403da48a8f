"""A static tree behind http(s): any web server, CDN or bucket; nothing that it answers is believed.

Bodies are read as they come, never beyond what was asked for, and a transfer that breaks off goes on where it
stopped. Redirects are followed by hand: at most three, https never to http, and from a public address never to a
private one, which is checked on the connected socket, since a name may mean another address a moment later.
"""

from __future__ import annotations

import ipaddress
import random
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin

import urllib3
from urllib3.exceptions import HTTPError, InvalidHeader, LocationParseError, SSLError
from urllib3.util import Retry, Url, parse_url

from registry.digest import CHUNK
from registry.errors import FormatError, InputError, NotFound, Unavailable

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_MAX_REDIRECTS = 3


@dataclass(frozen=True, slots=True)
class Patience:
    """How hard to try, in seconds: `attempts` in a row without a byte, waiting `first`, then twice as long, jittered.

    `timeout` bounds each connect and each silence. A server that asks for a wait (Retry-After) of more than `longest`
    gets the error instead. Slower than `slowest` bytes a second, after `timeout`, counts as broken off.
    """

    attempts: int = 6
    first: float = 0.5
    longest: float = 60.0
    timeout: float = 30.0
    slowest: int = 1024

    def delay(self, failures: int, jitter: float) -> float:
        """Seconds to wait after so many failures in a row; `jitter` is in [0, 1)."""
        return min(self.longest, self.first * 2.0 ** (failures - 1)) * (0.5 + jitter / 2)


class _Passing(Exception):  # noqa: N818 - not an error: the signal to try again
    """A trouble that may pass; `after` is how many seconds the server asked to wait."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


class HttpSource:
    """A Source (device.source) at an http or https address.

    `note` hears of waits; `sleep` does them. `private` allows redirects to private addresses; by default they are
    allowed when the address itself is one.
    """

    def __init__(
        self,
        address: str,
        *,
        patience: Patience | None = None,
        note: Callable[[str], None] | None = None,
        sleep: Callable[[float], None] = time.sleep,
        private: bool | None = None,
    ) -> None:
        self._url = _checked(address)
        self._patience = patience or Patience()
        self._note = note or (lambda _: None)
        self._sleep = sleep
        self._private = private
        timeout = urllib3.Timeout(connect=self._patience.timeout, read=self._patience.timeout)
        self._source_pool = urllib3.PoolManager(timeout=timeout, retries=False)
        self._public_pool = urllib3.PoolManager(timeout=timeout, retries=False)
        self._public_pool.pool_classes_by_scheme = {"http": _PublicHTTPPool, "https": _PublicHTTPSPool}

    @property
    def near(self) -> bool:
        """See Source: whether this is a loopback address, said as one."""
        host = (self._url.host or "").strip("[]")
        try:
            return host == "localhost" or ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return str(self._url)

    def read(self, path: str, limit: int) -> bytes:
        """See Source. A document that breaks off is read again from its start: it may have changed."""
        tries = _Tries(self._patience, self._sleep, self._note)
        while True:
            try:
                data = b"".join(self._body(path, 0, limit + 1))
            except _Passing as trouble:
                tries.failed(f"{self}/{path}", trouble)
            else:
                break
        if len(data) > limit:
            raise FormatError(f"{self}/{path} is larger than {limit} bytes", hint="this is not a ptdock document")
        return data

    def stream(self, path: str, start: int, stop: int, *, ranged: bool = False) -> Iterator[bytes]:
        """See Source."""
        tries = _Tries(self._patience, self._sleep, self._note)
        while start < stop:
            try:
                for chunk in self._body(path, start, stop, ranged=ranged):
                    start += len(chunk)
                    tries.progressed(len(chunk))
                    yield chunk
            except _Passing as trouble:
                tries.failed(f"{self}/{path}", trouble)
            else:
                return

    def _body(self, path: str, start: int, stop: int, *, ranged: bool = False) -> Iterator[bytes]:
        """The bytes from `start` to `stop` of one answer. Raises _Passing when it breaks off."""
        response = self._answer(path, start, stop, ranged=ranged)
        try:
            skip = start if response.status == 200 else 0  # a server without ranges sends all of it
            left = stop - start
            for chunk in self._chunks(response):
                piece = chunk[skip : skip + left]
                skip -= min(skip, len(chunk))
                left -= len(piece)
                if piece:
                    yield piece
                if not left:
                    return
        finally:
            response.close()

    def _chunks(self, response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
        began, received = time.monotonic(), 0
        while True:
            try:
                chunk = response.read1(CHUNK, decode_content=False)
            except (HTTPError, OSError) as error:
                raise _Passing(f"broke off after {received} bytes: {_reason(error)}") from error
            if not chunk:
                return
            received += len(chunk)
            elapsed = time.monotonic() - began
            if elapsed > self._patience.timeout and received < elapsed * self._patience.slowest:
                raise _Passing(f"slower than {self._patience.slowest} bytes a second")
            yield chunk

    def _answer(self, path: str, start: int, stop: int, *, ranged: bool) -> urllib3.BaseHTTPResponse:
        """An answer whose body holds `path`, from byte 0 (200) or from `start` (206); an empty one behind its end."""
        headers = {"Accept-Encoding": "identity", "User-Agent": "ptdock-device"}
        if start or ranged:
            headers["Range"] = f"bytes={start}-{stop - 1}"
        response = self._follow(f"{self._url}/{path}", headers)
        try:
            self._judge(response, path, start if "Range" in headers else None, ranged=ranged)
        except BaseException:
            response.close()
            raise
        return response

    def _follow(self, url: str, headers: dict[str, str]) -> urllib3.BaseHTTPResponse:
        pool = self._source_pool
        for _ in range(_MAX_REDIRECTS + 1):
            response = _request(pool, url, headers)
            location = response.headers.get("Location")
            if response.status not in _REDIRECTS or not location:
                return response
            response.close()
            url = redirected(url, location)
            pool = self._source_pool if self._may_be_private() else self._public_pool
        raise Unavailable(f"{self} redirects more than {_MAX_REDIRECTS} times", hint="check the server's redirects")

    def _may_be_private(self) -> bool:
        if self._private is None:
            self._private = not _is_public(self._url.host or "")
        return self._private

    def _judge(self, response: urllib3.BaseHTTPResponse, path: str, start: int | None, *, ranged: bool) -> None:
        status = response.status
        if status == 200 and ranged:
            raise Unavailable(f"{self} does not serve parts of {path}", hint="the whole file has to be fetched")
        if status == 200 or (status == 206 and start is not None and _starts_at(response, start)):
            encoding = response.headers.get("Content-Encoding", "identity")
            if encoding != "identity":
                raise Unavailable(
                    f"{self} sends {path} as {encoding}", hint="turn compression of these files off: they are pinned"
                )
        elif status in (404, 410):
            raise NotFound(f"{self} has no {path}", hint="check the address; has the channel published a release?")
        elif status in _PASSING:
            raise _Passing(f"the server answered {status}", _retry_after(response))
        elif status == 206:
            raise Unavailable(
                f"{self} sends another range of {path} than asked for", hint="check the server and proxies"
            )
        elif status != 416:  # behind the file's end there is nothing, which whoever reads will see
            raise Unavailable(f"{self} answered {status} for {path}", hint="check the address and the server's log")


class _Tries:
    """Counts the failures in a row of one transfer; gives up, or waits."""

    def __init__(self, patience: Patience, sleep: Callable[[float], None], note: Callable[[str], None]) -> None:
        self._patience, self._sleep, self._note = patience, sleep, note
        self._failures = 0

    def progressed(self, size: int) -> None:
        if size:
            self._failures = 0

    def failed(self, what: str, trouble: _Passing) -> None:
        self._failures += 1
        delay = self._patience.delay(self._failures, random.random())  # noqa: S311 - spreads load, guards nothing
        delay = max(delay, trouble.after or 0.0)
        if self._failures >= self._patience.attempts or delay > self._patience.longest:
            wait = {"retry_after": trouble.after} if trouble.after is not None else {}
            raise Unavailable(
                f"{what}: {trouble}", hint="try again later: what has arrived is kept", **wait
            ) from trouble
        self._note(f"{what}: {trouble}; trying again in {delay:.1f} s")
        self._sleep(delay)


def redirected(url: str, location: str) -> str:
    """Where a redirect from `url` leads. Raises Unavailable for another scheme than http(s), and for a step down."""
    try:
        target = urljoin(url, location)
        scheme = parse_url(target).scheme
    except ValueError:  # LocationParseError is one too
        scheme = None
    if scheme not in ("http", "https"):
        raise Unavailable(f"{url} redirects to {location[:200]!r}", hint="only http and https addresses are followed")
    if url.startswith("https:") and scheme != "https":
        raise Unavailable(f"{url} redirects from https to http", hint="serve the target by https too")
    return target


class _Guarded:
    """Refuses, once connected, to talk to an address that is not on the public internet."""

    sock: Any

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]
        peer = self.sock.getpeername()[0]
        if not ipaddress.ip_address(peer).is_global:
            self.sock.close()
            raise Unavailable(f"a redirect leads to the private address {peer}", hint="check the server's redirects")


class _PublicHTTPConnection(_Guarded, urllib3.connection.HTTPConnection):
    pass


class _PublicHTTPSConnection(_Guarded, urllib3.connection.HTTPSConnection):
    pass


class _PublicHTTPPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _PublicHTTPConnection


class _PublicHTTPSPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _PublicHTTPSConnection


def _request(pool: urllib3.PoolManager, url: str, headers: dict[str, str]) -> urllib3.BaseHTTPResponse:
    try:
        return pool.request("GET", url, headers=headers, redirect=False, preload_content=False)
    except SSLError as error:
        raise Unavailable(f"{url}: {_reason(error)}", hint="check the server's certificate") from error
    except LocationParseError as error:
        raise Unavailable(f"{url[:200]!r} is not an address", hint="check the server's redirects") from error
    except (HTTPError, OSError) as error:
        raise _Passing(_reason(error)) from error


def _checked(address: str) -> Url:
    try:
        url = parse_url(address.rstrip("/"))
    except LocationParseError:
        url = Url()
    if url.scheme not in ("http", "https") or not url.host or url.auth or url.query or url.fragment:
        raise InputError(
            f"{address!r} is not a source", hint="give http(s)://HOST[:PORT][/PATH], without user, query or fragment"
        )
    return url


def _is_public(host: str) -> bool:
    """Whether every address that a host's name means now is on the public internet."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), None)
    except OSError:
        return True
    return all(ipaddress.ip_address(entry[4][0]).is_global for entry in found)


def _starts_at(response: urllib3.BaseHTTPResponse, start: int) -> bool:
    return response.headers.get("Content-Range", "").startswith(f"bytes {start}-")


def _retry_after(response: urllib3.BaseHTTPResponse) -> float | None:
    """The wait that a server asks for, in seconds (RFC 9110, 10.2.3)."""
    text = response.headers.get("Retry-After")
    try:
        return Retry().parse_retry_after(text) if text else None
    except InvalidHeader:
        return None


def _reason(error: BaseException) -> str:
    """What went wrong, short: a server's own bytes may stand in it."""
    return (str(error) or type(error).__name__)[:200]
