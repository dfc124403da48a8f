"""Any torch module as something to export: BERT, a ViT, your own. Imports torch.

    def factory():                                   # in encoders/bert.py, named encoders.bert:factory
        model = BertModel.from_pretrained("models/bert").eval()
        return model, (torch.ones(1, 8, dtype=torch.int64),), ({1: torch.export.Dim("tokens", max=512)},)

    source = load_module("encoders.bert:factory")    # a base to record and an exporter.export.Model

A factory answers (module, inputs) or (module, inputs, dynamic_shapes), or a dict with these names; its `checkpoint`
names a directory that holds the same tensors, and the base is then known by that directory's fingerprint.
"""

from __future__ import annotations

import copy
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from exporter.base import Checkpoint, read_base
from exporter.lower import DTYPES, Example, Progress, raw, trace
from exporter.module_table import module_rows, tied
from exporter.module_weights import check_weights, with_own_storage
from exporter.sources import no_progress
from registry.artifacts import Tensor
from registry.digest import Digest
from registry.errors import InputError

_SPEC = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)", re.ASCII)
_FORMS = "it answers (module, inputs), (module, inputs, dynamic_shapes), or a dict with these names and `checkpoint`"
_GRAPH_BYTES = 4


@dataclass(frozen=True)
class ModuleSource:
    """A factory's module: a base that is known by its tensors, and an `exporter.export.Model` of its inputs.

    `root` and `inputs` are in fp32, `tensors` (sorted by name) as the factory gave them; `checkpoint` is the
    directory that holds the same tensors, where the factory names one.
    """

    spec: str
    root: nn.Module
    tensors: tuple[Tensor, ...]
    inputs: tuple[Any, ...]
    dynamic_shapes: Any = None
    checkpoint: Checkpoint | None = None

    @property
    def hint(self) -> str:
        """Where the base last stood: its checkpoint, or the factory."""
        return self.checkpoint.hint if self.checkpoint else self.spec

    @property
    def files(self) -> Mapping[str, Path]:
        """The checkpoint's config and tokenizer files."""
        return self.checkpoint.files if self.checkpoint else {}

    @property
    def kv_cache_bytes(self) -> int:
        """0: a module keeps nothing between two calls."""
        return 0

    def build(self, progress: Progress) -> nn.Module:
        """A copy of the module tree over the same tensors."""
        progress("copying the module")
        shared = {id(tensor): tensor for tensor in (*self.root.parameters(), *self.root.buffers())}
        return copy.deepcopy(self.root, dict(shared))

    def example(self) -> Example:
        """The factory's inputs."""
        return Example(self.inputs, self.dynamic_shapes, {})

    def table(self, module: nn.Module) -> dict[str, Any]:
        """What the module table of registry.artifacts.Foundation says of this module."""
        return {
            "architecture": type(module).__name__,
            "max_positions": None,
            "modules": module_rows(module),
            "tied": tied(module),
        }

    @cached_property
    def traced(self) -> ExportedProgram:
        """The graph of a copy of the module on its inputs: what tracing leaves in a module's attributes is no tensor.

        Raises InputError when it cannot be traced.
        """
        with user_code(f"torch.export cannot trace the module of {self.spec}"), torch.no_grad():
            return trace(self.build(no_progress), self.example())

    def check_stateless(self) -> None:
        """Refuse a module that writes to its own buffers. Raises InputError naming them."""
        written = sorted(self.traced.run_decompositions({}).graph_signature.buffers_to_mutate.values())
        if written:
            raise InputError(
                f"{self.spec}: its module writes to {', '.join(written)}, and no program begins with what was there",
                hint="let it answer what is to be kept, and take that as an input of the next call",
                tensors=written,
            )

    @cached_property
    def graph(self) -> int:
        """The number of the graph that the base's program is made of: what is computed, whatever the weights.

        31 bits of a hash over the traced code with its inputs and outputs, and the constants in it. Raises InputError
        when it cannot be traced.
        """
        program = self.traced
        parts = [part.code for part in program.graph_module.modules() if isinstance(part, torch.fx.GraphModule)]
        hasher = hashlib.sha256("\n".join([*parts, *_signature(program)]).encode())
        for name, constant in sorted(program.constants.items()):
            hasher.update(name.encode())
            hasher.update(raw(constant) if isinstance(constant, torch.Tensor) else repr(constant).encode())
        return int.from_bytes(hasher.digest()[:_GRAPH_BYTES], "big") >> 1


def load_module(spec: str) -> ModuleSource:
    """Import `package.module:factory`, also from the current directory, and call it. Raises InputError."""
    made = _called(spec, _factory(spec))
    root, inputs = made.get("module"), made.get("inputs")
    if not isinstance(root, nn.Module) or not isinstance(inputs, (tuple, list)):
        kinds = f"{type(root).__name__} and {type(inputs).__name__}"
        raise InputError(f"{spec}: expected a torch module and a tuple of inputs, got {kinds}", hint=_FORMS)
    check_weights(root)
    root = with_own_storage(root.eval().requires_grad_(requires_grad=False))
    checkpoint = _checkpoint(spec, root, made["checkpoint"]) if made.get("checkpoint") else None
    tensors = checkpoint.tensors if checkpoint else _tensors(root)
    return ModuleSource(spec, root.float(), tensors, _in_fp32(tuple(inputs)), made.get("dynamic_shapes"), checkpoint)


