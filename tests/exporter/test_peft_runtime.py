"""Every supported variant equals live PEFT, through the published files and ExecuTorch's own runtime."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora.config import CordaConfig, LoraGAConfig
from peft.tuners.lora.corda import preprocess_corda
from peft.tuners.lora.loraga import preprocess_loraga
from transformers import AutoModelForCausalLM

from exporter.publish import Published, PublishOptions, publish
from registry.digest import Digest
from registry.errors import AdapterRefused
from registry.service import Registry
from tests.runtime import prefill_and_decode, reference

TOKENS = [1, 9, 33, 7, 60, 12, 5, 41, 22, 17]
Q = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
Edit = Callable[[Any], None]


@pytest.fixture(scope="module")
def registry(worker_home: Path) -> Registry:
    return Registry.open(worker_home)


@dataclass(frozen=True)
class Trained:
    """An adapter as PEFT saved it, and what PEFT answers with it."""

    directory: Path
    logits: torch.Tensor
    base_logits: torch.Tensor


def randomize(model: torch.nn.Module, size: float = 0.3) -> None:
    """Training, for our purposes: every trainable tensor away from where PEFT starts it."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                noise = torch.randn(parameter.shape, generator=generator) * size
                parameter.copy_(parameter + noise.abs() if "magnitude" in name else parameter + noise)


def train(base: Path, directory: Path, edit: Edit | None = None, **config: Any) -> Trained:
    model = AutoModelForCausalLM.from_pretrained(base).eval()
    base_logits = reference(model, TOKENS)
    torch.manual_seed(1)
    peft = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **{**Q, **config})).eval()
    randomize(peft)
    if edit:
        edit(peft)
    peft.save_pretrained(directory)
    return Trained(directory, reference(peft, TOKENS), base_logits)


def run(registry: Registry, published: Published) -> torch.Tensor:
    build = published.build
    return prefill_and_decode(registry.blobs.path(build.file.digest), registry.blobs.path(build.foundation), TOKENS)


def check(registry: Registry, trained: Trained, foundation: str, name: str, **options: Any) -> Published:
    """Publish, run, and hold it against PEFT; the adapter must matter, and the foundation stay what it was."""
    before = registry.foundation(foundation)
    published = publish(registry, trained.directory, PublishOptions(foundation, name, **options))
    assert (trained.logits - trained.base_logits).abs().max() > 1e-2
    assert (run(registry, published) - trained.logits).abs().max() < 1e-4
    assert [warning for warning in published.build.warnings if "no effect" in warning] == []
    assert registry.foundation(foundation) == before
    assert Digest.of_file(registry.blobs.path(before.file.digest)) == before.file.digest
    return published


VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("plain", {}),
    "rslora": ("plain", {"r": 16, "lora_alpha": 16, "use_rslora": True}),
    "patterns": (
        "plain",
        {
            "rank_pattern": {"layers.0.self_attn.q_proj": 2},
            "alpha_pattern": {"layers.0.self_attn.q_proj": 16},
        },
    ),
    "one-layer": ("plain", {"layers_to_transform": [0]}),
    "excluded": ("plain", {"target_modules": ALL, "exclude_modules": ["k_proj", "down_proj"]}),
    "all-linear": ("plain", {"target_modules": "all-linear"}),
    "regex": ("plain", {"target_modules": r".*layers\.0\..*q_proj"}),
    "dora": ("plain", {"use_dora": True}),
    "dora-with-bias": ("biased", {"use_dora": True, "target_modules": ALL}),
    "dora-rslora": ("plain", {"use_dora": True, "use_rslora": True, "r": 8}),
    "bias-lora-only": ("biased", {"bias": "lora_only"}),
    "bias-all": ("biased", {"bias": "all", "target_modules": ["q_proj", "o_proj"]}),
    "dora-bias-all": ("biased", {"bias": "all", "use_dora": True}),
    "lora-bias": ("plain", {"lora_bias": True}),
    "lora-bias-on-bias": ("biased", {"lora_bias": True}),
    "save-lm-head": ("plain", {"modules_to_save": ["lm_head"]}),
    "save-norms": ("plain", {"modules_to_save": ["norm"]}),
    "save-tied-embedding": ("tied", {"modules_to_save": ["embed_tokens"]}),
    "save-untied-embedding": ("plain", {"modules_to_save": ["embed_tokens"]}),
    "save-tied-both": ("tied", {"modules_to_save": ["embed_tokens", "lm_head"]}),
    "lora-on-head": ("plain", {"target_modules": ["q_proj", "lm_head"]}),
    "lora-on-tied-head": ("tied", {"target_modules": ["q_proj", "lm_head"]}),
    "lora-on-embedding": ("plain", {"target_modules": ["q_proj", "embed_tokens"]}),
    "lora-on-tied-embedding": ("tied", {"target_modules": ["q_proj", "embed_tokens"]}),
    "lora-on-tied-embedding-alone": ("tied", {"target_modules": ["embed_tokens"]}),
    "kept-tied-a-rank-for-the-embedding": (
        "tied",
        {
            "target_modules": ["q_proj", "embed_tokens"],
            "ensure_weight_tying": True,
            "rank_pattern": {"embed_tokens": 2},
            "alpha_pattern": {"embed_tokens": 3},
        },
    ),
    "tokens": ("plain", {"trainable_token_indices": [3, 9, 60]}),
    "tokens-tied": ("tied", {"trainable_token_indices": {"embed_tokens": [5, 7, 33]}}),
    "tokens-of-head": ("plain", {"trainable_token_indices": {"lm_head": [3, 9, 60]}}),
    "tokens-of-linears": ("plain", {"target_modules": ["v_proj"], "trainable_token_indices": {"gate_proj": [47, 0]}}),
    "tokens-of-tied-head": ("tied", {"trainable_token_indices": {"lm_head": [3, 9]}, "use_dora": True}),
    "tokens-tied-apart": ("tied", {"trainable_token_indices": {"embed_tokens": [5, 7], "lm_head": [60, 22, 5]}}),
    "orthogonal": ("plain", {"init_lora_weights": "orthogonal"}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_equals_peft(variant: str, registry: Registry, bases: Path, tmp_path: Path) -> None:
    foundation, config = VARIANTS[variant]
    check(registry, train(bases / foundation, tmp_path, **config), foundation, variant)


def test_the_second_adapter_of_a_structure_is_relinked_without_torch_and_equals_peft(
    registry: Registry, bases: Path, tmp_path: Path
) -> None:
    def scale(model: PeftModel) -> None:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.mul_(1.7)

    check(registry, train(bases / "plain", tmp_path / "a", target_modules=["v_proj"]), "plain", "first")
    second = train(bases / "plain", tmp_path / "b", scale, target_modules=["v_proj"], lora_alpha=3)
    assert check(registry, second, "plain", "second").relinked


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_half_precision_source_equals_peft(
    dtype: torch.dtype, registry: Registry, bases: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    train(bases / "plain", tmp_path)
    weights = load_file(tmp_path / "adapter_model.safetensors")
    save_file({name: tensor.to(dtype) for name, tensor in weights.items()}, tmp_path / "adapter_model.safetensors")
    model = AutoModelForCausalLM.from_pretrained(bases / "plain").eval()
    base_logits = reference(model, TOKENS)
    peft = PeftModel.from_pretrained(model, tmp_path).eval()
    trained = Trained(tmp_path, reference(peft, TOKENS), base_logits)
    check(registry, trained, "plain", str(dtype).removeprefix("torch."))


def prepare(model: torch.nn.Module, config: LoraConfig) -> None:
    """What CorDA and LoRA-GA measure on data before they take their part out of the base."""
    data = torch.randint(0, 64, (16, 32), generator=torch.Generator().manual_seed(5))
    if config.init_lora_weights == "corda":
        config.corda_config = CordaConfig(corda_method="kpm")
        with torch.no_grad():
            preprocess_corda(model, config, run_model=lambda: [model(row[None]) for row in data])
    if config.init_lora_weights == "lora_ga":
        config.lora_ga_config = LoraGAConfig()

        def step() -> None:
            model(data, labels=data).loss.backward()

        preprocess_loraga(model, config, step)


@pytest.mark.parametrize(
    ("init", "extra"),
    [
        ("pissa", {}),
        ("olora", {}),
        ("corda", {"use_rslora": True, "target_modules": ALL}),
        ("lora_ga", {"use_dora": True, "rank_pattern": {"q_proj": 2}, "target_modules": ["q_proj", "down_proj"]}),
    ],
)
def test_an_initialization_that_changes_the_base_is_refused_or_converted_with_the_initial_adapter(
    init: str, extra: dict[str, Any], registry: Registry, bases: Path, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(bases / "plain").eval()
    base_logits = reference(model, TOKENS)
    lora = LoraConfig(task_type="CAUSAL_LM", init_lora_weights=init, **{**Q, **extra})
    prepare(model, lora)
    peft = get_peft_model(model, lora).eval()
    assert (reference(peft, TOKENS) - base_logits).abs().max() < 1e-4  # it took out what it put into the adapter
    peft.save_pretrained(tmp_path / "initial")
    config = json.loads((tmp_path / "initial" / "adapter_config.json").read_text())
    (tmp_path / "initial" / "adapter_config.json").write_text(json.dumps({**config, "init_lora_weights": True}))
    randomize(peft)
    peft.save_pretrained(tmp_path / "trained")
    trained = Trained(tmp_path / "trained", reference(peft, TOKENS), base_logits)

    with pytest.raises(AdapterRefused, match=init):
        publish(registry, tmp_path / "trained", PublishOptions("plain", init))
    check(registry, trained, "plain", init, initial=tmp_path / "initial")


def test_an_adapter_without_effect_is_published_with_a_warning_and_answers_like_the_base(
    registry: Registry, bases: Path, tmp_path: Path
) -> None:
    def silence(model: PeftModel) -> None:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.zero_()

    trained = train(bases / "plain", tmp_path, silence)
    published = publish(registry, trained.directory, PublishOptions("plain", "silent"))
    assert any("no effect" in warning for warning in published.build.warnings)
    assert (run(registry, published) - trained.base_logits).abs().max() < 1e-5
