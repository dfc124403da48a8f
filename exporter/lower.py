"""One `torch.export`, one lowering, through ExecuTorch's public calls. Imports torch and executorch.

A base tensor leaves the program in one of two ways, and either way its key certifies its content: XNNPACK names
what it takes by the SHA-256 of the bytes; what stays outside the delegates (the embedding, and every weight inside a
higher-order operator, whose branches get it as an operand) is renamed to a hash of dtype, sizes, dimension order and
bytes before emission. A name never decides what is loaded.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument

from registry.errors import InputError
from registry.links import tensor_key

TAG = "foundation"
"""ExecuTorch writes the tensors that carry this tag to `<tag>.ptd`."""

DTYPES = {
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float64: "F64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}

CHANNELS_LAST = (0, 2, 3, 1)
"""XNNPACK's order of a convolution's weight."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Example:
    """How to trace a module: example inputs, which of their dimensions vary, and the program's constant methods."""

    inputs: tuple[Any, ...]
    dynamic_shapes: Any
    constants: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program and what it asks for: `names` maps each external key to the base's names for that tensor.

    `unused` names constants of the module that no output depends on.
    """

    program: bytes
    foundation: Path | None
    names: Mapping[str, tuple[str, ...]]
    unused: frozenset[str] = frozenset()


def lower(
    module: torch.nn.Module,
    example: Example,
    *,
    factors: frozenset[str],
    foundation_dir: Path | None,
    progress: Progress,
    packed: Iterable[tuple[str, torch.Tensor]] = (),
) -> Lowered:
    """Export `module`; every constant of it but `factors` (by fully qualified name) goes to the foundation.

    With `foundation_dir` the `.ptd` is written there, and named: `packed` are names and stored forms of what XNNPACK
    stores otherwise than the module holds it. `progress` gets each phase's name as it begins.
    """
    base = dict(_base_tensors(module, factors))
    logging.getLogger("executorch").setLevel(logging.ERROR)  # the pair of calls below prints a deprecation notice
    progress("tracing")
    program = written_out(trace(module, example))
    ours = frozenset(base) | {copy for copy, name in split_operands(program).items() if name in base}
    partitioner = _TaggingPartitioner(ours)
    progress("converting to the edge dialect")
    edge = to_edge(program, compile_config=_edge_config(partitioner, program), constant_methods=dict(example.constants))
    unused = frozenset(str(spec.target) for spec in _constant_specs(program)) - _used(edge.exported_program())
    progress("partitioning for XNNPACK")
    share_weights(edge.exported_program())
    edge = edge.to_backend(partitioner)
    del program
    outside = _certify(edge.exported_program(), ours)
    progress("emitting")
    executorch = edge.to_executorch(
        ExecutorchBackendConfig(external_constants=lambda node: TAG if node.name in outside else None)
    )
    if foundation_dir is None:
        return Lowered(bytes(executorch.buffer), None, {}, unused)
    executorch.write_tensor_data_to_file(str(foundation_dir))
    foundation = foundation_dir / f"{TAG}.ptd"
    if not foundation.is_file():
        raise InputError("no output depends on a weight, so there is nothing to share")
    return Lowered(bytes(executorch.buffer), foundation, _names([*base.items(), *packed]), unused)


def trace(module: torch.nn.Module, example: Example) -> ExportedProgram:
    """The module's graph with its weights as inputs, on the example's inputs."""
    return torch.export.export(module, example.inputs, dynamic_shapes=example.dynamic_shapes, strict=False)


def written_out(program: ExportedProgram) -> ExportedProgram:
    """The same program with GELU's tanh form in full: XNNPACK's own GELU ignores `approximate` (error 4e-4)."""
    gelu = torch.ops.aten.gelu.default
    nodes = (node for graph in graphs(program) for node in graph.nodes)
    if not any(node.target is gelu and node.kwargs.get("approximate") == "tanh" for node in nodes):
        return program
    return program.run_decompositions({gelu: _gelu})


def _gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    if approximate != "tanh":
        return NotImplemented
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


def split_operands(program: ExportedProgram) -> dict[str, str]:
    """Give branches and loops inputs of their own for weights that other operators take too, in place.

    No delegate shares a constant with a higher-order operator. Answers the copies: new target, old target.
    """
    inputs = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    copies = {}
    for spec in list(_constant_specs(program)):
        node = inputs[spec.arg.name]
        takers = [user for user in node.users if _takes_graphs(user)]
        if takers and len(takers) < len(node.users):
            copies[_copy_input(program, spec, node, takers)] = str(spec.target)
    program.graph_module.recompile()
    return copies


def _takes_graphs(node: torch.fx.Node) -> bool:
    """Whether this is a higher-order operator, such as `torch.cond`: one that is given graphs to run."""
    owner = node.graph.owning_module
    attributes = (getattr(owner, str(each.target), None) for each in node.all_input_nodes if each.op == "get_attr")
    return any(isinstance(each, torch.fx.GraphModule) for each in attributes)


def _copy_input(program: ExportedProgram, spec: InputSpec, node: torch.fx.Node, users: Iterable[torch.fx.Node]) -> str:
    """One more input with the same tensor, for these users; answers its target."""
    target = f"{spec.target}_operand"
    with program.graph.inserting_before(node):
        copy = program.graph.placeholder(f"{node.name}_operand")
    copy.meta = dict(node.meta)
    for user in users:
        user.replace_input_with(node, copy)
    table = _table(program, spec)
    table[target] = table[str(spec.target)]
    specs = program.graph_signature.input_specs
    specs.insert(specs.index(spec), replace(spec, arg=TensorArgument(copy.name), target=target))
    return target


def _table(program: ExportedProgram, spec: InputSpec) -> dict[str, Any]:
    """Where the program keeps this constant."""
    table: dict[str, Any] = program.state_dict if spec.target in program.state_dict else program.constants
    return table


def graphs(program: ExportedProgram) -> Iterator[torch.fx.Graph]:
    """The program's graph and those of the branches and loops inside."""
    yield from (part.graph for part in program.graph_module.modules() if isinstance(part, torch.fx.GraphModule))


