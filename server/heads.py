"""HTTP/1.1 with heads of bounded size: headers without end are cut off, where uvicorn alone would keep them all."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LIMIT = 64 << 10
"""Bytes of a request line and its headers; what the socket gave at once may come on top."""


class BoundedHeads(HttpToolsProtocol):
    """Uvicorn's own protocol, which counts what comes before a request's headers are complete."""

    _waiting = False
    _began = False
    _heard = 0

    def data_received(self, data: bytes) -> None:
        """Take what came from the socket."""
        self._began = False
        super().data_received(data)
        if not self._waiting or self.transport.is_closing():
            return
        self._heard = 0 if self._began else self._heard + len(data)
        if self._heard > LIMIT:
            self.send_400_response("The headers are too large.")

    def on_message_begin(self) -> None:
        """A head begins."""
        self._waiting = self._began = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """A head is complete."""
        self._waiting = False
        super().on_headers_complete()
