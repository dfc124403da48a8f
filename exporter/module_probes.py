"""What a proof asks a factory's module: the factory's inputs, and variants of them. Imports torch.

    for probe in built_in(source):
        source.root(*probe.inputs)

They are the same every time. In a variant floats are drawn with the mean and the spread of the example's, never beyond
its smallest and largest; integers from the range that the example shows, because a larger one may be no token; all else
stays as it is. Where a dimension may vary, some variants have another size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from exporter.module_export import ModuleSource

VARIANTS = 4
"""So many at the example's sizes, and half as many at other sizes."""

_SEED = 20_261_130  # any, but none with which a factory may have drawn its own inputs
_WHOLE = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}

Shape = tuple[int, ...]


@dataclass(frozen=True)
class ModuleProbe:
    """Inputs as the module takes them."""

    origin: str
    inputs: tuple[Any, ...]

    @property
    def leaves(self) -> list[Any]:
        """The inputs one by one, as a program takes them."""
        found: list[Any] = pytree.tree_leaves(self.inputs)
        return found

    @property
    def shapes(self) -> list[list[int]]:
        """The shapes of the tensors among them."""
        return [list(leaf.shape) for leaf in self.leaves if isinstance(leaf, torch.Tensor)]


def built_in(source: ModuleSource) -> tuple[ModuleProbe, ...]:
    """The factory's own inputs first, then variants of them."""
    leaves, form = pytree.tree_flatten(source.inputs)
    shapes = [_shape(leaf) for leaf in leaves]
    other = _other_shapes(source.traced, leaves)
    wanted = [("variant", shapes)] * VARIANTS + [("another size", other)] * (VARIANTS // 2 if other else 0)
    probes = [ModuleProbe("the factory's inputs", source.inputs)]
    for number, (what, sizes) in enumerate(wanted, 1):
        random = torch.Generator().manual_seed(_SEED + number)
        varied = [_varied(leaf, size, random) for leaf, size in zip(leaves, sizes or shapes, strict=True)]
        probes.append(ModuleProbe(f"built in: {what} {number}", pytree.tree_unflatten(varied, form)))
    return tuple(probes)


def unvaried(source: ModuleSource) -> tuple[str, ...]:
    """The names of integer inputs in which the factory shows one value alone: no variant can ask another."""
    leaves = pytree.tree_leaves(source.inputs)
    return tuple(
        name
        for name, leaf in zip(_names(source.traced), leaves, strict=True)
        if isinstance(leaf, torch.Tensor) and leaf.dtype in _WHOLE and leaf.numel() > 1 and leaf.min() == leaf.max()
    )


def _shape(leaf: Any) -> Shape:
    return tuple(leaf.shape) if isinstance(leaf, torch.Tensor) else ()


def _varied(leaf: Any, shape: Shape, random: torch.Generator) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    if leaf.is_floating_point() and leaf.numel() and leaf.isfinite().all():
        return _floats(leaf, shape, random)
    if leaf.dtype in _WHOLE and leaf.numel():
        low, high = int(leaf.min()), int(leaf.max())
        steps = (torch.rand(shape, generator=random, dtype=torch.float64) * (high - low + 1)).floor().to(torch.int64)
        return (low + steps).clamp(low, high).to(leaf.dtype)
    return _repeated(leaf, shape)


def _floats(example: torch.Tensor, shape: Shape, random: torch.Generator) -> torch.Tensor:
    """Of the example's mean and spread, within its range; where it shows one value, about that size and of its sign."""
    low, high = example.aminmax()
    if low == high:
        share = torch.rand(shape, generator=random) + 0.5
        drawn = low * share if low else torch.randn(shape, generator=random)
        return drawn.to(example.dtype)
    drawn = torch.randn(shape, generator=random) * example.std() + example.mean()
    return drawn.clamp(low, high).to(example.dtype)


def _repeated(leaf: torch.Tensor, shape: Shape) -> torch.Tensor:
    """The same values, cut off or begun again where a dimension has another size."""
    for axis, size in enumerate(shape):
        if size != leaf.shape[axis]:
            leaf = leaf.index_select(axis, torch.arange(size) % leaf.shape[axis])
    return leaf


def _names(program: ExportedProgram) -> list[str]:
    """The inputs' names in the traced graph, one for each leaf."""
    specs = program.graph_signature.input_specs
    return [spec.arg.name for spec in specs if spec.kind is InputKind.USER_INPUT]


def _other_shapes(program: ExportedProgram, leaves: list[Any]) -> list[Shape] | None:
    """Each input's shape when every dimension that may vary has another size; None where none may.

    Dimensions that depend on one another (equal ones, multiples) do so here too: they are expressions of the same
    symbols in the traced graph.
    """
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    traced = [values[name] for name in _names(program)]
    sizes: dict[Any, int] = {}
    for value, leaf in zip(traced, leaves, strict=True):
        for dim, size in zip(_dims(value), _shape(leaf), strict=True):
            if isinstance(dim, torch.SymInt) and dim.node.expr.is_Symbol:
                sizes[dim.node.expr] = size
    others = {symbol: _another(size, program.range_constraints.get(symbol)) for symbol, size in sizes.items()}
    free = {symbol for value in traced for dim in _dims(value) for symbol in _symbols(dim)}
    if others == sizes or not free <= others.keys():
        return None
    return [tuple(_size(dim, others) for dim in _dims(value)) for value in traced]


def _dims(value: Any) -> tuple[int | torch.SymInt, ...]:
    return tuple(value.shape) if isinstance(value, torch.Tensor) else ()


def _symbols(dim: int | torch.SymInt) -> Iterator[Any]:
    yield from dim.node.expr.free_symbols if isinstance(dim, torch.SymInt) else ()


def _size(dim: int | torch.SymInt, sizes: Mapping[Any, int]) -> int:
    return int(dim.node.expr.subs(sizes)) if isinstance(dim, torch.SymInt) else dim


def _another(size: int, allowed: Any) -> int:
    """Twice the size or what comes nearest to that, else half of it; the size itself where it is the only one."""
    if allowed is None:
        return size
    grown = 2 * size if 2 * size <= allowed.upper else int(allowed.upper)
    return grown if grown > size else max(size // 2, int(allowed.lower))
