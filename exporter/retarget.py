"""Another fine-tune of a known architecture, without an export: the same files with other base weights and keys.

A foundation's layout does not depend on its weights, and each key is a hash of the bytes that it names. So the
`.ptd` of a fine-tune is the known one with every tensor replaced by the checkpoint's (copied or cast, as
exporter.derivation reads off the tables), and every program is the known one with the keys replaced: what a full
export would give, byte for byte, in the time of copying and hashing the file.

It holds only where each tensor derives in one of these ways, and where equal tensors repeat in the same pattern,
since an export stores equal bytes once; `retarget` checks both. Torch-free and streaming: each tensor is read, cast,
hashed and written in pieces, and the header, which names the keys, comes last.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

import numpy as np

from exporter.derivation import Derivation, Derivations
from exporter.shards import Weights
from registry.artifacts import ExternalTensor, Foundation, Tensor
from registry.digest import Digest
from registry.errors import PtdockError
from registry.formats import mapped, pieces
from registry.formats.ptd import read_ptd
from registry.formats.safetensors import bf16_to_f32, numpy_dtype
from registry.links import tensor_hasher
from registry.plates import Plate

_HEX = re.compile(rb"[0-9a-f]{64}")
_KINDS = {"F32": np.float32, "F16": np.float16}

Sources = Mapping[str, str | None]
"""Which of the checkpoint's tensors the entry under a key holds, None for a constant."""


class NotRetargetableError(PtdockError):
    """The known foundation's layout does not fit these weights; a full export is due. The message says why."""


@dataclass(frozen=True, slots=True)
class Retargeted:
    """Which key stands for which (as 64 hex digits), and the new foundation's tensors."""

    keys: Mapping[bytes, bytes]
    tensors: tuple[ExternalTensor, ...]

    def program(self, program: bytes) -> bytes:
        """A program (or a `.ptd`'s header) that names the new tensors where it named the old ones."""
        return _HEX.sub(lambda match: self.keys.get(match[0], match[0]), program)

    def hollow(self, plate: Plate) -> bytes:
        """The same of a hollow program, of which nothing is read that is zeros: the factors' places."""
        made, at = [], 0
        for start, end, part in plate.outline().parts:
            made += [bytes(start - at), self.program(part)]
            at = end
        return b"".join([*made, bytes(len(plate.hollow) - at)])


def stored_pieces(weights: Weights, name: str, dtype: str) -> Iterator[memoryview]:
    """A checkpoint's tensor as a foundation of F32 or F16 stores it: widened exactly, or rounded to nearest even.

    Raises NotRetargetableError for a value that F16 cannot hold: an export refuses it, in words.
    """
    kind = weights.entry(name).dtype
    for piece in weights.reader(name).chunks(name):
        values = np.frombuffer(piece, dtype=numpy_dtype(kind))
        if kind == "BF16":
            values = bf16_to_f32(values)
        with np.errstate(over="ignore"):
            stored = np.ascontiguousarray(values, dtype=_KINDS[dtype])
        if dtype == "F16" and not np.isfinite(stored).all():
            raise NotRetargetableError(f"{name}: a value passes fp16's largest number")
        yield memoryview(stored.data).cast("B")


def retarget(
    file: Path, known: Foundation, derive: Derivations, weights: Weights, table: Iterable[Tensor], target: Path
) -> Retargeted:
    """Write the foundation of other weights: `file` is the known one, `table` what is in `weights`, hashed.

    `derive` are the known one's. Each segment stands where it stood. Raises NotRetargetableError; what was written then
    is no foundation.
    """
    sources = {tensor.key: _source(tensor, derive(tensor)) for tensor in known.tensors}
    _check_equal(known.tensors, weights, {each.name: (each.dtype, each.shape, each.digest) for each in table})
    view = memoryview(mapped(file))
    base = read_ptd(view).segment_base
    with open(target, "xb") as out:
        out.seek(base)
        made = _retargeted(known.tensors, list(_written(out, known, sources, weights, view, base)))
        out.seek(0)
        out.write(made.program(bytes(view[:base])))
    _check_header(target, made.tensors)
    return made


