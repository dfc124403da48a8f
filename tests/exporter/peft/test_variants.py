"""Every variant, made by live PEFT, folds to what PEFT computes: logits in fp64 beside the base's own distance."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from peft.tuners.lora.config import VeloraConfig
from safetensors.torch import load_file, save_file
from torch import nn

from exporter.fold import fold
from exporter.peft.gate import Checked, check
from exporter.structure import ModuleStructure, Structure
from tests.exporter.adapters import (
    LAYERS,
    PREFIX,
    ModelRows,
    array,
    card_of,
    distance,
    gpt2,
    llama,
    merged,
    messages,
    phi3,
    saved,
    trained,
    write,
)

Q_PROJ = [f"{layer}.q_proj" for layer in LAYERS]


def agree(directory: Path, model: nn.Module, options: dict[str, Any]) -> tuple[Checked, Structure]:
    """Train, save, check and fold; the folded adapter must compute what PEFT computes, and not what the base does."""
    base, card = copy.deepcopy(model), card_of(model)
    peft_model = trained(model, **options)
    checked = check(saved(peft_model, directory), card, base_fingerprint=card.base)
    assert messages(checked) == []
    folded = fold(checked.accept(), card, ModelRows(base))
    assert distance(peft_model, merged(base, folded, card)) < 2e-6
    assert distance(peft_model, base) > 2e-4
    return checked, folded.structure


def tiny(**changes: Any) -> Callable[[], nn.Module]:
    return lambda: llama(**changes)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        pytest.param(tiny(), {"target_modules": ["q_proj"]}, id="plain"),
        pytest.param(
            tiny(), {"target_modules": ["q_proj"], "use_rslora": True, "r": 16, "lora_alpha": 16}, id="rslora"
        ),
        pytest.param(tiny(), {"target_modules": ["q_proj", "v_proj"], "layers_to_transform": [0]}, id="one layer"),
        pytest.param(tiny(), {"target_modules": "all-linear"}, id="all-linear"),
        pytest.param(tiny(), {"target_modules": r".*layers\.0\..*q_proj"}, id="regex"),
        pytest.param(
            tiny(), {"target_modules": ["q_proj", "v_proj"], "exclude_modules": r".*layers\.1.*v_proj"}, id="excluded"
        ),
        pytest.param(tiny(), {"target_modules": ["q_proj"], "use_dora": True}, id="dora"),
        pytest.param(tiny(attention_bias=True), {"target_modules": ["q_proj"], "use_dora": True}, id="dora with bias"),
        pytest.param(
            tiny(), {"target_modules": "all-linear", "use_dora": True, "use_rslora": True, "r": 5}, id="dora rslora"
        ),
        pytest.param(
            tiny(attention_bias=True),
            {"target_modules": ["q_proj"], "use_dora": True, "bias": "all"},
            id="dora and replaced biases",
        ),
        pytest.param(
            tiny(attention_bias=True), {"target_modules": ["q_proj"], "bias": "lora_only"}, id="bias lora_only"
        ),
        pytest.param(tiny(attention_bias=True), {"target_modules": ["q_proj"], "bias": "all"}, id="bias all"),
        pytest.param(tiny(attention_bias=True), {"target_modules": ["q_proj"], "lora_bias": True}, id="lora_bias"),
        pytest.param(tiny(), {"target_modules": ["q_proj"], "lora_bias": True, "use_rslora": True}, id="new lora_bias"),
        pytest.param(tiny(), {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}, id="saved head"),
        pytest.param(tiny(), {"target_modules": ["q_proj"], "modules_to_save": ["norm"]}, id="saved norms"),
        pytest.param(tiny(), {"target_modules": ["q_proj"], "modules_to_save": ["mlp"]}, id="saved block"),
        pytest.param(
            tiny(),
            {"target_modules": ["q_proj", "down_proj"], "modules_to_save": ["mlp"]},
            id="target in a saved block",
        ),
        pytest.param(
            tiny(tie_word_embeddings=True),
            {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]},
            id="tied, saved embedding",
        ),
        pytest.param(
            tiny(tie_word_embeddings=True),
            {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"], "ensure_weight_tying": True},
            id="tied and kept so, saved embedding",
        ),
        pytest.param(
            tiny(tie_word_embeddings=True),
            {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"]},
            id="tied, both saved",
        ),
        pytest.param(
            tiny(tie_word_embeddings=True), {"target_modules": ["q_proj", "lm_head"]}, id="tied, LoRA on the head"
        ),
        pytest.param(tiny(), {"target_modules": ["q_proj", "lm_head", "embed_tokens"]}, id="head and embedding"),
        pytest.param(
            tiny(tie_word_embeddings=True),
            {"target_modules": ["embed_tokens"], "use_rslora": True},
            id="tied embedding",
        ),
        pytest.param(
            tiny(tie_word_embeddings=True),
            {"target_modules": ["embed_tokens", "q_proj"], "ensure_weight_tying": True},
            id="tied and kept so, LoRA on the embedding",
        ),
        pytest.param(
            tiny(tie_word_embeddings=True),
            {
                "target_modules": ["lm_head", "q_proj"],
                "ensure_weight_tying": True,
                "rank_pattern": {"embed_tokens": 2},
                "alpha_pattern": {"lm_head": 3},
            },
            id="tied and kept so, a rank for the embedding alone",
        ),
        pytest.param(
            tiny(tie_word_embeddings=True),
            {
                "target_modules": ["embed_tokens", "q_proj"],
                "ensure_weight_tying": True,
                "rank_pattern": {"lm_head": 16},
                "use_rslora": True,
            },
            id="tied and kept so, a rank for the head alone",
        ),
        pytest.param(tiny(), {"target_modules": ["q_proj"], "trainable_token_indices": [60, 1, 33]}, id="token rows"),
        pytest.param(
            tiny(tie_word_embeddings=True),
            {"target_modules": ["q_proj"], "trainable_token_indices": {"embed_tokens": [9, 1]}},
            id="tied token rows",
        ),
        pytest.param(
            tiny(), {"target_modules": ["q_proj"], "trainable_token_indices": {"lm_head": [60, 1, 33]}}, id="head rows"
        ),
        pytest.param(
            tiny(),
            {"target_modules": ["embed_tokens"], "trainable_token_indices": {"lm_head": [60, 1], "k_proj": [3]}},
            id="rows of linears",
        ),
        pytest.param(
            tiny(tie_word_embeddings=True),
            {"target_modules": ["q_proj"], "trainable_token_indices": {"embed_tokens": [9, 1], "lm_head": [1, 9]}},
            id="tied, rows in two orders",
        ),
        pytest.param(
            tiny(tie_word_embeddings=True),
            {"target_modules": ["q_proj", "embed_tokens"], "trainable_token_indices": {"lm_head": [9, 1]}},
            id="tied, head rows beside LoRA on the embedding",
        ),
        pytest.param(
            tiny(tie_word_embeddings=True),
            {
                "target_modules": ["q_proj"],
                "modules_to_save": ["embed_tokens"],
                "trainable_token_indices": {"lm_head": [9, 1]},
            },
            id="tied, head rows beside a saved embedding",
        ),
        pytest.param(gpt2, {"target_modules": ["c_attn"], "fan_in_fan_out": True}, id="gpt2"),
        pytest.param(gpt2, {"target_modules": ["c_attn", "c_proj"], "use_dora": True}, id="gpt2 dora"),
        pytest.param(
            gpt2, {"target_modules": ["wte", "c_fc"], "ensure_weight_tying": True}, id="gpt2, a tie that PEFT overlooks"
        ),
        pytest.param(
            gpt2, {"target_modules": ["c_attn"], "bias": "all", "modules_to_save": ["ln_f"]}, id="gpt2 biases and norm"
        ),
        pytest.param(tiny(), {"target_modules": ["q_proj"], "init_lora_weights": "gaussian"}, id="gaussian"),
        pytest.param(tiny(), {"target_modules": ["q_proj"], "init_lora_weights": "orthogonal"}, id="orthogonal"),
        pytest.param(tiny(), {"target_modules": ["q_proj"], "init_lora_weights": "mica"}, id="mica"),
    ],
)
def test_a_variant_folds_to_what_peft_computes(
    tmp_path: Path, model: Callable[[], nn.Module], options: dict[str, Any]
) -> None:
    agree(tmp_path, model(), options)


def test_scalings_and_structures_are_pefts(tmp_path: Path) -> None:
    checked, structure = agree(
        tmp_path,
        llama(),
        {
            "target_modules": ["q_proj"],
            "rank_pattern": {"layers.0.self_attn.q_proj": 2},
            "alpha_pattern": {"layers.0.self_attn.q_proj": 16},
        },
    )
    assert [module.scaling for module in checked.accept().modules.values()] == [8.0, 2.0]
    assert structure == Structure({Q_PROJ[0]: ModuleStructure(lora=2), Q_PROJ[1]: ModuleStructure(lora=4)})


def test_a_head_that_follows_its_embedding_has_its_factors_and_a_scaling_of_its_own(tmp_path: Path) -> None:
    options = {"target_modules": ["embed_tokens"], "ensure_weight_tying": True, "rank_pattern": {"embed_tokens": 2}}
    checked, structure = agree(tmp_path, llama(tie_word_embeddings=True), options)
    assert structure == Structure(
        {"lm_head": ModuleStructure(lora=2), "model.embed_tokens": ModuleStructure(embedding=2)}
    )
    assert {name: module.scaling for name, module in checked.accept().modules.items()} == {
        "lm_head": 2.0,  # alpha 8 over its own rank, 4
        "model.embed_tokens": 4.0,
    }
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps({**config, "rank_pattern": {"lm_head": 2}}))
    message, _ = messages(check(tmp_path, card_of(llama(tie_word_embeddings=True))))
    tied = "which 'ensure_weight_tying' gives the factors of model.embed_tokens"
    assert message == f"rank 2 in tensors, 4 in config for lm_head, {tied}"


def test_keys_whose_order_decides_a_scaling_are_a_warning_for_peft_sorts_them_when_it_saves(tmp_path: Path) -> None:
    model = llama()
    card = card_of(model)
    trained_with = {"q_proj": 20, "layers.0.self_attn.q_proj": 3}
    directory = saved(trained(model, target_modules=["q_proj"], alpha_pattern=trained_with), tmp_path)
    written = json.loads((directory / "adapter_config.json").read_text())
    assert list(written["alpha_pattern"]) == ["layers.0.self_attn.q_proj", "q_proj"]
    (warning,) = messages(check(directory, card, base_fingerprint=card.base), "warning")
    assert warning == (
        "adapter_config.json: both 'layers.0.self_attn.q_proj' and 'q_proj' of 'alpha_pattern' match "
        "model.layers.0.self_attn.q_proj: the first counts, but PEFT sorts keys when it saves, and training may have "
        "used the other"
    )
    for meant in (trained_with, {"layers.0.self_attn.q_proj": 3, "layers.1.self_attn.q_proj": 20}):
        (directory / "adapter_config.json").write_text(json.dumps({**written, "alpha_pattern": meant}))
        assert messages(check(directory, card, base_fingerprint=card.base), "warning") == []


def test_a_rank_of_a_later_key_is_refused_with_the_order_that_training_had(tmp_path: Path) -> None:
    model = llama()
    base, card = copy.deepcopy(model), card_of(model)
    patterns = {"rank_pattern": {"q_proj": 6, "layers.0.self_attn.q_proj": 3}}
    peft_model = trained(model, target_modules=["q_proj"], **patterns)
    directory = saved(peft_model, tmp_path)
    with pytest.raises(RuntimeError, match="size mismatch"):
        PeftModel.from_pretrained(copy.deepcopy(base), directory)
    (refused,) = (each for each in check(directory, card).findings if each.level == "error")
    assert "PEFT sorts keys when it saves, and cannot load this adapter itself: put 'q_proj' in front" in refused.hint
    written = json.loads((directory / "adapter_config.json").read_text())
    (directory / "adapter_config.json").write_text(json.dumps({**written, **patterns}))  # as the hint says
    folded = fold(check(directory, card).accept(), card)
    assert distance(peft_model, merged(base, folded, card)) < 5e-6


def test_rank_stabilized_scaling_divides_by_the_root(tmp_path: Path) -> None:
    options = {"target_modules": ["q_proj"], "use_rslora": True, "r": 16, "lora_alpha": 16}
    checked, _ = agree(tmp_path, llama(), options)
    assert {module.scaling for module in checked.accept().modules.values()} == {4.0}


def test_all_linear_means_fourteen_modules_and_not_the_head(tmp_path: Path) -> None:
    checked, structure = agree(tmp_path, llama(), {"target_modules": "all-linear"})
    assert len(structure.modules) == 14
    assert "lm_head" not in structure.modules
    assert checked.accept().modules[f"{LAYERS[0]}.k_proj"].lora_b.shape == (16, 4)


def test_the_string_all_linear_is_what_its_list_is(tmp_path: Path) -> None:
    model = llama()
    card = card_of(model)
    directory = saved(trained(model, target_modules="all-linear"), tmp_path)
    config = json.loads((directory / "adapter_config.json").read_text())
    assert len(config["target_modules"]) == 14  # full paths
    (directory / "adapter_config.json").write_text(json.dumps({**config, "target_modules": "all-linear"}))
    assert messages(check(directory, card)) == []


def test_saved_norms_are_the_five_vectors_that_end_in_norm(tmp_path: Path) -> None:
    checked, structure = agree(tmp_path, llama(), {"target_modules": ["q_proj"], "modules_to_save": ["norm"]})
    norms = [name for name, module in structure.modules.items() if module.weight]
    assert len(norms) == 5
    assert messages(checked, "warning") == [
        f"replaced weights of {', '.join(sorted(norms))}: 640 bytes in the adapter's file"
    ]


def test_a_replaced_bias_is_part_of_the_structure(tmp_path: Path) -> None:
    _, structure = agree(tmp_path, llama(attention_bias=True), {"target_modules": ["q_proj"], "bias": "all"})
    assert structure.modules[Q_PROJ[0]] == ModuleStructure(lora=4, bias=True)
    assert structure.modules[f"{LAYERS[1]}.k_proj"] == ModuleStructure(bias=True)
    assert len(structure.modules) == 8


def test_a_tied_head_with_lora_leaves_the_embedding_alone(tmp_path: Path) -> None:
    checked, structure = agree(tmp_path, llama(tie_word_embeddings=True), {"target_modules": ["lm_head"]})
    assert structure == Structure({"lm_head": ModuleStructure(lora=4)})
    assert "base_model.model.lm_head.base_layer.weight is the base's own and is left out" in messages(checked, "note")


def test_token_rows_stand_in_ascending_order(tmp_path: Path) -> None:
    _, structure = agree(tmp_path, llama(), {"target_modules": ["q_proj"], "trainable_token_indices": [60, 1, 33]})
    assert structure.modules["model.embed_tokens"] == ModuleStructure(rows=(1, 33, 60))


@pytest.mark.parametrize("init", ["pissa", "pissa_niter_4", "olora"])
@pytest.mark.parametrize("extra", [{}, {"use_dora": True}, {"use_rslora": True}])
def test_an_adapter_that_changed_the_base_needs_the_initial_one(
    tmp_path: Path, init: str, extra: dict[str, Any]
) -> None:
    model = llama()
    base, card = copy.deepcopy(model), card_of(model)
    options = {"target_modules": ["q_proj", "v_proj"], "init_lora_weights": init, **extra}
    peft_model = trained(model, initial=tmp_path / "initial", **options)
    saved(peft_model, tmp_path / "trained")

    alone = check(tmp_path / "trained", card)
    assert messages(alone) == [f"adapter_config.json: 'init_lora_weights' is {init!r}: it took a part out of the base"]
    assert "path_initial_model_for_weight_conversion" in alone.findings[0].hint

    adapter = check(tmp_path / "trained", card, initial=tmp_path / "initial").accept()
    folded = fold(adapter, card, ModelRows(base))
    assert folded.structure.modules[Q_PROJ[0]].lora == 8
    assert distance(peft_model, merged(base, folded, card)) < 5e-6
    assert distance(peft_model, base) > 2e-4
    assert "initial/adapter_model.safetensors" in adapter.source
    assert adapter.path("initial/adapter_model.safetensors").is_file()


def test_pefts_own_conversion_is_plain_lora(tmp_path: Path) -> None:
    model = llama()
    base, card = copy.deepcopy(model), card_of(model)
    peft_model = trained(model, initial=tmp_path / "initial", target_modules=["q_proj"], init_lora_weights="pissa")
    _mark_initial(tmp_path / "initial")
    saved(peft_model, tmp_path / "plain", path_initial_model_for_weight_conversion=str(tmp_path / "initial"))
    adapter = check(tmp_path / "plain", card).accept()
    assert {(module.scaling, module.structure.lora) for module in adapter.modules.values()} == {(2.0, 8)}
    assert distance(peft_model, merged(base, fold(adapter, card), card)) < 5e-6
    needless = check(tmp_path / "plain", card, initial=tmp_path / "initial")
    assert messages(needless) == [
        "an initial adapter is given, but adapter_config.json names no initialization that changes the base"
    ]


def _mark_initial(directory: Path) -> None:
    """PEFT's guide says to save the initial adapter with init_lora_weights set to true."""
    file = directory / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "init_lora_weights": True}))


