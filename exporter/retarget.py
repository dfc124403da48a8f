"""Another fine-tune of a known architecture, without an export: the same files with other base weights and keys.

A foundation's layout does not depend on its weights, and each key is a hash of the bytes that it names. So the
`.ptd` of a fine-tune is the known one with every tensor replaced by the checkpoint's (copied or cast), and every
program is the known one with the keys replaced: what a full export would give, byte for byte, in the time of
copying and hashing the file.

It holds only where equal tensors repeat in the same pattern, since an export stores equal bytes once; `plan_keys`
checks that. Torch-free and streaming: one tensor is in memory at a time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from exporter.shards import Weights
from registry.artifacts import ExternalTensor, Foundation
from registry.errors import PtdockError
from registry.formats import mapped
from registry.formats.ptd import read_ptd
from registry.formats.safetensors import bf16_to_f32
from registry.links import tensor_key

_HEX = re.compile(rb"[0-9a-f]{64}")
_KINDS = {"F32": np.float32, "F16": np.float16}


class NotRetargetableError(PtdockError):
    """The known foundation's layout does not fit these weights; a full export is due. The message says why."""


@dataclass(frozen=True, slots=True)
class Retargeted:
    """Which key stands for which (as 64 hex digits), and the new foundation's names by key."""

    keys: Mapping[bytes, bytes]
    names: Mapping[str, tuple[str, ...]]

    def program(self, program: bytes) -> bytes:
        """A program (or hollow template) that asks for the new tensors where it asked for the old ones."""
        return _HEX.sub(lambda match: self.keys.get(match[0], match[0]), program)


def source_name(tensor: ExternalTensor, weights: Weights) -> str | None:
    """Which of the checkpoint's tensors an entry holds; None for a constant of the graph (a rope frequency)."""
    return next((name for name in tensor.names if name in weights), None)


def tensor_bytes(weights: Weights, name: str, dtype: str) -> bytes:
    """A checkpoint's tensor as a foundation of F32 or F16 stores it: widened exactly, or rounded to nearest even.

    Raises NotRetargetableError for a value that F16 cannot hold: an export refuses it, in words.
    """
    values = weights.array(name)
    if weights.entry(name).dtype == "BF16":
        values = bf16_to_f32(values)
    with np.errstate(over="ignore"):
        stored = np.ascontiguousarray(values, dtype=_KINDS[dtype])
    if dtype == "F16" and not np.isfinite(stored).all():
        raise NotRetargetableError(f"{name}: a value passes fp16's largest number")
    return stored.tobytes()


def plan_keys(known: Foundation, weights: Weights) -> Retargeted:
    """The new key of every tensor of a known foundation. Raises NotRetargetableError."""
    if known.recipe["quantization"]:
        raise NotRetargetableError("quantized weights derive from the checkpoint through torchao")
    keys: dict[bytes, bytes] = {}
    names: dict[str, tuple[str, ...]] = {}
    for tensor in known.tensors:
        name = source_name(tensor, weights)
        key = tensor.key if name is None else _new_key(tensor, weights, name)
        if key in names:
            raise NotRetargetableError(
                f"{names[key][0]} and {tensor.names[0]} are equal here, but not in the known base"
            )
        names[key] = tensor.names
        keys[_hex(tensor.key)] = _hex(key)
    return Retargeted(keys, names)


def _hex(key: str) -> bytes:
    return key[-64:].encode()


def _new_key(tensor: ExternalTensor, weights: Weights, name: str) -> str:
    data = tensor_bytes(weights, name, tensor.dtype)
    if len(data) != tensor.size:
        raise NotRetargetableError(f"{name} has {len(data)} bytes, {tensor.size} in the known base")
    for twin in tensor.names:
        if twin != name and twin in weights and tensor_bytes(weights, twin, tensor.dtype) != data:
            raise NotRetargetableError(f"{name} and {twin} differ here, but are equal in the known base")
    if tensor.key.startswith("tensor_"):
        return tensor_key(tensor.dtype, tensor.shape, tuple(range(len(tensor.shape))), data)
    return hashlib.sha256(data).hexdigest()


def write_foundation(known: Path, table: Foundation, weights: Weights, plan: Retargeted, target: Path) -> None:
    """Write the new `.ptd`: the known header with other keys, then each segment at the known offset."""
    view = memoryview(mapped(known))
    base = read_ptd(view).segment_base
    with open(target, "xb") as out:
        out.write(plan.program(bytes(view[:base])))
        at = base
        for tensor, data in _segments(table, weights, view):
            out.write(bytes(view[at : tensor.offset]))  # the padding between segments
            out.write(data)
            at = tensor.offset + tensor.size
        out.write(bytes(view[at:]))


def _segments(
    table: Foundation, weights: Weights, view: memoryview
) -> Iterator[tuple[ExternalTensor, bytes | memoryview]]:
    seen = set()
    for tensor in sorted(table.tensors, key=lambda entry: entry.offset):
        if tensor.offset in seen:  # one segment under two keys: a tied embedding
            continue
        seen.add(tensor.offset)
        name = source_name(tensor, weights)
        kept = view[tensor.offset : tensor.offset + tensor.size]
        yield tensor, kept if name is None else tensor_bytes(weights, name, tensor.dtype)
