"""A fine-tune gets the files of a full export without one, where the tables say how each tensor derives."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from exporter.derivation import Derivation, Derivations
from exporter.foundation import ExportOptions, export_foundation
from exporter.publish import PublishOptions, publish
from exporter.recipe import Quantization, Recipe, recipe_of
from registry.artifacts import ExternalTensor
from registry.digest import Digest
from registry.service import Registry
from tests.conftest import TEMPLATE, save_llama, save_tokenizer
from tests.exporter.test_families import FAMILIES, SIZES
from tests.exporter.test_peft_runtime import TOKENS, train
from tests.runtime import prefill_and_decode

OPTIONS = ExportOptions(context=64)


def exported_alone(
    checkpoint: Path, directory: Path, options: ExportOptions = OPTIONS
) -> tuple[Registry, bytes, bytes]:
    """A full export in a store of its own: the registry, the `.ptd` and the base program."""
    registry = Registry.init(directory)
    made = export_foundation(registry, checkpoint, "alone", options)
    assert made.twin is None
    return registry, *(registry.blobs.read(each) for each in (made.foundation.file.digest, made.base_program.digest))


def finetune(directory: Path, **changes: object) -> Path:
    directory.mkdir()
    save_llama(directory, 7, **changes)
    save_tokenizer(directory)
    return directory


def test_a_fine_tune_and_its_adapters_get_the_files_of_a_full_export_without_one(
    tiny_store: Path, bases: Path, tmp_path: Path
) -> None:
    registry = Registry.open(tiny_store)
    adapter = train(bases / "plain", tmp_path / "adapter").directory
    publish(registry, adapter, PublishOptions("plain", "before"))
    other = finetune(tmp_path / "other")

    made = export_foundation(registry, other, "other", OPTIONS)
    assert made.twin == registry.foundation("plain").file.digest
    published = publish(registry, adapter, PublishOptions("other", "after"))
    assert published.relinked

    alone, foundation, program = exported_alone(other, tmp_path / "alone")
    assert registry.blobs.read(made.foundation.file.digest) == foundation
    assert registry.blobs.read(made.base_program.digest) == program
    full = publish(alone, adapter, PublishOptions("alone", "after"))
    assert not full.relinked
    assert published.build.file == full.build.file
    assert made.foundation.tensors == alone.foundation("alone").tensors
    assert described(registry, "other") == described(alone, "alone") == described(registry, "plain")


def described(registry: Registry, name: str) -> tuple[object, ...]:
    """What stands beside a foundation's weights: what adapters may touch, with the tokenizer; how it is prompted."""
    foundation = registry.foundation(name)
    prompt = registry.base(foundation.base).prompt
    assert prompt is not None
    return foundation.modules, prompt


def test_a_tied_fine_tune_that_chats_in_another_way_is_retargeted_too(tiny_store: Path, tmp_path: Path) -> None:
    registry = Registry.open(tiny_store)
    other = finetune(tmp_path / "other", tie_word_embeddings=True)
    (other / "chat_template.jinja").write_text(TEMPLATE.replace("<s>assistant ", "<s>assistant w1 "))
    made = export_foundation(registry, other, "other", OPTIONS)
    assert made.twin == registry.foundation("tied").file.digest
    alone, foundation, program = exported_alone(other, tmp_path / "alone")
    assert registry.blobs.read(made.foundation.file.digest) == foundation
    assert registry.blobs.read(made.base_program.digest) == program
    assert described(registry, "other") == described(alone, "alone")
    for own, twins in zip(described(registry, "other"), described(registry, "tied"), strict=True):
        assert own != twins


def test_another_pattern_of_equal_tensors_gets_a_full_export_and_says_so(tiny_store: Path, tmp_path: Path) -> None:
    registry = Registry.open(tiny_store)
    other = finetune(tmp_path / "other")
    tensors = load_file(other / "model.safetensors")
    tensors["model.layers.1.self_attn.q_proj.weight"] = tensors["model.layers.0.self_attn.q_proj.weight"].clone()
    save_file(tensors, other / "model.safetensors", metadata={"format": "pt"})
    said: list[str] = []
    made = export_foundation(registry, other, "other", OPTIONS, said.append)
    assert made.twin is None
    assert any(phrase.startswith("a full export: ") and "are equal here" in phrase for phrase in said)
    files = [registry.blobs.path(made.base_program.digest), registry.blobs.path(made.foundation.file.digest)]
    assert prefill_and_decode(*files, TOKENS).isfinite().all()


