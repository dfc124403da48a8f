from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from exporter.base import read_base
from exporter.export import Job, export_base
from exporter.recipe import Recipe
from tests.runtime import prefill_and_decode, reference

TOKENS = [1, 9, 33, 7, 60, 12, 5, 41, 22, 17, 3, 50, 28, 44]
SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "attn_implementation": "eager",
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
LONG = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "partial_rotary_factor": 0.75,
    "short_factor": [1.0, 1.1, 1.2],
    "long_factor": [1.5, 2.0, 4.0],
    "original_max_position_embeddings": 12,
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"tie_word_embeddings": True}),
    "llama-with-biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama3-scaled-rope": ("Llama", {"rope_parameters": LLAMA3}),
    "llama-linear-rope": ("Llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}),
    "llama-wide-heads": ("Llama", {"head_dim": 16}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "mistral-sliding": ("Mistral", {"sliding_window": 5}),
    "qwen2.5": ("Qwen2", {}),
    "qwen2-sliding": ("Qwen2", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}),
    "qwen3": ("Qwen3", {"head_dim": 8}),
    "phi3": ("Phi3", {"sliding_window": None}),
    "phi3-sliding": ("Phi3", {"sliding_window": 6}),
    "phi4-mini-longrope": ("Phi3", {"rope_parameters": LONG, "tie_word_embeddings": True}),
    "gemma": ("Gemma", {"head_dim": 8}),
    "gemma2": ("Gemma2", {"head_dim": 8, "sliding_window": 6, "query_pre_attn_scalar": 16}),
    "gemma3": ("Gemma3", {"head_dim": 8, "sliding_window": 6, "query_pre_attn_scalar": 16}),
}


def save(directory: Path, family: str) -> torch.nn.Module:
    name, changes = FAMILIES[family]
    torch.manual_seed(0)
    config_class = getattr(transformers, f"{name}TextConfig" if name == "Gemma3" else f"{name}Config")
    model = getattr(transformers, f"{name}ForCausalLM")(config_class(**{**SIZES, **changes})).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key.endswith(("norm.weight", "bias")):
                parameter.add_(torch.randn_like(parameter) * 0.2)
            else:
                parameter.mul_(4)  # the default initialisation is so small that attention would hardly matter
    model.save_pretrained(directory)
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_answers_like_transformers(family: str, tmp_path: Path) -> None:
    model = save(tmp_path, family)
    out = tmp_path / "out"
    out.mkdir()
    with read_base(tmp_path) as checkpoint:
        made = export_base(Job(checkpoint, Recipe(), 64, lambda _: None), out)
    actual, expected = prefill_and_decode(made.program, made.foundation, TOKENS), reference(model, TOKENS)
    assert expected.std() > 0.05
    assert (actual - expected).abs().max() < 1e-5