def test_an_untrained_initial_adapter_of_another_kind_is_refused(tmp_path: Path) -> None:
    model = llama()
    card = card_of(model)
    saved(trained(llama(), initial=tmp_path / "zero", target_modules=["q_proj"]), tmp_path / "ignored")
    saved(trained(model, target_modules=["q_proj"], init_lora_weights="pissa"), tmp_path / "trained")
    refused = check(tmp_path / "trained", card, initial=tmp_path / "zero")
    assert "lora_B.weight is all zero" in messages(refused)[0]


def test_lora_ga_without_gradients_left_the_base_alone_and_is_plain_lora(tmp_path: Path) -> None:
    model = llama()
    base, card = copy.deepcopy(model), card_of(model)
    peft_model = trained(model, initial=tmp_path / "initial", target_modules=["q_proj"], init_lora_weights="lora_ga")
    directory = saved(peft_model, tmp_path / "trained")
    refused = check(directory, card, initial=tmp_path / "initial")
    assert "LoRA-GA without preprocess_loraga is plain LoRA" in refused.findings[0].hint
    _mark_initial(directory)  # as the hint says
    assert distance(peft_model, merged(base, fold(check(directory, card).accept(), card), card)) < 2e-6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target_modules": ["q_proj", "v_proj"]}, f"{LAYERS[0]}.v_proj: the trained adapter has no LoRA here"),
        ({"layers_to_transform": [0]}, f"{LAYERS[1]}.q_proj: the initial adapter has no LoRA here"),
        ({"lora_alpha": 16}, f"{LAYERS[0]}.q_proj: scaling 2, 4 in the initial adapter"),
    ],
)
def test_an_initial_adapter_of_another_run_is_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    common = {"target_modules": ["q_proj"], "init_lora_weights": "pissa"}
    model = llama()
    card = card_of(model)
    saved(trained(model, **common), tmp_path / "trained")
    trained(llama(), initial=tmp_path / "initial", **{**common, **options})
    assert messages(check(tmp_path / "trained", card, initial=tmp_path / "initial"))[0].startswith(message)