def _used(program: ExportedProgram) -> set[str]:
    """The targets of the constants that some operator takes, once dead code is gone, as in the edge dialect."""
    idle = {node.name for node in program.graph.nodes if node.op == "placeholder" and not node.users}
    return {str(spec.target) for spec in _constant_specs(program) if spec.arg.name not in idle}


def _edge_config(partitioner: XnnpackPartitioner, program: ExportedProgram) -> EdgeCompileConfig:
    # to_edge and to_backend give the same bytes as to_edge_transform_and_lower in three quarters of its time.
    return EdgeCompileConfig(
        preserve_ops=partitioner.ops_to_not_decompose(program)[0],
        _check_ir_validity=False,
        _skip_dim_order=True,
    )


class _Shared(torch.nn.Parameter):
    """A weight of which copies of its program take no copy: nothing writes to weights while they are lowered."""

    def __deepcopy__(self, memo: Any) -> _Shared:
        return self


def share_weights(program: ExportedProgram) -> None:
    """Let copies of the program share its weights, in place.

    ExecuTorch copies the part of each delegate before XNNPACK takes it, and keeps all the copies until the last is
    done: without this, every weight would be in memory once more when the peak is reached.
    """
    weights = {name: each for name, each in program.state_dict.items() if isinstance(each, torch.nn.Parameter)}
    program.state_dict.update((name, _Shared(each.data, each.requires_grad)) for name, each in weights.items())


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
        table = _table(program, spec)
        tensor = table.pop(spec.target)
        spec.target = _undelegated_key(tensor)
        table[spec.target] = tensor
        outside.add(spec.arg.name)
    return frozenset(outside)


def _undelegated_key(tensor: torch.Tensor) -> str:
    sizes = tuple(tensor.shape)
    return tensor_key(DTYPES[tensor.dtype], sizes, tuple(range(len(sizes))), raw(tensor))


def raw(tensor: torch.Tensor) -> memoryview:
    """The tensor's bytes, row by row."""
    return memoryview(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy())


def _names(tensors: Iterable[tuple[str, torch.Tensor]]) -> dict[str, tuple[str, ...]]:
    """All keys that each tensor can have, with all the names that share its bytes."""
    found: dict[str, list[str]] = {}
    for name, tensor in tensors:
        for key in _keys(tensor):
            found.setdefault(key, []).append(name)
    return {key: tuple(names) for key, names in found.items()}


def _keys(tensor: torch.Tensor) -> Iterator[str]:
    digest = hashlib.sha256(raw(tensor)).hexdigest()
    yield from (digest, f"scale_{digest}", _undelegated_key(tensor))
    if tensor.ndim == len(CHANNELS_LAST):
        yield hashlib.sha256(raw(tensor.permute(CHANNELS_LAST))).hexdigest()
