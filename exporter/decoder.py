"""A decoder made for XNNPACK, with Hugging Face's module names. Imports torch.

Its shape is what makes each layer one delegate (measured: a third of upstream's export time, a tenth of its
delegates): activations stay 2-D (tokens, width); the position is read once per forward; RMSNorm's mean is a
linear with a constant row of 1/width; rotate_half is a linear with a permutation of +-1; only the KV cache
update and the attention itself stay outside. Weights keep Hugging Face's layout, so q and k need no permutation.
"""

from __future__ import annotations

from collections.abc import Mapping

import executorch.extension.llm.custom_ops.custom_ops  # noqa: F401  registers torch.ops.llama
import torch
from torch import nn
from torch.nn import functional

from exporter.architecture import DecoderSpec, Rope


class RMSNorm(nn.Module):
    """Root mean square norm over the last dimension, (tokens, width) or (tokens, heads, width)."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(width))
        self.register_buffer("mean_row", torch.full((1, width), 1.0 / width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean_square = functional.linear(x * x, self.mean_row)
        return x * torch.rsqrt(mean_square + self.eps) * self.weight


class Attention(nn.Module):
    """Grouped-query attention over a KV cache of `context` positions."""

    def __init__(self, spec: DecoderSpec, context: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = spec.heads, spec.kv_heads, spec.head_dim
        query, key_value = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
        self.q_proj = nn.Linear(spec.hidden_size, query, bias=spec.qkv_bias)
        self.k_proj = nn.Linear(spec.hidden_size, key_value, bias=spec.qkv_bias)
        self.v_proj = nn.Linear(spec.hidden_size, key_value, bias=spec.qkv_bias)
        self.o_proj = nn.Linear(query, spec.hidden_size, bias=spec.output_bias)
        self.q_norm = RMSNorm(spec.head_dim, spec.norm_eps) if spec.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(spec.head_dim, spec.norm_eps) if spec.qk_norm else nn.Identity()
        cache = torch.zeros(1, context, spec.kv_heads, spec.head_dim)
        self.register_buffer("k_cache", cache, persistent=False)
        self.register_buffer("v_cache", cache.clone(), persistent=False)

    def forward(self, x: torch.Tensor, position: int, angles: Angles) -> torch.Tensor:
        # -1 stands literally in every view: XNNPACK then takes the reshape in with its one dynamic dimension.
        q = angles.rotate(self.q_norm(self.q_proj(x).view(-1, self.heads, self.head_dim)))
        k = angles.rotate(self.k_norm(self.k_proj(x).view(-1, self.kv_heads, self.head_dim)))
        v = self.v_proj(x).view(1, -1, self.kv_heads, self.head_dim)
        torch.ops.llama.update_cache(k.view(1, -1, self.kv_heads, self.head_dim), self.k_cache, position)
        torch.ops.llama.update_cache(v, self.v_cache, position)
        y = torch.ops.llama.custom_sdpa(
            q.view(1, -1, self.heads, self.head_dim),
            self.k_cache,
            self.v_cache,
            position,
            None,
            0.0,
            True,
            self.head_dim**-0.5,
        )
        return self.o_proj(y.view(-1, self.heads * self.head_dim))


class MLP(nn.Module):
    """The gated feed-forward block, SiLU written out so that it stays in the delegate."""

    def __init__(self, spec: DecoderSpec) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(spec.hidden_size, spec.intermediate_size, bias=spec.mlp_bias)
        self.up_proj = nn.Linear(spec.hidden_size, spec.intermediate_size, bias=spec.mlp_bias)
        self.down_proj = nn.Linear(spec.intermediate_size, spec.hidden_size, bias=spec.mlp_bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = self.gate_proj(x)
        return self.down_proj(gate * torch.sigmoid(gate) * self.up_proj(x))


class Layer(nn.Module):
    """Pre-norm attention and feed-forward, each added to its input."""

    def __init__(self, spec: DecoderSpec, context: int) -> None:
        super().__init__()
        self.self_attn = Attention(spec, context)
        self.mlp = MLP(spec)
        self.input_layernorm = RMSNorm(spec.hidden_size, spec.norm_eps)
        self.post_attention_layernorm = RMSNorm(spec.hidden_size, spec.norm_eps)

    def forward(self, x: torch.Tensor, position: int, angles: Angles) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), position, angles)
        return x + self.mlp(self.post_attention_layernorm(x))


class Angles:
    """Cosines and sines of this forward's positions, each (tokens, 1, head_dim), and how to rotate by them."""

    def __init__(self, cos: torch.Tensor, sin: torch.Tensor, half_turn: torch.Tensor) -> None:
        self.cos, self.sin, self.half_turn = cos, sin, half_turn

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        """Rotate (tokens, heads, head_dim) in Hugging Face's half-split order."""
        return x * self.cos + functional.linear(x, self.half_turn) * self.sin


