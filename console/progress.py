"""What goes on, on standard error: phases with their seconds, and bytes where they are counted.

    with Progress(stream, quiet=False) as progress:
        progress("hashing the checkpoint")      # a phase begins, the one before it has ended
        progress.bytes(1 << 20)                 # one more MiB of it

On a terminal the running phase is one line that counts its seconds; elsewhere each phase is a plain line when it
begins. The stream has a file descriptor of its own, because exporter.quiet points descriptor 2 elsewhere while
torch works.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import threading
import time
from types import TracebackType
from typing import Self, TextIO

from console import render

_TICK = 0.2  # seconds between two looks at the clock
_QUICK = 0.5  # a phase shorter than this is not worth a line of its own on a terminal


def own_stderr() -> TextIO:
    """Standard error under a descriptor of its own; `sys.stderr` itself where it has none (a test's buffer)."""
    if sys.stderr is None:  # the caller closed it
        return open(os.devnull, "w", encoding="utf-8")
    try:
        descriptor = os.dup(sys.stderr.fileno())
    except (OSError, io.UnsupportedOperation):
        return sys.stderr
    return os.fdopen(descriptor, "w", encoding=sys.stderr.encoding, errors="backslashreplace", buffering=1)


class Progress:
    """Tells what goes on until it is closed; a context manager. `progress(text)` begins a phase."""

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        self._stream = stream
        self._quiet = quiet
        self._live = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._lock = threading.Lock()
        self._began = self._phase_began = time.monotonic()
        self._phase = ""
        self._done = 0
        self._total: int | None = None
        self._stop = threading.Event()
        self._ticker: threading.Thread | None = None

    def __call__(self, phase: str) -> None:
        """Begin a phase."""
        self.phase(phase)

    def phase(self, text: str, total: int | None = None) -> None:
        """Begin a phase; `total` is how many bytes it will go through, where that is known."""
        if self._quiet:
            return
        with self._lock:
            self._finish()
            self._phase, self._done, self._total = render.clean(text), 0, total
            self._phase_began = time.monotonic()
            if not self._live:
                print(f"{self._phase_began - self._began:6.1f} s  {self._phase}", file=self._stream)
            else:
                self._draw()
        if self._live and self._ticker is None:
            self._ticker = threading.Thread(target=self._tick, daemon=True)
            self._ticker.start()

    def bytes(self, count: int) -> None:
        """Count bytes of the running phase."""
        with self._lock:
            self._done += count

    def reached(self, done: int, total: int) -> None:
        """How far the running phase is, in bytes."""
        with self._lock:
            self._done, self._total = done, total

    def note(self, text: str) -> None:
        """Say something in between; the running phase goes on below it."""
        if self._quiet:
            return
        with self._lock:
            print(f"\r{text}\x1b[K" if self._live else text, file=self._stream)
            if self._live:
                self._draw()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the running phase and leave the cursor at the start of a line."""
        self._stop.set()
        if self._ticker is not None:
            self._ticker.join()
        with self._lock:
            self._finish()

    def _tick(self) -> None:
        while not self._stop.wait(_TICK):
            with self._lock:
                self._draw()

    def _draw(self) -> None:
        if self._phase:
            columns = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r{self._text()[:columns]}\x1b[K")
            self._stream.flush()

    def _finish(self) -> None:
        """On a terminal: keep the line of a phase that took a while, wipe that of a quick one."""
        if self._phase and self._live:
            quick = time.monotonic() - self._phase_began < _QUICK
            self._draw()
            self._stream.write("\r\x1b[K" if quick else "\n")
            self._stream.flush()
        self._phase = ""

    def _text(self) -> str:
        counted = ""
        if self._total:
            counted = f"  {render.size(self._done)} of {render.size(self._total)}"
        elif self._done:
            counted = f"  {render.size(self._done)}"
        return f"{time.monotonic() - self._phase_began:6.1f} s  {self._phase}{counted}"
