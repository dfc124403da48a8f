"""From a checkpoint to a foundation, its base program, and templates. Imports torch: import it only to export.

exported = export_base(checkpoint, Recipe(), context=2048, directory=work)      # the one source of the .ptd
template = export_template(checkpoint, Recipe(), context=2048, structure=structure, card=card)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch import nn

from exporter.architecture import DecoderSpec, spec_for
from exporter.base import Checkpoint
from exporter.card import Card
from exporter.decoder import Decoder, RMSNorm
from exporter.lora import attach
from exporter.lower import Example, Lowered, lower
from exporter.recipe import Recipe
from exporter.relocation import RelocationTable, Slot, locate
from exporter.shards import read_json
from exporter.structure import FactorSpec, Structure
from registry.errors import InputError

Progress = Callable[[str], None]
DTYPES = {"F32": torch.float32, "F16": torch.float16}


@dataclass(frozen=True, slots=True)
class Job:
    """What is exported, how, for how many positions; `progress` gets each phase's name as it begins."""

    checkpoint: Checkpoint
    recipe: Recipe
    context: int
    progress: Progress

    @property
    def spec(self) -> DecoderSpec:
        """The architecture. Raises InputError for an unsupported one, or a context that it does not reach."""
        return spec_for(self.checkpoint.config, self.context)


@dataclass(frozen=True, slots=True)
class ExportedBase:
    """A foundation file, the base program, the names of its keys, and the module table for the gate."""

    foundation: Path
    program: bytes
    names: Mapping[str, tuple[str, ...]]
    modules: Mapping[str, Any]
    kv_cache_bytes: int


@dataclass(frozen=True, slots=True)
class ExportedTemplate:
    """A program full of placeholders, and the table that says where they stand."""

    program: bytes
    table: RelocationTable
    kv_cache_bytes: int


def export_base(job: Job, directory: Path) -> ExportedBase:
    """Export the base without adapters. The `.ptd` is written into `directory`. Raises InputError."""
    decoder = _decoder(job)
    lowered = _lower(job, decoder, frozenset(), directory)
    if lowered.foundation is None:
        raise AssertionError("lower writes the foundation that it was asked for")
    spec = job.spec
    table = module_table(decoder, spec, job.recipe)
    return ExportedBase(lowered.foundation, lowered.program, lowered.names, table, spec.kv_cache_bytes(job.context))


def export_template(job: Job, structure: Structure, card: Card) -> ExportedTemplate:
    """Export the base with a structure full of unique random placeholders. Raises InputError."""
    slots, content = placeholders(structure, card)
    program = export_adapter(job, structure, _tensors(slots, content))
    return ExportedTemplate(program, locate(program, slots, content), job.spec.kv_cache_bytes(job.context))


def export_adapter(job: Job, structure: Structure, factors: Mapping[str, torch.Tensor]) -> bytes:
    """The full export of one adapter: what relinking must equal byte for byte. `factors` are the folded ones."""
    decoder = _decoder(job)
    owned = attach(decoder, structure, factors)
    return _lower(job, decoder, owned, None).program


def placeholders(structure: Structure, card: Card) -> tuple[list[Slot], list[bytes]]:
    """One slot for each distinct factor, and unique bytes for it: random, the same at every export.

    Factors that the structure declares equal share a slot, because an export stores equal bytes once.
    """
    specs = {spec.name: spec for spec in structure.factors(card)}
    twin = {name: group[0] for group in structure.equal for name in group}
    names: dict[str, list[str]] = {}
    for name in specs:
        names.setdefault(twin.get(name, name), []).append(name)
    random = np.random.Generator(np.random.PCG64(list(structure.digest.raw)))
    slots, content = [], []
    for first, shared in names.items():
        spec = specs[first]
        data = _random_bytes(random, spec)
        slots.append(Slot(tuple(shared), spec.dtype, spec.shape, len(data), (), ()))
        content.append(data)
    return slots, content


