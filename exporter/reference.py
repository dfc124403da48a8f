"""What a build must compute: the base in plain torch, the adapter in PEFT. Imports torch, transformers, peft.

    reference = Reference.of_checkpoint(checkpoint.directory, recipe)
    reference.adapt(directory, gate, card)
    logits(reference.adapted, [1, 9, 33])           # (3, vocabulary)
    logits(reference.plain, [1, 9, 33])

A checkpoint's base is transformers' model of it, any other the factory's own module: `Reference(source.root)`. Nothing
of ours takes part but two things: tensors get the names under which PEFT looks for them, and on a quantized foundation
weights are dequantized and activations rounded as that foundation has it.
"""

from __future__ import annotations

import copy
import json
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import PeftConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from torch import nn
from torchao.quantization.quant_primitives import MappingType, choose_qparams_affine, dequantize_affine, quantize_affine
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from exporter.card import Card
from exporter.linker import Gate
from exporter.peft.directory import read_directory
from exporter.peft.findings import Findings
from exporter.peft.names import Part, parse_name
from exporter.quantize import grouped
from exporter.recipe import Quantization, Recipe
from registry.errors import InputError

_TORCH = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_PREFIX = "base_model.model."
_NO_REFERENCE = "there is nothing to prove it against: save it so that PEFT loads it on this base"
_COPIES = {Part.BASE_WEIGHT, Part.ORIGINAL_WEIGHT, Part.ORIGINAL_BIAS, Part.SAVED_BIAS}
"""What PEFT saves of the base along with an adapter, or a second time; the gate has compared it."""


class Reference:
    """A base in eager fp32, `plain` and, after `adapt`, `adapted`; both over the same large tensors."""

    def __init__(self, plain: nn.Module, rounded: Sequence[nn.Linear] = ()) -> None:
        """`rounded` are those of its linears whose activations are rounded to int8."""
        self.plain: Any = plain
        self.adapted: Any = plain
        self._rounded = rounded

    @classmethod
    def of_checkpoint(cls, directory: Path, recipe: Recipe, layers: int | None = None) -> Reference:
        """Load a checkpoint with its weights as the recipe stores them; only its first `layers`, if given."""
        model = _load(directory, layers)
        if recipe.quantized:
            _quantize(model, recipe.quantized)
            return cls(model, _linears(model))
        if recipe.dtype != "F32":
            model.to(_TORCH[recipe.dtype]).float()
        return cls(model)

    def adapt(self, directory: Path, gate: Gate, card: Card) -> None:
        """Put an adapter on; what it has for layers that the model lacks is left out. Call it once, before any logits.

        With the gate's initial adapter, what that one took out of the base at first is taken out here too. Raises
        InputError when PEFT itself cannot load it.
        """
        model = _copied(self.plain)
        rounded = _linears(model) if self._rounded else []
        if gate.initial is not None:
            _take_out(model, gate.initial, gate, card)
        self.adapted = _loaded(model, directory, gate, card)
        for linear in (*self._rounded, *rounded):  # only now: PEFT copies hooks into what an adapter saves whole
            linear.register_forward_pre_hook(lambda _, inputs: (as_int8(inputs[0]),))


def _load(directory: Path, layers: int | None) -> nn.Module:
    config = AutoConfig.from_pretrained(directory, local_files_only=True)
    if layers is not None:
        config.num_hidden_layers = layers
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[:layers]
    options = {"config": config, "dtype": torch.float32, "attn_implementation": "eager", "local_files_only": True}
    with _silent():
        model: nn.Module = AutoModelForCausalLM.from_pretrained(directory, **options)
    return model.eval().requires_grad_(requires_grad=False)


def _copied(model: nn.Module) -> nn.Module:
    """A copy over the same matrices; vectors are its own, because an adapter's biases are written over the base's."""
    shared = {id(each): each for each in (*model.parameters(), *model.buffers()) if each.ndim > 1}
    return copy.deepcopy(model, dict(shared))


def _linears(model: nn.Module) -> list[nn.Linear]:
    return [module for module in model.modules() if isinstance(module, nn.Linear)]


def logits(model: nn.Module, tokens: Sequence[int]) -> torch.Tensor:
    """(tokens, vocabulary) fp32: the logits after each token."""
    with torch.no_grad():
        rows: torch.Tensor = model(input_ids=torch.tensor([list(tokens)])).logits[0].float()
    return rows


