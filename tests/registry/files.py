"""Hand-made `.ptd`, `.pte` and safetensors files, written with Google's own FlatBuffers builder.

They exist for what ExecuTorch would never write: every field can contradict every other.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import flatbuffers


@dataclass(frozen=True)
class Pair:
    """A program and its foundation, as ExecuTorch wrote them."""

    program: Path
    foundation: Path


# For scripts that run in a process of their own: its peak of resident memory in kB. `ru_maxrss` would not do: a child
# starts with its parent's.
PEAK = """
import re
from pathlib import Path
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


def run_script(script: str, *arguments: object) -> list[str]:
    """The lines that a Python script prints in its own process; it may call `peak()`."""
    command = [sys.executable, "-c", PEAK + script, *map(str, arguments)]
    root = Path(__file__).parents[2]
    return subprocess.run(command, capture_output=True, check=True, text=True, cwd=root).stdout.splitlines()


def vector_of_tables(builder: flatbuffers.Builder, offsets: Sequence[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def vector_of_numbers(builder: flatbuffers.Builder, code: str, values: Sequence[int]) -> int:
    raw = struct.pack(f"<{len(values)}{code}", *values)
    width = struct.calcsize(code)
    builder.StartVector(width, len(values), max(width, 4))
    for byte in reversed(raw):
        builder.PrependByte(byte)
    return int(builder.EndVector())


def table(builder: flatbuffers.Builder, fields: dict[int, tuple[str, int]]) -> int:
    """A table of fields by slot: ("o", offset) for references, else `struct`'s letter and a number."""
    prepend = {
        "o": builder.PrependUOffsetTRelativeSlot,
        "b": builder.PrependInt8Slot,
        "B": builder.PrependUint8Slot,
        "i": builder.PrependInt32Slot,
        "I": builder.PrependUint32Slot,
        "Q": builder.PrependUint64Slot,
    }
    builder.StartObject(max(fields, default=-1) + 1)
    for slot, (code, value) in fields.items():
        prepend[code](slot, value, None)
    return int(builder.EndObject())


@dataclass
class TensorLayout:
    scalar_type: int = 6
    sizes: Sequence[int] = (2, 3)
    dim_order: Sequence[int] = (0, 1)

    def write(self, builder: flatbuffers.Builder) -> int:
        sizes = vector_of_numbers(builder, "i", self.sizes)
        order = vector_of_numbers(builder, "B", self.dim_order)
        return table(builder, {0: ("b", self.scalar_type), 1: ("o", sizes), 2: ("o", order)})


@dataclass
class NamedData:
    key: str | None
    segment: int = 0
    layout: TensorLayout | None = None

    def write(self, builder: flatbuffers.Builder) -> int:
        fields = {1: ("I", self.segment)}
        if self.key is not None:
            fields[0] = ("o", builder.CreateString(self.key))
        if self.layout:
            fields[2] = ("o", self.layout.write(builder))
        return table(builder, fields)


@dataclass
class PtdFile:
    """A `.ptd` to be written; `segments` are (offset, size) from the segment base."""

    named: Sequence[NamedData] = field(default_factory=lambda: [NamedData("a", 0), NamedData("b", 1)])
    segments: Sequence[tuple[int, int]] = ((0, 24), (128, 8))
    data_size: int = 136
    version: int = 0
    identifier: bytes = b"FT01"

    def head(self) -> bytes:
        """Header and FlatBuffer, padded to where the segments start."""
        builder = flatbuffers.Builder()
        named = vector_of_tables(builder, [entry.write(builder) for entry in self.named])
        spans = [table(builder, {0: ("Q", offset), 1: ("Q", size)}) for offset, size in self.segments]
        segments = vector_of_tables(builder, spans)
        root = table(builder, {0: ("I", self.version), 1: ("o", segments), 2: ("o", named)})
        builder.Finish(root, file_identifier=self.identifier)
        flat = bytes(builder.Output())
        base = -(-(len(flat) + 48) // 128) * 128
        header = struct.pack("<4sI4Q", b"FH01", 40, 48, len(flat), base, self.data_size)
        return insert_header(flat, header.ljust(48, b"\0")).ljust(base, b"\0")

    def bytes(self) -> bytes:
        return self.head() + bytes(self.data_size)

    def write_sparse(self, path: Path) -> int:
        """Write the head and make the rest a hole; answers where the segments start."""
        head = self.head()
        path.write_bytes(head)
        with open(path, "r+b") as file:
            file.truncate(len(head) + self.data_size)
        return len(head)


def insert_header(flat: bytes, header: bytes) -> bytes:
    root = int.from_bytes(flat[:4], "little") + len(header)
    return root.to_bytes(4, "little") + flat[4:8] + header + flat[8:]


def safetensors_bytes(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def xnnpack_payload(
    keys: Sequence[tuple[str, int]], *, identifier: bytes = b"XN01", header: bool = True, behind: bytes = b""
) -> bytes:
    """A delegate that asks for named data by (key, size), with constants `behind` its FlatBuffer."""
    builder = flatbuffers.Builder()
    none = (1 << 64) - 1
    constants = [
        table(builder, {0: ("Q", none), 1: ("Q", size), 2: ("o", builder_string(builder, key))}) for key, size in keys
    ]
    data = vector_of_tables(builder, constants)
    builder.Finish(table(builder, {8: ("o", data)}), file_identifier=identifier)
    flat = bytes(builder.Output())
    if not header:
        return flat
    head = struct.pack("<4s4sHIIIQ", b"", b"XH00", 30, 32, len(flat), 32 + len(flat), len(behind))
    return head.ljust(32, b"\0") + flat + behind


def builder_string(builder: flatbuffers.Builder, text: str) -> int:
    return int(builder.CreateString(text))


@dataclass
class Value:
    """A tensor value: external by name, or a constant with a buffer index."""

    name: str | None
    external: bool = False
    sizes: Sequence[int] = (2, 3)
    dim_order: Sequence[int] = (0, 1)
    buffer: int = 0

    def write(self, builder: flatbuffers.Builder) -> int:
        extra = {2: ("b", int(self.external))}
        if self.name is not None:
            extra[1] = ("o", builder_string(builder, self.name))
        info = table(builder, extra)
        sizes = vector_of_numbers(builder, "i", self.sizes)
        order = vector_of_numbers(builder, "B", self.dim_order)
        fields = {0: ("b", 6), 2: ("o", sizes), 3: ("o", order), 5: ("I", self.buffer), 9: ("o", info)}
        return table(builder, {0: ("B", 5), 1: ("o", table(builder, fields))})


@dataclass
class PteFile:
    """A `.pte` to be written; `constants` are the offsets in the constant segment and its size."""

    values: Sequence[Value] = ()
    payload: bytes | None = None
    backend: str = "XnnpackBackend"
    inline_payload: bool = False
    payload_index: int = 0
    named: Sequence[tuple[str, bytes]] = ()
    constants: tuple[Sequence[int], int] | None = None
    method: str = "forward"
    shared_methods: int = 1
    version: int = 0
    identifier: bytes = b"ET12"

    def _segments(self) -> list[bytes]:
        payload = [self.payload] if self.payload is not None and not self.inline_payload else []
        constants = [bytes(self.constants[1])] if self.constants else []
        return [*payload, *(data for _, data in self.named), *constants]

    def _delegates(self, builder: flatbuffers.Builder) -> int:
        if self.payload is None:
            return vector_of_tables(builder, [])
        where = {0: ("b", int(not self.inline_payload)), 1: ("I", self.payload_index)}
        processed, name = table(builder, where), builder_string(builder, self.backend)
        return vector_of_tables(builder, [table(builder, {0: ("o", name), 1: ("o", processed)})])

    def _plan(self, builder: flatbuffers.Builder) -> int:
        operators = [("aten::add", "out"), ("aten::relu", "")]
        tables = [
            table(builder, {0: ("o", builder_string(builder, name)), 1: ("o", builder_string(builder, overload))})
            for name, overload in operators
        ]
        fields = {
            0: ("o", builder_string(builder, self.method)),
            2: ("o", vector_of_tables(builder, [value.write(builder) for value in self.values])),
            3: ("o", vector_of_numbers(builder, "i", [0])),
            4: ("o", vector_of_numbers(builder, "i", [0])),
            6: ("o", vector_of_tables(builder, tables)),
            7: ("o", self._delegates(builder)),
        }
        return table(builder, fields)

    def _root(self, builder: flatbuffers.Builder) -> int:
        plans = vector_of_tables(builder, [self._plan(builder)] * self.shared_methods)
        inline = [vector_of_numbers(builder, "B", self.payload)] if self.payload and self.inline_payload else []
        data = vector_of_tables(builder, [table(builder, {0: ("o", vector)}) for vector in inline])
        spans, at = [], 0
        for segment in self._segments():
            spans.append(table(builder, {0: ("Q", at), 1: ("Q", len(segment))}))
            at += len(segment)
        first = 1 if self.payload is not None and not self.inline_payload else 0
        named = [
            table(builder, {0: ("o", builder_string(builder, key)), 1: ("I", first + index)})
            for index, (key, _) in enumerate(self.named)
        ]
        fields = {
            0: ("I", self.version),
            1: ("o", plans),
            3: ("o", data),
            4: ("o", vector_of_tables(builder, spans)),
            7: ("o", vector_of_tables(builder, named)),
        }
        if self.constants:
            offsets = vector_of_numbers(builder, "Q", self.constants[0])
            fields[5] = ("o", table(builder, {0: ("I", len(spans) - 1), 1: ("o", offsets)}))
        return table(builder, fields)

    def bytes(self) -> bytes:
        builder = flatbuffers.Builder()
        builder.Finish(self._root(builder), file_identifier=self.identifier)
        flat, segments = bytes(builder.Output()), self._segments()
        if not segments:
            return flat
        program = len(flat) + 32
        base = -(-program // 16) * 16
        header = struct.pack("<4sI3Q", b"eh00", 32, program, base, sum(map(len, segments)))
        return insert_header(flat, header).ljust(base, b"\0") + b"".join(segments)


def foundation_bytes(tensors: dict[str, bytes]) -> bytes:
    """A `.ptd` of these bytes by key, laid out as ExecuTorch does: each segment at a multiple of 128."""
    spans, data = [], b""
    for content in tensors.values():
        data = data.ljust(-(-len(data) // 128) * 128, b"\0")
        spans.append((len(data), len(content)))
        data += content
    named = [NamedData(key, index) for index, key in enumerate(tensors)]
    return PtdFile(named, spans, len(data)).head() + data
