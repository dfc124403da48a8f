from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.fold import fold
from exporter.peft.gate import check
from exporter.peft.names import Part, TensorName, nearest, parse_name
from tests.exporter.adapters import LAYERS, PREFIX, card_of, llama, messages, q_tensors, write

_PROJECTIONS = [f"{layer}.{name}" for layer in LAYERS for name in ("q_proj", "qkv_proj")]
MODULES = frozenset({*_PROJECTIONS, "module.inner", "lm_head"})
Q0 = f"{LAYERS[0]}.q_proj"


@pytest.mark.parametrize(
    "spell",
    [
        lambda name: name.removeprefix(PREFIX),
        lambda name: name.replace(".weight", ".default.weight"),
        lambda name: name.removeprefix(PREFIX).replace(".weight", ".pirate.weight"),
        lambda name: f"module.{name}",
        lambda name: f"_orig_mod.{name}",
        lambda name: f"module._orig_mod.{name}",
        lambda name: name.replace(PREFIX, f"{PREFIX}_orig_mod."),
        lambda name: name.replace("self_attn.", "_fsdp_wrapped_module._checkpoint_wrapped_module.self_attn."),
        lambda name: f"_fsdp_wrapped_module.{name}".replace("layers.0.", "layers.0._fsdp_wrapped_module."),
    ],
)
def test_every_spelling_of_a_name_gives_the_same_adapter_bytes(tmp_path: Path, spell) -> None:
    card = card_of(llama())
    plain = fold(check(write(tmp_path / "plain", q_tensors()), card).accept(), card)
    other = fold(check(write(tmp_path / "other", {spell(n): t for n, t in q_tensors().items()}), card).accept(), card)
    assert {name: factor.digest for name, factor in other.tensors.items()} == {
        name: factor.digest for name, factor in plain.tensors.items()
    }
    assert other.structure == plain.structure


@pytest.mark.parametrize(
    ("raw", "module", "part", "adapter"),
    [
        (f"{PREFIX}{Q0}.lora_A.weight", Q0, Part.A, None),
        (f"{PREFIX}{Q0}.lora_B.default.weight", Q0, Part.B, "default"),
        (f"{PREFIX}{Q0}.lora_B.bias", Q0, Part.B_BIAS, None),
        (f"{PREFIX}{Q0}.lora_B.default.bias", Q0, Part.B_BIAS, "default"),
        (f"{PREFIX}{Q0}.lora_magnitude_vector.default.weight", Q0, Part.MAGNITUDE, "default"),
        (f"{PREFIX}{Q0}.lora_embedding_A", Q0, Part.EMBEDDING_A, None),
        (f"{PREFIX}{Q0}.lora_embedding_B.default", Q0, Part.EMBEDDING_B, "default"),
        (f"{PREFIX}lm_head.base_layer.weight", "lm_head", Part.BASE_WEIGHT, None),
        (f"{PREFIX}lm_head.token_adapter.base_layer.weight", "lm_head", Part.BASE_WEIGHT, None),
        (f"{PREFIX}{Q0}.base_layer.bias", Q0, Part.BASE_BIAS, None),
        (f"{PREFIX}lm_head.modules_to_save.default.weight", "lm_head", Part.WEIGHT, "default"),
        (f"{PREFIX}lm_head.original_module.weight", "lm_head", Part.ORIGINAL_WEIGHT, None),
        (f"{PREFIX}{Q0}.token_adapter.trainable_tokens_delta", Q0, Part.ROWS, None),
        (f"{PREFIX}{Q0}.bias", Q0, Part.BIAS, None),
        (f"{PREFIX}{LAYERS[0]}.modules_to_save.default.q_proj.weight", Q0, Part.WEIGHT, "default"),
        (f"{PREFIX}{LAYERS[0]}.modules_to_save.default.q_proj.bias", Q0, Part.SAVED_BIAS, "default"),
        (f"{PREFIX}{LAYERS[0]}.modules_to_save.q_proj.bias", Q0, Part.SAVED_BIAS, None),
        (f"{PREFIX}model.layers.modules_to_save.x.0.self_attn.q_proj.weight", Q0, Part.WEIGHT, "x"),
        (f"{PREFIX}{LAYERS[0]}.original_module.q_proj.weight", Q0, Part.ORIGINAL_WEIGHT, None),
        (f"{PREFIX}{LAYERS[0]}.original_module.q_proj.bias", Q0, Part.ORIGINAL_BIAS, None),
        ("module.inner.weight", "module.inner", Part.WEIGHT, None),
        ("module.module.inner.weight", "module.inner", Part.WEIGHT, None),
        (f"{PREFIX}foo.lora_A.weight", "foo", Part.A, None),
    ],
)
def test_a_name_is_module_part_and_adapter(raw: str, module: str, part: Part, adapter: str | None) -> None:
    assert parse_name(raw, MODULES) == TensorName(raw, module, part, adapter)


