"""Quantizes a base's linears and embeddings before export, as XNNPACK will store them. Imports torch and torchao.

    quantize(decoder, Quantization(group_size=32, embedding_bits=4))     # before exporter.lora.attach
    unwrap(decoder)                                                      # after it, before torch.export

Linears ("8da4w"): int4 weights in groups along the inputs with one bf16 scale each; activations become int8 per token
while the program runs. Embeddings: int4 or int8 in the same groups with fp32 scales, read by ExecuTorch's own
operators. A tied head becomes a quantized linear of its own; the embedding stays what the recipe says.

A template that is exported years later, elsewhere, must ask for the very foundation that exists: so what decides scales
is added up in fp64, where the sum of a group of fp32 products comes out the same whatever the order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import executorch.exir
import executorch.kernels.quantized  # noqa: F401  both register torch.ops.quantized_decomposed.embedding_*
import torch
from torch import nn
from torch.nn.utils import parametrize
from torchao.quantization import IntxUnpackedToInt8Tensor
from torchao.utils import unwrap_tensor_subclass

from exporter.recipe import GROUP_SIZES, Quantization
from registry.errors import InputError

SCALE_STEPS = 5
"""Least squares settles in about three steps; five reach what twenty do (measured on SmolLM2)."""

SMALLEST_SCALE = torch.finfo(torch.float32).eps
"""Also the scale of a group of zeros; torchao's own floor."""

BLOCK_ROWS = 256
"""Rows at a time: what is computed on the way stays in the processor's cache."""


def quantize(root: nn.Module, recipe: Quantization) -> None:
    """Quantize every linear inside `root`, and every embedding if the recipe says so, in place.

    Raises InputError as `check_widths` does.
    """
    check_widths(root, recipe)
    head, embeddings = getattr(root, "lm_head", None), _modules(root, nn.Embedding)
    root.tied_head = any(each.weight is getattr(head, "weight", None) for each in embeddings.values())
    for module in _modules(root, nn.Linear).values():
        weight = grouped(module.weight.detach(), 4, recipe.group_size, scales=torch.bfloat16, activations=True)
        module.weight = nn.Parameter(weight, requires_grad=False)
    if recipe.embedding_bits is None:
        return
    for name, embedding in embeddings.items():
        parent, _, child = name.rpartition(".")
        packed = PackedEmbedding(embedding.weight.detach(), recipe.embedding_bits, recipe.group_size)
        setattr(root.get_submodule(parent), child, packed)


def unwrap(root: nn.Module) -> None:
    """Lay quantized weights open as plain tensors: without it torch.export renames them, and their tags are lost."""
    unwrap_tensor_subclass(root)


def check_widths(root: nn.Module, recipe: Quantization) -> None:
    """Raise InputError where the group size does not divide a width; `root` needs no weights yet."""
    widths = {name: linear.in_features for name, linear in _modules(root, nn.Linear).items()}
    if recipe.embedding_bits is not None:
        widths |= {name: each.embedding_dim for name, each in _modules(root, nn.Embedding).items()}
    name = next((name for name, width in widths.items() if width % recipe.group_size), None)
    if name is None:
        return
    fitting = [size for size in GROUP_SIZES if not any(width % size for width in widths.values())]
    raise InputError(
        f"groups of {recipe.group_size} do not divide the width of {name}, {widths[name]}",
        hint=f"--group-size {' or '.join(map(str, fitting))}" if fitting else "export this model without --qmode",
        field="group_size",
        module=name,
        expected=fitting,
        actual=recipe.group_size,
    )


