"""Rotary embeddings out of a transformers config, as its own classes read one. Pure.

Source: `RotaryEmbeddingConfigMixin` in transformers 5's modeling_rope_utils.py, and what Phi3Config and
Gemma3TextConfig do otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exporter.config import Config

ROPE_KINDS = ("default", "linear", "llama3")
PHI3_ROPE_KINDS = ("default", "longrope")
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "longrope": (),
}


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary embedding as in transformers' `rope_parameters`.

    `kind` is one of ROPE_KINDS or PHI3_ROPE_KINDS, `width` the number of rotated dimensions of each head, `scale` the
    factor of cosines and sines (longrope's attention factor, else 1), `parameters` the values that the kind needs.
    """

    kind: str
    theta: float
    width: int
    scale: float
    parameters: Mapping[str, Any]


def read_ropes(config: Config, family: str, head_dim: int) -> tuple[Rope, ...]:
    """Of transformers 5, which writes `rope_parameters`; where there is the older `rope_scaling` too, that counts."""
    scaling, parameters = config.table("rope_scaling"), config.table("rope_parameters")
    theta = config.number("rope_theta", 1_000_000.0 if family == "gemma3_text" else 10000.0)
    if family != "gemma3_text":
        return (_rope(config, family, scaling or parameters, theta, head_dim),)
    full = {**Config(parameters).table("full_attention"), **scaling}
    sliding = Config(parameters).table("sliding_attention")
    return (
        _rope(config, family, full, theta, head_dim),
        _rope(config, family, sliding, config.number("rope_local_base_freq", 10000.0), head_dim),
    )


def _rope(config: Config, family: str, said: Mapping[str, Any], theta: float, head_dim: int) -> Rope:
    parameters = Config(said)
    kind = said.get("rope_type", said.get("type", "default"))
    kinds = PHI3_ROPE_KINDS if family == "phi3" else ROPE_KINDS
    kind = "longrope" if family == "phi3" and kind in ("su", "yarn") else kind  # the names in Phi-3's first configs
    if kind not in kinds:
        raise config.refused("rope_parameters", kinds, kind)
    partial = parameters.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0))
    if family != "phi3" and partial != 1:
        if kind != "default":  # which alone does not read it
            raise config.refused("partial_rotary_factor", [1.0], partial)
        partial = 1.0
    width = int(head_dim * partial)
    if width % 2 or not 0 < width <= head_dim:
        raise config.refused("partial_rotary_factor", ["an even number of dimensions of each head"], partial)
    values: dict[str, Any] = {name: parameters.needed_number(name, kind) for name in _NEEDED[kind]}
    if kind == "longrope":
        values |= {name: parameters.numbers(name, width // 2, kind) for name in ("short_factor", "long_factor")}
    if kind in {"longrope", "llama3"}:
        positions = config.count("max_position_embeddings")
        said_here = parameters.count("original_max_position_embeddings", positions)
        values["original_max_position_embeddings"] = config.count("original_max_position_embeddings", said_here)
    return Rope(
        kind=kind,
        theta=parameters.number("rope_theta", theta),
        width=width,
        scale=_longrope_scale(config, parameters, values) if kind == "longrope" else 1.0,
        parameters=values,
    )


def _longrope_scale(config: Config, parameters: Config, values: Mapping[str, Any]) -> float:
    """The attention factor of LongRoPE, as in transformers' modeling_rope_utils."""
    said = parameters.optional_number("attention_factor")
    if said is not None:
        return said
    original = values["original_max_position_embeddings"]
    factor = parameters.number("factor", config.count("max_position_embeddings") / original)
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
