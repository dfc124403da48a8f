"""The safetensors of a directory, one file or many shards, as one table of tensors. Torch-free.

A sharded set is read whole or refused, never half: its index and its shards must name exactly the same tensors.
`Weights` then answers single tensors, or blocks of rows, of whichever file holds them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from registry import canonical
from registry.artifacts import Tensor
from registry.digest import Digest
from registry.errors import FormatError, InputError
from registry.formats.safetensors import Array, Entry, Reader

_MAX_JSON = 100_000_000  # bytes: safetensors' own limit on a header, far above any real index or config
_SHOWN = 5
_EXPONENTS: Mapping[str, np.unsignedinteger[Any]] = {
    "F32": np.uint32(0x7F80_0000),
    "F16": np.uint16(0x7C00),
    "BF16": np.uint16(0x7F80),
}


def read_json(path: Path) -> Any:
    """Parse a JSON file strictly (`registry.canonical.loads`). Raises InputError or FormatError."""
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_JSON + 1)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    if len(data) > _MAX_JSON:
        raise FormatError(f"{path}: more than {_MAX_JSON} bytes of JSON")
    return canonical.loads(data, what=str(path))


def _list(names: set[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(sorted(names)[:_SHOWN]) + more


def _is_file_name(name: Any) -> bool:
    """Whether an index may name this file: beside the index, and nowhere else."""
    return isinstance(name, str) and name.endswith(".safetensors") and not set(name) & set("/\\:\0")


def _read_index(path: Path) -> dict[str, str]:
    """Which file holds which tensor, by the index. Raises FormatError."""
    document = read_json(path)
    table = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(table, dict) or not table:
        raise FormatError(f"{path}: has no weight_map")
    for tensor, name in table.items():
        if not _is_file_name(name):
            raise FormatError(f"{path}: {tensor!r} is said to be in {name!r}, which is no file name in this directory")
    missing = {name for name in table.values() if not (path.parent / name).is_file()}
    if missing:
        raise FormatError(f"{path}: names files that are missing: {_list(missing)}", hint="complete the download")
    return table


def _check_index(path: Path, index: Mapping[str, str], shards: Mapping[str, Reader]) -> None:
    """Raise FormatError unless each shard holds exactly the tensors that the index says."""
    named = {(tensor, name) for tensor, name in index.items()}
    held = {(tensor, name) for name, shard in shards.items() for tensor in shard.header.tensors}
    if absent := {f"{tensor} in {name}" for tensor, name in named - held}:
        raise FormatError(f"{path}: names tensors that are not there: {_list(absent)}")
    if strange := {f"{tensor} in {name}" for tensor, name in held - named}:
        raise FormatError(f"{path}: does not name tensors that are there: {_list(strange)}")


def _is_finite(piece: bytes, exponent: np.unsignedinteger[Any]) -> bool:
    """Whether no value of this floating type has all bits of its exponent set, which is how IEEE 754 spells both."""
    bits = np.frombuffer(piece, exponent.dtype)
    return not len(bits) or bool((bits & exponent).max() < exponent)


class Weights:
    """The tensors of one checkpoint by name; a context manager, as `Reader` is."""

    def __init__(self, shards: Mapping[str, Reader]) -> None:
        """Over open files by file name, which share no tensor name."""
        self._shards = shards
        self._holder = {tensor: shard for shard in shards.values() for tensor in shard.header.tensors}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; arrays that were handed out stay valid."""
        for shard in self._shards.values():
            shard.close()

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files, in the order of their names."""
        return tuple(self._shards[name].path for name in sorted(self._shards))

    @property
    def names(self) -> tuple[str, ...]:
        """The tensors' names, sorted."""
        return tuple(sorted(self._holder))

    @property
    def size(self) -> int:
        """Bytes of all tensors together."""
        return sum(self.entry(name).size for name in self._holder)

    def __contains__(self, name: object) -> bool:
        return name in self._holder

    def reader(self, name: str) -> Reader:
        """The file that holds a tensor. Raises InputError."""
        try:
            return self._holder[name]
        except KeyError:
            raise InputError(f"there is no tensor {name!r} in {_list({str(path) for path in self.paths})}") from None

    def entry(self, name: str) -> Entry:
        """A tensor's dtype, shape and place."""
        return self.reader(name).entry(name)

    def array(self, name: str) -> Array:
        """A tensor over the memory map; see `Reader.array`."""
        return self.reader(name).array(name)

    def rows(self, name: str, start: int, stop: int) -> Array:
        """A copy of some rows of a tensor; see `Reader.rows`."""
        return self.reader(name).rows(name, start, stop)

    def digest(self, name: str, progress: Callable[[int], None] | None = None) -> Digest:
        """The digest of a tensor's bytes, read in pieces; `progress` gets each piece's length in bytes.

        Raises InputError where it holds NaN or infinity: nothing that is made from it would compute anything.
        """
        hasher, exponent = hashlib.sha256(), _EXPONENTS.get(self.entry(name).dtype)
        for piece in self.reader(name).chunks(name):
            hasher.update(piece)
            if exponent is not None and not _is_finite(piece, exponent):
                raise InputError(
                    f"{name}: holds NaN or infinity",
                    hint="the checkpoint is damaged, or its training diverged: take an earlier one",
                )
            if progress:
                progress(len(piece))
        return Digest(hasher.digest())

    def tensors(self, progress: Callable[[int], None] | None = None) -> Iterator[Tensor]:
        """The tensor table in the order of the names, hashed on the way, each file from its start to its end."""
        digests = {
            name: self.digest(name, progress) for shard in self._shards.values() for name in shard.header.tensors
        }
        for name in self.names:
            entry = self.entry(name)
            yield Tensor(name, entry.dtype, entry.shape, digests[name])


def _open_all(names: set[str], directory: Path, stack: ExitStack, *, follow_symlinks: bool) -> dict[str, Reader]:
    return {
        name: stack.enter_context(Reader(directory / name, follow_symlinks=follow_symlinks)) for name in sorted(names)
    }


def open_weights(directory: Path, stem: str = "model", *, follow_symlinks: bool = True) -> Weights | None:
    """Open `<stem>.safetensors`, or all the shards of `<stem>.safetensors.index.json`; None where neither exists.

    Raises FormatError for a file that is not strictly safetensors and for a set that is not whole.
    """
    single, index = directory / f"{stem}.safetensors", directory / f"{stem}.safetensors.index.json"
    if single.is_file() and index.is_file():
        raise FormatError(f"{directory}: has both {single.name} and {index.name}", hint="remove the one that is stale")
    if not single.is_file() and not index.is_file():
        return None
    with ExitStack() as stack:
        table = {} if single.is_file() else _read_index(index)
        names = set(table.values()) or {single.name}
        shards = _open_all(names, directory, stack, follow_symlinks=follow_symlinks)
        if table:
            _check_index(index, table, shards)
        stack.pop_all()
        return Weights(shards)
