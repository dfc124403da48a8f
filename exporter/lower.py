"""One `torch.export`, one lowering, through ExecuTorch's public calls. Imports torch and executorch.

A base tensor leaves the program in one of two ways, and either way its key certifies its content: XNNPACK names
what it takes by the SHA-256 of the bytes; what stays outside the delegates (the embedding) is renamed to a
hash of dtype, sizes, dimension order and bytes before emission. A name never decides what is loaded.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec

from registry.links import tensor_key

TAG = "foundation"
"""ExecuTorch writes the tensors that carry this tag to `<tag>.ptd`."""

DTYPES = {torch.float32: "F32", torch.float16: "F16", torch.int64: "I64", torch.int8: "I8", torch.uint8: "U8"}


@dataclass(frozen=True, slots=True)
class Example:
    """How to trace a module: example inputs, which of their dimensions vary, and the program's constant methods."""

    inputs: tuple[Any, ...]
    dynamic_shapes: Any
    constants: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program and what it asks for: `names` maps each external key to the base's names for that tensor."""

    program: bytes
    foundation: Path | None
    names: Mapping[str, tuple[str, ...]]


def lower(
    module: torch.nn.Module,
    example: Example,
    *,
    factors: frozenset[str],
    foundation_dir: Path | None,
    progress: Callable[[str], None],
) -> Lowered:
    """Export `module`; every constant of it but `factors` (by fully qualified name) goes to the foundation.

    With `foundation_dir` the `.ptd` is written there. `progress` gets each phase's name as it begins.
    """
    base = dict(_base_tensors(module, factors))
    logging.getLogger("executorch").setLevel(logging.ERROR)  # the pair of calls below prints a deprecation notice
    progress("tracing")
    program = torch.export.export(module, example.inputs, dynamic_shapes=example.dynamic_shapes, strict=False)
    partitioner = _TaggingPartitioner(frozenset(base))
    progress("converting to the edge dialect")
    edge = to_edge(program, compile_config=_edge_config(partitioner, program), constant_methods=dict(example.constants))
    progress("partitioning for XNNPACK")
    edge = edge.to_backend(partitioner)
    del program
    outside = _certify(edge.exported_program(), frozenset(base))
    progress("emitting")
    executorch = edge.to_executorch(
        ExecutorchBackendConfig(external_constants=lambda node: TAG if node.name in outside else None)
    )
    if foundation_dir is not None:
        executorch.write_tensor_data_to_file(str(foundation_dir))
    path = foundation_dir / f"{TAG}.ptd" if foundation_dir else None
    return Lowered(bytes(executorch.buffer), path, _names(base))


def _edge_config(partitioner: XnnpackPartitioner, program: ExportedProgram) -> EdgeCompileConfig:
    # to_edge and to_backend give the same bytes as to_edge_transform_and_lower in three quarters of its time.
    return EdgeCompileConfig(
        preserve_ops=partitioner.ops_to_not_decompose(program)[0],
        _check_ir_validity=False,
        _skip_dim_order=True,
    )


def _base_tensors(module: torch.nn.Module, factors: frozenset[str]) -> Iterator[tuple[str, torch.Tensor]]:
    """All constants of the module that are not factors, tied names included."""
    for name, tensor in (*module.named_parameters(remove_duplicate=False), *module.named_buffers()):
        if name not in factors:
            yield name, tensor.detach()


class _TaggingPartitioner(XnnpackPartitioner):
    """Tags the base's constants just before partitioning: tags set earlier are lost when the graph is lifted."""

    def __init__(self, base: frozenset[str]) -> None:
        super().__init__()
        self._base = base

    def partition(self, exported_program: ExportedProgram) -> Any:
        wanted = {spec.arg.name for spec in _constant_specs(exported_program) if spec.target in self._base}
        for node in exported_program.graph.nodes:
            if node.op == "placeholder" and node.name in wanted:
                node.meta.setdefault("custom", {})["delegate_constant_tag"] = TAG
        return super().partition(exported_program)


def _constant_specs(program: ExportedProgram) -> Iterator[InputSpec]:
    mutated = set(program.graph_signature.buffers_to_mutate.values())
    for spec in program.graph_signature.input_specs:
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER) and spec.target not in mutated:
            yield spec


def _certify(program: ExportedProgram, base: frozenset[str]) -> frozenset[str]:
    """Rename what XNNPACK left outside; answers the placeholders' names. Equal tensors collapse into one key."""
    outside = set()
    for spec in _constant_specs(program):
        if spec.target not in base:
            continue
        table = program.state_dict if spec.target in program.state_dict else program.constants
        tensor = table.pop(spec.target)
        spec.target = _undelegated_key(tensor)
        table[spec.target] = tensor
        outside.add(spec.arg.name)
    return frozenset(outside)


def _undelegated_key(tensor: torch.Tensor) -> str:
    sizes = tuple(tensor.shape)
    return tensor_key(DTYPES[tensor.dtype], sizes, tuple(range(len(sizes))), _raw(tensor))


def _raw(tensor: torch.Tensor) -> memoryview:
    return memoryview(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy())


def _names(base: Mapping[str, torch.Tensor]) -> dict[str, tuple[str, ...]]:
    """Both keys that a base tensor can have, with all the names that share its bytes."""
    found: dict[str, list[str]] = {}
    for name, tensor in base.items():
        for key in (hashlib.sha256(_raw(tensor)).hexdigest(), _undelegated_key(tensor)):
            found.setdefault(key, []).append(name)
    return {key: tuple(names) for key, names in found.items()}
