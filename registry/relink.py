"""Hollow template + relocation table + factors = the adapter's `.pte`, identical to its full export.

Pure and torch-free; milliseconds where a full export takes minutes. Devices run the same few lines.
"""

from __future__ import annotations

import hashlib
import zlib

from registry.errors import FormatError
from registry.relocation import RelocationTable


def relink(hollow: bytes, table: RelocationTable, factors: bytes | memoryview) -> bytes:
    """Write each factor's bytes and keys into the hollow program.

    `factors` holds the slots' bytes one after another, in the table's order. Raises FormatError when the sizes
    of the three do not fit together.
    """
    if len(hollow) != table.program_size:
        raise FormatError(f"the template has {len(hollow)} bytes, its table says {table.program_size}")
    if len(factors) != table.factor_bytes:
        raise FormatError(f"the factors have {len(factors)} bytes, the table asks for {table.factor_bytes}")
    out, view, start = bytearray(hollow), memoryview(factors), 0
    for slot in table.slots:
        data = view[start : start + slot.size]
        start += slot.size
        key = hashlib.sha256(data).hexdigest().encode()
        for offset in slot.data:
            out[offset : offset + slot.size] = data
        for offset in slot.keys:
            out[offset : offset + len(key)] = key
    return bytes(out)


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