@pytest.mark.parametrize("changes", [{"rope_theta": 20000.0}, {"eos_token_id": 3}, {"rms_norm_eps": 1e-3}])
def test_another_config_is_no_twin(changes: dict[str, object], tiny_store: Path, tmp_path: Path) -> None:
    from exporter.base import read_base
    from exporter.finetune import find_twin
    from exporter.recipe import Recipe

    registry = Registry.open(tiny_store)
    with read_base(finetune(tmp_path / "same")) as same, read_base(finetune(tmp_path / "other", **changes)) as other:
        assert find_twin(registry, same, Recipe(), 64) == registry.foundation("plain")
        assert find_twin(registry, other, Recipe(), 64) is None
        assert find_twin(registry, same, Recipe(), 32) is None


def one_layer(directory: Path, family: str, seed: int, dtype: torch.dtype = torch.float32, **changes: Any) -> Path:
    """A random checkpoint of one layer."""
    name, own = FAMILIES[family]
    torch.manual_seed(seed)
    sizes = {**SIZES, "num_hidden_layers": 1, "intermediate_size": 64, **own, **changes}
    model = getattr(transformers, f"{name}ForCausalLM")(getattr(transformers, f"{name}Config")(**sizes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model.to(dtype).save_pretrained(directory)
    return directory


KINDS: dict[str, tuple[str, torch.dtype, str, dict[str, int]]] = {
    "copied, one added to its norms in the graph, the head tied": (
        "gemma",
        torch.float32,
        "F32",
        {"copy": 12, "constant": 3},
    ),
    "copied, rows of fused projections split in the graph": ("phi3", torch.float32, "F32", {"copy": 9, "constant": 3}),
    "widened from bf16": ("qwen2.5", torch.bfloat16, "F32", {"cast": 15, "constant": 3}),
    "rounded to fp16": ("llama-with-biases", torch.float32, "F16", {"cast": 19, "constant": 3}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_fine_tune_of_every_kind_of_derivation_gets_the_files_of_a_full_export(kind: str, tmp_path: Path) -> None:
    family, dtype, stored, derived = KINDS[kind]
    options, registry = ExportOptions(context=16, recipe=Recipe(stored)), Registry.init(tmp_path / "home")
    export_foundation(registry, one_layer(tmp_path / "known", family, 0, dtype), "known", options)
    known = registry.foundation("known")
    assert Counter(Derivations.of(registry, known)(tensor).how for tensor in known.tensors) == derived

    other = one_layer(tmp_path / "other", family, 1, dtype)
    made = export_foundation(registry, other, "other", options)
    assert made.twin == known.file.digest
    alone, foundation, program = exported_alone(other, tmp_path / "alone", options)
    assert registry.blobs.read(made.foundation.file.digest) == foundation
    assert registry.blobs.read(made.base_program.digest) == program
    assert made.foundation.tensors == alone.foundation("alone").tensors
    assert made.foundation.modules == alone.foundation("alone").modules


def test_a_fine_tune_in_another_dtype_than_its_twin_is_cast_from_its_own(tiny_store: Path, tmp_path: Path) -> None:
    registry, other = Registry.open(tiny_store), finetune(tmp_path / "other")
    tensors = {name: tensor.bfloat16() for name, tensor in load_file(other / "model.safetensors").items()}
    save_file(tensors, other / "model.safetensors", metadata={"format": "pt"})
    made = export_foundation(registry, other, "other", OPTIONS)
    assert made.twin == registry.foundation("plain").file.digest
    assert registry.blobs.read(made.foundation.file.digest) == exported_alone(other, tmp_path / "alone")[1]


def test_what_only_an_export_can_make_is_exported_in_full_and_says_so(tmp_path: Path) -> None:
    recipe = recipe_of("F32", Quantization())
    options, registry = ExportOptions(context=16, recipe=recipe), Registry.init(tmp_path / "home")
    export_foundation(registry, one_layer(tmp_path / "known", "llama", 0), "known", options)
    said: list[str] = []
    other = one_layer(tmp_path / "other", "llama", 1)
    made = export_foundation(registry, other, "other", options, said.append)
    assert made.twin is None
    (reason,) = (phrase for phrase in said if phrase.startswith("a full export: "))
    assert reason.endswith("proj.weight is stored in a form that only an export makes of it")


def test_a_weight_that_happens_to_equal_a_constant_of_the_graph_is_not_written_over_it(tmp_path: Path) -> None:
    """RMSNorm's mean is a row of 1/32 in the foundation; a norm of such weights has the very same bytes."""
    registry, known = Registry.init(tmp_path / "home"), one_layer(tmp_path / "known", "llama", 0)
    tensors = load_file(known / "model.safetensors")
    tensors["model.norm.weight"].fill_(1 / 32)
    save_file(tensors, known / "model.safetensors", metadata={"format": "pt"})
    options, said = ExportOptions(context=16), list[str]()
    export_foundation(registry, known, "known", options)

    other = one_layer(tmp_path / "other", "llama", 1)
    made = export_foundation(registry, other, "other", options, said.append)
    assert made.twin is None
    (reason,) = (phrase for phrase in said if phrase.startswith("a full export: "))
    assert "does not say of what" in reason
    assert "model.norm.weight" in reason


def test_a_weight_that_comes_to_equal_a_constant_under_another_key_gets_a_full_export(
    tiny_store: Path, tmp_path: Path
) -> None:
    registry, other = Registry.open(tiny_store), finetune(tmp_path / "other")
    tensors = load_file(other / "model.safetensors")
    tensors["model.norm.weight"] = torch.full((32,), 1 / 32)  # the row with which every norm takes its mean
    save_file(tensors, other / "model.safetensors", metadata={"format": "pt"})
    said: list[str] = []
    made = export_foundation(registry, other, "other", OPTIONS, said.append)
    assert made.twin is None
    assert any("model.norm.weight" in phrase and "are equal here" in phrase for phrase in said)
    assert registry.blobs.read(made.foundation.file.digest) == exported_alone(other, tmp_path / "alone")[1]


def tensor(*names: str, dtype: str = "F32", shape: tuple[int, ...] = (4, 2)) -> ExternalTensor:
    return ExternalTensor("key", names, Digest.of(b""), 32, 0, dtype, shape)


@pytest.mark.parametrize(
    ("entry", "derivation"),
    [
        (tensor("a.weight"), Derivation("copy", "a.weight")),
        (tensor("b.weight"), Derivation("cast", "b.weight")),
        (tensor("a.weight", dtype="F16"), Derivation("cast", "a.weight")),
        (tensor("a.weight", dtype="U8", shape=(4, 1)), Derivation("packed", "a.weight")),
        (tensor("a.weight", shape=(2, 4)), Derivation("packed", "a.weight")),
        (tensor("ids", shape=(4,)), Derivation("packed", "ids")),
        (tensor("a.weight_scale", dtype="BF16", shape=(4, 1)), Derivation("packed", "a.weight")),
        (tensor("a.weight", "head.weight"), Derivation("copy", "a.weight")),
        (tensor("a.weight", "b.weight"), Derivation("copy", "a.weight")),
        (tensor("mean_row"), Derivation("constant")),
        (tensor("mean_row", "half_turn"), Derivation("constant")),
        (tensor("mean_row", "a.weight"), Derivation("unknown")),
        (tensor("head.weight", "b.weight"), Derivation("unknown")),
        (tensor(), Derivation("unknown")),
    ],
)
def test_the_tables_say_how_a_tensor_derives(entry: ExternalTensor, derivation: Derivation) -> None:
    base = {"a.weight": ("F32", (4, 2)), "b.weight": ("BF16", (4, 2)), "ids": ("I64", (4,))}
    assert Derivations(base, [["a", "head"]])(entry) == derivation
