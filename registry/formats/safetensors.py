"""Read safetensors: a strict, bounded header, and the bytes of single tensors without reading the file.

The format (https://huggingface.co/docs/safetensors): 8 bytes little-endian header length, that many bytes of JSON
{name: {"dtype", "shape", "data_offsets": [start, end]}, "__metadata__": {text: text}}, then the tensors, in the order
of their offsets and without gaps. Everything is checked before anything is allocated: a header is never longer than
MAX_HEADER nor than the file, offsets tile the data exactly, and each tensor has the bytes that its shape asks for.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np

from registry import canonical
from registry.digest import CHUNK
from registry.errors import FormatError, InputError
from registry.formats.layout import DTYPE_BITS, MAX_RANK, byte_size

MAX_HEADER = 100_000_000  # safetensors' own limit, in bytes
_LENGTH = 8
_MAX_DIMENSION = (1 << 63) - 1
_FIELDS = {"dtype", "shape", "data_offsets"}

# What numpy has no dtype for is answered as raw bits of the same width.
_NUMPY = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "U16": "<u2",
    "I16": "<i2",
    "F16": "<f2",
    "BF16": "<u2",
    "U32": "<u4",
    "I32": "<i4",
    "F32": "<f4",
    "U64": "<u8",
    "I64": "<i8",
    "F64": "<f8",
    "C64": "<c8",
}

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor: dtype, shape, and where its bytes start and end in the file (absolute)."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def size(self) -> int:
        """The tensor's length in bytes."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class SafetensorsFile:
    """A file's table: tensors by name in the order of their bytes, the metadata, and where the data starts."""

    tensors: Mapping[str, Entry]
    metadata: Mapping[str, str]
    data_offset: int


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MAX_DIMENSION


def _counts(value: Any, limit: int) -> tuple[int, ...] | None:
    """A list of at most `limit` integers of 0 to 2^63-1, else None."""
    if not isinstance(value, list) or len(value) > limit or not all(map(_is_count, value)):
        return None
    return tuple(value)


def _entry(name: str, value: Any, data: int, *, what: str) -> Entry:
    if not isinstance(value, dict) or value.keys() != _FIELDS:
        raise FormatError(f"{what}: tensor {name!r} must have exactly dtype, shape and data_offsets")
    dtype, shape = value["dtype"], _counts(value["shape"], MAX_RANK)
    offsets = _counts(value["data_offsets"], 2)
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise FormatError(f"{what}: tensor {name!r} has the unknown dtype {dtype!r}")
    if shape is None:
        raise FormatError(f"{what}: tensor {name!r} has an impossible shape")
    if offsets is None or len(offsets) != 2 or offsets[1] < offsets[0]:
        raise FormatError(f"{what}: tensor {name!r} has impossible data_offsets")
    try:
        expected, actual = byte_size(dtype, shape), offsets[1] - offsets[0]
    except FormatError as error:
        raise FormatError(f"{what}: tensor {name!r}: {error.message}") from None
    if expected != actual:
        raise FormatError(
            f"{what}: tensor {name!r}: {dtype} {list(shape)} has {expected} bytes, its offsets hold {actual}",
            expected=expected,
            actual=actual,
        )
    return Entry(dtype, shape, data + offsets[0], data + offsets[1])