def test_what_is_wrong_with_the_initial_adapter_is_said_of_it(tmp_path: Path) -> None:
    model = llama()
    card = card_of(model)
    saved(trained(model, target_modules=["q_proj"], init_lora_weights="pissa"), tmp_path / "trained")
    (tmp_path / "initial").mkdir()
    assert messages(check(tmp_path / "trained", card, initial=tmp_path / "initial"))[0] == (
        "initial adapter: adapter_config.json is missing"
    )


def test_an_initialization_that_changed_a_tied_weight_is_refused(tmp_path: Path) -> None:
    model = llama(tie_word_embeddings=True)
    card = card_of(model)
    options = {"target_modules": ["q_proj", "lm_head"], "init_lora_weights": "olora"}
    saved(trained(model, initial=tmp_path / "initial", **options), tmp_path / "trained")
    checked = check(tmp_path / "trained", card, initial=tmp_path / "initial")
    assert messages(checked) == ["lm_head: its initialization changed model.embed_tokens too, which shares the weight"]


def test_what_an_initialization_left_of_an_untied_head_is_left_out(tmp_path: Path) -> None:
    model = llama()
    base, card = copy.deepcopy(model), card_of(model)
    options = {"target_modules": ["q_proj", "lm_head"], "init_lora_weights": "pissa"}
    peft_model = trained(model, initial=tmp_path / "initial", **options)
    adapter = check(saved(peft_model, tmp_path / "trained"), card, initial=tmp_path / "initial").accept()
    assert distance(peft_model, merged(base, fold(adapter, card), card)) < 5e-6


