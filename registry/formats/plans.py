"""Read a program's methods (ExecutionPlan in program.fbs): their operators, delegates, and tensors that have data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from registry.errors import FormatError
from registry.formats.flatbuffer import Table
from registry.formats.layout import Layout, Span, dense_layout, pick

_WHAT = ".pte"
_TENSOR = 5  # Tensor in the union KernelTypes
_EXTERNAL = 1  # TensorDataLocation.EXTERNAL
_INLINE = 0  # DataLocation.INLINE


@dataclass(frozen=True, slots=True)
class Method:
    """An entry point and the number of its inputs and outputs."""

    name: str
    inputs: int
    outputs: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """What one tensor value says about data: `key` if it is external, else its buffer's index in its list."""

    key: str | None
    name: str | None
    layout: Layout
    buffer: int
    mutable: bool


def _tensor(value: Table) -> Tensor | None:
    """The tensor in an EValue, if it is one that has data."""
    kind, tensor = value.union(0)
    if kind != _TENSOR or tensor is None:
        return None
    extra, buffer = tensor.table(9), tensor.scalar(5, "I")
    name = extra.string(1) if extra else None
    external = extra is not None and extra.scalar(2, "b") == _EXTERNAL
    if external and not name:
        raise FormatError(f"{_WHAT}: an external tensor has no name")
    if not external and not buffer:
        return None
    what = f"{_WHAT}: {name or 'a constant'}"
    layout = dense_layout(tensor.scalar(0, "b"), tensor.numbers(2, "i"), tensor.numbers(3, "B"), what=what)
    return Tensor(name if external else None, name, layout, buffer, tensor.table(6) is not None)


@dataclass(slots=True)
class Plans:
    """What the methods hold together."""

    methods: list[Method]
    operators: set[str]
    delegates: list[tuple[str, Span]]
    tensors: list[Tensor]


def _payload(delegate: Table, inline: tuple[Span, ...], segments: tuple[Span, ...]) -> tuple[str, Span]:
    backend, processed = delegate.string(0), delegate.table(1)
    if not backend or processed is None:
        raise FormatError(f"{_WHAT}: a delegate has no backend or no payload")
    spans = inline if processed.scalar(0, "b") == _INLINE else segments
    return backend, pick(spans, processed.scalar(1, "I"), what=f"{_WHAT}: {backend}'s payload")


def _operators(plan: Table) -> Iterator[str]:
    for operator in plan.tables(6):
        name, overload = operator.string(0), operator.string(1)
        if not name:
            raise FormatError(f"{_WHAT}: an operator has no name")
        yield f"{name}.{overload}" if overload else name


def read_plans(root: Table, segments: tuple[Span, ...]) -> Plans:
    """What all methods of the program `root` hold. Raises FormatError."""
    inline = tuple(table.span(0) or Span(0, 0) for table in root.tables(3))
    plans = Plans([], set(), [], [])
    for plan in root.tables(1):
        name = plan.string(0)
        if not name:
            raise FormatError(f"{_WHAT}: a method has no name")
        plans.methods.append(Method(name, len(plan.numbers(3, "i")), len(plan.numbers(4, "i"))))
        plans.operators.update(_operators(plan))
        plans.delegates.extend(_payload(table, inline, segments) for table in plan.tables(7))
        plans.tensors.extend(tensor for value in plan.tables(2) if (tensor := _tensor(value)))
    return plans
