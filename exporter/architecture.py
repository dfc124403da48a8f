"""From a Hugging Face `config.json` to what the decoder has to compute. Pure: values in, values out.

A config is never half understood: a field that would change the arithmetic and is not implemented is an
error that names the field, its value and what would be accepted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exporter.config import Config
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
ROPE_KINDS = ("default", "linear", "llama3", "longrope")
_ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh"}


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary embedding as in transformers' `rope_parameters`.

    `kind` is one of ROPE_KINDS, `width` the number of rotated dimensions of each head, `scale` the factor of
    cosines and sines (longrope's attention factor, else 1), `parameters` the raw values of the kind.
    """

    kind: str
    theta: float
    width: int
    scale: float
    parameters: Mapping[str, Any]


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
    head_bias: bool
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
    config = Config(raw)
    gemma, bias = family in GEMMA, config.flag("attention_bias")
    hidden, heads = config.count("hidden_size"), config.count("num_attention_heads")
    head_dim = config.count("head_dim", 256 if gemma else hidden // heads)
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
        ropes=_ropes(config, family, head_dim),
        windows=_windows(config, family, layers),
        max_positions=config.count("max_position_embeddings"),
        activation=_activation(config, family),
        tied=config.flag("tie_word_embeddings", default=gemma),
        fused=family == "phi3",
        qkv_bias=bias or family == "qwen2",
        output_bias=bias and family != "qwen2",
        mlp_bias=config.flag("mlp_bias"),
        head_bias=config.flag("lm_head_bias"),
        qk_norm=family in {"qwen3", "gemma3_text"},
        norm_plus_one=gemma,
        sandwich_norms=family in {"gemma2", "gemma3_text"},
        embedding_scale=math.sqrt(hidden) if gemma else None,
        attention_scale=config.number("query_pre_attn_scalar", head_dim) ** -0.5,
        attention_softcap=config.optional_number("attn_logit_softcapping", 50.0 if family == "gemma2" else None),
        logit_softcap=config.optional_number("final_logit_softcapping", 30.0 if family == "gemma2" else None),
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
    if not 1 <= context <= spec.max_positions:
        raise InputError(
            f"context {context} is outside 1 to {spec.max_positions}, the positions that this model knows",
            hint=f"--context {min(2048, spec.max_positions)}",
            expected=spec.max_positions,
            actual=context,
        )
    return spec


def _family(raw: Mapping[str, Any]) -> str:
    architectures = raw.get("architectures")
    name = architectures[0] if isinstance(architectures, list) and architectures else None
    if name not in SUPPORTED:
        raise InputError(
            f"config.json: architecture {name!r} is not supported",
            hint="supported: " + ", ".join(SUPPORTED),
            field="architectures",
            actual=name,
        )
    return SUPPORTED[str(name)]


def _activation(config: Config, family: str) -> str:
    field = "hidden_activation" if family in GEMMA and config.get("hidden_activation") else "hidden_act"
    default = "gelu_pytorch_tanh" if family in GEMMA else "silu"
    name = config.get(field) or default
    if family == "gemma" and name == "gelu":
        name = default  # Gemma 1's published configs say gelu and mean the tanh form, as transformers reads them
    if name not in _ACTIVATIONS:
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
    window = config.optional_count("sliding_window")
    kinds = config.get("layer_types") or _layer_types(config, family, layers, window)
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise config.refused("layer_types", ["one entry for each layer"])
    for kind in set(kinds) - {"full_attention", "sliding_attention"}:
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
        first = config.count("max_window_layers", layers) if config.flag("use_sliding_window") else layers
        return [sliding if index >= first else full for index in range(layers)]
    return [sliding if window and family in {"mistral", "phi3"} else full] * layers


def _ropes(config: Config, family: str, head_dim: int) -> tuple[Rope, ...]:
    """Of transformers 5, which writes `rope_parameters`; older checkpoints `rope_theta` and `rope_scaling`."""
    parameters = config.get("rope_parameters") or {}
    if family != "gemma3_text":
        merged = {**(config.get("rope_scaling") or {}), **parameters}
        return (_rope(config, merged, config.number("rope_theta", 10000.0), head_dim),)
    full = parameters.get("full_attention") or config.get("rope_scaling") or {}
    sliding = parameters.get("sliding_attention") or {}
    return (
        _rope(config, full, config.number("rope_theta", 1_000_000.0), head_dim),
        _rope(config, sliding, config.number("rope_local_base_freq", 10000.0), head_dim),
    )


def _rope(config: Config, parameters: Mapping[str, Any], theta: float, head_dim: int) -> Rope:
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    kind = {"su": "longrope"}.get(kind, kind)  # Phi-3's first configs
    if kind not in ROPE_KINDS:
        raise config.refused("rope_parameters", ROPE_KINDS, kind)
    partial = parameters.get("partial_rotary_factor", config.number("partial_rotary_factor", 1.0))
    if kind == "longrope":
        original = config.get("original_max_position_embeddings")
        parameters = {"original_max_position_embeddings": original, **parameters}
    for name in _NEEDED[kind]:
        if parameters.get(name) is None:
            raise InputError(f"config.json: rope type {kind!r} needs {name!r}", field="rope_parameters")
    return Rope(
        kind=kind,
        theta=float(parameters.get("rope_theta", theta)),
        width=int(head_dim * partial),
        scale=_longrope_scale(config, parameters) if kind == "longrope" else 1.0,
        parameters=dict(parameters),
    )


_NEEDED: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "longrope": ("short_factor", "long_factor", "original_max_position_embeddings"),
}


def _longrope_scale(config: Config, parameters: Mapping[str, Any]) -> float:
    """The attention factor of LongRoPE, as in transformers' modeling_rope_utils."""
    if parameters.get("attention_factor") is not None:
        return float(parameters["attention_factor"])
    original = parameters["original_max_position_embeddings"]
    factor = parameters.get("factor") or config.count("max_position_embeddings") / original
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