def test_token_rows_beside_a_tied_head_with_lora_are_refused_for_peft_drops_one(tmp_path: Path) -> None:
    model = llama(tie_word_embeddings=True)
    card = card_of(model)
    directory = saved(trained(model, target_modules=["lm_head"], trainable_token_indices=[3, 1]), tmp_path)
    (message,) = messages(check(directory, card))
    assert message.endswith("token rows on a matrix that lm_head shares and changes itself")


@pytest.mark.parametrize(
    ("tie", "given", "reason"),
    [
        (False, {"embed_tokens": [3, 1], "lm_head": [3, 1]}, "'trainable_token_indices' lists the same tokens"),
        (True, {"embed_tokens": [3, 1], "lm_head": [1, 3]}, "'ensure_weight_tying' is set"),
    ],
)
def test_rows_of_a_head_that_peft_lets_follow_its_embedding_are_refused(
    tmp_path: Path, *, tie: bool, given: dict[str, list[int]], reason: str
) -> None:
    model = llama(tie_word_embeddings=True)
    card = card_of(model)
    apart = {"embed_tokens": [3, 1], "lm_head": [1, 3]}
    directory = saved(trained(model, target_modules=["q_proj"], trainable_token_indices=apart), tmp_path)
    config = json.loads((directory / "adapter_config.json").read_text())
    changes = {"trainable_token_indices": given, "ensure_weight_tying": tie}
    (directory / "adapter_config.json").write_text(json.dumps({**config, **changes}))
    assert messages(check(directory, card)) == [
        f"lm_head has token rows of its own, but {reason}: PEFT lets it follow model.embed_tokens"
    ]


