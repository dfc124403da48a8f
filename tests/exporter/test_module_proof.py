"""A build on a factory's module is proven against live PEFT on that module; wrong and idle ones are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from exporter.asking import asked_of
from exporter.figures import judge
from exporter.foundation import ExportOptions
from exporter.module_export import load_module
from exporter.module_foundation import export_module
from exporter.module_probes import built_in, unvaried
from exporter.module_proof import ModuleFigures, differ
from exporter.proof import ProofOptions, Proven, prove_build
from exporter.publish import PublishOptions, publish
from exporter.recipe import Recipe
from registry.artifacts import Build
from registry.errors import InputError, ProofFailed
from registry.release import ReleaseDocument
from registry.service import Registry
from tests.exporter.adapters import saved, trained
from tests.exporter.conftest import FACTORIES, HERE
from tests.exporter.test_proof import with_factors

TARGETS: dict[str, dict[str, Any]] = {
    "bert": {"target_modules": ["query", "value", "dense"], "task_type": "FEATURE_EXTRACTION"},
    "vit": {"target_modules": ["q_proj", "explorable_proj"], "use_dora": True, "bias": "lora_only"},
    "gpt2": {"target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True, "lora_alpha": 1},
    "branches": {"target_modules": ["warm", "cold", "common", "embed"]},
}


@pytest.fixture(scope="module")
def registry(modules_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Registry:
    return Registry.open(Path(shutil.copytree(modules_home, tmp_path_factory.mktemp("module-proof") / "home")))


def published(registry: Registry, name: str, directory: Path, seed: int = 1, **options: Any) -> Build:
    model = trained(load_module(f"{HERE}:{name}").root, seed, **(options or TARGETS[name]))
    return publish(registry, saved(model, directory), PublishOptions(name, f"{name}-{directory.name[:40]}")).build


def document_of(registry: Registry, proven: Proven) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(registry.blobs.read(proven.document.digest))
    return read


@pytest.mark.parametrize("name", FACTORIES)
def test_right_adapters_of_a_module_are_proven_exported_and_relinked_alike(
    name: str, registry: Registry, tmp_path: Path
) -> None:
    for seed in (1, 2):
        build = published(registry, name, tmp_path / f"right-{seed}", seed)
        proven, kept = prove_build(registry, build, ProofOptions())
        assert proven.figures.error < 2e-5 * proven.figures.scale
        assert proven.figures.from_base > 1000 * proven.figures.from_reference
        assert kept == registry.proof(build)
        assert (kept.self_test, proven.self_test) == (None, None)
        document = document_of(registry, proven)
        assert (document["build"], document["module"]) == (str(build.file.digest), f"{HERE}:{name}")
        assert document["figures"]["max_error"] == proven.figures.error
        assert document["allowed_error"] == pytest.approx(1e-4 * proven.figures.scale)
        assert "self_test" not in document


def test_proving_a_module_again_gives_the_same_document(registry: Registry, tmp_path: Path) -> None:
    build = published(registry, "branches", tmp_path / "again")
    assert prove_build(registry, build, ProofOptions()) == prove_build(registry, build, ProofOptions())


def test_releases_carry_no_self_test_of_a_proven_module(registry: Registry, tmp_path: Path) -> None:
    build = published(registry, "vit", tmp_path / "released")
    registry.create_channel("proven", require_proof=True)
    prove_build(registry, build, ProofOptions())
    number = registry.create_release("proven", [f"{build.adapter}@{build.version}"]).release.number
    document = ReleaseDocument.from_bytes(registry.blobs.read(registry.release(number).document.digest))
    assert document.lines[0].adapters[0].self_test is None
    assert registry.verify(fast=True).clean


def test_a_program_of_other_factors_is_refused_with_both_figures(registry: Registry, tmp_path: Path) -> None:
    right = published(registry, "bert", tmp_path / "wrong")
    wrong = with_factors(registry, right, "wrong", lambda name, v: v * 1.02 if name.endswith("lora_B") else v)
    with pytest.raises(ProofFailed, match=r"wrong@1\.0\.0 is off the reference: the largest error is 0\.\d+") as caught:
        prove_build(registry, wrong, ProofOptions())
    figures = caught.value.values["figures"]
    assert figures["distance_from_base"] > figures["distance_from_reference"] > 1e-4
    assert f"from the plain base {figures['distance_from_base']:.3g} (values up to" in caught.value.message
    assert registry.proof(wrong) is None


def test_an_adapter_without_effect_is_refused(registry: Registry, tmp_path: Path) -> None:
    faint = published(registry, "branches", tmp_path / "faint", **TARGETS["branches"], lora_alpha=1e-7)
    dead = published(registry, "bert", tmp_path / "dead", target_modules=["bert.pooler.dense"])  # of no output
    for idle in (faint, dead):
        with pytest.raises(ProofFailed, match=r"@1\.0\.0 is no different from the plain base: distance from"):
            prove_build(registry, idle, ProofOptions())


@pytest.fixture(scope="module")
def nested(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    """A store with modules of nested inputs, and of ordered ones."""
    registry = Registry.init(tmp_path_factory.mktemp("nested") / "home")
    for name in ("scores", "gaps"):
        export_module(registry, f"{HERE}:{name}", name, ExportOptions())
    return registry


def test_a_module_of_nested_inputs_and_several_outputs_is_judged_output_by_output(
    nested: Registry, tmp_path: Path
) -> None:
    build = published(nested, "scores", tmp_path / "a", target_modules=["proj"])
    proven, _ = prove_build(nested, build, ProofOptions())
    document = document_of(nested, proven)
    first, second = document["figures"]["outputs"]
    assert first["distance_from_base"] > 1
    assert (second["max_error"], second["distance_from_base"], second["scale"]) == (0.0, 0.0, 14000.0)
    assert proven.figures.scale == first["scale"]
    assert document["probes"][-1]["shapes"] == [[9, 8], [9, 8], [9], [18]]
    assert document["warnings"] == [
        "input 'pairs' holds one value alone in the factory's inputs, so no probe asks another: show it real ones"
    ]


def test_a_variant_that_the_module_does_not_answer_is_left_out_and_told(nested: Registry, tmp_path: Path) -> None:
    build = published(nested, "gaps", tmp_path / "a", target_modules=["proj"])
    document = document_of(nested, prove_build(nested, build, ProofOptions())[0])
    assert [probe["origin"] for probe in document["probes"]] == ["the factory's inputs"]
    assert document["warnings"][0] == (
        "built in: variant 1 was left out: the module answers built in: variant 1 with NaN"
    )
    assert len(document["warnings"]) == 4


def test_prompts_mean_nothing_to_a_module(registry: Registry, tmp_path: Path) -> None:
    build = published(registry, "branches", tmp_path / "prompts")
    with pytest.raises(InputError, match="a module of its own takes no prompts") as caught:
        asked_of(registry, build, tmp_path / "p.jsonl")
    assert f"the inputs that {HERE}:branches answers" in caught.value.hint


def test_probes_are_the_same_every_time_and_stay_in_the_examples_range() -> None:
    source = load_module(f"{HERE}:bert")
    first, *variants = built_in(source)
    assert torch.equal(first.inputs[0], source.inputs[0])
    assert [probe.shapes for probe in variants] == [[[1, 7]]] * 4 + [[[1, 14]]] * 2
    for probe, again in zip(variants, built_in(load_module(f"{HERE}:bert"))[1:], strict=True):
        assert torch.equal(probe.inputs[0], again.inputs[0])
        assert probe.inputs[0].dtype == torch.int64
        assert 1 <= probe.inputs[0].min() < probe.inputs[0].max() <= 60
    assert len({tuple(probe.inputs[0].flatten().tolist()) for probe in variants}) == 6
    assert unvaried(source) == ()


def test_floats_keep_mean_and_spread_and_what_is_neither_number_stays() -> None:
    source = load_module(f"{HERE}:scores")
    first, *variants = built_in(source)
    mask = first.inputs[0]["mask"]
    for probe in variants:
        batch, rows = probe.inputs[0], len(probe.inputs[0]["mask"])
        assert batch["mask"].tolist() == (2 * mask.tolist())[:rows]
        assert probe.inputs[1].tolist() == [7] * 2 * rows
        for name, example in first.inputs[0].items():
            if name != "mask":
                assert example.min() <= batch[name].min() <= batch[name].max() <= example.max()
                assert (batch[name].mean() - example.mean()).abs() < 0.2
    assert not torch.equal(variants[0].inputs[0]["low"], variants[1].inputs[0]["low"])


def test_equal_infinities_do_not_differ_and_nan_is_off_whatever_else_is_right() -> None:
    inf = float("inf")
    expected, plain = torch.tensor([1.0, -inf, -4.0]), torch.tensor([1.0, -inf, 0.0])
    assert differ(expected, expected, plain) == differ(expected.clone(), expected, plain)
    right = differ(expected, expected, plain)
    assert (right.error, right.scale, right.off, right.away, right.count) == (0.0, 4.0, 0.0, 16.0, 3)
    broken = differ(torch.tensor([1.0, float("nan"), -4.0]), expected, plain)
    for probes in ([[right], [broken]], [[broken], [right]]):
        with pytest.raises(ProofFailed, match="is off the reference: the largest error is nan"):
            judge("a", Recipe(), ModuleFigures.of(probes))
    judge("a", Recipe(), ModuleFigures.of([[right]]))


def test_whole_numbers_must_be_equal_and_the_output_that_is_farthest_off_for_its_size_decides() -> None:
    large, small = torch.tensor([1e6, 2e6]), torch.tensor([0.5, 0.25])
    fine = differ(large + 10, large, large + 9e5)
    off = differ(small + 0.001, small, small)
    figures = ModuleFigures.of([[fine, off]])
    assert (figures.error, figures.scale) == (pytest.approx(0.001, rel=1e-3), 0.5)
    assert figures.from_base > 8e5
    with pytest.raises(ProofFailed, match=r"the largest error is 0\.001"):
        judge("a", Recipe(), figures)
    judge("a", Recipe(), ModuleFigures.of([[fine, differ(small, small, small)]]))
    other = differ(torch.tensor([3, 8]), torch.tensor([3, 7]), torch.tensor([1, 1]))
    with pytest.raises(ProofFailed, match=r"the largest error is 1, at most 0\.0007"):
        judge("a", Recipe(), ModuleFigures.of([[other]]))
