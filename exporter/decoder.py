"""A decoder made for XNNPACK, with Hugging Face's module names. Imports torch.

Its shape is what makes each layer one delegate (measured: a third of upstream's export time, a tenth of its
delegates): activations stay 2-D (tokens, width); the position is read once per forward; RMSNorm's mean is a
linear with a constant row of 1/width; rotate_half is a linear with a permutation of +-1; only the KV cache
update and the attention itself stay outside. Weights keep Hugging Face's layout, so q and k need no permutation.
What a family adds (sliding windows, softcaps, a second rope) is computed in the graph, never from a table, so
neither the context length nor the positions reach the foundation.

In fp16, as in transformers, weights, activations and the KV cache are fp16; norms and angles are computed in fp32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import executorch.extension.llm.custom_ops.custom_ops  # noqa: F401  registers torch.ops.llama
import torch
from torch import nn
from torch.nn import functional

from exporter.architecture import DecoderSpec
from exporter.rope import Rope


class RMSNorm(nn.Module):
    """Root mean square norm over the last dimension, (tokens, width) or (tokens, heads, width)."""

    def __init__(self, width: int, spec: DecoderSpec) -> None:
        super().__init__()
        self.eps, self.plus_one = spec.norm_eps, spec.norm_plus_one
        self.weight = nn.Parameter(torch.empty(width))
        self.register_buffer("mean_row", torch.full((1, width), 1.0 / width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = cast(x, torch.float32)  # a square soon passes fp16's range
        mean_square = functional.linear(wide * wide, self.mean_row)
        normed = cast(wide * torch.rsqrt(mean_square + self.eps), x.dtype)
        return normed * self.weight + normed if self.plus_one else normed * self.weight


def cast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`x` in `dtype`; no operator stands in the graph where it is already."""
    return x if x.dtype == dtype else x.to(dtype)


class Angles:
    """Cosines and sines of this forward's positions, each (tokens, 1, head_dim), and how to rotate by them."""

    def __init__(self, cos: torch.Tensor, sin: torch.Tensor, half_turn: torch.Tensor) -> None:
        self.cos, self.sin, self.half_turn = cos, sin, half_turn

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        """Rotate (tokens, heads, head_dim) in Hugging Face's half-split order."""
        return x * self.cos + functional.linear(x, self.half_turn) * self.sin


class Rotary(nn.Module):
    """Computes the angles in the graph: exact to 5e-7 up to position 131072, and no table to carry or to limit.

    Dimensions behind `rope.width` have frequency 0: they turn by nothing.
    """

    def __init__(self, rope: Rope, head_dim: int) -> None:
        super().__init__()
        self.scale, self.threshold = rope.scale, rope.parameters.get("original_max_position_embeddings")
        self.register_buffer("inv_freq", _both_halves(inverse_frequencies(rope), head_dim))
        self.register_buffer("half_turn", half_turn(rope.width, head_dim))
        self.two_ranges = rope.kind == "longrope"
        if self.two_ranges:
            self.register_buffer("long_inv_freq", _both_halves(inverse_frequencies(rope, long=True), head_dim))
        if self.scale != 1.0:
            scales = torch.ones(head_dim)
            scales[: rope.width] = self.scale
            self.register_buffer("scales", scales)

    def forward(self, positions: torch.Tensor, dtype: torch.dtype) -> Angles:
        inv_freq = self.inv_freq
        if self.two_ranges:  # the whole forward takes the long factors as soon as its last position is beyond
            inv_freq = torch.where(positions[-1:] >= self.threshold, self.long_inv_freq, inv_freq)
        angles = positions.view(-1, 1, 1) * inv_freq
        cos, sin = torch.cos(angles), torch.sin(angles)
        if self.scale != 1.0:
            cos, sin = cos * self.scales, sin * self.scales
        return Angles(cast(cos, dtype), cast(sin, dtype), self.half_turn)


