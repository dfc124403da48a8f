"""From a Hugging Face `config.json` to what the decoder has to compute. Pure: values in, values out.

A config is never half understood: a field that would change the arithmetic and is not implemented is an
error that names the field, its value and what would be accepted. What a config does not say is what transformers'
class of that family assumes, and what that class does not read is not read here either.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from exporter.config import Config
from exporter.peft.tensors import FLOATING
from exporter.rope import Rope, read_ropes
from registry.artifacts import Tensor
from registry.errors import InputError

SUPPORTED = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Phi3ForCausalLM": "phi3",
    "GemmaForCausalLM": "gemma",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3_text",
}
GEMMA = frozenset({"gemma", "gemma2", "gemma3_text"})
_EMBEDDING = "model.embed_tokens.weight"
_LAYER = re.compile(r"model\.layers\.(\d{1,9})\.", re.ASCII)
_ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh"}


_WINDOW = 4096
_GEMMA2 = {
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
    "query_pre_attn_scalar": 256,
    "sliding_window": _WINDOW,
}
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "mistral": {"num_key_value_heads": 8, "sliding_window": _WINDOW},
    "qwen2": {"num_key_value_heads": 32, "sliding_window": _WINDOW, "max_window_layers": 28},
    "qwen3": {"num_key_value_heads": 32, "head_dim": 128, "sliding_window": _WINDOW, "max_window_layers": 28},
    "phi3": {"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096},
    "gemma": {
        "num_key_value_heads": 16,
        "head_dim": 256,
        "hidden_act": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
    },
    "gemma2": {**_GEMMA2, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    "gemma3_text": _GEMMA2,
}
"""What a family's config class assumes of a field that is absent, where that is no common default (transformers 5)."""

_WINDOWED = frozenset({"qwen2", "qwen3", "gemma2", "gemma3_text"})
_READ_BY: Mapping[str, frozenset[str]] = {
    "attention_bias": frozenset({"llama", "qwen3"}) | GEMMA,
    "mlp_bias": frozenset({"llama"}),
    "query_pre_attn_scalar": frozenset({"gemma2", "gemma3_text"}),
    "attn_logit_softcapping": frozenset({"gemma2"}),
    "final_logit_softcapping": frozenset({"gemma2", "gemma3_text"}),
    "use_bidirectional_attention": GEMMA,
}
"""The families whose classes read a field; in the config of any other it says nothing."""

LEAST = 2
"""Positions of the shortest context: a token and an answer."""


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """Everything that decides the decoder's graph; sizes are element counts, names follow transformers' configs.

    `ropes` has one rope, or one for full and one for sliding attention; `windows` gives each layer's sliding window
    in positions, None for full attention. `norm_plus_one` multiplies by 1 + weight; `sandwich_norms` also
    norms what attention and feed-forward answer; softcaps bound scores to +-cap through tanh.
    """

    family: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    ropes: tuple[Rope, ...]
    windows: tuple[int | None, ...]
    max_positions: int
    activation: str
    tied: bool
    fused: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    norm_plus_one: bool
    sandwich_norms: bool
    embedding_scale: float | None
    attention_scale: float
    attention_softcap: float | None
    logit_softcap: float | None

    def kv_cache_bytes(self, context: int, element_size: int = 4) -> int:
        """Bytes of the key and value caches of all layers for `context` positions."""
        return 2 * self.layers * context * self.kv_heads * self.head_dim * element_size

    def rope_of(self, layer: int) -> int:
        """The index in `ropes` of a layer's rope."""
        return 1 if len(self.ropes) > 1 and self.windows[layer] is not None else 0


