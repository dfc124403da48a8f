"""From a Hugging Face `config.json` to what the decoder has to compute. Pure: values in, values out.

A config is never half understood: a field that would change the arithmetic and is not implemented is an
error that names the field, its value and what would be accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from registry.errors import InputError

SUPPORTED = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary embedding: `kind` as in transformers' `rope_parameters.rope_type`, `theta`, and the raw parameters."""

    kind: str
    theta: float
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """Everything that decides the decoder's graph; sizes are element counts, names follow transformers' configs."""

    family: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    rope: Rope
    max_positions: int
    tied: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool

    def kv_cache_bytes(self, context: int, element_size: int = 4) -> int:
        """Bytes of the key and value caches of all layers for `context` positions."""
        return 2 * self.layers * context * self.kv_heads * self.head_dim * element_size


def decoder_spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Read a transformers config. Raises InputError naming the first field that is missing or not supported."""
    family = _family(config)
    hidden, heads = _integer(config, "hidden_size"), _integer(config, "num_attention_heads")
    bias = bool(config.get("attention_bias", False))
    spec = DecoderSpec(
        family=family,
        vocab_size=_integer(config, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=_integer(config, "intermediate_size"),
        layers=_integer(config, "num_hidden_layers"),
        heads=heads,
        kv_heads=_integer(config, "num_key_value_heads", heads),
        head_dim=_integer(config, "head_dim", hidden // heads),
        norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        rope=_rope(config),
        max_positions=_integer(config, "max_position_embeddings"),
        tied=bool(config.get("tie_word_embeddings", False)),
        qkv_bias=bias or family == "qwen2",
        output_bias=bias and family != "qwen2",
        mlp_bias=bool(config.get("mlp_bias", False)),
        qk_norm=family == "qwen3",
    )
    _check(config, spec)
    return spec


def _family(config: Mapping[str, Any]) -> str:
    architectures = config.get("architectures") or []
    name = architectures[0] if isinstance(architectures, list) and architectures else None
    if name not in SUPPORTED:
        raise InputError(
            f"config.json: architecture {name!r} is not supported",
            hint="supported: " + ", ".join(SUPPORTED),
            field="architectures",
            actual=name,
        )
    return SUPPORTED[str(name)]


def _integer(config: Mapping[str, Any], field: str, default: int | None = None) -> int:
    value = config.get(field)
    if value is None and default is not None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"config.json: {field!r} must be a positive integer, got {value!r}", field=field, actual=value)
    return value


def _rope(config: Mapping[str, Any]) -> Rope:
    """Transformers 5 writes `rope_parameters`; older checkpoints `rope_theta` and `rope_scaling`."""
    parameters = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    theta = parameters.get("rope_theta", config.get("rope_theta", 10000.0))
    if kind not in ("default", "linear", "llama3"):
        raise InputError(
            f"config.json: rope type {kind!r} is not supported",
            hint="supported: default, linear, llama3",
            field="rope_parameters",
            actual=kind,
        )
    return Rope(kind=kind, theta=float(theta), parameters=parameters)


def _check(config: Mapping[str, Any], spec: DecoderSpec) -> None:
    refused: list[tuple[str, Any, set[Any]]] = [
        ("hidden_act", config.get("hidden_act", "silu"), {"silu", "swish"}),
        ("partial_rotary_factor", config.get("partial_rotary_factor", 1.0), {1.0, None}),
        ("quantization_config", config.get("quantization_config"), {None}),
        ("pretraining_tp", config.get("pretraining_tp", 1), {1, None}),
    ]
    if config.get("use_sliding_window", spec.family == "mistral"):
        window = config.get("sliding_window")
        refused.append(("sliding_window", window if window and window < spec.max_positions else None, {None}))
    for field, value, accepted in refused:
        if isinstance(value, dict) or value not in accepted:
            raise InputError(
                f"config.json: {field!r} = {value!r} is not supported",
                hint="accepted: " + ", ".join(sorted(map(str, accepted))),
                field=field,
                actual=value,
            )
    if spec.heads % spec.kv_heads:
        raise InputError(
            f"config.json: {spec.heads} attention heads cannot share {spec.kv_heads} key-value heads",
            field="num_key_value_heads",
        )
