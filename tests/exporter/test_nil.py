"""An adapter whose whole effect is nil is told as such, whatever it brings; one that has any effect is not."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn

from exporter.checking import check_whole
from exporter.peft.effects import NO_EFFECT
from exporter.peft.gate import check
from tests.exporter.adapters import LAYERS, ModelRows, card_of, gpt2, llama, messages, q_tensors, saved, write

Make = Callable[[], nn.Module]
UNTRAINED: dict[str, tuple[Make, dict[str, Any]]] = {
    "lora": (llama, {}),
    "dora": (llama, {"use_dora": True, "target_modules": "all-linear"}),
    "biases": (lambda: llama(attention_bias=True), {"bias": "all"}),
    "head": (llama, {"modules_to_save": ["lm_head", "norm"]}),
    "rows": (llama, {"trainable_token_indices": [60, 3]}),
    "embedding": (llama, {"target_modules": ["embed_tokens"]}),
    "tied": (lambda: llama(tie_word_embeddings=True), {"modules_to_save": ["embed_tokens"]}),
    "conv1d": (gpt2, {"target_modules": ["c_attn"], "use_dora": True, "modules_to_save": ["ln_f"]}),
}


def untrained(make: Make, options: dict[str, Any]) -> PeftModel:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return get_peft_model(make(), LoraConfig(**{"r": 4, "target_modules": ["q_proj"], **options}))


def warned(directory: Path, make: Make) -> bool:
    model = make()
    card = card_of(model)
    whole = check_whole(check(directory, card), card, ModelRows(model))
    assert messages(whole.checked) == []
    return messages(whole.checked, "warning").count(NO_EFFECT) == 1


@pytest.mark.parametrize("kind", UNTRAINED)
def test_what_peft_saves_before_training_has_no_effect(tmp_path: Path, kind: str) -> None:
    make, options = UNTRAINED[kind]
    assert warned(saved(untrained(make, options), tmp_path), make)


@pytest.mark.parametrize("kind", UNTRAINED)
def test_one_changed_value_of_any_of_its_tensors_is_an_effect(tmp_path: Path, kind: str) -> None:
    make, options = UNTRAINED[kind]
    names = [name for name, each in untrained(make, options).named_parameters() if each.requires_grad]
    idle = ("lora_A", "lora_embedding_B", "original_module")  # nothing is added while their partners are zero
    for number, name in enumerate(name for name in names if not any(word in name for word in idle)):
        model = untrained(make, options)
        with torch.no_grad():
            model.get_parameter(name).view(-1)[0] += 0.25
        assert not warned(saved(model, tmp_path / str(number)), make), name


def test_modules_that_the_program_never_uses_have_no_effect(tmp_path: Path) -> None:
    card = replace(card_of(llama()), dead=tuple(f"{layer}.q_proj" for layer in LAYERS))
    whole = check_whole(check(write(tmp_path, q_tensors()), card), card)
    assert NO_EFFECT in messages(whole.checked, "warning")


def test_rows_that_cannot_be_compared_may_have_an_effect(tmp_path: Path) -> None:
    directory = saved(untrained(llama, UNTRAINED["rows"][1]), tmp_path)
    card = card_of(llama())
    assert NO_EFFECT not in messages(check_whole(check(directory, card), card).checked, "warning")