def test_rows_of_a_linear_with_a_bias_are_refused_for_peft_drops_the_bias(tmp_path: Path) -> None:
    model = llama(attention_bias=True)
    card = card_of(model)
    peft_model = trained(model, target_modules=["v_proj"], trainable_token_indices={"layers.0.self_attn.q_proj": [3]})
    (message,) = messages(check(saved(peft_model, tmp_path), card))
    assert message.endswith(f"{Q_PROJ[0]} has a bias, which PEFT leaves out beside trained rows, until it merges them")
    assert distance(peft_model, copy.deepcopy(peft_model).merge_and_unload()) > 1e-3


def test_an_embedding_saved_beside_its_token_rows_is_a_copy_of_the_base(tmp_path: Path) -> None:
    model = llama()
    card = card_of(model)
    peft_model = trained(model, target_modules=["q_proj"], trainable_token_indices=[3, 1])
    directory = saved(peft_model, tmp_path, save_embedding_layers=True)
    checked = check(directory, card)
    assert messages(checked) == []
    assert any("token_adapter.base_layer.weight is the base's own" in text for text in messages(checked, "note"))


@pytest.mark.parametrize("dtypes", [("bf16", "bf16"), ("fp16", "bf16"), ("fp32", "fp16")])
def test_stored_dtypes_mix_and_are_widened_exactly(tmp_path: Path, dtypes: tuple[str, str]) -> None:
    kinds = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
    model = llama()
    base, card = copy.deepcopy(model), card_of(model)
    peft_model = trained(model, target_modules=["q_proj"])
    with torch.no_grad():
        for name, parameter in peft_model.named_parameters():
            if "lora_" in name:
                parameter.copy_(parameter.to(kinds[dtypes["lora_B" in name]]))
    saved(peft_model, tmp_path)
    file = tmp_path / "adapter_model.safetensors"
    save_file({name: tensor.to(kinds[dtypes["lora_B" in name]]) for name, tensor in load_file(file).items()}, file)
    folded = fold(check(tmp_path, card).accept(), card)
    assert distance(peft_model, merged(base, folded, card)) < 2e-6