def _metadata(value: Any, *, what: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise FormatError(f"{what}: __metadata__ must map text to text")
    return value


def _check_tiling(tensors: Mapping[str, Entry], data: int, end: int, *, what: str) -> None:
    """Raise FormatError unless the tensors, in order, cover `data` to `end` without gap or overlap."""
    for name, entry in tensors.items():
        if entry.start != data:
            raise FormatError(f"{what}: tensor {name!r} starts at byte {entry.start}, the one before it ends at {data}")
        data = entry.end
    if data != end:
        raise FormatError(
            f"{what}: the header describes a file of {data} bytes, it has {end}",
            hint="the file was cut or changed: fetch it again",
            expected=data,
            actual=end,
        )


def parse_header(header: bytes, file_size: int, *, what: str = "safetensors") -> SafetensorsFile:
    """The table that the JSON text `header` of a file of `file_size` bytes describes. Raises FormatError."""
    if not header.startswith(b"{"):
        raise FormatError(f"{what}: the header does not start with '{{'")
    table = canonical.loads(header, what=f"{what}: header")
    data = _LENGTH + len(header)
    metadata = _metadata(table.pop("__metadata__", {}), what=what)
    found = [(name, _entry(name, value, data, what=what)) for name, value in table.items()]
    tensors = dict(sorted(found, key=lambda item: (item[1].start, item[1].end)))
    _check_tiling(tensors, data, file_size, what=what)
    return SafetensorsFile(tensors, metadata, data)


def _open(path: Path, *, follow_symlinks: bool) -> BinaryIO:
    """Open a regular file for reading. Raises InputError."""
    flags = os.O_RDONLY | os.O_NONBLOCK | (0 if follow_symlinks else os.O_NOFOLLOW)  # a FIFO must not block us
    try:
        file = os.fdopen(os.open(path, flags), "rb")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        if not follow_symlinks and path.is_symlink():
            raise InputError(f"{path}: is a symbolic link", hint="put the file itself there") from None
        raise InputError(f"{path}: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise InputError(f"{path}: is not a regular file")
    return file


def _read_header(file: BinaryIO, what: str, limit: int = MAX_HEADER) -> SafetensorsFile:
    size = os.fstat(file.fileno()).st_size
    if size < _LENGTH:
        raise FormatError(f"{what}: {size} bytes are too short for a safetensors file")
    length = int.from_bytes(file.read(_LENGTH), "little")
    if length > limit or length > size - _LENGTH:
        raise FormatError(
            f"{what}: claims a header of {length} bytes, at most {min(limit, size - _LENGTH)} are possible"
        )
    return parse_header(file.read(length), size, what=what)


def read_header(path: Path, *, follow_symlinks: bool = True) -> SafetensorsFile:
    """Read and check the table of a safetensors file.

    Raises FormatError if the file is not strictly one, InputError if there is no regular file, or for a symbolic link
    where `follow_symlinks` is off.
    """
    with _open(path, follow_symlinks=follow_symlinks) as file:
        return _read_header(file, str(path))


def bf16_to_f32(bits: Array) -> Array:
    """BF16 values given as uint16 bits, exactly, as float32: a BF16 is the upper half of a float32."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


class Reader:
    """One safetensors file, opened: single tensors as views of a memory map, or blocks of rows as copies.

    Use it as a context manager. Views stay valid after `close`: the map goes with the last of them.
    """

    def __init__(self, path: Path, *, follow_symlinks: bool = True, limit: int = MAX_HEADER) -> None:
        """Open the file and check its header, of at most `limit` bytes. Raises as `read_header` does."""
        self.path = path
        self._file = _open(path, follow_symlinks=follow_symlinks)
        try:
            self.header = _read_header(self._file, str(path), limit)
            self._view = memoryview(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ))
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; views that were handed out stay valid."""
        self._file.close()
        self._view = memoryview(b"")

    def entry(self, name: str) -> Entry:
        """The table's entry. Raises InputError."""
        try:
            return self.header.tensors[name]
        except KeyError:
            raise InputError(f"{self.path}: has no tensor {name!r}") from None

    def raw(self, name: str) -> memoryview:
        """A tensor's bytes, as a view of the memory map."""
        entry = self.entry(name)
        return self._view[entry.start : entry.end]

    def array(self, name: str) -> Array:
        """A tensor as a read-only array over the memory map; BF16 as uint16 bits, 8-bit floats as uint8 bits."""
        entry = self.entry(name)
        return np.frombuffer(self.raw(name), dtype=numpy_dtype(entry.dtype)).reshape(entry.shape)

    def chunks(self, name: str) -> Iterator[bytes]:
        """A tensor's bytes in pieces of at most CHUNK; they are read, not mapped."""
        entry = self.entry(name)
        for at in range(entry.start, entry.end, CHUNK):
            yield self._read(at, min(CHUNK, entry.end - at))

    def _read(self, at: int, size: int) -> bytes:
        self._file.seek(at)
        piece = self._file.read(size)
        if len(piece) != size:
            raise FormatError(f"{self.path}: was cut while it was being read")
        return piece

    def rows(self, name: str, start: int, stop: int) -> Array:
        """A copy of the rows `start` to `stop` along the first dimension, dtypes as `array` gives them.

        They are read, not mapped: the process holds no more than the block.
        """
        entry = self.entry(name)
        if not entry.shape or not 0 <= start <= stop <= entry.shape[0]:
            raise InputError(f"{self.path}: {name!r} of shape {list(entry.shape)} has no rows {start} to {stop}")
        width = entry.size // max(entry.shape[0], 1)
        block = self._read(entry.start + start * width, (stop - start) * width)
        return np.frombuffer(block, dtype=numpy_dtype(entry.dtype)).reshape(stop - start, *entry.shape[1:])


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The same dtype in numpy, or an unsigned one for its bits. Raises FormatError for elements below a byte."""
    if DTYPE_BITS[dtype] < 8:
        raise FormatError(f"{dtype} elements are smaller than a byte: only their raw bytes can be read")
    return np.dtype(_NUMPY.get(dtype, f"u{DTYPE_BITS[dtype] // 8}"))
