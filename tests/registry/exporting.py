"""Export a tiny module with ExecuTorch's own tools: what the readers are tested against."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from torch import nn


class Tiny(nn.Module):
    """Rows of an embedding through a base layer and a factor; a cumulative sum keeps the rest out of the delegate."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(16, 8)
        self.base = nn.Linear(8, 8)
        self.factor = nn.Linear(8, 4, bias=False)
        self.scale = nn.Parameter(torch.rand(8))

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = self.embed(tokens)
        mixed = torch.cumsum(self.base(rows) + self.factor(rows).sum(-1, keepdim=True), 0) * self.scale
        return mixed, torch.sort(mixed)[0]


class Tagging(XnnpackPartitioner):
    """Moves the base layer's constants into `foundation.ptd`."""

    def partition(self, program):
        for node in program.graph.nodes:
            if node.op == "placeholder" and "base" in node.name:
                node.meta.setdefault("custom", {})["delegate_constant_tag"] = "foundation"
        return super().partition(program)


def export_pair(directory: Path) -> None:
    """Write `program.pte` and `foundation.ptd`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = torch.export.export(Tiny(), (torch.tensor([1, 2, 3]),), strict=False)
        edge = to_edge_transform_and_lower(exported, partitioner=[Tagging()])
        config = ExecutorchBackendConfig(external_constants=lambda node: "foundation" if "embed" in node.name else None)
        program = edge.to_executorch(config)
    (directory / "program.pte").write_bytes(program.buffer)
    program.write_tensor_data_to_file(str(directory))
