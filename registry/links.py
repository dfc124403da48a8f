"""Links between programs and foundations: what a program asks for is there, and is the very bytes it means.

The rule: every external key certifies its content. XNNPACK's keys are the SHA-256 of the bytes, its quantization
scales' are `scale_` and that hash; undelegated tensors are named `tensor_` and a hash of dtype, sizes, dim order and
bytes (`tensor_key`). So a program that finds all its keys finds the right bytes, and a wrong foundation cannot load.

Everything here takes values and returns values, except `verify_file`, which reads one file in small pieces.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from registry import canonical
from registry.artifacts import ExternalTensor, Foundation
from registry.digest import CHUNK, Descriptor, Digest
from registry.errors import FormatError, InputError, IntegrityError, NotFound, Unavailable
from registry.formats import Buffer, mapped, pieces
from registry.formats.layout import Layout
from registry.formats.ptd import Entry, Ptd, read_ptd
from registry.formats.pte import ExternalKey, Pte

_CERTIFYING = re.compile(r"(scale_|tensor_)?[0-9a-f]{64}", re.ASCII)
_SHOWN = 5  # as many faults are spelled out in a message; all of them are in its values


def _prefix(layout: Layout) -> bytes:
    """What is hashed before a tensor's bytes: the canonical JSON of its layout and a line feed."""
    document = {"dtype": layout.dtype, "sizes": list(layout.sizes), "dim_order": list(layout.dim_order)}
    return canonical.dumps(document) + b"\n"


def _certificates(parts: Iterable[Buffer], layout: Layout | None) -> tuple[Digest, frozenset[str]]:
    """The digest of some bytes, given in pieces, and all the keys that certify them."""
    plain, keyed = hashlib.sha256(), hashlib.sha256(_prefix(layout)) if layout else None
    for part in parts:
        plain.update(part)
        if keyed:
            keyed.update(part)
    keys = {plain.hexdigest(), f"scale_{plain.hexdigest()}"} | ({f"tensor_{keyed.hexdigest()}"} if keyed else set())
    return Digest(plain.digest()), frozenset(keys)


def tensor_key(dtype: str, sizes: Sequence[int], dim_order: Sequence[int], data: Buffer) -> str:
    """The key that certifies an undelegated tensor: `tensor_` + SHA-256 of its layout's canonical JSON, LF, bytes."""
    hasher = tensor_hasher(dtype, sizes, dim_order)
    hasher.update(data)
    return f"tensor_{hasher.hexdigest()}"


def tensor_hasher(dtype: str, sizes: Sequence[int], dim_order: Sequence[int]) -> hashlib._Hash:
    """What `tensor_key` hashes with, for bytes that come in pieces: the key is `tensor_` and its hex digest."""
    return hashlib.sha256(_prefix(Layout(dtype, tuple(sizes), tuple(dim_order))))


def certifying(key: str) -> bool:
    """Whether `key` has one of the forms that certify their content."""
    return _CERTIFYING.fullmatch(key) is not None


def certify(key: str, data: Buffer, layout: Layout | None) -> bool:
    """Whether `key` certifies exactly these bytes; a `tensor_` key does so only together with its layout."""
    return key in _certificates([data], layout)[1]


def _join(faults: Sequence[str]) -> str:
    more = f"; and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
    return "; ".join(faults[:_SHOWN]) + more


def _label(tensor: ExternalTensor) -> str:
    """Names for people, then the key."""
    return f"{', '.join(tensor.names)} ({tensor.key})" if tensor.names else tensor.key


def _link_fault(asked: ExternalKey, held: ExternalTensor | None) -> str | None:
    """What is wrong with one link, or None."""
    if held is None:
        return f"{asked.key} ({asked.layout or f'{asked.size} bytes'}) is missing"
    if held.size != asked.size:
        return f"{_label(held)} has {held.size} bytes, the program asks for {asked.size}"
    if asked.layout and (held.dtype, held.shape) != (asked.layout.dtype, asked.layout.sizes):
        return f"{_label(held)} is {held.dtype} {list(held.shape)}, the program asks for {asked.layout}"
    return None


