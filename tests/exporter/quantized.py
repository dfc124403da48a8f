"""What a quantized foundation stands for, in transformers: dequantized weights, and activations rounded to int8."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torchao.quantization.quant_primitives import MappingType, choose_qparams_affine, dequantize_affine, quantize_affine
from transformers import AutoModelForCausalLM

from exporter.quantize import grouped
from exporter.recipe import Quantization


def as_int8(x: torch.Tensor) -> torch.Tensor:
    """What is left of activations after they were quantized per token, as torchao's 8da4w does it."""
    block = (*[1] * (x.ndim - 1), x.shape[-1])
    kind: dict[str, Any] = {"quant_min": -128, "quant_max": 127}
    scale, zero = choose_qparams_affine(
        x, MappingType.ASYMMETRIC, block, torch.int8, **kind, eps=None, zero_point_dtype=torch.int8
    )
    values = quantize_affine(x, block, scale, zero, torch.int8, **kind)
    return dequantize_affine(values, block, scale, zero, torch.int8, **kind, output_dtype=x.dtype)


def quantized_model(directory: Path, recipe: Quantization, *, activations: bool = True) -> torch.nn.Module:
    """The checkpoint as the recipe leaves it, in eager fp32; a tied head has a weight of its own."""
    model = AutoModelForCausalLM.from_pretrained(directory).eval()
    rows = model.model.embed_tokens.weight.detach().clone()
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            weight = grouped(module.weight.detach(), 4, recipe.group_size, scales=torch.bfloat16)
            module.weight = torch.nn.Parameter(weight.dequantize())
            if activations:
                module.register_forward_pre_hook(lambda _, inputs: (as_int8(inputs[0]),))
    if recipe.embedding_bits:
        rows = grouped(rows, recipe.embedding_bits, recipe.group_size, scales=torch.float32).dequantize()
    model.model.embed_tokens.weight = torch.nn.Parameter(rows)
    return model