def _random_bytes(random: np.random.Generator, spec: FactorSpec) -> bytes:
    kind = np.float16 if spec.dtype == "F16" else np.float32
    return random.uniform(-1.0, 1.0, spec.shape).astype(kind).tobytes()


def _tensors(slots: list[Slot], content: list[bytes]) -> dict[str, torch.Tensor]:
    return {
        name: torch.frombuffer(bytearray(data), dtype=DTYPES[slot.dtype]).reshape(slot.shape)
        for slot, data in zip(slots, content, strict=True)
        for name in slot.names
    }


def _decoder(job: Job) -> Decoder:
    job.progress("reading the checkpoint")
    spec = job.spec
    decoder: Decoder = Decoder(spec, job.context).eval().requires_grad_(requires_grad=False)
    _load(decoder, job.checkpoint, spec)
    return decoder


def _load(decoder: Decoder, checkpoint: Checkpoint, spec: DecoderSpec) -> None:
    """Copy each tensor into its parameter, straight from the memory-mapped file. Raises InputError for any other."""
    waiting = dict(decoder.named_parameters(remove_duplicate=False))
    for path in checkpoint.weights.paths:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  safe_open is no mapping
                if name.endswith("rotary_emb.inv_freq"):
                    continue  # written by old versions of transformers; computed from the config
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


def _lower(job: Job, decoder: Decoder, factors: frozenset[str], directory: Path | None) -> Lowered:
    tokens = torch.export.Dim("tokens", min=1, max=job.context)
    example = Example(
        inputs=(torch.ones(1, min(3, job.context), dtype=torch.int64), torch.zeros(1, dtype=torch.int64)),
        dynamic_shapes=({1: tokens}, None),
        constants=_constant_methods(job),
    )
    with torch.no_grad():
        return lower(decoder, example, factors=factors, foundation_dir=directory, progress=job.progress)


def _constant_methods(job: Job) -> dict[str, Any]:
    """What ExecuTorch's LLM runners ask a program (extension/llm/runner/constants.h)."""
    spec, config, generation = job.spec, job.checkpoint.config, _generation_config(job.checkpoint)
    bos = generation.get("bos_token_id", config.get("bos_token_id"))
    eos = generation.get("eos_token_id", config.get("eos_token_id"))
    methods: dict[str, Any] = {
        "get_max_seq_len": job.context,
        "get_max_context_len": job.context,
        "get_vocab_size": spec.vocab_size,
        "get_n_layers": spec.layers,
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": True,
        "enable_dynamic_shape": True,
    }
    if isinstance(bos, int):
        methods["get_bos_id"] = bos
    if eos is not None:
        methods["get_eos_ids"] = eos if isinstance(eos, list) else [eos]
    return methods


def _generation_config(checkpoint: Checkpoint) -> Mapping[str, Any]:
    path = checkpoint.files.get("generation_config.json")
    document = read_json(path) if path else {}
    return document if isinstance(document, dict) else {}


KINDS: tuple[tuple[type[nn.Module], str], ...] = (
    (nn.Linear, "linear"),
    (nn.Embedding, "embedding"),
    (RMSNorm, "norm"),
)


def module_table(decoder: Decoder, spec: DecoderSpec, recipe: Recipe) -> dict[str, Any]:
    """The module table of registry.artifacts.Foundation: what an adapter may touch."""
    modules = {}
    for name, module in decoder.named_modules():
        kind = next((label for cls, label in KINDS if isinstance(module, cls)), None)
        if kind is not None:
            modules[name] = _module_row(kind, module)
    return {
        "schema": 1,
        "architecture": spec.family,
        "factor_dtype": recipe.factor_dtype,
        "max_positions": spec.max_positions,
        "modules": modules,
        "tied": [["model.embed_tokens", "lm_head"]] if spec.tied else [],
    }


def _module_row(kind: str, module: nn.Module) -> dict[str, Any]:
    shape = module.weight.shape
    inputs, outputs = (shape[-1], shape[0]) if kind == "linear" else (shape[0], shape[-1])
    return {"kind": kind, "in": inputs, "out": outputs, "bias": getattr(module, "bias", None) is not None}