def check_links(pte: Pte, tensors: Iterable[ExternalTensor]) -> None:
    """Raise IntegrityError unless a foundation's tensors hold every external key of a program as it asks for them.

    The message names the faults, `values["faults"]` all of them.
    """
    held = {tensor.key: tensor for tensor in tensors}
    faults = [fault for asked in pte.external if (fault := _link_fault(asked, held.get(asked.key)))]
    if faults:
        raise IntegrityError(
            f"the program does not fit this foundation: {_join(faults)}",
            hint="it was made for another foundation, or one of the two is damaged",
            faults=faults,
        )


def check_inline(pte: Pte, data: Buffer) -> None:
    """Raise IntegrityError unless every inline key of a form that certifies does hash its bytes in `data`."""
    view, layouts = memoryview(data).cast("B"), {asked.key: asked.layout for asked in pte.asked}
    faults = [
        part.key
        for part in pte.inline
        if certifying(part.key)
        and not certify(part.key, view[part.offset : part.offset + part.size], layouts.get(part.key))
    ]
    if faults:
        raise IntegrityError(
            f"{len(faults)} of the program's own tensors are not what their keys say: {_join(faults)}",
            hint="the program is damaged: write it again",
            faults=faults,
        )


def _external_tensor(entry: Entry, data: memoryview, names: tuple[str, ...], layout: Layout | None) -> ExternalTensor:
    digest, keys = _certificates(pieces(data, entry.offset, entry.offset + entry.size), entry.layout)
    if certifying(entry.key) and entry.key not in keys:
        raise IntegrityError(
            f"{', '.join(names) or 'a tensor'}: its bytes are not what its key {entry.key} says",
            hint="the foundation is damaged: fetch or export it again",
            key=entry.key,
        )
    stored = entry.layout or layout or Layout("U8", (entry.size,), (0,))
    if stored.size != entry.size:
        raise InputError(f"{entry.key}: {stored} has {stored.size} bytes, the foundation holds {entry.size}")
    return ExternalTensor(
        key=entry.key,
        names=names,
        digest=digest,
        size=entry.size,
        offset=entry.offset,
        dtype=stored.dtype,
        shape=stored.sizes,
    )


def foundation_tensors(
    ptd: Ptd, data: Buffer, names: Mapping[str, tuple[str, ...]], layouts: Mapping[str, Layout] | None = None
) -> tuple[ExternalTensor, ...]:
    """The tensor table of a foundation, by place and key; every certifying key is checked against its bytes.

    The file lists tied weights apart, whose bytes it holds once: its own order is not that of places.
    `data` is the whole file, `names` the base's names by key. A `.ptd` keeps layouts only of undelegated tensors;
    `layouts` (such as `Pte.layouts`) tells them for others; a tensor without one is U8 of its length.
    Raises IntegrityError for a key that lies.
    """
    view, known = memoryview(data).cast("B"), layouts or {}
    entries = sorted(ptd.entries, key=lambda entry: (entry.offset, entry.key))
    return tuple(_external_tensor(entry, view, names.get(entry.key, ()), known.get(entry.key)) for entry in entries)


def _chunks(path: Path, bounds: Sequence[int], progress: Callable[[int], None] | None) -> Iterator[tuple[int, bytes]]:
    """The file's bytes with their offsets, cut at each of the ascending `bounds`, at most CHUNK at a time."""
    with open(path, "rb") as file:
        for start, end in zip((0, *bounds), (*bounds, None), strict=True):
            at = start
            while chunk := file.read(CHUNK if end is None else min(CHUNK, end - at)):
                yield at, chunk
                at += len(chunk)
                if progress:
                    progress(len(chunk))


