"""What a factory's module may hold: dense tensors in memory, each in a storage of its own. Imports torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize

from exporter.lower import DTYPES
from registry.errors import InputError

_PLAIN = (torch.Tensor, nn.Parameter, nn.Buffer)


def check_weights(root: nn.Module) -> None:
    """Refuse what is no dense tensor in memory, by its name, and what is computed anew at each call."""
    for name, module in root.named_modules():
        if parametrize.is_parametrized(module):
            raise InputError(
                f"{name or 'the module'} is parametrized: its weight is computed at each call",
                hint="in the factory, torch.nn.utils.parametrize.remove_parametrizations(module, 'weight')",
                module=name,
            )
    for name, tensor in (*root.named_parameters(), *root.named_buffers()):
        place = "lazy" if nn.parameter.is_lazy(tensor) else tensor.device.type
        if place != "cpu" or tensor.layout is not torch.strided or type(tensor) not in _PLAIN:
            kind = f"a {type(tensor).__name__}, {place}, {tensor.layout}"
            raise InputError(
                f"{name} is {kind}: expected a dense tensor on the cpu",
                hint="let the factory answer the module with its weights loaded, on the cpu and not quantized",
                tensor=name,
            )
        if tensor.dtype not in DTYPES:
            raise InputError(
                f"{name} is {tensor.dtype}, which ExecuTorch cannot store densely",
                hint="let the factory compute with real numbers",
                tensor=name,
            )


def with_own_storage(root: nn.Module) -> nn.Module:
    """Give each tensor that is a view a storage of its own, in place; tied ones stay one.

    XNNPACK writes a weight's whole storage from its start, so a view (a split qkv) would export another tensor's bytes.
    """
    owned: dict[int, Any] = {}
    for module in root.modules():
        for table in (module._parameters, module._buffers):  # noqa: SLF001  the only way to replace both alike
            for name, tensor in table.items():
                if tensor is not None and not _owns_storage(tensor):
                    table[name] = owned.setdefault(id(tensor), _owning(tensor))
    return root


def _owns_storage(tensor: torch.Tensor) -> bool:
    size = tensor.numel() * tensor.element_size()
    whole = tensor.storage_offset() == 0 and tensor.untyped_storage().nbytes() == size
    return bool(whole and tensor.is_contiguous())


def _owning(tensor: torch.Tensor) -> torch.Tensor:
    clone = tensor.detach().clone(memory_format=torch.contiguous_format)
    return nn.Parameter(clone, requires_grad=False) if isinstance(tensor, nn.Parameter) else clone
