"""What an adapter may touch, read off the real module tree. Imports torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn


def module_rows(root: nn.Module) -> dict[str, dict[str, Any]]:
    """Name -> {"kind", "in", "out", "bias"} of every module that an adapter may touch (registry.artifacts.Foundation).

    Kinds are linear, conv1d (transformers' Conv1D, GPT-2's linear), embedding, and norm: one weight per channel.
    """
    rows = ((name, _row(module)) for name, module in root.named_modules(remove_duplicate=False))
    return {name: row for name, row in rows if name and row is not None}


def _row(module: nn.Module) -> dict[str, Any] | None:
    bias = getattr(module, "bias", None) is not None
    if isinstance(module, nn.Linear):
        return {"kind": "linear", "in": module.in_features, "out": module.out_features, "bias": bias}
    if is_conv1d(module):
        return {"kind": "conv1d", "in": module.nx, "out": module.nf, "bias": bias}
    if isinstance(module, nn.Embedding):
        return {"kind": "embedding", "in": module.num_embeddings, "out": module.embedding_dim, "bias": False}
    weight = getattr(module, "weight", None)
    if "Norm" in type(module).__name__ and isinstance(weight, nn.Parameter) and weight.ndim == 1:
        return {"kind": "norm", "in": len(weight), "out": len(weight), "bias": bias}
    return None


def is_conv1d(module: nn.Module) -> bool:
    """Whether this is transformers' Conv1D, whose weight is (in, out); known by name, to spare the import."""
    return type(module).__name__ == "Conv1D" and hasattr(module, "nx")


def tied(root: nn.Module) -> list[list[str]]:
    """Groups of modules that share one weight, an embedding first."""
    groups: dict[int, list[tuple[bool, str]]] = {}
    for name, module in root.named_modules(remove_duplicate=False):
        for weight in _weights(module):
            groups.setdefault(id(weight), []).append((not isinstance(module, nn.Embedding), name))
    return [[name for _, name in sorted(group)] for group in groups.values() if len(group) > 1]


def _weights(module: nn.Module) -> Iterator[nn.Parameter]:
    weight = module._parameters.get("weight")  # noqa: SLF001  a parametrized weight would be computed anew
    if weight is not None:
        yield weight