def _digest_parts(
    path: Path, tensors: Sequence[ExternalTensor], progress: Callable[[int], None] | None
) -> tuple[Digest, dict[str, Digest]]:
    """The file's digest and each tensor's by key, in one pass; tensors share their bytes or do not overlap."""
    ranges = {(tensor.offset, tensor.offset + tensor.size): hashlib.sha256() for tensor in tensors}
    starts = {start: (end, hasher) for (start, end), hasher in ranges.items() if end > start}
    whole, end, current = hashlib.sha256(), 0, hashlib.sha256()
    for at, chunk in _chunks(path, sorted({bound for pair in ranges for bound in pair}), progress):
        whole.update(chunk)
        end, current = starts.get(at, (end, current))
        if at < end:
            current.update(chunk)
    found = {t.key: Digest(ranges[t.offset, t.offset + t.size].digest()) for t in tensors}
    return Digest(whole.digest()), found


def _header_fault(path: Path, tensors: Sequence[ExternalTensor]) -> str | None:
    """What is wrong with the file's header, or None."""
    try:
        entries = read_ptd(mapped(path)).entries
    except FormatError as error:
        return error.message
    found = {(entry.key, entry.offset, entry.size) for entry in entries}
    expected = {(tensor.key, tensor.offset, tensor.size) for tensor in tensors}
    strange = sorted(key for key, _, _ in found ^ expected)
    return f"it lists other tensors than were recorded: {_join(strange)}" if strange else None


def _check_size(path: Path, expected: int) -> None:
    actual = path.stat().st_size
    if actual != expected:
        raise IntegrityError(
            f"{path}: has {actual} bytes, the foundation has {expected}",
            hint="the download was cut, or it is another file: fetch it again",
            kind="size",
            expected=expected,
            actual=actual,
        )


def _damaged(tensors: Sequence[ExternalTensor], found: Mapping[str, Digest]) -> list[dict[str, Any]]:
    return [
        {"key": t.key, "names": list(t.names), "expected": str(t.digest), "actual": str(found[t.key])}
        for t in tensors
        if found[t.key] != t.digest
    ]


def verify_file(
    path: Path,
    file: Descriptor,
    expected: Sequence[ExternalTensor],
    progress: Callable[[int], None] | None = None,
) -> None:
    """Recompute every digest of a `.ptd` from its bytes, in one pass and a few MB of memory.

    `progress` gets the length in bytes of each piece that was read. Raises NotFound without the file, Unavailable if
    it cannot be read, and IntegrityError with `values["kind"]`: "size" (cut, or another file), "segment"
    (`values["tensors"]` lists the damaged ones), or "header" (any byte that belongs to no tensor).
    """
    try:
        _check_size(path, file.size)
        whole, found = _digest_parts(path, expected, progress)
        header = _header_fault(path, expected)
    except FileNotFoundError:
        raise NotFound(f"{path}: no such file") from None
    except OSError as error:
        raise Unavailable(
            f"{path}: cannot be read: {error.strerror}", hint="check the disk and the file's rights"
        ) from None
    tensors = _damaged(expected, found)
    if not (header or tensors or whole != file.digest):
        return
    labels = [_label(t) for t in expected if found[t.key] != t.digest]
    faults = [f"its header is damaged: {header}"] * bool(header) + [f"damaged tensors: {_join(labels)}"] * bool(labels)
    raise IntegrityError(
        f"{path}: {'; '.join(faults) or 'its header is damaged: bytes outside of its tensors were changed'}",
        hint="fetch it again, or repair it from the store",
        kind="segment" if tensors else "header",
        tensors=tensors,
        expected=str(file.digest),
        actual=str(whole),
    )


def verify_foundation(path: Path, foundation: Foundation, progress: Callable[[int], None] | None = None) -> None:
    """`verify_file` for a recorded foundation."""
    verify_file(path, foundation.file, foundation.tensors, progress)
