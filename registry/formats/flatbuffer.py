"""A bounds-checked reader of FlatBuffers: any bytes give values or FormatError, in bounded time and memory.

The format (https://flatbuffers.dev/internals/): a table is a signed offset back to its vtable, then its inline
fields; the vtable lists where each field stands, 0 for "absent: take the default"; tables, strings and vectors are
reached by unsigned offsets forward. Nothing stops a hostile file from pointing many offsets at one place, so a small
file could describe a huge value. `Budget` does: what is read costs units, and a buffer in which nothing is shared
never costs more units than it has bytes.

Offsets are absolute in `data`, so positions found here are positions in the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from registry.errors import FormatError
from registry.formats.layout import Span

_CODES = {code: struct.Struct("<" + code) for code in "bBhHiIqQ"}
_UOFFSET = _CODES["I"]
_SOFFSET = _CODES["i"]
_VOFFSET = _CODES["H"]
_VTABLE = struct.Struct("<HH")  # its own length, and that of the table's inline fields
_TABLE_UNITS = 8  # the least that an unshared table takes: the offset to it, and the offset to its vtable
_STRING_UNITS = 4
_MAX_UNITS = 1 << 23  # some eighty thousand named tensors: far above any model, and a few seconds of work


class Budget:
    """How much may still be read. One budget serves all the buffers of a file."""

    __slots__ = ("_left",)

    def __init__(self, size: int) -> None:
        """Allow what a file of `size` bytes can hold without sharing, twice over."""
        self._left = min(2 * size + 64, _MAX_UNITS)

    def spend(self, units: int, what: str) -> None:
        """Take `units`. Raises FormatError when none are left."""
        self._left -= units
        if self._left < 0:
            raise FormatError(f"{what}: holds more values than its length allows")


@dataclass(frozen=True, slots=True)
class Region:
    """The bytes `start` to `end` of `data` as one FlatBuffer; `what` names it in messages."""

    data: memoryview
    start: int
    end: int
    what: str
    budget: Budget

    def read(self, code: struct.Struct, at: int) -> int:
        """The number at the absolute position `at`. Raises FormatError outside the region."""
        if at < self.start or at + code.size > self.end:  # `check` written out: a program has fifty thousand numbers
            self.check(at, code.size)
        number: int = code.unpack_from(self.data, at)[0]
        return number

    def check(self, at: int, size: int) -> None:
        """Raise FormatError unless `size` bytes from `at` lie inside the region."""
        if at < self.start or at + size > self.end:
            raise FormatError(
                f"{self.what}: an offset points outside: {size} bytes at {at} of {self.start}..{self.end}"
            )

    def follow(self, at: int) -> int:
        """The position that the unsigned offset at `at` points to."""
        target = at + self.read(_UOFFSET, at)
        if target == at:
            raise FormatError(f"{self.what}: the offset at {at} points at itself")
        return target

    def table(self, at: int) -> Table:
        """The table at `at`, its vtable checked."""
        self.budget.spend(_TABLE_UNITS, self.what)
        vtable = at - self.read(_SOFFSET, at)
        self.check(vtable, _VTABLE.size)
        length, inline = _VTABLE.unpack_from(self.data, vtable)
        if length < 4 or length % 2 or inline < 4:
            raise FormatError(f"{self.what}: the table at {at} has an impossible vtable ({length}, {inline} bytes)")
        self.check(vtable, length)
        self.check(at, inline)
        return Table(self, at, vtable, length, inline)

    def root(self, *identifiers: bytes) -> Table:
        """The root table, if the buffer carries one of these 4-byte file identifiers. Raises FormatError."""
        self.check(self.start, 8)
        found = bytes(self.data[self.start + 4 : self.start + 8])
        if found not in identifiers:
            expected = " or ".join(repr(identifier.decode()) for identifier in identifiers)
            raise FormatError(f"{self.what}: expected the identifier {expected}, found {ascii(found)[1:]}")
        return self.table(self.follow(self.start))


@dataclass(frozen=True, slots=True)
class Table:
    """One table. Fields are named by their slot: their index in the schema, a union taking two."""

    region: Region
    at: int
    vtable: int
    length: int
    inline: int

    def _field(self, slot: int, size: int) -> int | None:
        """The position of a field of `size` inline bytes, or None where it is absent."""
        entry = 4 + 2 * slot
        if entry + 2 > self.length:
            return None
        offset = self.region.read(_VOFFSET, self.vtable + entry)
        if offset and (offset < 4 or offset + size > self.inline):
            raise FormatError(f"{self.region.what}: field {slot} of the table at {self.at} lies outside it")
        return self.at + offset if offset else None

    def _target(self, slot: int) -> int | None:
        at = self._field(slot, 4)
        return None if at is None else self.region.follow(at)

    def _vector(self, slot: int, width: int) -> tuple[int, int]:
        """Position of the first element and count; (0, 0) where the vector is absent."""
        at = self._target(slot)
        if at is None:
            return 0, 0
        count = self.region.read(_UOFFSET, at)
        self.region.check(at + 4, count * width)
        return at + 4, count

    def scalar(self, slot: int, code: str, default: int = 0) -> int:
        """An integer field; `code` is `struct`'s letter for its type."""
        reader = _CODES[code]
        at = self._field(slot, reader.size)
        return default if at is None else self.region.read(reader, at)

    def table(self, slot: int) -> Table | None:
        """A table field."""
        at = self._target(slot)
        return None if at is None else self.region.table(at)

    def union(self, slot: int) -> tuple[int, Table | None]:
        """A union field: its type (0 for none) at `slot`, its table at the next slot, read only if a type is set."""
        kind = self.scalar(slot, "B")
        return kind, self.table(slot + 1) if kind else None

    def tables(self, slot: int) -> Iterator[Table]:
        """A vector of tables, read one by one."""
        at, count = self._vector(slot, 4)
        for position in range(at, at + 4 * count, 4):
            yield self.region.table(self.region.follow(position))

    def numbers(self, slot: int, code: str) -> tuple[int, ...]:
        """A vector of integers."""
        at, count = self._vector(slot, _CODES[code].size)
        self.region.budget.spend(count, self.region.what)
        return struct.unpack_from(f"<{count}{code}", self.region.data, at)

    def span(self, slot: int) -> Span | None:
        """Where the bytes of a byte vector stand; they are not read."""
        at, count = self._vector(slot, 1)
        return Span(at, count) if at else None

    def string(self, slot: int) -> str | None:
        """A string field. Raises FormatError for bytes that are not UTF-8, and for NUL, where C would cut the name."""
        at, count = self._vector(slot, 1)
        if not at:
            return None
        what = self.region.what
        self.region.budget.spend(count + _STRING_UNITS, what)
        self.region.check(at, count + 1)
        raw = bytes(self.region.data[at : at + count + 1])
        if raw.find(0) != count:
            raise FormatError(f"{what}: the string at {at} is not ended by its one NUL")
        try:
            return raw[:-1].decode("utf-8")
        except UnicodeDecodeError:
            raise FormatError(f"{what}: the string at {at} is not UTF-8") from None
