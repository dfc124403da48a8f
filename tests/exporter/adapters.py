"""Tiny models, their cards, and adapters made by live PEFT or by hand, for the tests of the gate and of folding."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Phi3Config, Phi3ForCausalLM
from transformers.pytorch_utils import Conv1D

from exporter.card import BaseTensor, Card, Module, TokenizerCard
from exporter.fold import Factor, Folded
from exporter.peft.gate import Checked
from registry.digest import Digest

SPELLED = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


def llama(seed: int = 0, **changes: Any) -> LlamaForCausalLM:
    """T of adapter-semantics.md: 2 layers of width 32, vocabulary 64; norms and biases away from ones and zeros."""
    torch.manual_seed(seed)
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return _shaken(LlamaForCausalLM(LlamaConfig(**{**sizes, **heads, "tie_word_embeddings": False, **changes})))


def gpt2() -> GPT2LMHeadModel:
    """A GPT-2 of two layers of width 32, whose projections are Conv1D."""
    torch.manual_seed(0)
    return _shaken(GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=64, n_positions=64)))


def phi3() -> Phi3ForCausalLM:
    """A model whose projections are fused: qkv_proj and gate_up_proj."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0}
    return _shaken(Phi3ForCausalLM(Phi3Config(**sizes, **heads)))


def _shaken(model: Any) -> Any:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.normal_(0.0 if name.endswith("bias") else 1.0, 0.2)
    return model.eval()


def card_of(model: nn.Module, **changes: Any) -> Card:
    """The card of a foundation that would hold this model."""
    modules = {name: module for name, part in model.named_modules() if (module := _module(part)) is not None}
    state = model.state_dict()
    tied = model.config.tie_word_embeddings
    embedding = "transformer.wte" if "transformer.wte" in modules else "model.embed_tokens"
    if tied:
        state.pop("lm_head.weight")
    tensors = {
        name: BaseTensor(SPELLED[tensor.dtype], tuple(tensor.shape), digest_of(tensor))
        for name, tensor in state.items()
    }
    card = Card(
        architecture=type(model).__name__,
        factor_dtype="F32",
        modules=modules,
        base=Digest.of(repr(sorted(tensors.items())).encode()),
        tied=((embedding, "lm_head"),) if tied else (),
        tensors=tensors,
        tokenizer=TokenizerCard({}, "tokenizer.json", Digest.of(b"vocabulary"), 64),
    )
    return replace(card, **changes)


def _module(part: nn.Module) -> Module | None:
    if isinstance(part, nn.Linear):
        return Module("linear", part.in_features, part.out_features, part.bias is not None)
    if isinstance(part, Conv1D):
        return Module("conv1d", part.nx, part.nf, True)
    if isinstance(part, nn.Embedding):
        return Module("embedding", part.num_embeddings, part.embedding_dim, False)
    if "Norm" in type(part).__name__:
        return Module("norm", len(part.weight), len(part.weight), getattr(part, "bias", None) is not None)
    return None


def digest_of(tensor: torch.Tensor) -> Digest:
    """The digest of a tensor's bytes as a checkpoint holds them."""
    return Digest.of(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


@dataclass(frozen=True)
class ModelRows:
    """The rows of a model's weights, out first, as a foundation would answer them."""

    model: nn.Module

    def rows(self, module: str, start: int, stop: int) -> np.ndarray:
        part = self.model.get_submodule(module)
        weight = part.weight.detach().float()
        return (weight.T if isinstance(part, Conv1D) else weight)[start:stop].numpy()


def trained(model: nn.Module, seed: int = 1, initial: Path | None = None, **options: Any) -> PeftModel:
    """A PEFT model whose trainable parameters are random, as training would leave them.

    `initial` is where the adapter is saved before that.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peft_model = get_peft_model(model, LoraConfig(**{"r": 4, "lora_alpha": 8, **options}))
    if initial is not None:
        saved(peft_model, initial)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in peft_model.parameters():
            if parameter.requires_grad:
                noise = torch.randn(parameter.shape, generator=generator) * 0.4
                parameter.add_(noise.to(parameter.dtype))
    return peft_model.eval()


def saved(peft_model: PeftModel, directory: Path, **options: Any) -> Path:
    """Where PEFT saved the adapter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peft_model.save_pretrained(directory, **options)
    return directory


Q = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}
PREFIX = "base_model.model."
LAYERS = ("model.layers.0.self_attn", "model.layers.1.self_attn")