class Attention(nn.Module):
    """Grouped-query attention over a KV cache of `context` positions."""

    def __init__(self, spec: DecoderSpec, context: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = spec.heads, spec.kv_heads, spec.head_dim
        self.scale, self.softcap, self.fused = spec.attention_scale, spec.attention_softcap, spec.fused
        query, key_value = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
        if spec.fused:
            self.qkv_proj = nn.Linear(spec.hidden_size, query + 2 * key_value, bias=spec.qkv_bias)
        else:
            self.q_proj = nn.Linear(spec.hidden_size, query, bias=spec.qkv_bias)
            self.k_proj = nn.Linear(spec.hidden_size, key_value, bias=spec.qkv_bias)
            self.v_proj = nn.Linear(spec.hidden_size, key_value, bias=spec.qkv_bias)
        self.o_proj = nn.Linear(query, spec.hidden_size, bias=spec.output_bias)
        self.qk_norm = spec.qk_norm
        if spec.qk_norm:
            self.q_norm = RMSNorm(spec.head_dim, spec)
            self.k_norm = RMSNorm(spec.head_dim, spec)
        cache = torch.zeros(1, context, spec.kv_heads, spec.head_dim)
        self.register_buffer("k_cache", cache, persistent=False)
        self.register_buffer("v_cache", cache.clone(), persistent=False)

    def forward(self, x: torch.Tensor, position: int, angles: Angles, mask: torch.Tensor | None) -> torch.Tensor:
        q, k, v = self._project(x)
        if self.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = angles.rotate(q), angles.rotate(k)
        torch.ops.llama.update_cache(k.view(1, -1, self.kv_heads, self.head_dim), self.k_cache, position)
        torch.ops.llama.update_cache(v.view(1, -1, self.kv_heads, self.head_dim), self.v_cache, position)
        y = self._attend(q, position, mask) if self.softcap is None else self._attend_softly(q, mask)
        return self.o_proj(y.view(-1, self.heads * self.head_dim))

    def _project(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        # -1 stands literally in every view: XNNPACK then takes the reshape in with its one dynamic dimension.
        if self.fused:
            qkv = self.qkv_proj(x).view(-1, self.heads + 2 * self.kv_heads, self.head_dim)
            q, k, v = qkv.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
            return q, k, v
        q = self.q_proj(x).view(-1, self.heads, self.head_dim)
        k = self.k_proj(x).view(-1, self.kv_heads, self.head_dim)
        return q, k, self.v_proj(x).view(-1, self.kv_heads, self.head_dim)

    def _attend(self, q: torch.Tensor, position: int, mask: torch.Tensor | None) -> torch.Tensor:
        query = q.view(1, -1, self.heads, self.head_dim)
        causal = mask is None
        return torch.ops.llama.custom_sdpa(query, self.k_cache, self.v_cache, position, mask, 0.0, causal, self.scale)

    def _attend_softly(self, q: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Attention with bounded scores, which the fused operator does not know; a KV group's heads share a matmul."""
        group, context = self.heads // self.kv_heads, self.k_cache.shape[1]
        query = q.view(-1, self.kv_heads, group, self.head_dim).permute(1, 2, 0, 3)
        query = query.reshape(self.kv_heads, -1, self.head_dim) * self.scale
        scores = torch.matmul(query, self.k_cache[0].permute(1, 2, 0))
        scores = torch.tanh(scores / self.softcap) * self.softcap
        scores = scores.view(self.kv_heads, group, -1, context) + mask
        weights = functional.softmax(scores, dim=-1).view(self.kv_heads, -1, context)
        y = torch.matmul(weights, self.v_cache[0].permute(1, 0, 2))
        return (
            y.view(self.kv_heads, group, -1, self.head_dim).permute(2, 0, 1, 3).reshape(-1, self.heads * self.head_dim)
        )


def activate(x: torch.Tensor, name: str) -> torch.Tensor:
    """SiLU, or GELU's tanh form, written out: XNNPACK's own GELU ignores `approximate="tanh"` (error 4e-4)."""
    if name == "silu":
        return x * torch.sigmoid(x)
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


class MLP(nn.Module):
    """The gated feed-forward block."""

    def __init__(self, spec: DecoderSpec) -> None:
        super().__init__()
        self.fused, self.activation, self.width = spec.fused, spec.activation, spec.intermediate_size
        if spec.fused:
            self.gate_up_proj = nn.Linear(spec.hidden_size, 2 * spec.intermediate_size, bias=spec.mlp_bias)
        else:
            self.gate_proj = nn.Linear(spec.hidden_size, spec.intermediate_size, bias=spec.mlp_bias)
            self.up_proj = nn.Linear(spec.hidden_size, spec.intermediate_size, bias=spec.mlp_bias)
        self.down_proj = nn.Linear(spec.intermediate_size, spec.hidden_size, bias=spec.mlp_bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fused:
            gate, up = self.gate_up_proj(x).split(self.width, dim=1)
        else:
            gate, up = self.gate_proj(x), self.up_proj(x)
        return self.down_proj(activate(gate, self.activation) * up)


class Layer(nn.Module):
    """Pre-norm attention and feed-forward, each added to its input; "sandwich" families norm their answers too."""

    def __init__(self, spec: DecoderSpec, context: int, layer: int) -> None:
        super().__init__()
        self.self_attn = Attention(spec, context)
        self.mlp = MLP(spec)
        self.input_layernorm = RMSNorm(spec.hidden_size, spec)
        self.post_attention_layernorm = RMSNorm(spec.hidden_size, spec)
        self.sandwich = spec.sandwich_norms
        if self.sandwich:
            self.pre_feedforward_layernorm = RMSNorm(spec.hidden_size, spec)
            self.post_feedforward_layernorm = RMSNorm(spec.hidden_size, spec)
        self.rope, self.window = spec.rope_of(layer), window_in(spec.windows[layer], context)

    def forward(
        self, x: torch.Tensor, position: int, turns: list[Angles], masks: Mapping[Any, torch.Tensor]
    ) -> torch.Tensor:
        attended = self.self_attn(self.input_layernorm(x), position, turns[self.rope], masks.get(self.window))
        if not self.sandwich:
            x = x + attended
            return x + self.mlp(self.post_attention_layernorm(x))
        x = x + self.post_attention_layernorm(attended)
        return x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))


def window_in(window: int | None, context: int) -> int | None:
    """A layer's window within this context: None where it never cuts anything off."""
    return window if window is not None and window < context else None


class Model(nn.Module):
    """Embedding, layers and the final norm: `model.` in the checkpoint."""

    def __init__(self, spec: DecoderSpec, context: int) -> None:
        super().__init__()
        self.context, self.embedding_scale = context, spec.embedding_scale
        self.embed_tokens = nn.Embedding(spec.vocab_size, spec.hidden_size)
        self.layers = nn.ModuleList(Layer(spec, context, index) for index in range(spec.layers))
        self.norm = RMSNorm(spec.hidden_size, spec)
        self.rotary = nn.ModuleList(Rotary(rope, spec.head_dim) for rope in spec.ropes)
        windows = {layer.window for layer in self.layers}
        # The fused operator is causal by itself; only a window, or attention written out, needs a mask.
        self.masks = windows if spec.attention_softcap is not None else windows - {None}

    def forward(self, tokens: torch.Tensor, position: int) -> torch.Tensor:
        return self.hidden(tokens, position)[-1:]

    def hidden(self, tokens: torch.Tensor, position: int) -> torch.Tensor:
        """What the last layer answers for each token, (tokens, width), before the final norm."""
        # The view's width is a literal, taken from the shape: the token axis is the only dynamic one.
        x = self.embed_tokens(tokens)
        x = x.view(-1, x.shape[-1])
        if self.embedding_scale is not None:
            x = x * self.embedding_scale
        positions = (torch.arange(tokens.shape[1]) + position).to(torch.float32)
        turns = [rotary(positions, x.dtype) for rotary in self.rotary]
        masks = {window: causal_mask(positions, self.context, window) for window in self.masks}
        for layer in self.layers:
            x = layer(x, position, turns, masks)
        return x


def causal_mask(positions: torch.Tensor, context: int, window: int | None) -> torch.Tensor:
    """(tokens, context) fp32: 0 where a token may look, -inf ahead of it and `window` positions or more behind."""
    distance = positions.view(-1, 1) - torch.arange(context).to(torch.float32).view(1, -1)
    hidden = distance < 0 if window is None else (distance < 0) | (distance >= window)
    return torch.zeros_like(distance).masked_fill(hidden, float("-inf"))


NARROW = frozenset({"k_cache", "v_cache", "half_turn"})
"""The buffers that follow the weights' dtype; the others belong to what is computed in fp32."""


class Decoder(nn.Module):
    """tokens (1, S) int64 and input_pos (1,) int64 -> logits (1, vocabulary) of the last token, in `dtype`."""

    def __init__(self, spec: DecoderSpec, context: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.context, self.softcap = context, spec.logit_softcap
        self.model = Model(spec, context)
        self.lm_head = nn.Linear(spec.hidden_size, spec.vocab_size, bias=False)
        if spec.tied:
            self.lm_head.weight = self.model.embed_tokens.weight
        if dtype != torch.float32:
            self._hold_in(dtype)

    def _hold_in(self, dtype: torch.dtype) -> None:
        for parameter in self.parameters():
            parameter.data = parameter.data.to(dtype)
        for module in self.modules():
            for name, buffer in module.named_buffers(recurse=False):
                if name in NARROW:
                    setattr(module, name, buffer.to(dtype))

    def forward(self, tokens: torch.Tensor, input_pos: torch.Tensor) -> torch.Tensor:
        position = input_pos[0].item()
        torch._check(position >= 0)  # noqa: SLF001  torch documents torch._check for exactly this
        torch._check(position < self.context)  # noqa: SLF001
        return self.logits(self.model(tokens, position))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """(tokens, width) of the last layer -> (tokens, vocabulary)."""
        logits = self.lm_head(self.model.norm(hidden))
        return logits if self.softcap is None else torch.tanh(logits / self.softcap) * self.softcap


def inverse_frequencies(rope: Rope, *, long: bool = False) -> torch.Tensor:
    """(rope.width/2,) fp32; `long` takes longrope's long factors.

    Formulas: RoFormer; `linear`, `llama3` and `longrope` as in transformers' modeling_rope_utils.
    """
    exponent = torch.arange(0, rope.width, 2, dtype=torch.int64).to(torch.float32) / rope.width
    base = rope.theta**exponent
    if rope.kind == "longrope":
        return 1.0 / (torch.tensor(rope.parameters["long_factor" if long else "short_factor"]) * base)
    if rope.kind == "linear":
        return 1.0 / base / rope.parameters["factor"]
    return _llama3(1.0 / base, rope.parameters) if rope.kind == "llama3" else 1.0 / base


def _llama3(inv_freq: torch.Tensor, parameters: Mapping[str, Any]) -> torch.Tensor:
    factor, low, high = (parameters[name] for name in ("factor", "low_freq_factor", "high_freq_factor"))
    original = parameters["original_max_position_embeddings"]
    wavelength = 2 * torch.pi / inv_freq
    smooth = (original / wavelength - low) / (high - low)
    between = (1 - smooth) * inv_freq / factor + smooth * inv_freq
    scaled = torch.where(wavelength > original / low, inv_freq / factor, between)
    return torch.where(wavelength < original / high, inv_freq, scaled)


def _both_halves(frequencies: torch.Tensor, head_dim: int) -> torch.Tensor:
    rest = torch.zeros(head_dim - 2 * len(frequencies))
    return torch.cat([frequencies, frequencies, rest])


def half_turn(width: int, head_dim: int) -> torch.Tensor:
    """(head_dim, head_dim) matrix M with `linear(x, M) = cat(-x[width/2:width], x[:width/2], 0, …)`."""
    matrix = torch.zeros(head_dim, head_dim)
    half = width // 2
    index = torch.arange(half)
    matrix[index, index + half] = -1.0
    matrix[index + half, index] = 1.0
    return matrix