def decoder_spec(raw: Mapping[str, Any]) -> DecoderSpec:
    """Read a transformers config. Raises InputError naming the first field that is missing or not supported."""
    family = _family(raw)
    config = Config(_as_read(family, raw))
    gemma, bias = family in GEMMA, config.flag("attention_bias")
    hidden, heads = config.count("hidden_size"), config.count("num_attention_heads")
    head_dim = config.count("head_dim", hidden // heads)
    layers = config.count("num_hidden_layers")
    _refuse_unsupported(config)
    spec = DecoderSpec(
        family=family,
        vocab_size=config.count("vocab_size"),
        hidden_size=hidden,
        intermediate_size=config.count("intermediate_size"),
        layers=layers,
        heads=heads,
        kv_heads=config.count("num_key_value_heads", heads),
        head_dim=head_dim,
        norm_eps=config.number("rms_norm_eps", 1e-6),
        ropes=read_ropes(config, family, head_dim),
        windows=_windows(config, family, layers),
        max_positions=config.count("max_position_embeddings"),
        activation=_activation(config, family),
        tied=config.flag("tie_word_embeddings"),
        fused=family == "phi3",
        qkv_bias=bias or family == "qwen2",
        output_bias=bias,
        mlp_bias=config.flag("mlp_bias"),
        qk_norm=family in {"qwen3", "gemma3_text"},
        norm_plus_one=gemma,
        sandwich_norms=family in {"gemma2", "gemma3_text"},
        embedding_scale=math.sqrt(hidden) if gemma else None,
        attention_scale=config.number("query_pre_attn_scalar", head_dim) ** -0.5,
        attention_softcap=config.optional_number("attn_logit_softcapping"),
        logit_softcap=config.optional_number("final_logit_softcapping"),
    )
    if spec.heads % spec.kv_heads:
        raise InputError(
            f"config.json: {spec.heads} attention heads cannot share {spec.kv_heads} key-value heads",
            field="num_key_value_heads",
        )
    return spec


def spec_for(raw: Mapping[str, Any], context: int) -> DecoderSpec:
    """As `decoder_spec`; also raises InputError for a context that the model does not reach."""
    spec = decoder_spec(raw)
    if not LEAST <= context <= spec.max_positions:
        raise InputError(
            f"context {context} is outside {LEAST} to {spec.max_positions}, the positions that this model knows",
            hint=f"--context {min(2048, spec.max_positions)}",
            expected=spec.max_positions,
            actual=context,
        )
    return spec


def layer_of(name: str) -> int:
    """The index of the layer that a module or tensor belongs to; -1 outside of all."""
    match = _LAYER.match(name)
    return int(match[1]) if match else -1


def check_tensors(spec: DecoderSpec, tensors: Iterable[Tensor]) -> None:
    """Hold a checkpoint's tensors against its config before anything is allocated by it.

    Raises InputError for weights that are no plain floating numbers (quantized ones mean nothing without their
    scales), for sizes or a number of layers that the config does not say, and for a tied head that is another matrix.
    """
    held = {tensor.name: tensor for tensor in tensors}
    strange = [tensor for tensor in held.values() if tensor.dtype not in FLOATING]
    if strange:
        raise InputError(
            f"{strange[0].name}: weights of dtype {strange[0].dtype} are not supported",
            hint=f"save the checkpoint in {', '.join(FLOATING)}; --qmode quantizes it here",
            tensors=[tensor.name for tensor in strange],
        )
    _check_sizes(spec, held)
    embedding, head = held.get(_EMBEDDING), held.get("lm_head.weight")
    if spec.tied and embedding and head and (embedding.dtype, embedding.digest) != (head.dtype, head.digest):
        raise InputError(
            f"config.json: 'tie_word_embeddings' is true, but lm_head.weight is not {_EMBEDDING}",
            hint="set it to false, as transformers computes then",
            field="tie_word_embeddings",
        )


def _check_sizes(spec: DecoderSpec, held: Mapping[str, Tensor]) -> None:
    layers = {layer_of(name) for name in held} - {-1}
    if layers != set(range(spec.layers)):
        raise InputError(
            f"config.json: 'num_hidden_layers' = {spec.layers}, but the checkpoint has {len(layers)} layers",
            hint="is the download complete, and does config.json belong to it?",
            field="num_hidden_layers",
        )
    shapes = {
        _EMBEDDING: (spec.vocab_size, spec.hidden_size),
        "model.layers.0.self_attn.o_proj.weight": (spec.hidden_size, spec.heads * spec.head_dim),
        "model.layers.0.mlp.down_proj.weight": (spec.hidden_size, spec.intermediate_size),
    }
    for name, shape in shapes.items():
        if name in held and held[name].shape != shape:
            message = f"{name}: config.json expects {shape}, the checkpoint has {held[name].shape}"
            raise InputError(message, tensor=name)


def _family(raw: Mapping[str, Any]) -> str:
    architectures = raw.get("architectures")
    name = architectures[0] if isinstance(architectures, list) and architectures else None
    if not isinstance(name, str) or name not in SUPPORTED:
        raise InputError(
            f"config.json: architecture {name!r} is not supported",
            hint="supported: " + ", ".join(SUPPORTED),
            field="architectures",
            actual=name,
        )
    family = SUPPORTED[name]
    if raw.get("model_type", family) != family:
        raise Config(raw).refused("model_type", [f"{family}, as the architecture {name} is"])
    return family


def _as_read(family: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    """A config as the family's class reads it: with what it assumes, without what is not its own."""
    return {
        name: value
        for name, value in {**_DEFAULTS.get(family, {}), **raw}.items()
        if family in _READ_BY.get(name, SUPPORTED.values())
    }


def _activation(config: Config, family: str) -> str:
    field = "hidden_activation" if family in {"gemma2", "gemma3_text"} else "hidden_act"
    name = config.get(field) or "silu"
    if family == "gemma" and name == "gelu":
        name = "gelu_pytorch_tanh"  # Gemma 1's published configs say gelu and mean the tanh form, as transformers reads
    if not isinstance(name, str) or name not in _ACTIVATIONS:
        raise config.refused(field, _ACTIVATIONS)
    return _ACTIVATIONS[name]


def _refuse_unsupported(config: Config) -> None:
    """Fields that would change the arithmetic, with the values that do not."""
    config.require("quantization_config", None)
    config.require("pretraining_tp", 1, None)
    config.require("use_bidirectional_attention", False, None)
    config.require("embd_pdrop", 0, 0.0, None)


def _windows(config: Config, family: str, layers: int) -> tuple[int | None, ...]:
    """Each layer's sliding window. transformers writes `layer_types`; older configs leave the pattern to the class."""
    unused = family in {"qwen2", "qwen3"} and not config.flag("use_sliding_window")
    window = None if unused else config.optional_count("sliding_window")
    if family not in _WINDOWED | {"mistral", "phi3"} and window is not None:
        if window < config.count("max_position_embeddings"):  # its attention does not read it, but its cache does
            raise config.refused("sliding_window", ["null"])
        window = None
    meant = _layer_types(config, family, layers, window)
    kinds = config.get("layer_types") or meant
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise config.refused("layer_types", ["one entry for each layer"])
    if family not in _WINDOWED and kinds != meant:  # likewise
        raise config.refused("layer_types", [f"null, or {meant[0]} for each layer"])
    for kind in kinds:
        if kind not in ("full_attention", "sliding_attention"):
            raise config.refused("layer_types", ["full_attention", "sliding_attention"], kind)
    if "sliding_attention" in kinds and window is None:
        raise config.refused("sliding_window", ["a number of positions, as layer_types asks for"])
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def _layer_types(config: Config, family: str, layers: int, window: int | None) -> list[str]:
    full, sliding = "full_attention", "sliding_attention"
    if family == "gemma2":
        return [full if index % 2 else sliding for index in range(layers)]
    if family == "gemma3_text":
        pattern = config.count("sliding_window_pattern", 6)
        return [sliding if (index + 1) % pattern else full for index in range(layers)]
    if family in {"qwen2", "qwen3"}:
        first = layers if window is None else config.count("max_window_layers")
        return [sliding if index >= first else full for index in range(layers)]
    return [sliding if window and family in {"mistral", "phi3"} else full] * layers