def test_a_fused_adapter_is_split_against_a_split_base(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    fused = {"qkv_proj": ("self_attn", 32 + 16 + 16, ["q", "k", "v"]), "gate_up_proj": ("mlp", 96, ["gate", "up"])}
    tensors = {
        f"{PREFIX}model.layers.{layer}.{block}.{name}.{part}": random.normal(0, 0.2, shape).astype(np.float32)
        for layer in range(2)
        for name, (block, out, _) in fused.items()
        for part, shape in {
            "lora_A.weight": (4, 32),
            "lora_B.weight": (out, 4),
            "lora_magnitude_vector": (out,),
        }.items()
    }
    model = llama()
    card = card_of(model)
    write(tmp_path, tensors, target_modules=list(fused), use_dora=True, alpha_pattern={"qkv_proj": 12})
    folded = fold(check(tmp_path, card).accept(), card, ModelRows(model))
    for name, (block, _, parts) in fused.items():
        whole = f"model.layers.1.{block}.{name}"
        names = [f"model.layers.1.{block}.{part}_proj" for part in parts]
        weight = np.concatenate([ModelRows(model).rows(part, 0, 96) for part in names]).astype(np.float64)
        a, b, m = (tensors[f"{PREFIX}{whole}.{part}"].astype(np.float64) for part in
                   ("lora_A.weight", "lora_B.weight", "lora_magnitude_vector"))  # fmt: skip
        scaling = 3 if name == "qkv_proj" else 2
        scale = m / np.linalg.norm(weight + scaling * b @ a, axis=1)
        for suffix, expected in (("dora_scale", scale), ("lora_B", scale[:, None] * scaling * b)):
            got = np.concatenate([array(folded.tensors[f"{part}.{suffix}"]) for part in names])
            assert np.abs(got - expected).max() < 1e-6 * np.abs(expected).max()
        assert all(np.array_equal(array(folded.tensors[f"{part}.lora_A"]), a) for part in names)
    assert [f"{LAYERS[0]}.{part}_proj.lora_A" for part in "kqv"] in [list(group) for group in folded.structure.equal]


def test_a_fused_base_takes_a_fused_adapter_as_it_is(tmp_path: Path) -> None:
    _, structure = agree(tmp_path, phi3(), {"target_modules": ["qkv_proj", "gate_up_proj"]})
    assert structure.modules[f"{LAYERS[0]}.qkv_proj"] == ModuleStructure(lora=4)


def test_a_saved_block_beside_trained_biases_is_written_twice_and_read_once(tmp_path: Path) -> None:
    model = llama(mlp_bias=True)
    base, card = copy.deepcopy(model), card_of(model)
    peft_model = trained(model, target_modules=["q_proj"], modules_to_save=["mlp"], bias="all")
    with torch.no_grad():  # what a saved block stands in for gets no gradient
        for name, parameter in peft_model.named_parameters():
            if "original_module" in name:
                parameter.copy_(base.get_parameter(name.removeprefix(PREFIX).replace("original_module.", "")))
    directory = saved(peft_model, tmp_path)
    twice = f"{PREFIX}model.layers.0.mlp.modules_to_save.default.down_proj.bias"
    assert twice in load_file(directory / "adapter_model.safetensors")
    folded = fold(check(directory, card).accept(), card)
    assert distance(peft_model, merged(base, folded, card)) < 2e-6

    tensors = load_file(directory / "adapter_model.safetensors")
    save_file({**tensors, twice: tensors[twice] + 1}, directory / "adapter_model.safetensors")
    assert messages(check(directory, card)) == [
        f"{twice} is not the same as model.layers.0.mlp.down_proj.bias: which is the bias?"
    ]


def test_a_velora_adapter_is_plain_lora(tmp_path: Path) -> None:
    agree(tmp_path, llama(), {"target_modules": ["q_proj"], "velora_config": VeloraConfig(num_groups=4)})
