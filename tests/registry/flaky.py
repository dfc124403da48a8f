"""A proxy that breaks connections, between a client and a server of the tests' own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Proxy:
    """Passes bytes on. While `breaks` is above 0, a connection ends after `after` bytes, and one break is used up."""

    target: tuple[str, int]
    breaks: int = 0
    after: int = 0
    broken: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def endpoint(self) -> str:
        """Where clients connect to."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def serve(self) -> None:
        """Take connections until the listener is closed."""
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self.target)
                left = [self.after] if self.breaks > 0 else None
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=(one, other, left), daemon=True).start()

    def _pass(self, source: socket.socket, to: socket.socket, left: list[int] | None) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if left is not None and self._breaks(left, len(data)):
                    break
                to.sendall(data)
        for each in (source, to):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _breaks(self, left: list[int], size: int) -> bool:
        """Whether a connection ends here. Several may be due at once, and use up only what is there."""
        with self._lock:
            left[0] -= size
            if left[0] >= 0 or self.breaks <= 0:
                return False
            left[0] = 1 << 62  # the other direction ends with this one
            self.breaks -= 1
            self.broken += 1
            return True

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()


@contextmanager
def proxied(endpoint: str) -> Iterator[Proxy]:
    """A proxy in front of a server."""
    host, _, port = endpoint.removeprefix("http://").partition(":")
    proxy = Proxy((host, int(port)))
    threading.Thread(target=proxy.serve, daemon=True).start()
    try:
        yield proxy
    finally:
        proxy.close()
