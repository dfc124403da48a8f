"""Cases of adapter-semantics.md that only published files can show, beside tests/exporter/test_peft_runtime.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from exporter.base import read_base
from exporter.export import Job, export_adapter
from exporter.foundation import ExportOptions, export_foundation
from exporter.linker import Gate, Linker
from exporter.lower import lower
from exporter.opened import opened
from exporter.publish import Published, PublishOptions, publish
from exporter.recipe import Recipe
from exporter.templates import check_no_base_inside
from registry.errors import AdapterRefused, IntegrityError
from registry.formats.pte import read_pte
from registry.relocation import RelocationTable
from registry.service import Registry
from tests.exporter.adapters import PREFIX, phi3, q_tensors, write
from tests.exporter.test_peft_runtime import TOKENS, check, randomize, run, train
from tests.runtime import reference

PROJECTIONS = ("q_proj", "k_proj", "v_proj")


@pytest.fixture(scope="module")
def registry(worker_home: Path) -> Registry:
    return Registry.open(worker_home)


def full_export(registry: Registry, base: Path, foundation: str, directory: Path, **gate: Any) -> bytes:
    """The program that a full export of the adapter in `directory` gives, without any template."""
    found = registry.foundation(foundation)
    linker = Linker(registry, found)
    folded = linker.fold(linker.check(directory, Gate(**gate)).accept())
    factors = {
        name: torch.frombuffer(bytearray(factor.data), dtype=torch.float32).reshape(factor.shape)
        for name, factor in folded.tensors.items()
    }
    with read_base(base) as checkpoint:
        job = Job(checkpoint, Recipe.like(found.recipe), 64, lambda _: None)
        return export_adapter(job, folded.structure, factors)


def test_every_spelling_of_the_names_gives_the_same_program(registry: Registry, tmp_path: Path) -> None:
    spellings: dict[str, Callable[[str], str]] = {
        "peft": lambda name: name,
        "bare": lambda name: name.removeprefix(PREFIX),
        "state": lambda name: name.replace(".weight", ".default.weight"),
        "wrapped": lambda name: f"module._orig_mod.{name}",
    }
    made = [
        publish(
            registry,
            write(tmp_path / name, {spell(raw): values for raw, values in q_tensors().items()}),
            PublishOptions("plain", f"spelled-{name}"),
        )
        for name, spell in spellings.items()
    ]
    assert len({each.build.file.digest for each in made}) == 1
    assert len({each.build.factors.digest for each in made}) == 1


def test_another_prefix_matches_nothing_and_leaves_no_trace(registry: Registry, tmp_path: Path) -> None:
    before = registry.events()
    tensors = {name.replace("model.layers", "model.language_model.layers"): each for name, each in q_tensors().items()}
    with pytest.raises(AdapterRefused, match="0 of 4 tensors match the base"):
        publish(registry, write(tmp_path, tensors), PublishOptions("plain", "strange"))
    assert registry.events() == before


def share_and_silence(model: PeftModel) -> None:
    """One A for q, k and v of a layer, and B of zeros for two of them: what a full export stores once."""
    with torch.no_grad():
        for layer in model.base_model.model.model.layers:
            modules = [getattr(layer.self_attn, name) for name in PROJECTIONS]
            for module in modules[1:]:
                module.lora_A["default"].weight.copy_(modules[0].lora_A["default"].weight)
        for layer in model.base_model.model.model.layers:
            layer.self_attn.k_proj.lora_B["default"].weight.zero_()


EXTRAS: dict[str, tuple[str, Callable[[PeftModel], None] | None, dict[str, Any]]] = {
    "shared": ("plain", share_and_silence, {"target_modules": list(PROJECTIONS)}),
    "everything": (
        "biased",
        None,
        {
            "target_modules": ["q_proj", "down_proj"],
            "use_dora": True,
            "bias": "all",
            "modules_to_save": ["norm", "lm_head"],
            "trainable_token_indices": [60, 3, 9],
        },
    ),
    "rows": ("plain", None, {"trainable_token_indices": {"lm_head": [60, 3], "embed_tokens": [9, 60], "k_proj": [1]}}),
    "tied": ("tied", None, {"target_modules": ["v_proj", "embed_tokens", "lm_head"], "use_rslora": True}),
}


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_adapter_with_extras_equals_peft_and_relinks_to_its_full_export(
    extra: str, registry: Registry, bases: Path, tmp_path: Path
) -> None:
    foundation, edit, config = EXTRAS[extra]
    check(registry, train(bases / foundation, tmp_path / "first", edit, **config), foundation, f"{extra}-first")

    def more(model: PeftModel) -> None:
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.mul_(1.25)
        if edit:
            edit(model)

    second = train(bases / foundation, tmp_path / "second", more, **{**config, "lora_alpha": 5})
    published = check(registry, second, foundation, f"{extra}-second")
    assert published.relinked
    program = registry.blobs.read(published.build.file.digest)
    assert program == full_export(registry, bases / foundation, foundation, second.directory)


def test_shared_factors_are_another_structure_than_their_own_ones(registry: Registry, tmp_path: Path) -> None:
    own = q_tensors()
    shared = dict(own)
    first, second = (name for name in own if "lora_A" in name)
    shared[second] = shared[first]
    made = [
        publish(registry, write(tmp_path / name, tensors), PublishOptions("plain", f"sharing-{name}"))
        for name, tensors in (("own", own), ("shared", shared))
    ]
    assert made[0].template.structure_digest != made[1].template.structure_digest
    assert made[1].build.factors.size == made[0].build.factors.size - own[first].nbytes


def test_factors_of_two_shapes_with_equal_bytes_equal_peft_and_relink_to_their_full_export(
    registry: Registry, bases: Path, tmp_path: Path
) -> None:
    for seed, name in enumerate(("equal-first", "equal-second")):
        tensors = q_tensors(seed=seed)
        tensors |= {
            raw.replace("lora_A", "lora_B"): each.reshape(32, 4) for raw, each in tensors.items() if "_A" in raw
        }
        published = publish(registry, write(tmp_path / name, tensors, lora_alpha=4), PublishOptions("plain", name))
    assert published.relinked
    program = registry.blobs.read(published.build.file.digest)
    assert program == full_export(registry, bases / "plain", "plain", tmp_path / name)
    shown = opened(registry, published.build).parts["model.layers.0.self_attn.q_proj"].factors
    assert {suffix: each.shape for suffix, each in shown.items()} == {"lora_A": (4, 32), "lora_B": (32, 4)}
    model = AutoModelForCausalLM.from_pretrained(bases / "plain").eval()
    expected = reference(PeftModel.from_pretrained(model, tmp_path / name).eval(), TOKENS)
    assert (run(registry, published) - expected).abs().max() < 1e-4


def test_mixed_half_precision_factors_equal_peft(registry: Registry, bases: Path, tmp_path: Path) -> None:
    train(bases / "plain", tmp_path)
    file = tmp_path / "adapter_model.safetensors"
    kinds = {"lora_A": torch.float16, "lora_B": torch.bfloat16}
    save_file({name: each.to(kinds[name.split(".")[-2]]) for name, each in load_file(file).items()}, file)
    model = AutoModelForCausalLM.from_pretrained(bases / "plain").eval()
    expected = reference(PeftModel.from_pretrained(model, tmp_path).eval(), TOKENS)
    published: Published = publish(registry, tmp_path, PublishOptions("plain", "mixed"))
    assert (run(registry, published) - expected).abs().max() < 1e-4


def test_a_converted_pissa_adapter_is_plain_lora_of_twice_the_rank(
    registry: Registry, bases: Path, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(bases / "plain").eval()
    config = LoraConfig(task_type="CAUSAL_LM", r=2, lora_alpha=8, target_modules=["q_proj"], init_lora_weights="pissa")
    peft = get_peft_model(model, config).eval()
    peft.peft_config["default"].init_lora_weights = True  # as PEFT's guide says
    peft.save_pretrained(tmp_path / "initial")
    peft.peft_config["default"].init_lora_weights = "pissa"
    randomize(peft)
    expected = reference(peft, TOKENS)
    peft.save_pretrained(tmp_path / "plain", path_initial_model_for_weight_conversion=str(tmp_path / "initial"))
    published = publish(registry, tmp_path / "plain", PublishOptions("plain", "converted"))
    assert published.structure.describe() == "rank 4 on q_proj (2 modules)"
    assert (run(registry, published) - expected).abs().max() < 1e-4


FUSED = {"self_attn.qkv_proj": ("q_proj", "k_proj", "v_proj"), "mlp.gate_up_proj": ("gate_proj", "up_proj")}
OUTPUTS = {"q_proj": 32, "k_proj": 16, "v_proj": 16, "gate_proj": 48, "up_proj": 48}


def test_a_fused_adapter_on_a_split_base_equals_peft_with_the_split_one(
    registry: Registry, bases: Path, tmp_path: Path
) -> None:
    random = torch.Generator().manual_seed(4)
    fused, split = {}, {}
    for layer in range(2):
        for name, parts in FUSED.items():
            block, sizes = name.split(".")[0], [OUTPUTS[part] for part in parts]
            first = torch.randn(4, 32, generator=random) * 0.3
            second = torch.randn(sum(sizes), 4, generator=random) * 0.3
            fused[f"{PREFIX}model.layers.{layer}.{name}.lora_A.weight"] = first
            fused[f"{PREFIX}model.layers.{layer}.{name}.lora_B.weight"] = second
            for part, rows in zip(parts, second.split(sizes), strict=True):
                split[f"{PREFIX}model.layers.{layer}.{block}.{part}.lora_A.weight"] = first.clone()
                split[f"{PREFIX}model.layers.{layer}.{block}.{part}.lora_B.weight"] = rows.clone()
    write(tmp_path / "split", split, target_modules=list(OUTPUTS))
    model = AutoModelForCausalLM.from_pretrained(bases / "plain").eval()
    expected = reference(PeftModel.from_pretrained(model, tmp_path / "split").eval(), TOKENS)
    targets = [name.split(".")[1] for name in FUSED]
    published = publish(
        registry, write(tmp_path / "fused", fused, target_modules=targets), PublishOptions("plain", "fused")
    )
    assert (run(registry, published) - expected).abs().max() < 1e-4
    same = publish(registry, tmp_path / "split", PublishOptions("plain", "split"))
    assert same.build.file == published.build.file


def test_a_fused_base_takes_a_fused_adapter_as_it_is(tmp_path: Path) -> None:
    base = tmp_path / "base"
    phi3().save_pretrained(base)
    registry = Registry.init(tmp_path / "home")
    export_foundation(registry, base, "phi", ExportOptions(context=64))
    trained = train(base, tmp_path / "adapter", target_modules=["qkv_proj", "gate_up_proj"])
    published = check(registry, trained, "phi", "fused")
    assert published.structure.describe() == "rank 4 on gate_up_proj, qkv_proj (4 modules)"


def test_a_base_weight_that_stays_in_the_program_fails_the_build(registry: Registry, bases: Path) -> None:
    """What a missing emitter callback would do: the embedding counts as the adapter's own."""
    with read_base(bases / "plain") as checkpoint, torch.no_grad():
        model = Job(checkpoint, Recipe(), 64, lambda _: None).model
        mine = frozenset({"model.embed_tokens.weight"})
        lowered = lower(
            model.build(lambda _: None), model.example(), factors=mine, foundation_dir=None, progress=lambda _: None
        )
    pte, none = read_pte(lowered.program), RelocationTable(len(lowered.program), (), ())
    with pytest.raises(IntegrityError, match=r"model\.embed_tokens\.weight \(8192 bytes\) is inside the adapter"):
        check_no_base_inside(pte, lowered.program, registry.foundation("plain"), none)
