"""Write an adapter's program from its factors: hollow template, table, trained factors, and one digest at the end.

A structure's template and table are fetched once; each further adapter of it is its trained factors. What comes out
is the published `.pte` byte for byte, or nothing: table and factors are only recipes, the pinned digest decides.
"""

from __future__ import annotations

from device.checks import Checks
from device.sets import title
from device.store import DeviceStore
from registry.digest import Descriptor
from registry.errors import IntegrityError
from registry.release import AdapterEntry
from registry.relink import relink, unpack
from registry.wire import expand


def write_program(store: DeviceStore, checks: Checks, entry: AdapterEntry) -> None:
    """Make the entry's `.pte` stand in the store, from its factors. The caller holds the directory's lock.

    Raises IntegrityError when a part is missing or damaged, or when they do not make the pinned bytes; FormatError
    for parts that contradict each other; Unavailable for a full disk.
    """
    parts = entry.factors
    if parts is None:
        raise IntegrityError(f"{title(entry)} is missing", hint="sync again: missing files are fetched anew")
    for blob in (parts.template, parts.table, parts.file):
        damage = checks.damage(blob)
        if damage:
            raise damage.error(f"the factors of {title(entry)}")
    program = _program(store, entry, (parts.template, parts.table, parts.file))
    actual = Descriptor.of(program)
    if actual != entry.file:
        raise IntegrityError(
            f"the factors of {title(entry)} do not make {entry.file.digest.short}, but {actual.digest.short}",
            hint="the release is wrong: tell its publisher",
            expected=entry.file.to_json(),
            actual=actual.to_json(),
        )
    store.put(actual.digest, program)
    checks.vouch(actual.digest)


def _program(store: DeviceStore, entry: AdapterEntry, parts: tuple[Descriptor, Descriptor, Descriptor]) -> bytes:
    template, table, factors = (store.path(blob.digest).read_bytes() for blob in parts)
    relocations, folded = expand(table, factors)
    if relocations.program_size != entry.file.size:  # before the template is unpacked to that size
        raise IntegrityError(
            f"the table of {title(entry)} is for a program of {relocations.program_size} bytes, not {entry.file.size}",
            hint="the release is wrong: tell its publisher",
        )
    return relink(unpack(template, entry.file.size), relocations, folded)
