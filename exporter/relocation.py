"""Find an adapter's factors in a program that was exported with unique random placeholders: bytes in, a table out.

Each placeholder's data and the 64 hex digits of its key are searched for; what stands where is the relocation table
(registry.relocation). Pure.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import numpy as np

from registry.errors import IntegrityError
from registry.relocation import RelocationTable, Slot

_WORD = 8
_HEX = re.compile(rb"[0-9a-f]{64}")


def locate(program: bytes, placeholders: Sequence[Slot], content: Sequence[bytes]) -> RelocationTable:
    """Find each placeholder in `program`; `content[i]` holds the bytes of `placeholders[i]` (its offsets unused).

    Raises IntegrityError when a key has no data: then the program is not what the structure promised.
    """
    keys, heads = _keys(program), _heads(program, content)
    found: list[Slot] = []
    dead: list[str] = []
    for slot, data in zip(placeholders, content, strict=True):
        named = keys.get(hashlib.sha256(data).hexdigest().encode(), [])
        at = tuple(offset for offset in heads.get(data[:_WORD], []) if program.startswith(data, offset))
        if not at and named:
            raise IntegrityError(f"{slot.names[0]}: the program names this tensor but does not hold it")
        if at:
            found.append(Slot(slot.names, slot.dtype, slot.shape, len(data), at, tuple(named)))
        else:
            dead.extend(slot.names)
    found.sort(key=lambda slot: slot.data)
    return RelocationTable(len(program), tuple(found), tuple(sorted(dead)))


def _keys(program: bytes) -> dict[bytes, list[int]]:
    """Every 64-hex text in the program, by its digits: one scan, however many factors there are."""
    found: dict[bytes, list[int]] = {}
    for match in _HEX.finditer(program):
        found.setdefault(match[0], []).append(match.start())
    return found


def _heads(program: bytes, content: Sequence[bytes]) -> dict[bytes, list[int]]:
    """Where the first eight bytes of each content stand. ExecuTorch aligns constants to 16 bytes, so words suffice."""
    words = np.frombuffer(program, "<u8", count=len(program) // _WORD)
    wanted = np.array([int.from_bytes(data[:_WORD].ljust(_WORD, b"\0"), "little") for data in content], "<u8")
    found: dict[bytes, list[int]] = {}
    for index in np.flatnonzero(np.isin(words, wanted)):
        offset = int(index) * _WORD
        found.setdefault(program[offset : offset + _WORD], []).append(offset)
    return found
