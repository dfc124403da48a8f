"""The relocation table: where an adapter's factors stand in a program, their bytes and the keys that name those bytes.

XNNPACK keys every constant by the SHA-256 of its bytes, so a program holds each factor's data and, at two or more
places, 64 hex digits. The exporter finds them (exporter.relocation); publishing and devices write there
(registry.relink). Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from registry import canonical
from registry.errors import FormatError

KEY_LENGTH = 64


@dataclass(frozen=True, slots=True)
class Slot:
    """One distinct factor: the factor names that share it, and the byte offsets of its data and of its keys."""

    names: tuple[str, ...]
    dtype: str
    shape: tuple[int, ...]
    size: int
    data: tuple[int, ...]
    keys: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RelocationTable:
    """Slots in the order of their first data offset, which is the order of the factors blob.

    `dead` names factors that are not in the program, because nothing that is computed needs them.
    """

    program_size: int
    slots: tuple[Slot, ...]
    dead: tuple[str, ...]

    @property
    def factor_bytes(self) -> int:
        """The factors blob's size."""
        return sum(slot.size for slot in self.slots)

    def to_bytes(self) -> bytes:
        """The document, as canonical JSON."""
        return canonical.dumps(
            {
                "schema": 1,
                "program_size": self.program_size,
                "tensors": [
                    {
                        "names": slot.names,
                        "dtype": slot.dtype,
                        "shape": slot.shape,
                        "size": slot.size,
                        "data": slot.data,
                        "keys": slot.keys,
                    }
                    for slot in self.slots
                ],
                "dead": self.dead,
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> RelocationTable:
        """Parse and check: every site inside the program, none overlapping another. Raises FormatError."""
        document = canonical.loads(data, what="relocation table")
        try:
            table = cls._from_json(document)
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"relocation table: {error}") from None
        table._check_sites()  # noqa: SLF001  a constructor of the class itself
        return table

    @classmethod
    def _from_json(cls, document: Mapping[str, Any]) -> RelocationTable:
        if document["schema"] != 1:
            raise FormatError(f"relocation table: schema {document['schema']!r}", hint="upgrade ptdock")
        slots = tuple(
            Slot(
                names=_names(entry["names"]),
                dtype=str(entry["dtype"]),
                shape=tuple(map(_count, entry["shape"])),
                size=_count(entry["size"]),
                data=tuple(map(_count, entry["data"])),
                keys=tuple(map(_count, entry["keys"])),
            )
            for entry in document["tensors"]
        )
        return cls(_count(document["program_size"]), slots, tuple(str(name) for name in document["dead"]))

    def sites(self) -> Iterator[tuple[int, int]]:
        """Every (offset, length) that relinking writes."""
        for slot in self.slots:
            yield from ((offset, slot.size) for offset in slot.data)
            yield from ((offset, KEY_LENGTH) for offset in slot.keys)

    def _check_sites(self) -> None:
        end = 0
        for offset, length in sorted(self.sites()):
            if offset < end:
                raise FormatError(f"relocation table: the site at byte {offset} overlaps the one before")
            end = offset + length
        if end > self.program_size:
            raise FormatError(f"relocation table: a site ends at byte {end} of {self.program_size}")


def _names(value: Any) -> tuple[str, ...]:
    if not value:
        raise ValueError("a tensor without a name")
    return tuple(str(name) for name in value)


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value