def grouped(
    weight: torch.Tensor, bits: int, group_size: int, *, scales: torch.dtype, activations: bool = False
) -> IntxUnpackedToInt8Tensor:
    """Quantize (rows, width) symmetrically in groups along the width; `scales` is the dtype that they are stored in.

    The scales are rounded to it before the values are, so that what runs is what was chosen.
    """
    scale = group_scales(weight, bits, group_size).to(scales).to(torch.float32)
    return IntxUnpackedToInt8Tensor.from_hp(
        weight.to(torch.float32),
        (1, group_size),
        getattr(torch, f"int{bits}"),
        activation_quantization="int8_asym_per_token" if activations else None,
        intx_choose_qparams_algorithm=None,
        custom_scale=scale,
        custom_zero_point=torch.zeros_like(scale, dtype=torch.int8),
    )


def group_scales(weight: torch.Tensor, bits: int, group_size: int) -> torch.Tensor:
    """(rows, groups) fp32: the scale s that minimizes |w - s*q| per group, found by least squares in turn with q.

    This is torchao's `hqq_scale_only` (Half-Quadratic Quantization, https://mobiusml.github.io/hqq_blog/).
    """
    return torch.cat([_scales(block, bits, group_size) for block in weight.split(BLOCK_ROWS)])


def _scales(block: torch.Tensor, bits: int, group_size: int) -> torch.Tensor:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    groups = block.to(torch.float32).view(len(block), -1, group_size)
    scale = (groups.abs().amax(-1) / -low).clamp_min(SMALLEST_SCALE)
    for _ in range(SCALE_STEPS):
        values = (groups / scale.unsqueeze(-1)).round_().clamp_(low, high)
        squares = (values * values).sum(-1)  # whole numbers below 2^24: exact
        best = ((groups * values).sum(-1, dtype=torch.float64) / squares).to(torch.float32)
        scale = torch.where(squares > 0, best, scale).clamp_min(SMALLEST_SCALE)
    return scale


class PackedEmbedding(nn.Embedding):
    """Rows of int4 (two a byte, the even column in the high half) or int8, and (vocabulary, groups) fp32 scales."""

    def __init__(self, weight: torch.Tensor, bits: int, group_size: int) -> None:
        nn.Module.__init__(self)
        self.num_embeddings, self.embedding_dim = weight.shape
        self.padding_idx, self.bits = None, bits
        rows = grouped(weight, bits, group_size, scales=torch.float32)
        data = rows.qdata if bits == 8 else _nibbles(rows.qdata, even_high=True)
        self.register_buffer("weight", data)
        self.register_buffer("weight_scale", rows.scale)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """The rows of `ids`, fp32."""
        operators = torch.ops.quantized_decomposed
        operator = operators.embedding_4bit.dtype if self.bits == 4 else operators.embedding_byte.dtype
        low, high = -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        rows: torch.Tensor = operator(self.weight, self.weight_scale, None, low, high, ids, dtype=torch.float32)
        return rows


def stored(root: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Name and stored form of each quantized linear's weight and scales, after `unwrap`.

    XNNPACK packs two columns a byte, the even one in the low half (executorch NodeVisitor.convert_to_qc4w).
    """
    for name, module in _modules(root, nn.Linear).items():
        if parametrize.is_parametrized(module, "weight"):
            weight = module.weight
            yield f"{name}.weight", _nibbles(weight.qdata, even_high=False)
            yield f"{name}.weight_scale", weight.scale.to(torch.bfloat16)


def weight_names(module: str) -> tuple[str, str]:
    """What a module's weight is called before `unwrap` and after it."""
    return f"{module}.weight", f"{module}.parametrizations.weight.original0"


def _nibbles(values: torch.Tensor, *, even_high: bool) -> torch.Tensor:
    """(rows, width) int8 of -8 to 7 -> (rows, width/2) uint8, both operators' zero being 8."""
    shifted = (values + 8).to(torch.uint8)
    high, low = (shifted[:, ::2], shifted[:, 1::2]) if even_high else (shifted[:, 1::2], shifted[:, ::2])
    return high << 4 | low


def _modules(root: nn.Module, kind: type[nn.Module]) -> dict[str, Any]:
    return {name: module for name, module in root.named_modules() if isinstance(module, kind)}
