"""A checkpoint's decoder as something to export: built, loaded, traced on tokens and a position. Imports torch.

decoder = DecoderModel(checkpoint, context=2048).build(print)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from safetensors import safe_open
from torch import nn

from exporter.architecture import DecoderSpec, layer_of, spec_for
from exporter.base import Checkpoint
from exporter.computed import computed
from exporter.decoder import Decoder
from exporter.lower import Example, Progress
from exporter.module_table import module_rows
from exporter.parts import read_files
from registry.errors import InputError

TORCH = {"F32": torch.float32, "F16": torch.float16}

PASS_FP16 = frozenset({"gemma2", "gemma3_text"})
"""Families that answer wrongly in fp16; vLLM refuses the same two."""


@dataclass(frozen=True)
class DecoderModel:
    """The decoder of a checkpoint for `context` positions, or its first `layers`; an `exporter.export.Model`."""

    checkpoint: Checkpoint
    context: int
    dtype: str = "F32"
    layers: int | None = None

    @cached_property
    def spec(self) -> DecoderSpec:
        """The architecture. Raises InputError for an unsupported one, a context that it does not reach, or a dtype."""
        spec = _spec_in(self.dtype, self.checkpoint.config, self.context)
        layers = self.layers or spec.layers
        return replace(spec, layers=layers, windows=spec.windows[:layers])

    @property
    def kv_cache_bytes(self) -> int:
        """Bytes of the key and value caches."""
        return self.spec.kv_cache_bytes(self.context, TORCH[self.dtype].itemsize)

    def build(self, progress: Progress) -> nn.Module:
        """A new decoder with the checkpoint's weights. Raises InputError when they do not fit."""
        progress("reading the checkpoint")
        decoder: Decoder = Decoder(self.spec, self.context, TORCH[self.dtype])
        decoder.eval().requires_grad_(requires_grad=False)
        with torch.no_grad():
            _load(decoder, self.checkpoint, self.spec, self.layers)
        return decoder

    def example(self) -> Example:
        """Up to three tokens at position 0; their number may vary up to the context."""
        tokens = torch.export.Dim("tokens", min=1, max=self.context)
        return Example(
            inputs=(torch.ones(1, min(3, self.context), dtype=torch.int64), torch.zeros(1, dtype=torch.int64)),
            dynamic_shapes=({1: tokens}, None),
            constants=_constant_methods(self.checkpoint, self.spec, self.context),
        )

    def table(self, decoder: nn.Module) -> dict[str, Any]:
        """What the module table of registry.artifacts.Foundation says of this architecture."""
        return {
            "architecture": self.spec.family,
            "max_positions": self.spec.max_positions,
            "modules": module_rows(decoder),
            "tied": [["model.embed_tokens", "lm_head"]] if self.spec.tied else [],
        }


def _spec_in(dtype: str, config: Mapping[str, Any], context: int) -> DecoderSpec:
    spec = spec_for(config, context)
    if dtype == "F16" and spec.family in PASS_FP16:
        raise InputError(
            f"{spec.family} cannot run in fp16: its activations pass fp16's largest number, 65504",
            hint="use --dtype fp32, or --qmode 8da4w, which computes in fp32",
            family=spec.family,
        )
    return spec


def _load(decoder: Decoder, checkpoint: Checkpoint, spec: DecoderSpec, layers: int | None) -> None:
    """Copy each tensor into its parameter, straight from the memory-mapped file. Raises InputError for any other.

    Only tensors behind the first `layers` are passed over, when so many are wanted.
    """
    waiting = dict(decoder.named_parameters(remove_duplicate=False))
    for path in checkpoint.weights.paths:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  safe_open is no mapping
                if name.endswith("rotary_emb.inv_freq"):
                    continue  # written by old versions of transformers; computed from the config
                if layers is not None and layer_of(name) >= layers:
                    continue
                _copy(waiting.pop(name, None), name, file.get_tensor(name))
    missing = set(waiting) - ({"lm_head.weight"} if spec.tied else set())
    if missing:
        raise InputError(
            f"the checkpoint lacks {min(missing)}" + (f" and {len(missing) - 1} more" if len(missing) > 1 else ""),
            hint="is the download complete, and does config.json belong to it?",
            missing=sorted(missing),
        )


def _copy(parameter: nn.Parameter | None, name: str, tensor: torch.Tensor) -> None:
    if parameter is None:
        raise InputError(f"the checkpoint's {name} has no place in this architecture", tensor=name)
    if parameter.shape != tensor.shape:
        raise InputError(
            f"{name}: config.json expects {tuple(parameter.shape)}, the checkpoint has {tuple(tensor.shape)}",
            tensor=name,
        )
    parameter.copy_(tensor)
    if parameter.dtype == torch.float16 and not torch.isfinite(parameter).all():
        raise InputError(f"{name}: a value passes fp16's largest number, 65504", hint="use --dtype fp32", tensor=name)


def _constant_methods(checkpoint: Checkpoint, spec: DecoderSpec, context: int) -> dict[str, Any]:
    """What ExecuTorch's LLM runners ask a program (extension/llm/runner/constants.h)."""
    tokens = computed(read_files(checkpoint.files))
    methods: dict[str, Any] = {
        "get_max_seq_len": context,
        "get_max_context_len": context,
        "get_vocab_size": spec.vocab_size,
        "get_n_layers": spec.layers,
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": True,
        "enable_dynamic_shape": True,
    }
    if tokens.bos is not None:
        methods["get_bos_id"] = tokens.bos
    if tokens.eos:
        methods["get_eos_ids"] = list(tokens.eos)
    return methods
