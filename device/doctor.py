"""Why a program would not load, or did not: found before the load where possible, since the runtime says little.

ExecuTorch checks no digest, answers a number (`error: 0x20`), and ends the process for a missing data file. Here the
two files are read and matched key by key first, and a number that comes out of the runtime all the same is put into
words, after the files were hashed again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from registry.digest import Digest
from registry.errors import FormatError, IntegrityError, NotFound, PtdockError, Unavailable
from registry.formats import Buffer, mapped
from registry.formats.ptd import Ptd, read_ptd
from registry.formats.pte import ExternalKey, Pte, read_pte

T = TypeVar("T")

_CODE = re.compile(r"error: ?0x:?([0-9a-f]+)", re.IGNORECASE)
_AGAIN = "sync again: damaged files are fetched anew"

# executorch/runtime/core/error.h; the words are for what each means when a program is loaded on a foundation.
MEANINGS = {
    0x02: "it asks for tensors outside of itself, and no foundation was given",
    0x14: "it uses an operator that this runtime was built without",
    0x20: "it asks for a tensor that its foundation does not hold: this is not the foundation that it was made for",
    0x21: "there was not enough memory",
    0x22: "a file could not be opened or read",
    0x23: "the program is damaged, or made for another ExecuTorch",
    0x24: "the foundation is damaged: it was cut, or its header changed",
    0x25: "a resource of the device ran out",
    0x30: "a backend does not understand its part of the program: it was made for another ExecuTorch",
    0x31: "a backend did not get the memory that it asked for",
}


@dataclass(frozen=True, slots=True)
class File:
    """A file to load: where it stands, what it is for people, and the digest that it should have, where known."""

    path: Path
    title: str
    digest: Digest | None = None

    def __str__(self) -> str:
        return f"{self.title} ({self.digest.short})" if self.digest else self.title


def diagnose(program: File, foundation: File | None) -> Pte:
    """Check that these two would load together, without loading them; what the program is made of.

    Reads headers only, a few pages of a file of any size. Raises NotFound for a missing file and IntegrityError for a
    damaged one or another foundation, naming how many tensors are missing and which.
    """
    pte = _read(program, read_pte)
    if foundation is None:
        if pte.external:
            raise NotFound(
                f"{program} asks for {len(pte.external)} tensors of a foundation, and none was given",
                hint="load it with its foundation as the data file",
            )
        return pte
    ptd = _read(foundation, read_ptd)
    missing = _missing(pte, ptd)
    if missing:
        raise IntegrityError(
            f"{foundation} is not the foundation of {program}: of the {len(pte.external)} tensors that it asks for,"
            f" {len(missing)} are not there, the first is {_words(missing[0])}",
            hint="load it with the foundation that its release names",
            missing=[key.key for key in missing],
            foundation=str(foundation.digest) if foundation.digest else None,
            program=str(program.digest) if program.digest else None,
        )
    return pte


def explain(error: Exception, program: File, foundation: File | None) -> PtdockError:
    """The runtime's failure in words: IntegrityError when a file is not what its digest says, else by its code."""
    for file in (program, foundation):
        if file and file.digest and file.path.exists() and (actual := Digest.of_file(file.path)) != file.digest:
            return IntegrityError(
                f"{file} is damaged: its bytes have the digest {actual.short}",
                hint=_AGAIN,
                expected=str(file.digest),
                actual=str(actual),
            )
    match = _CODE.search(str(error))
    code = int(match[1], 16) if match else None
    meaning = MEANINGS.get(code or 0, str(error))
    kind = IntegrityError if code in (0x02, 0x20, 0x23, 0x24) else Unavailable
    return kind(
        f"ExecuTorch could not run {program} on {foundation or 'no foundation'}: {meaning}",
        hint="the runtime's own words are on standard error",
        code=f"0x{code:02x}" if code else None,
    )


def _read(file: File, reader: Callable[[Buffer], T]) -> T:
    try:
        return reader(mapped(file.path))
    except FileNotFoundError:
        raise NotFound(f"{file} is missing", hint=_AGAIN) from None
    except FormatError as error:
        raise IntegrityError(f"{file} is damaged: {error.message}", hint=_AGAIN, **error.values) from error
    except OSError as error:
        raise Unavailable(f"{file} cannot be read: {error.strerror}", hint="check the file's rights") from error


def _missing(pte: Pte, ptd: Ptd) -> list[ExternalKey]:
    held = {entry.key: entry.size for entry in ptd.entries}
    return [key for key in pte.external if held.get(key.key) != key.size]


def _words(key: ExternalKey) -> str:
    shape = str(key.layout) if key.layout else f"{key.size} bytes"
    return f"{key.key[:20]}… ({shape})"