def q_tensors(rank: int = 4, seed: int = 7) -> dict[str, np.ndarray]:
    """Q's tensors: q_proj of both layers, A (rank, 32) and B (32, rank)."""
    random = np.random.default_rng(seed)
    shapes = {"lora_A.weight": (rank, 32), "lora_B.weight": (32, rank)}
    return {
        f"{PREFIX}{layer}.q_proj.{part}": random.normal(0, 0.2, shape).astype(np.float32)
        for layer in LAYERS
        for part, shape in shapes.items()
    }


def write(
    directory: Path, tensors: Mapping[str, np.ndarray | torch.Tensor], config: Any = None, **changes: Any
) -> Path:
    """An adapter's directory by hand; `changes` are made to the config Q."""
    directory.mkdir(parents=True, exist_ok=True)
    config = {**Q, **changes} if config is None else config
    (directory / "adapter_config.json").write_text(json.dumps(config))
    file = str(directory / "adapter_model.safetensors")
    if any(isinstance(tensor, torch.Tensor) for tensor in tensors.values()):
        save_torch({name: torch.as_tensor(tensor) for name, tensor in tensors.items()}, file)
    else:
        save_file(dict(tensors), file)
    return directory


def messages(checked: Checked, level: str = "error") -> list[str]:
    """The messages of one level."""
    return [finding.message for finding in checked.findings if finding.level == level]


def merged(model: nn.Module, folded: Folded, card: Card) -> nn.Module:
    """The base in fp64 with a folded adapter worked into its weights: what a program must compute."""
    result = copy.deepcopy(model).double()
    tied = result.config.tie_word_embeddings
    if tied:
        result.lm_head.weight = nn.Parameter(result.lm_head.weight.detach().clone())
    for name, structure in folded.structure.modules.items():
        part = result.get_submodule(name)
        factors = {
            suffix: torch.from_numpy(array(folded.tensors[f"{name}.{suffix}"]))
            for suffix, _ in structure.shapes(card.modules[name])
        }
        with torch.no_grad():
            _merge(part, factors)
            if "rows" in factors:
                part.weight[list(structure.rows)] = factors["rows"]
                head = folded.structure.modules.get("lm_head")
                if tied and name != "lm_head" and not (head and head.rows):
                    result.lm_head.weight[list(structure.rows)] = factors["rows"]
    return result


def array(factor: Factor) -> np.ndarray:
    """A factor's values in fp64."""
    kind = {"F32": np.float32, "F16": np.float16}[factor.dtype]
    return np.frombuffer(factor.data, kind).reshape(factor.shape).astype(np.float64)


def _merge(part: nn.Module, factors: Mapping[str, torch.Tensor]) -> None:
    turn = (lambda matrix: matrix.T) if isinstance(part, Conv1D) else (lambda matrix: matrix)
    weight = factors.get("weight", part.weight)
    if "dora_scale" in factors:
        weight = turn(turn(weight) * factors["dora_scale"][:, None])
    if "lora_A" in factors:
        weight = weight + turn(factors["lora_B"] @ factors["lora_A"])
    if "lora_embedding_A" in factors:
        weight = weight + (factors["lora_embedding_B"] @ factors["lora_embedding_A"]).T
    part.weight = nn.Parameter(weight)
    bias = factors.get("bias", getattr(part, "bias", None))
    if "lora_B.bias" in factors:
        bias = factors["lora_B.bias"] + (0 if bias is None else bias)
    if bias is not None:
        part.bias = nn.Parameter(bias)


def distance(peft_model: nn.Module, model: nn.Module) -> float:
    """The largest difference of two models' logits, both turned to fp64."""
    tokens = torch.tensor([[1, 9, 33, 7, 60, 12, 5, 41, 22, 17, 3]])
    with torch.no_grad():
        first, second = peft_model.double()(tokens).logits, model.double()(tokens).logits
    return float((first - second).abs().max())
