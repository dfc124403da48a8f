"""Readers of the three files that ptdock handles: `.ptd`, `.pte` and safetensors.

Each answers frozen values or raises FormatError, on any bytes, in time and memory bounded by the input's length;
none imports torch or ExecuTorch. The values hold numbers and names, never views of the input, so a mapping can be
closed as soon as the reader returns.

* `flatbuffer`: tables, vectors, strings and unions, every offset checked before it is followed
* `layout`: a tensor's dtype, sizes and dim order, and what ExecuTorch calls the dtypes
* `ptd`: `read_ptd`: which keys a foundation holds, and where
* `pte`: `read_pte`: which keys a program carries and which it asks for; `plans` reads its methods, `xnnpack` their
  delegates
* `safetensors`: `read_header`, and `Reader` for single tensors and blocks of rows

    >>> with open("model.ptd", "rb") as file:
    ...     ptd = read_ptd(file.read())  # doctest: +SKIP

Files of any size are read through `mapped`, which touches only the pages that hold headers.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from registry.digest import CHUNK

Buffer = bytes | bytearray | memoryview | mmap.mmap
_KEPT = 16 << 20  # bytes of a memory map that may stay resident while it is read once


def mapped(path: Path) -> memoryview:
    """A file's bytes as a read-only memory map; it is closed when the last view of it is gone. Raises OSError."""
    with open(path, "rb") as file:
        if not file.seek(0, 2):
            return memoryview(b"")  # an empty file cannot be mapped
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def pieces(view: memoryview, start: int, end: int) -> Iterator[memoryview]:
    """The bytes `start` to `end` of a whole buffer, at most CHUNK at a time.

    If the buffer is a memory map, the pages that were read are given back now and then: a file of any size passes
    through in a few MB.
    """
    for at in range(start, end, CHUNK):
        yield view[at : min(at + CHUNK, end)]
        if isinstance(view.obj, mmap.mmap) and at % _KEPT < CHUNK:
            view.obj.madvise(mmap.MADV_DONTNEED)
