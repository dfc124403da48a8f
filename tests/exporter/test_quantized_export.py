"""Quantized foundations in a store: what runs is what was chosen, and adapters stand on them as on any other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model

from exporter.base import read_base
from exporter.export import Job, export_adapter
from exporter.fold import fold
from exporter.foundation import ExportOptions, export_foundation
from exporter.foundation_rows import FoundationRows
from exporter.linker import Gate, card_of
from exporter.lower import lower
from exporter.peft.gate import check
from exporter.publish import PublishOptions, publish
from exporter.quantize import grouped, quantize
from exporter.recipe import Quantization, Recipe, recipe_of
from exporter.reference import Reference, logits
from exporter.structure import Structure
from exporter.templates import check_no_base_inside
from registry.artifacts import Foundation
from registry.errors import IntegrityError
from registry.formats.pte import read_pte
from registry.links import check_links
from registry.relocation import RelocationTable
from registry.service import Registry
from tests.command_line import answer, ptdock, refusal
from tests.conftest import save_llama, save_tokenizer
from tests.exporter.quantized import quantized_model
from tests.exporter.test_peft_runtime import randomize
from tests.runtime import prefill_and_decode, reference

TOKENS = [1, 9, 33, 7, 60, 12, 5, 41, 22, 17]
SIZES = {"hidden_size": 64, "intermediate_size": 128}
BASES: dict[str, dict[str, Any]] = {
    "one": {"num_hidden_layers": 1, "attention_bias": True},
    "tied": {"num_hidden_layers": 2, "tie_word_embeddings": True},
}
FOUNDATIONS: dict[str, tuple[str, Quantization | None]] = {
    "one-g32-e4": ("one", Quantization(32, 4)),
    "one-g64": ("one", Quantization(64)),
    "one-plain": ("one", None),
    "tied-g32-e8": ("tied", Quantization(32, 8)),
}
QUANTIZED = [name for name, (_, recipe) in FOUNDATIONS.items() if recipe]
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@pytest.fixture(scope="session")
def wide_bases(made_once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """A directory with one checkpoint for each of BASES, wide enough for groups."""

    def make(directory: Path) -> None:
        for name, changes in BASES.items():
            (directory / name).mkdir()
            save_llama(directory / name, **SIZES, **changes)
            save_tokenizer(directory / name)

    return made_once("wide-bases", make)


@pytest.fixture(scope="session")
def quantized_home(made_once: Callable[[str, Callable[[Path], None]], Path], wide_bases: Path) -> Path:
    """A store with FOUNDATIONS; never written to by a test."""

    def make(directory: Path) -> None:
        registry = Registry.init(directory)
        for name, (base, recipe) in FOUNDATIONS.items():
            export_foundation(
                registry, wide_bases / base, name, ExportOptions(context=64, recipe=recipe_of("F32", recipe))
            )

    return made_once("quantized-home", make)


@pytest.fixture(scope="module")
def registry(quantized_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Registry:
    return Registry.open(Path(shutil.copytree(quantized_home, tmp_path_factory.mktemp("quantized") / "home")))


def base_program(registry: Registry, foundation: Foundation) -> Path:
    return registry.blobs.path(registry.templates(foundation.file.digest)[0].hollow.digest)


def run(registry: Registry, program: Path, foundation: Foundation) -> torch.Tensor:
    return prefill_and_decode(program, registry.blobs.path(foundation.file.digest), TOKENS)


@pytest.mark.parametrize("name", QUANTIZED)
def test_the_base_program_answers_like_the_dequantized_model(name: str, registry: Registry, wide_bases: Path) -> None:
    base, recipe = FOUNDATIONS[name]
    found = registry.foundation(name)
    answer = run(registry, base_program(registry, found), found)
    assert (answer - reference(quantized_model(wide_bases / base, recipe), TOKENS)).abs().max() < 5e-6
    assert reference(quantized_model(wide_bases / base, recipe, activations=False), TOKENS).std() > 0.3


@pytest.mark.parametrize("name", QUANTIZED)
def test_every_packed_weight_is_named_certified_and_read_back_bit_by_bit(
    name: str, registry: Registry, wide_bases: Path
) -> None:
    base, recipe = FOUNDATIONS[name]
    found = registry.foundation(name)
    model = quantized_model(wide_bases / base, recipe)
    held = {each: tensor for tensor in found.tensors for each in tensor.names}
    rows, compared = FoundationRows(registry, found), 0
    for module_name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if weight is None or weight.ndim != 2:
            continue
        assert f"{module_name}.weight" in held
        read = np.concatenate([rows.rows(module_name, 0, 3), rows.rows(module_name, 3, len(weight))])
        assert read.tobytes() == weight.detach().numpy().tobytes()
        if isinstance(module, torch.nn.Linear):
            tensor, scale = held[f"{module_name}.weight"], held[f"{module_name}.weight_scale"]
            assert (tensor.dtype, tensor.shape) == ("U8", (module.out_features, module.in_features // 2))
            assert scale.key.startswith("scale_")
            assert (scale.dtype, scale.shape[1]) == ("BF16", module.in_features // recipe.group_size)
        compared += 1
    assert compared > 8
    assert all(tensor.names for tensor in found.tensors)
    assert not any("parametrizations" in each for each in held)


RECIPES = ["one-g32-e4", "one-g64", "one-half", "one-plain"]


def test_each_recipe_is_its_own_foundation_and_none_loads_anothers_adapters(
    registry: Registry, wide_bases: Path, tmp_path: Path
) -> None:
    options = ExportOptions(context=64, recipe=recipe_of("F16", None))
    export_foundation(registry, wide_bases / "one", "one-half", options)
    directory, _, _ = train(wide_bases / "one", Quantization(32, 4), tmp_path / "adapter", target_modules=["k_proj"])
    found = {name: registry.foundation(name) for name in RECIPES}
    built = {name: publish(registry, directory, PublishOptions(name, "one-of-four")).build for name in RECIPES}
    assert [build.foundation for build in built.values()] == [each.file.digest for each in found.values()]
    for kind in (found, built):
        assert len({each.file.digest for each in kind.values()}) == 4
    assert len({each.base for each in found.values()}) == len({build.version for build in built.values()}) == 1
    sizes = [each.file.size for each in found.values()]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[3] / 4
    for mine in RECIPES:
        for program in (base_program(registry, found[mine]), registry.blobs.path(built[mine].file.digest)):
            for other in RECIPES:
                _check_pair(registry, program, found[other], fits=other == mine)


def _check_pair(registry: Registry, program: Path, foundation: Foundation, *, fits: bool) -> None:
    """Our own check, which says why, and the runtime agree on whether a program finds all of its keys."""
    pte = read_pte(program.read_bytes())
    if fits:
        check_links(pte, foundation.tensors)
        assert run(registry, program, foundation).isfinite().all()
        return
    with pytest.raises(IntegrityError, match="does not fit this foundation"):
        check_links(pte, foundation.tensors)
    with pytest.raises(RuntimeError, match=r"0x:20"):
        run(registry, program, foundation)


def test_a_recipe_that_was_shown_exports_the_same_foundation_again(
    registry: Registry, wide_bases: Path, tmp_path: Path
) -> None:
    home, name = registry.home, "one-g32-e4"
    shown = answer(home, "foundation", "show", name)
    assert shown["recipe"]["quantization"] == {"embedding_bits": 4, "group_size": 32, "mode": "8da4w"}
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps(shown))
    recipe = ("--context", 64, "--recipe", file)
    same = answer(home, "foundation", "export", wide_bases / "one", "--name", name, *recipe)
    assert (same["digest"], same["fresh"]) == (shown["digest"], False)
    options = ("--qmode", "8da4w", "--group-size", 32, "--embedding-bits", 4)
    same = answer(home, "foundation", "export", wide_bases / "one", "--name", name, "--context", 64, *options)
    assert (same["digest"], same["fresh"]) == (shown["digest"], False)
    refused = refusal(home, "foundation", "export", wide_bases / "one", "--name", name, *recipe, *options, code=2)
    assert refused["message"] == "--recipe says it all, --qmode too"
    assert "8da4w in groups of 32, 4-bit embedding" in ptdock(home, "foundation", "list").stdout
    measured = shown["perplexity"]
    assert measured["tokens"] == 64
    assert 1 < measured["before"] != measured["after"] < 1000
    assert f"{measured['before']:.2f} before quantization" in ptdock(home, "foundation", "show", name).stdout
    assert answer(home, "foundation", "show", "one-plain")["perplexity"] is None
    packed = next(each for each in shown["tensors"] if each["names"] == ["model.layers.0.self_attn.q_proj.weight"])
    assert (packed["dtype"], packed["shape"]) == ("U8", [64, 32])


def train(base: Path, recipe: Quantization, directory: Path, **config: Any) -> tuple[Path, torch.Tensor, torch.Tensor]:
    """An adapter that PEFT saved on the dequantized model, and the logits with it and without."""
    model = quantized_model(base, recipe)
    without = reference(model, TOKENS)
    torch.manual_seed(1)
    settings = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], **config}
    peft = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **settings)).eval()
    randomize(peft)
    for name, module in peft.named_modules():
        if ".modules_to_save." in name:
            module._forward_pre_hooks.clear()  # PEFT copied them: what an adapter saves whole is not quantized
    peft.save_pretrained(directory, save_embedding_layers=False)
    return directory, reference(peft, TOKENS), without


TOLERANCE = 2e-6
"""Of the largest logit: fp32 sums in another order come to 6e-7. The references round as XNNPACK does, so nothing else
differs: one activation in the neighbouring int8 step is a hundred times that, a quantized weight in place of a
replaced one thousands of times (the test below)."""

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "all": ("one-g32-e4", {"target_modules": ALL}),
    "dora": ("one-g32-e4", {"target_modules": ALL, "use_dora": True}),
    "bias-all": ("one-g64", {"bias": "all"}),
    "save-head": ("tied-g32-e8", {"modules_to_save": ["lm_head"]}),
    "save-embedding": ("one-g32-e4", {"modules_to_save": ["embed_tokens"]}),
    "embedding": ("tied-g32-e8", {"target_modules": ["q_proj", "embed_tokens"]}),
    "save-norms": ("one-g32-e4", {"modules_to_save": ["norm"]}),
    "save-untied-head": ("one-g64", {"modules_to_save": ["lm_head"], "target_modules": ["embed_tokens"]}),
    "save-tied-both": ("tied-g32-e8", {"modules_to_save": ["embed_tokens"], "ensure_weight_tying": True}),
    "save-block": ("tied-g32-e8", {"modules_to_save": ["mlp"]}),
    "save-linear-bias-all": ("one-g64", {"modules_to_save": ["k_proj", "norm"], "bias": "all"}),
    "dora-bias-all-saves": (
        "one-g32-e4",
        {
            "use_dora": True,
            "target_modules": ALL,
            "bias": "all",
            "modules_to_save": ["norm", "lm_head", "embed_tokens"],
        },
    ),
    "tokens": ("one-g32-e4", {"trainable_token_indices": [3, 9, 60]}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_adapter_on_a_quantized_foundation_equals_peft_on_the_dequantized_model(
    variant: str, registry: Registry, wide_bases: Path, tmp_path: Path
) -> None:
    name, config = VARIANTS[variant]
    base, recipe = FOUNDATIONS[name]
    directory, expected, without = train(wide_bases / base, recipe, tmp_path / "adapter", **config)
    before = registry.foundation(name)
    published = publish(registry, directory, PublishOptions(name, variant))
    answer = run(registry, registry.blobs.path(published.build.file.digest), before)
    assert (expected - without).abs().max() > 0.05
    assert (answer - expected).abs().max() < TOLERANCE * expected.abs().max()
    proven = Reference.of_checkpoint(wide_bases / base, Recipe.like(before.recipe))
    proven.adapt(directory, Gate(), card_of(registry, before))
    assert (logits(proven.adapted, TOKENS)[-4:] - expected).abs().max() < TOLERANCE * expected.abs().max()
    assert registry.foundation(name) == before
    held = {tensor.key for tensor in before.tensors}
    pte = read_pte(registry.blobs.read(published.build.file.digest))
    assert {asked.key for asked in pte.external} <= held
    assert not {part.key for part in pte.inline} & held


def test_the_tolerance_tells_rounded_activations_and_quantized_replacements_apart(
    wide_bases: Path, tmp_path: Path
) -> None:
    directory, expected, _ = train(wide_bases / "one", Quantization(64), tmp_path, modules_to_save=["lm_head"])
    limit = TOLERANCE * expected.abs().max()
    wide = PeftModel.from_pretrained(
        quantized_model(wide_bases / "one", Quantization(64), activations=False), directory
    )
    assert (reference(wide, TOKENS) - expected).abs().max() > 100 * limit
    narrow = PeftModel.from_pretrained(quantized_model(wide_bases / "one", Quantization(64)), directory)
    for name, module in narrow.named_modules():
        if ".modules_to_save." in name:
            module._forward_pre_hooks.clear()
            module.weight = torch.nn.Parameter(
                grouped(module.weight.detach(), 4, 64, scales=torch.bfloat16).dequantize()
            )
    assert (reference(narrow, TOKENS) - expected).abs().max() > 1000 * limit


def test_a_tied_head_follows_trained_rows_although_it_is_quantized_apart(
    registry: Registry, wide_bases: Path, tmp_path: Path
) -> None:
    model = quantized_model(wide_bases / "tied", Quantization(32, 8))
    head, tokens = model.lm_head, [5, 7, 33]
    config = LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=["q_proj"], trainable_token_indices=tokens)
    peft = get_peft_model(model, config).eval()
    randomize(peft)
    peft.save_pretrained(tmp_path / "adapter")
    with torch.no_grad():
        hidden = model.model(torch.tensor([TOKENS])).last_hidden_state[0, -4:]
        expected = head(hidden)
        expected[:, tokens] = hidden @ model.model.embed_tokens.token_adapter.trainable_tokens_delta["default"].T
    found = registry.foundation("tied-g32-e8")
    published = publish(registry, tmp_path / "adapter", PublishOptions("tied-g32-e8", "tied-tokens"))
    answer = run(registry, registry.blobs.path(published.build.file.digest), found)
    assert (answer - expected).abs().max() < 2e-5


@pytest.mark.parametrize("name", ["one-g32-e4", "tied-g32-e8"])
def test_the_trained_rows_of_a_head_are_not_quantized(
    name: str, registry: Registry, wide_bases: Path, tmp_path: Path
) -> None:
    base, recipe = FOUNDATIONS[name]
    model = quantized_model(wide_bases / base, recipe)
    head, tokens = model.lm_head, [5, 7, 33]
    config = LoraConfig(
        task_type="CAUSAL_LM", r=4, target_modules=["q_proj"], trainable_token_indices={"lm_head": tokens}
    )
    peft = get_peft_model(model, config).eval()
    randomize(peft)
    peft.save_pretrained(tmp_path / "adapter")
    with torch.no_grad():
        hidden = model.model(torch.tensor([TOKENS])).last_hidden_state[0, -4:]
        expected = head(hidden)  # whose inputs are rounded, which PEFT's own product leaves out
        expected[:, tokens] = hidden @ model.lm_head.token_adapter.trainable_tokens_delta["default"].T
    published = publish(registry, tmp_path / "adapter", PublishOptions(name, "head-tokens"))
    answer = run(registry, registry.blobs.path(published.build.file.digest), registry.foundation(name))
    assert (answer - expected).abs().max() < 2e-5


def test_a_relinked_adapter_is_its_full_export_byte_for_byte(
    registry: Registry, wide_bases: Path, tmp_path: Path
) -> None:
    base, recipe = FOUNDATIONS["one-g64"]
    first, _, _ = train(wide_bases / base, recipe, tmp_path / "first", target_modules=["v_proj"])
    second, _, _ = train(wide_bases / base, recipe, tmp_path / "second", target_modules=["v_proj"], lora_alpha=3)
    publish(registry, first, PublishOptions("one-g64", "first"))
    published = publish(registry, second, PublishOptions("one-g64", "second"))
    assert published.relinked

    found = registry.foundation("one-g64")
    card = card_of(registry, found)
    folded = fold(check(second, card).accept(), card, FoundationRows(registry, found))
    factors = {
        name: torch.frombuffer(bytearray(factor.data), dtype=torch.float32).reshape(factor.shape)
        for name, factor in folded.tensors.items()
    }
    with read_base(wide_bases / base) as checkpoint:
        job = Job(checkpoint, Recipe.like(found.recipe), 64, lambda _: None)
        full = export_adapter(job, folded.structure, factors)
        plain = export_adapter(job, Structure(), {})
    assert registry.blobs.read(published.build.file.digest) == full
    assert base_program(registry, found).read_bytes() == plain  # although perplexity was measured before that export


def test_weights_that_are_not_unwrapped_are_found_inside_the_program(registry: Registry, wide_bases: Path) -> None:
    base, recipe = FOUNDATIONS["one-g64"]
    with read_base(wide_bases / base) as checkpoint, torch.no_grad():
        model = Job(checkpoint, recipe_of("F32", recipe), 64, lambda _: None).model
        decoder = model.build(lambda _: None)
        quantize(decoder, recipe)
        lowered = lower(decoder, model.example(), factors=frozenset(), foundation_dir=None, progress=lambda _: None)
    pte = read_pte(lowered.program)
    assert sum(part.size for part in pte.inline) > 20_000
    with pytest.raises(IntegrityError, match=r"model.layers.0.self_attn.q_proj.weight \(\d+ bytes\) is inside"):
        check_no_base_inside(
            pte, lowered.program, registry.foundation("one-g64"), RelocationTable(len(lowered.program), (), ())
        )
