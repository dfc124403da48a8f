"""fp16 foundations: half the bytes, and no farther from fp32 than transformers' own fp16 is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from exporter.base import read_base
from exporter.export import Job, export_base
from exporter.foundation import ExportOptions, export_foundation
from exporter.publish import PublishOptions, publish
from exporter.recipe import recipe_of
from registry.artifacts import Foundation
from registry.errors import InputError, IntegrityError
from registry.formats.pte import read_pte
from registry.links import check_links
from registry.service import Registry
from tests.exporter.test_families import TOKENS, save
from tests.exporter.test_peft_runtime import train
from tests.runtime import prefill_and_decode, reference

FP16 = recipe_of("F16", None)
AS_FAR = 3.0
"""Times transformers' own distance between fp16 and fp32: operators of the two round in other places."""


def half_of(directory: Path) -> torch.Tensor:
    return reference(AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float16).eval(), TOKENS)


@pytest.mark.parametrize("family", ["llama-with-biases", "mistral-sliding", "qwen3", "phi4-mini-longrope", "gemma"])
def test_a_family_in_fp16_is_as_near_to_fp32_as_transformers_is(family: str, tmp_path: Path) -> None:
    expected = reference(save(tmp_path, family), TOKENS)
    with read_base(tmp_path) as checkpoint:
        made = export_base(Job(checkpoint, FP16, 64, lambda _: None), tmp_path)
    error = (prefill_and_decode(made.program, made.foundation, TOKENS) - expected).abs().max()
    theirs = (half_of(tmp_path) - expected).abs().max()
    assert 0 < error < AS_FAR * theirs
    assert error < 1e-2 * expected.abs().max()


@pytest.mark.parametrize("family", ["gemma2", "gemma3"])
def test_a_family_that_passes_fp16s_range_is_refused(family: str, tmp_path: Path) -> None:
    save(tmp_path, family)
    with read_base(tmp_path) as checkpoint, pytest.raises(InputError, match="activations pass fp16's largest number"):
        export_base(Job(checkpoint, FP16, 64, lambda _: None), tmp_path)


def test_a_weight_that_passes_fp16s_range_is_refused_by_name(tmp_path: Path) -> None:
    save(tmp_path, "llama")
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["model.norm.weight"][0] = 1e5
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with (
        read_base(tmp_path) as checkpoint,
        pytest.raises(InputError, match=r"model\.norm\.weight: a value passes"),
    ):
        export_base(Job(checkpoint, FP16, 64, lambda _: None), tmp_path)


@pytest.fixture(scope="module")
def home(
    made_once: Callable[[str, Callable[[Path], None]], Path],
    exported_home: Path,
    bases: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The store in which `plain` is an fp32 foundation, with an fp16 one of the same base beside it: `half`."""

    def make(directory: Path) -> None:
        shutil.copytree(exported_home, directory, dirs_exist_ok=True)
        export_foundation(Registry.open(directory), bases / "plain", "half", ExportOptions(context=64, recipe=FP16))

    return Path(shutil.copytree(made_once("fp16-home", make), tmp_path_factory.mktemp("fp16") / "home"))


@pytest.fixture(scope="module")
def registry(home: Path) -> Registry:
    return Registry.open(home)


def base_program(registry: Registry, foundation: Foundation) -> bytes:
    return registry.blobs.read(registry.templates(foundation.file.digest)[0].hollow.digest)


def test_a_fine_tune_that_passes_fp16s_range_is_refused_although_it_needs_no_export(
    registry: Registry, bases: Path, tmp_path: Path
) -> None:
    other = Path(shutil.copytree(bases / "plain", tmp_path / "other"))
    tensors = load_file(other / "model.safetensors")
    for name in tensors:
        tensors[name] = tensors[name] + 0.01
    tensors["model.layers.1.mlp.up_proj.weight"][0, 0] = 1e5
    save_file(tensors, other / "model.safetensors", metadata={"format": "pt"})
    before = len(registry.foundations())
    with pytest.raises(InputError, match=r"model\.layers\.1\.mlp\.up_proj\.weight: a value passes"):
        export_foundation(registry, other, "other", ExportOptions(context=64, recipe=FP16))
    assert len(registry.foundations()) == before

    tensors["model.layers.1.mlp.up_proj.weight"][0, 0] = 1.0
    save_file(tensors, other / "model.safetensors", metadata={"format": "pt"})
    made = export_foundation(registry, other, "other", ExportOptions(context=64, recipe=FP16))
    assert made.twin == registry.foundation("half").file.digest


def test_weights_and_cache_take_half_the_bytes(registry: Registry) -> None:
    whole, half = registry.foundation("plain"), registry.foundation("half")
    assert half.base == whole.base
    linear = [tensor for tensor in half.tensors if tensor.names[0].endswith("proj.weight")]
    assert len(linear) == 14
    assert {tensor.dtype for tensor in linear} == {"F16"}
    sizes = {tensor.names: tensor.size for tensor in whole.tensors}
    assert all(2 * tensor.size == sizes[tensor.names] for tensor in linear)
    caches = [registry.templates(each.file.digest)[0].kv_cache_bytes for each in (whole, half)]
    assert caches[0] == 2 * caches[1] == 2 * 2 * 2 * 64 * 2 * 8 * 2


def test_neither_foundation_takes_the_others_programs(registry: Registry) -> None:
    whole, half = registry.foundation("plain"), registry.foundation("half")
    for program, other in ((whole, half), (half, whole)):
        pte = read_pte(base_program(registry, program))
        check_links(pte, program.tensors)
        with pytest.raises(IntegrityError, match="does not fit this foundation"):
            check_links(pte, other.tensors)


@pytest.mark.parametrize("variant", ["lora", "dora"])
def test_an_adapter_in_fp16_is_near_peft_in_fp32_and_its_factors_are_fp16(
    variant: str, registry: Registry, bases: Path, tmp_path: Path
) -> None:
    trained = train(bases / "plain", tmp_path, use_dora=variant == "dora", target_modules=["q_proj", "down_proj"])
    published = publish(registry, trained.directory, PublishOptions("half", variant))
    program = registry.blobs.read(published.build.file.digest)
    file = registry.blobs.path(registry.foundation("half").file.digest)
    answer = prefill_and_decode(program, file, [1, 9, 33, 7, 60, 12, 5, 41, 22, 17])
    assert (trained.logits - trained.base_logits).abs().max() > 0.1
    assert (answer - trained.logits).abs().max() < 2e-2
    pte = read_pte(program)
    assert {pte.layouts[part.key].dtype for part in pte.inline if part.key in pte.layouts} == {"F16"}