@pytest.mark.parametrize("raw", ["", "weight", f"{Q0}.lora_A", f"{Q0}.lora_C", f"{Q0}.lora_A.a"])
def test_what_is_no_part_of_an_adapter_has_no_name(raw: str) -> None:
    assert parse_name(raw, MODULES) is None


@given(st.text(st.sampled_from("module.lora_AB weight_orig_mod.base\n")))
def test_any_text_is_a_name_or_none(raw: str) -> None:
    name = parse_name(raw, MODULES)
    assert name is None or (name.raw == raw and name.module)


def test_the_nearest_name_shares_the_longest_ending() -> None:
    assert nearest("model.language_model.layers.1.self_attn.q_proj", MODULES) == f"{LAYERS[1]}.q_proj"
    assert nearest("transformer.qkv_proj", {"a.k_proj", "b.qkv_proj"}) == "b.qkv_proj"
    assert nearest("lmhead", {"lm_head", "x"}) == "lm_head"
    assert nearest("x", set()) is None


def test_a_name_that_peft_would_not_load_is_not_guessed(tmp_path: Path) -> None:
    bare = {name.replace("model.layers", "layers", 1): tensor for name, tensor in q_tensors().items()}
    (message,) = messages(check(write(tmp_path, bare), card_of(llama())))
    assert message.startswith("0 of 4 tensors match the base; the first is base_model.model.layers.0.self_attn.q_proj")


def test_a_full_training_state_dict_is_read_as_the_adapter_in_it(tmp_path: Path) -> None:
    model = llama()
    head = model.lm_head.weight.detach().numpy()
    tensors = {name.replace(".weight", ".default.weight"): tensor for name, tensor in q_tensors().items()}
    tensors |= {
        f"{PREFIX}lm_head.original_module.weight": head,
        f"{PREFIX}lm_head.modules_to_save.default.weight": head + np.float32(0.5),
    }
    card = card_of(model)
    checked = check(write(tmp_path, tensors, modules_to_save=["lm_head"]), card)
    assert messages(checked) == []
    assert np.array_equal(checked.accept().modules["lm_head"].weight.load(), head + np.float32(0.5))


def test_a_training_state_dict_may_hold_a_whole_block_twice(tmp_path: Path) -> None:
    model = llama(mlp_bias=True)
    tensors = {name.replace(".weight", ".default.weight"): tensor for name, tensor in q_tensors().items()}
    for name, parameter in model.named_parameters():
        if ".mlp." in name:
            old = parameter.detach().numpy()
            for kind, value in (("original_module", old), ("modules_to_save.default", old + np.float32(1))):
                tensors[f"{PREFIX}{name.replace('.mlp.', f'.mlp.{kind}.')}"] = value
    checked = check(write(tmp_path, tensors, modules_to_save=["mlp"]), card_of(model))
    assert messages(checked) == []
    module = checked.accept().modules["model.layers.1.mlp.up_proj"]
    assert np.array_equal(module.bias.load(), model.model.layers[1].mlp.up_proj.bias.detach().numpy() + np.float32(1))
    assert module.weight.shape == (48, 32)