def _factory(spec: str) -> Callable[[], Any]:
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise InputError(f"{spec!r} is no factory", hint="write package.module:factory")
    sys.path.insert(0, str(Path.cwd()))  # a console script does not look there by itself
    try:
        with user_code(f"{match[1]} cannot be imported", imports=match[1]):
            module = import_module(match[1])
    finally:
        sys.path.pop(0)
    factory = getattr(module, match[2], None)
    if not callable(factory):
        raise InputError(f"{match[1]} has no function {match[2]!r}", hint="write package.module:factory")
    made: Callable[[], Any] = factory
    return made


def _called(spec: str, factory: Callable[[], Any]) -> Mapping[str, Any]:
    with user_code(f"{spec} failed"):
        made = factory()
    if isinstance(made, Mapping) and made.keys() <= {"module", "inputs", "dynamic_shapes", "checkpoint"}:
        return made
    if isinstance(made, tuple) and len(made) in (2, 3):
        return dict(zip(("module", "inputs", "dynamic_shapes"), made, strict=False))
    raise InputError(f"{spec} answers a {type(made).__name__} that says nothing to ptdock", hint=_FORMS)


@contextmanager
def user_code(what: str, imports: str = "") -> Iterator[None]:
    """Turn whatever the user's code raises into one sentence; `imports` is the module that it imports."""
    try:
        yield
    except (Exception, SystemExit) as error:
        reason = str(error).strip().partition("\n")[0]
        said = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
        raise InputError(f"{what}: {said}", hint=_hint(error, imports)) from error


def _hint(error: BaseException, imports: str) -> str:
    """What to do: a module that is not there is not on Python's path, all else is the code's."""
    if isinstance(error, ModuleNotFoundError) and error.name and f"{imports}.".startswith(f"{error.name}."):
        return (
            "the factory is called whenever its module is needed: run ptdock in the directory in which "
            f"`import {imports}` works, or put that directory on PYTHONPATH"
        )
    return "run it in Python to see where"


def _in_fp32(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Half-precision inputs as fp32, as the weights are."""

    def cast(value: Any) -> Any:
        return value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    mapped: tuple[Any, ...] = pytree.tree_map(cast, inputs)
    return mapped


def _tensors(root: nn.Module) -> tuple[Tensor, ...]:
    return tuple(_tensor(name, tensor) for name, tensor in sorted(root.state_dict().items()))


def _tensor(name: str, tensor: torch.Tensor) -> Tensor:
    return Tensor(name, DTYPES[tensor.dtype], tuple(tensor.shape), Digest.of(raw(tensor)))


def _signature(program: ExportedProgram) -> Iterator[str]:
    """What else of a graph decides its program: how inputs and outputs are nested, their types and sizes."""
    for form in (program.call_spec.in_spec, program.call_spec.out_spec):
        yield pytree.treespec_dumps(form) if form is not None else ""
    for node in program.graph.nodes:
        if node.op == "placeholder":
            value = node.meta.get("val")
            tensor = isinstance(value, torch.Tensor)
            kind = (value.dtype, list(map(str, value.shape)), value.requires_grad) if tensor else value
            yield f"{node.name}: {kind}"
    yield from sorted(f"{symbol}: {limits}" for symbol, limits in program.range_constraints.items())


def _checkpoint(spec: str, root: nn.Module, directory: Any) -> Checkpoint:
    """The checkpoint that a factory names, once the module is seen to hold its very tensors. Raises InputError."""
    if not isinstance(directory, (str, os.PathLike)):
        kind = type(directory).__name__
        raise InputError(f"{spec}: `checkpoint` is a {kind}, expected the path of a directory", hint=_FORMS)
    checkpoint = read_base(Path(directory))
    waiting = dict(root.state_dict())
    for path in checkpoint.weights.paths:
        with safe_open(path, framework="pt") as file:
            for name in file.keys() & waiting.keys():
                _compare(spec, name, waiting.pop(name), file.get_tensor(name))
    twins = {name for group in tied(root) for name in group}
    missing = sorted(name for name in waiting if name.rpartition(".")[0] not in twins)
    if missing:
        raise InputError(
            f"{spec}: its checkpoint {directory} lacks {missing[0]}",
            hint="leave `checkpoint` out: the base is then known by the module's own tensors",
            missing=missing,
        )
    return checkpoint


def _compare(spec: str, name: str, held: torch.Tensor, stored: torch.Tensor) -> None:
    if held.shape != stored.shape or not torch.equal(held, stored.to(held.dtype)):
        raise InputError(
            f"{spec}: {name} of its module differs from its checkpoint's",
            hint="load the module from that checkpoint, or leave `checkpoint` out",
            tensor=name,
        )