def _source(tensor: ExternalTensor, derivation: Derivation) -> str | None:
    """The checkpoint's tensor that an entry holds, None for a constant. Raises NotRetargetableError for all else."""
    label = derivation.source or ", ".join(tensor.names) or tensor.key
    if derivation.how == "packed":
        raise NotRetargetableError(f"{label} is stored in a form that only an export makes of it")
    if derivation.how == "unknown":
        raise NotRetargetableError(f"the known foundation does not say of what {label} is made")
    return derivation.source


def _check_equal(known: Sequence[ExternalTensor], weights: Weights, table: Mapping[str, object]) -> None:
    """Raise NotRetargetableError where tensors that are one in the known base are not equal here."""
    for tensor in known:
        first, *others = [name for name in tensor.names if name in weights] or [""]
        for name in others:
            if table[name] != table[first]:
                raise NotRetargetableError(f"{first} and {name} differ here, but are equal in the known base")


def _written(
    out: BinaryIO, known: Foundation, sources: Sources, weights: Weights, view: memoryview, base: int
) -> Iterator[ExternalTensor]:
    """Write the segments and the padding between them; answers the new table."""
    at = base
    in_order = sorted(known.tensors, key=lambda entry: entry.offset)
    for offset, some in groupby(in_order, key=lambda entry: entry.offset):  # two keys of one: a tied embedding
        out.write(view[at:offset])
        alike = list(some)
        yield from _segment(out, alike, sources[alike[0].key], weights, view)
        at = offset + alike[0].size
    out.write(view[at:])


def _segment(
    out: BinaryIO, alike: Sequence[ExternalTensor], name: str | None, weights: Weights, view: memoryview
) -> Iterator[ExternalTensor]:
    """Write one segment, hashed on the way; `alike` are the entries that stand for it, `name` what they hold."""
    first = alike[0]
    if name is None:
        out.writelines(pieces(view, first.offset, first.offset + first.size))
        yield from alike
        return
    plain, size = hashlib.sha256(), 0
    keyed = {each.key: _hasher(each) for each in alike if each.key.startswith("tensor_")}
    for piece in stored_pieces(weights, name, first.dtype):
        out.write(piece)
        size += len(piece)
        for hasher in (plain, *keyed.values()):
            hasher.update(piece)
    if size != first.size:
        raise NotRetargetableError(f"{name} has {size} bytes, {first.size} in the known base")
    for each in alike:
        key = f"tensor_{keyed[each.key].hexdigest()}" if each.key in keyed else plain.hexdigest()
        yield replace(each, key=key, digest=Digest(plain.digest()))


def _hasher(tensor: ExternalTensor) -> hashlib._Hash:
    return tensor_hasher(tensor.dtype, tensor.shape, tuple(range(len(tensor.shape))))


def _retargeted(known: Sequence[ExternalTensor], new: Sequence[ExternalTensor]) -> Retargeted:
    """Pair the tables' keys. Raises NotRetargetableError where what was two tensors, or one and a constant, is one now.

    An export stores equal bytes once, whatever keys stand for them.
    """
    old = sorted(known, key=lambda entry: entry.offset)
    holders: dict[Digest, ExternalTensor] = {}
    for tensor in new:
        twin = holders.setdefault(tensor.digest, tensor)
        if twin.offset != tensor.offset:
            raise NotRetargetableError(
                f"{twin.names[0]} and {tensor.names[0]} are equal here, but not in the known base"
            )
    keys = {_hex(before.key): _hex(after.key) for before, after in zip(old, new, strict=True)}
    return Retargeted(keys, tuple(new))


def _hex(key: str) -> bytes:
    return key[-64:].encode()


def _check_header(path: Path, tensors: Sequence[ExternalTensor]) -> None:
    """The file must list exactly the new tensors, where they stand: every old key was found and replaced."""
    listed = {(entry.key, entry.offset, entry.size) for entry in read_ptd(mapped(path)).entries}
    if listed != {(each.key, each.offset, each.size) for each in tensors}:
        raise NotRetargetableError("the known foundation's header does not say its keys in the way that is known")