def continued(model: nn.Module, tokens: Sequence[int], count: int) -> tuple[int, ...]:
    """The `count` tokens that the model would write next, always the likeliest one."""
    found: list[int] = []
    step, cache = torch.tensor([list(tokens)]), None
    with torch.no_grad():
        for _ in range(count):
            answer = model(input_ids=step, past_key_values=cache, use_cache=True)
            found.append(int(answer.logits[0, -1].argmax()))
            step, cache = torch.tensor([found[-1:]]), answer.past_key_values
    return tuple(found)


def _quantize(model: Any, recipe: Quantization) -> None:
    """Give a model dequantized weights, in place; a tied head gets its own."""
    embedding = model.get_input_embeddings()
    rows = embedding.weight.detach().clone()
    for module in _linears(model):
        weight = grouped(module.weight.detach(), 4, recipe.group_size, scales=torch.bfloat16)
        module.weight = nn.Parameter(weight.dequantize(), requires_grad=False)
    if recipe.embedding_bits:
        rows = grouped(rows, recipe.embedding_bits, recipe.group_size, scales=torch.float32).dequantize()
    embedding.weight = nn.Parameter(rows, requires_grad=False)


def as_int8(x: torch.Tensor) -> torch.Tensor:
    """What is left of activations after they were quantized per token, as torchao's 8da4w does it."""
    block = (*[1] * (x.ndim - 1), x.shape[-1])
    kind: dict[str, Any] = {"quant_min": -128, "quant_max": 127}
    scale, zero = choose_qparams_affine(
        x, MappingType.ASYMMETRIC, block, torch.int8, **kind, eps=None, zero_point_dtype=torch.int8
    )
    values = quantize_affine(x, block, scale, zero, torch.int8, **kind)
    rounded: torch.Tensor = dequantize_affine(values, block, scale, zero, torch.int8, **kind, output_dtype=x.dtype)
    return rounded


def _take_out(model: nn.Module, directory: Path, gate: Gate, card: Card) -> None:
    """W - s*B0*A0 (exporter.peft.initial), by PEFT's own delta."""
    initial = _loaded(model, directory, gate, card)
    for module in list(initial.modules()):
        if hasattr(module, "get_delta_weight"):
            linear = module.get_base_layer()
            linear.weight = nn.Parameter(linear.weight - module.get_delta_weight("default"), requires_grad=False)
    initial.unload()


def _loaded(model: nn.Module, directory: Path, gate: Gate, card: Card) -> Any:
    config, tensors = _read(model, directory, gate, card)
    with tempfile.TemporaryDirectory(prefix="ptdock-") as work, _silent():
        (Path(work) / "adapter_config.json").write_text(json.dumps(config))
        try:
            adapted = get_peft_model(model, PeftConfig.from_pretrained(work)).eval()
            result = set_peft_model_state_dict(adapted, tensors)
        except (ValueError, TypeError, RuntimeError, KeyError) as error:
            reason = str(error).partition("\n")[0]
            raise InputError(f"PEFT itself cannot load this adapter: {reason}", hint=_NO_REFERENCE) from error
        wanted = get_peft_model_state_dict(adapted, save_embedding_layers=False)
    missing = (raw for raw in wanted.keys() - tensors.keys() if not _is_copy(raw, card))
    strange = sorted({*result.unexpected_keys, *missing})
    if strange:
        raise InputError(
            f"PEFT itself does not load this adapter whole: {strange[0]}",
            hint=_NO_REFERENCE,
            tensors=strange,
        )
    return adapted


def _is_copy(raw: str, card: Card) -> bool:
    name = parse_name(raw, card.names)
    return name is not None and name.part in _COPIES


def _read(model: nn.Module, directory: Path, gate: Gate, card: Card) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The config and the tensors under PEFT's own names, without initializations that would touch the base."""
    files = read_directory(directory, Findings(), allow_pickle=gate.allow_pickle)
    if files.config is None or files.tensors is None:
        raise InputError(f"{directory} is no adapter", hint="publish it again")
    present = {name for name, _ in model.named_modules()}
    tensors = {}
    for raw, stored in files.tensors.items():
        name = parse_name(raw, card.names)
        chosen = name is not None and gate.adapter_name in (None, name.adapter)
        if name is not None and chosen and name.module in present and name.part not in _COPIES:
            values = torch.frombuffer(bytearray(stored.raw), dtype=_TORCH[stored.dtype]).reshape(stored.shape)
            tensors[f"{_PREFIX}{name.module}.{name.part}"] = values.clone()
    # By the task PEFT chooses a wrapper that asks for a transformers model, and computes the same.
    return {**json.loads(files.config), "init_lora_weights": True, "inference_mode": True, "task_type": None}, tensors


@contextmanager
def _silent() -> Iterator[None]:
    """Without the libraries' remarks: what matters is checked here."""
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        logging.enable_progress_bar()
