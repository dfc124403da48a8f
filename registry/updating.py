"""What separates two foundations, and what an update from one to the other costs a device that holds the first.

A device copies the pieces that it holds and fetches the others by Range (registry.segments), so the cost is theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from registry.artifacts import ExternalTensor, Foundation
from registry.blobs import BlobStore
from registry.segments import Piece, SegmentTable


@dataclass(frozen=True, slots=True)
class Difference:
    """Tensors by the base's names: in both, but other ones, or in one only; and bytes: to fetch, and of the whole."""

    changed: tuple[tuple[ExternalTensor, ExternalTensor], ...]
    removed: tuple[ExternalTensor, ...]
    added: tuple[ExternalTensor, ...]
    fetch: int
    size: int


def difference(
    store: BlobStore, before: Foundation, after: Foundation, progress: Callable[[int], None] | None = None
) -> Difference:
    """Compare two foundations; `progress` gets the bytes that were hashed."""
    old, new = _named(before), _named(after)
    common = [(old[name], new[name]) for name in old.keys() & new.keys() if _other(old[name], new[name])]
    held = {piece.digest for piece in _pieces(store, before, progress)}
    return Difference(
        changed=tuple(sorted(common, key=lambda pair: pair[1].offset)),
        removed=_only(old, new),
        added=_only(new, old),
        fetch=sum(piece.size for piece in _pieces(store, after, progress) if piece.digest not in held),
        size=after.file.size,
    )


def _pieces(store: BlobStore, foundation: Foundation, progress: Callable[[int], None] | None) -> tuple[Piece, ...]:
    return SegmentTable.of_file(store.path(foundation.file.digest), progress).pieces


def _named(foundation: Foundation) -> dict[str, ExternalTensor]:
    """The tensors by each of their names; one without a name goes by its key."""
    return {name: tensor for tensor in foundation.tensors for name in tensor.names or (tensor.key,)}


def _other(one: ExternalTensor, other: ExternalTensor) -> bool:
    return (one.dtype, one.shape, one.digest) != (other.dtype, other.shape, other.digest)


def _only(some: Mapping[str, ExternalTensor], others: Mapping[str, ExternalTensor]) -> tuple[ExternalTensor, ...]:
    found = {tensor.key: tensor for name, tensor in some.items() if name not in others}
    return tuple(sorted(found.values(), key=lambda tensor: tensor.offset))
