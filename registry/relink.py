"""Hollow template + relocation table + factors = the adapter's `.pte`, identical to its full export.

Pure and torch-free; milliseconds where a full export takes minutes. Devices run the same few lines.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from registry.digest import Digest
from registry.errors import FormatError
from registry.relocation import RelocationTable


def relink(
    hollow: bytes, table: RelocationTable, factors: bytes | memoryview, digests: Sequence[Digest] | None = None
) -> bytes:
    """Write each factor's bytes and keys into the hollow program.

    `factors` holds the slots' bytes one after another, in the table's order; `digests` are theirs where the caller has
    just made them. Raises FormatError when the sizes of the three do not fit together.
    """
    if len(hollow) != table.program_size:
        raise FormatError(f"the template has {len(hollow)} bytes, its table says {table.program_size}")
    if len(factors) != table.factor_bytes:
        raise FormatError(f"the factors have {len(factors)} bytes, the table asks for {table.factor_bytes}")
    view, start, sites = memoryview(factors), 0, []
    for index, slot in enumerate(table.slots):
        data = view[start : start + slot.size]
        start += slot.size
        key = (digests[index] if digests else Digest.of(data)).hex.encode()
        sites += [(offset, data) for offset in slot.data] + [(offset, key) for offset in slot.keys]
    return b"".join(_woven(memoryview(hollow), sorted(sites, key=itemgetter(0))))


def _woven(hollow: memoryview, sites: Iterable[tuple[int, bytes | memoryview]]) -> Iterator[bytes | memoryview]:
    """The hollow program's own bytes and those of the sites, in the order of the file."""
    at = 0
    for offset, data in sites:
        yield hollow[at:offset]
        yield data
        at = offset + len(data)
    yield hollow[at:]


def extract(program: bytes | memoryview, table: RelocationTable) -> bytes:
    """Read the factors back out of a program: the inverse of `relink`. Raises FormatError on another size."""
    if len(program) != table.program_size:
        raise FormatError(f"the program has {len(program)} bytes, its table says {table.program_size}")
    view = memoryview(program)
    return b"".join(view[slot.data[0] : slot.data[0] + slot.size] for slot in table.slots)


def hollow(program: bytes, table: RelocationTable) -> bytes:
    """The program with every site zeroed: it compresses to tens of kB, and relinking overwrites all of them."""
    out = bytearray(program)
    for offset, length in table.sites():
        out[offset : offset + length] = bytes(length)
    return bytes(out)


def pack(hollow: bytes) -> bytes:
    """The hollow template as it is stored: one zlib stream (RFC 1950), which every phone can read."""
    return zlib.compress(hollow, 9)


def unpack(packed: bytes, size: int) -> bytes:
    """Undo `pack`, stopping at `size` bytes whatever the stream claims. Raises FormatError."""
    decoder = zlib.decompressobj()
    try:
        out = decoder.decompress(packed, size)
        more = decoder.decompress(decoder.unconsumed_tail, 1)
    except zlib.error as error:
        raise FormatError(f"the template is not a zlib stream: {error}") from None
    if len(out) != size or more or not decoder.eof or decoder.unused_data:
        raise FormatError(f"the template does not unpack to {size} bytes")
    return out
