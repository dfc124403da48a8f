from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from exporter.foundation import ExportOptions, export_foundation
from exporter.publish import PublishOptions, publish
from registry.service import Registry
from tests.conftest import save_llama, save_tokenizer
from tests.exporter.test_peft_runtime import TOKENS, train
from tests.runtime import prefill_and_decode

OPTIONS = ExportOptions(context=64)


def exported_alone(checkpoint: Path, directory: Path) -> tuple[Registry, bytes, bytes]:
    """A full export in a store of its own: the registry, the `.ptd` and the base program."""
    registry = Registry.init(directory)
    made = export_foundation(registry, checkpoint, "alone", OPTIONS)
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


def test_a_tied_fine_tune_is_retargeted_too(tiny_store: Path, tmp_path: Path) -> None:
    registry = Registry.open(tiny_store)
    other = finetune(tmp_path / "other", tie_word_embeddings=True)
    made = export_foundation(registry, other, "other", OPTIONS)
    assert made.twin == registry.foundation("tied").file.digest
    _, foundation, program = exported_alone(other, tmp_path / "alone")
    assert registry.blobs.read(made.foundation.file.digest) == foundation
    assert registry.blobs.read(made.base_program.digest) == program


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
