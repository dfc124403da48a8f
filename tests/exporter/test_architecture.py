"""A config is read as transformers reads it, or refused by the field that ptdock does not compute."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.architecture import check_tensors, decoder_spec
from exporter.base import read_base
from exporter.decoder_export import DecoderModel
from registry.errors import InputError
from tests.exporter.test_families import FAMILIES, LLAMA3, TOKENS, save

Saved = Callable[[str], Path]
LINEAR = {"type": "linear", "factor": 2.0}
SLIDING = {"use_sliding_window": True, "sliding_window": 3}
ABSENT = object()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """The checkpoint of a family, made once."""
    root = tmp_path_factory.mktemp("families")

    def of(family: str) -> Path:
        if not (root / family).is_dir():
            save(root / family, family)
        return root / family

    return of


def changed(checkpoint: Path, directory: Path, fields: dict[str, Any]) -> Path:
    """The same weights under another config; ABSENT takes a field away."""
    shutil.copytree(checkpoint, directory)
    config = {**json.loads((directory / "config.json").read_text()), **fields}
    kept = {name: value for name, value in config.items() if value is not ABSENT}
    (directory / "config.json").write_text(json.dumps(kept))
    return directory


def ours(directory: Path) -> torch.Tensor:
    """The last token's logits of our decoder, not exported."""
    with read_base(directory) as checkpoint, torch.no_grad():
        model = DecoderModel(checkpoint, 32)
        check_tensors(model.spec, checkpoint.tensors)
        logits = model.build(lambda _: None)(torch.tensor([TOKENS]), torch.tensor([0]))
        return logits.reshape(-1, logits.shape[-1])[-1]


def theirs(directory: Path) -> torch.Tensor:
    """The last token's logits of transformers."""
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager").eval()
    with torch.no_grad():
        return model(torch.tensor([TOKENS])).logits[0, -1]


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        ("llama", {"rope_scaling": LINEAR}),
        ("llama", {"rope_scaling": LINEAR, "rope_theta": 500.0}),
        ("llama", {"rope_parameters": {name: LLAMA3[name] for name in LLAMA3 if name[0] != "o"}}),
        ("llama", {"rope_parameters": LLAMA3, "original_max_position_embeddings": 24}),
        ("llama", {"rope_parameters": ABSENT, "rope_theta": 500.0}),
        ("llama", {"rope_parameters": {"rope_theta": 700.0}, "rope_theta": 500.0}),
        ("llama", {"partial_rotary_factor": 0.5}),
        ("llama", {"query_pre_attn_scalar": 2}),
        ("llama", {"attn_logit_softcapping": 1.0, "final_logit_softcapping": 1.0}),
        ("llama", {"rms_norm_eps": ABSENT}),
        ("llama-with-biases", {"model_type": "llama", "use_bidirectional_attention": True}),
        ("mistral-sliding", {"sliding_window": ABSENT}),
        ("mistral", {"attention_bias": True, "mlp_bias": True}),
        ("qwen2.5", {"use_sliding_window": False, "sliding_window": 3, "layer_types": ABSENT}),
        ("qwen2.5", {**SLIDING, "max_window_layers": ABSENT, "layer_types": None}),
        ("qwen2.5", {"attention_bias": False}),
        ("qwen3", {**SLIDING, "layer_types": ["full_attention", "sliding_attention"]}),
        ("phi3", {"rms_norm_eps": ABSENT}),
        ("phi3", {"rope_parameters": ABSENT, "partial_rotary_factor": 0.5, "rope_theta": 500.0}),
        ("phi4-mini-longrope", {"original_max_position_embeddings": 16}),
        ("phi4-mini-longrope", {"max_position_embeddings": 40}),
        ("gemma", {"hidden_act": "gelu"}),
        ("gemma", {"query_pre_attn_scalar": 2, "final_logit_softcapping": 1.0}),
        ("gemma2", {"attn_logit_softcapping": ABSENT, "final_logit_softcapping": ABSENT}),
        ("gemma2", {"query_pre_attn_scalar": ABSENT}),
        ("gemma2", {"attn_logit_softcapping": None, "sliding_window": ABSENT}),
        ("gemma2", {"layer_types": ["full_attention", "full_attention"]}),
        ("gemma3", {"rope_scaling": LINEAR, "query_pre_attn_scalar": ABSENT}),
        ("gemma3", {"rope_parameters": ABSENT, "rope_theta": 500.0, "rope_local_base_freq": 300.0}),
        ("gemma3", {"final_logit_softcapping": 2.0, "attn_logit_softcapping": 2.0}),
    ],
)  # fmt: skip
def test_a_config_computes_what_transformers_computes(
    saved: Saved, tmp_path: Path, family: str, fields: dict[str, Any]
) -> None:
    directory = changed(saved(family), tmp_path / "changed", fields)
    expected = theirs(directory)
    assert expected.std() > 0.05
    assert (ours(directory) - expected).abs().max() < 1e-5