class Rotary(nn.Module):
    """Computes the angles in the graph: exact to 5e-7 up to position 131072, and no table to carry or to limit."""

    def __init__(self, spec: DecoderSpec) -> None:
        super().__init__()
        frequencies = inverse_frequencies(spec.rope, spec.head_dim)
        self.register_buffer("inv_freq", torch.cat([frequencies, frequencies]))
        self.register_buffer("half_turn", half_turn(spec.head_dim))

    def forward(self, position: int, tokens: int) -> Angles:
        positions = (torch.arange(tokens) + position).to(torch.float32)
        angles = positions.view(-1, 1, 1) * self.inv_freq
        return Angles(torch.cos(angles), torch.sin(angles), self.half_turn)


class Model(nn.Module):
    """Embedding, layers and the final norm: `model.` in the checkpoint."""

    def __init__(self, spec: DecoderSpec, context: int) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(spec.vocab_size, spec.hidden_size)
        self.layers = nn.ModuleList(Layer(spec, context) for _ in range(spec.layers))
        self.norm = RMSNorm(spec.hidden_size, spec.norm_eps)
        self.rotary = Rotary(spec)

    def forward(self, tokens: torch.Tensor, position: int) -> torch.Tensor:
        # The view's width is a literal, taken from the shape: the token axis is the only dynamic one.
        x = self.embed_tokens(tokens)
        x = x.view(-1, x.shape[-1])
        angles = self.rotary(position, tokens.shape[1])
        for layer in self.layers:
            x = layer(x, position, angles)
        return self.norm(x[-1:])


class Decoder(nn.Module):
    """tokens (1, S) int64 and input_pos (1,) int64 -> logits (1, vocabulary) of the last token."""

    def __init__(self, spec: DecoderSpec, context: int) -> None:
        super().__init__()
        self.context = context
        self.model = Model(spec, context)
        self.lm_head = nn.Linear(spec.hidden_size, spec.vocab_size, bias=False)
        if spec.tied:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, tokens: torch.Tensor, input_pos: torch.Tensor) -> torch.Tensor:
        position = input_pos[0].item()
        torch._check(position >= 0)  # noqa: SLF001  torch documents torch._check for exactly this
        torch._check(position < self.context)  # noqa: SLF001
        return self.lm_head(self.model(tokens, position))


def inverse_frequencies(rope: Rope, head_dim: int) -> torch.Tensor:
    """(head_dim/2,) fp32. Formulas: RoFormer; `linear` divides; `llama3` as in transformers' modeling_rope_utils."""
    base = 1.0 / (rope.theta ** (torch.arange(0, head_dim, 2, dtype=torch.int64).to(torch.float32) / head_dim))
    if rope.kind == "linear":
        return base / rope.parameters["factor"]
    return _llama3(base, rope.parameters) if rope.kind == "llama3" else base


def _llama3(inv_freq: torch.Tensor, parameters: Mapping[str, float]) -> torch.Tensor:
    factor, low, high = (parameters[name] for name in ("factor", "low_freq_factor", "high_freq_factor"))
    original = parameters["original_max_position_embeddings"]
    wavelength = 2 * torch.pi / inv_freq
    smooth = (original / wavelength - low) / (high - low)
    between = (1 - smooth) * inv_freq / factor + smooth * inv_freq
    scaled = torch.where(wavelength > original / low, inv_freq / factor, between)
    return torch.where(wavelength < original / high, inv_freq, scaled)


def half_turn(width: int) -> torch.Tensor:
    """(width, width) matrix M with `linear(x, M) = cat(-x[width/2:], x[:width/2])`."""
    matrix = torch.zeros(width, width)
    half = width // 2
    index = torch.arange(half)
    matrix[index, index + half] = -1.0
    matrix[index + half, index] = 1.0
    return matrix
