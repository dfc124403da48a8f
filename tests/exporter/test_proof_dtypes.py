"""Proofs on foundations that are not plain fp32: what may differ, and where it is judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.foundation import ExportOptions, export_foundation
from exporter.proof import ProofOptions, prove_build
from exporter.publish import PublishOptions, publish
from exporter.recipe import Quantization, Recipe, recipe_of
from registry.errors import ProofFailed
from registry.selftest import SelfTest
from registry.service import Registry
from tests.conftest import save_llama, save_tokenizer
from tests.exporter.test_peft_runtime import train
from tests.exporter.test_proof import with_factors

RECIPES = {"int4": recipe_of("F32", Quantization(32, 4)), "fp16": Recipe("F16")}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    """A store whose one base, three layers deep, is stored in both ways."""
    directory = tmp_path_factory.mktemp("deep")
    (directory / "base").mkdir()
    save_llama(directory / "base", num_hidden_layers=3, intermediate_size=64)
    save_tokenizer(directory / "base")
    registry = Registry.init(directory / "home")
    for name, recipe in RECIPES.items():
        export_foundation(registry, directory / "base", name, ExportOptions(context=64, recipe=recipe))
    return registry


@pytest.fixture
def trained(registry: Registry, tmp_path: Path) -> Callable[[], Path]:
    """An adapter on all three layers."""
    base = Path(registry.bases()[0].hint)
    return train(base, tmp_path, target_modules=["q_proj", "v_proj"]).directory


def test_a_deep_quantized_build_is_judged_by_its_first_layers(registry: Registry, trained: Path) -> None:
    build = publish(registry, trained, PublishOptions("int4", "a")).build
    made, _ = prove_build(registry, build, ProofOptions())
    assert made.first_layers is not None
    document = json.loads(registry.blobs.read(made.document.digest))
    assert document["first_layers"]["layers"] == 2
    assert document["allowed_error"] == pytest.approx(2e-2 * made.first_layers.scale)
    assert made.first_layers.error < document["allowed_error"]
    assert made.figures.from_base > 20 * made.figures.from_reference
    assert SelfTest.from_bytes(registry.blobs.read(made.self_test.digest)).agreement == 0.9

    wrong = with_factors(registry, build, "wrong", lambda name, values: values * 1.5 if "lora_B" in name else values)
    with pytest.raises(ProofFailed, match="off the reference: the largest error of the first layers is"):
        prove_build(registry, wrong, ProofOptions())


def test_a_quantized_build_without_its_adapter_is_refused_by_distance(registry: Registry, trained: Path) -> None:
    build = publish(registry, trained, PublishOptions("int4", "b")).build
    late = with_factors(
        registry,
        build,
        "late",
        lambda name, values: values * 1e-4 if "lora_B" in name and "layers.2." in name else values,
    )
    figures = prove_build(registry, build, ProofOptions())[0].figures
    with pytest.raises(ProofFailed) as caught:
        prove_build(registry, late, ProofOptions())
    assert caught.value.values["figures"]["distance_from_reference"] > 10 * figures.from_reference


def test_an_fp16_build_is_proven_within_fp16(registry: Registry, trained: Path) -> None:
    build = publish(registry, trained, PublishOptions("fp16", "a")).build
    made, _ = prove_build(registry, build, ProofOptions())
    assert made.first_layers is None
    assert 1e-4 * made.figures.scale < made.figures.error < 2e-2 * made.figures.scale
    wrong = with_factors(registry, build, "half", lambda name, values: values * 0.9 if "lora_B" in name else values)
    with pytest.raises(ProofFailed, match="off the reference"):
        prove_build(registry, wrong, ProofOptions())