@pytest.mark.parametrize(
    ("family", "fields", "named"),
    [
        ("llama", {"model_type": "mixtral"}, "'model_type' = 'mixtral'"),
        ("llama", {"architectures": ["LlamaForCausalLM"], "model_type": "qwen2"}, "'model_type' = 'qwen2'"),
        ("llama-wide-heads", {"tie_word_embeddings": True}, "'tie_word_embeddings' is true, but lm_head.weight is not"),
        ("llama", {"sliding_window": 3}, "'sliding_window' = 3"),
        ("llama", {"layer_types": ["sliding_attention", "full_attention"]}, "'layer_types' = "),
        ("mistral-sliding", {"layer_types": ["full_attention", "full_attention"]}, "'layer_types' = "),
        ("llama-linear-rope", {"partial_rotary_factor": 0.5}, "'partial_rotary_factor' = 0.5"),
        ("llama", {"rope_scaling": {"type": "yarn", "factor": 2.0}}, "'rope_parameters' = 'yarn'"),
        ("llama", {"rope_scaling": {"type": "linear"}}, "rope type 'linear' needs 'factor'"),
        ("llama", {"rope_scaling": {"type": "linear", "factor": "2"}}, "'factor' = '2'"),
        ("llama", {"rope_scaling": ["linear"]}, "'rope_scaling' = ['linear']"),
        ("phi3", {"rope_scaling": LINEAR}, "'rope_parameters' = 'linear'"),
        ("phi4-mini-longrope", {"rope_parameters": {"rope_type": "longrope"}}, "needs 'short_factor'"),
        ("gemma2", {"use_bidirectional_attention": True}, "'use_bidirectional_attention' = True"),
        ("llama", {"hidden_size": 10**9}, "model.embed_tokens.weight: config.json expects (64, 1000000000)"),
        ("llama", {"intermediate_size": 10**9}, "mlp.down_proj.weight: config.json expects (32, 1000000000)"),
        ("llama", {"head_dim": 10**9}, "self_attn.o_proj.weight: config.json expects (32, 4000000000)"),
        ("llama", {"num_hidden_layers": 10**6}, "'num_hidden_layers' = 1000000, but the checkpoint has 2 layers"),
        ("llama", {"num_hidden_layers": 1}, "'num_hidden_layers' = 1, but the checkpoint has 2 layers"),
    ],
)  # fmt: skip
def test_what_would_compute_something_else_is_refused_by_its_field(
    saved: Saved, tmp_path: Path, family: str, fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(InputError) as caught:
        ours(changed(saved(family), tmp_path / "changed", fields))
    assert named in caught.value.message


FIELDS = sorted(
    {name for _, changes in FAMILIES.values() for name in changes}
    | {"architectures", "hidden_size", "num_attention_heads", "num_key_value_heads", "num_hidden_layers", "head_dim"}
    | {"rope_scaling", "rope_theta", "layer_types", "hidden_act", "sliding_window", "original_max_position_embeddings"}
)
WORDS = st.sampled_from(
    ["linear", "llama3", "longrope", "type", "factor", "rope_type", "full_attention", "LlamaForCausalLM"]
)
SCALARS = st.none() | st.booleans() | st.integers(-2, 1 << 70) | st.floats() | WORDS | st.just("Phi3ForCausalLM")
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4))


@settings(max_examples=300)
@given(
    st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4), st.sampled_from(["Llama", "Phi3", "Gemma3", "Qwen2"])
)
def test_any_config_is_a_decoder_or_an_error_that_names_a_field(changes: dict[str, Any], name: str) -> None:
    plain = {"architectures": [f"{name}ForCausalLM"], "hidden_size": 32, "num_attention_heads": 4, "vocab_size": 64}
    sizes = {"num_hidden_layers": 2, "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 64}
    try:
        spec = decoder_spec({**plain, **sizes, **changes})
    except InputError as refused:
        message = refused.message
    else:
        message = f"config.json: {spec.family}"
    assert message.startswith("config.json: ")
