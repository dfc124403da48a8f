"""Any torch module has one foundation too, and adapters that equal PEFT in ExecuTorch's runtime."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.runtime import Runtime
from peft import PeftModel
from safetensors.torch import save_file
from torch import nn

from exporter.base import fingerprint, read_base
from exporter.export import Job, export_adapter
from exporter.foundation import ExportOptions
from exporter.module_export import ModuleSource, load_module
from exporter.module_foundation import export_module
from exporter.module_weights import with_own_storage
from exporter.publish import Published, PublishOptions, publish
from exporter.recipe import Quantization, Recipe, recipe_of
from exporter.sources import recipe_for
from registry.errors import Conflict, InputError, IntegrityError
from registry.formats.pte import read_pte
from registry.relocation import RelocationTable
from registry.service import Registry
from tests.exporter.adapters import saved, trained
from tests.exporter.conftest import FACTORIES, HERE

TARGETS: dict[str, dict[str, Any]] = {
    "bert": {"target_modules": ["query", "value", "dense"]},
    "vit": {"target_modules": ["q_proj", "explorable_proj"], "use_dora": True},
    "gpt2": {"target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True, "lora_alpha": 1},
    "branches": {"target_modules": ["warm", "cold", "common", "embed"]},
}


@pytest.fixture(scope="module")
def registry(modules_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Registry:
    return Registry.open(Path(shutil.copytree(modules_home, tmp_path_factory.mktemp("modules") / "home")))


def run(registry: Registry, program: Any, foundation: Any, inputs: tuple[Any, ...]) -> torch.Tensor:
    paths = str(registry.blobs.path(program)), str(registry.blobs.path(foundation))
    output: torch.Tensor = (
        Runtime.get().load_program(paths[0], data_path=paths[1]).load_method("forward").execute(inputs)[0]
    )
    return output


def source_of(name: str) -> ModuleSource:
    return load_module(f"{HERE}:{name}")


def adapter(name: str, directory: Path, seed: int = 1, **options: Any) -> tuple[Path, torch.Tensor]:
    """An adapter that live PEFT made for a factory's module, and what PEFT answers with it."""
    source = source_of(name)
    peft_model = trained(source.root, seed, **(options or TARGETS[name]))
    with torch.no_grad():
        expected: torch.Tensor = peft_model(*source.inputs)
    return saved(peft_model, directory), expected


def published(registry: Registry, name: str, directory: Path, seed: int = 1) -> tuple[Published, torch.Tensor]:
    where, expected = adapter(name, directory, seed)
    return publish(registry, where, PublishOptions(name, f"{name}-{seed}")), expected


@pytest.mark.parametrize("name", FACTORIES)
def test_a_base_program_answers_like_its_module(name: str, registry: Registry) -> None:
    foundation = registry.foundation(name)
    (program,) = (each for each in registry.templates(foundation.file.digest) if not each.structure["modules"])
    source = source_of(name)
    actual = run(registry, program.hollow.digest, foundation.file.digest, source.inputs)
    assert (actual - source.root(*source.inputs)).abs().max() < 1e-5
    assert (program.context, program.kv_cache_bytes) == (1, 0)


@pytest.mark.parametrize("name", FACTORIES)
def test_an_adapter_on_a_module_equals_peft_and_the_next_is_relinked(
    name: str, registry: Registry, tmp_path: Path
) -> None:
    before = registry.foundation(name)
    source = source_of(name)
    plain = source.root(*source.inputs)
    for seed, relinked in ((1, False), (2, True)):
        made, expected = published(registry, name, tmp_path / str(seed), seed)
        actual = run(registry, made.build.file.digest, made.build.foundation, source.inputs)
        assert made.relinked == relinked
        assert (expected - plain).abs().max() > 1e-2
        assert (actual - expected).abs().max() < 1e-5
    assert registry.foundation(name) == before


def test_dora_and_biases_on_conv1d_equal_peft(registry: Registry, tmp_path: Path) -> None:
    options = {"target_modules": ["c_attn"], "fan_in_fan_out": True, "use_dora": True, "bias": "lora_only"}
    directory, expected = adapter("gpt2", tmp_path, **options, lora_alpha=1)
    made = publish(registry, directory, PublishOptions("gpt2", "gpt2-dora"))
    actual = run(registry, made.build.file.digest, made.build.foundation, source_of("gpt2").inputs)
    assert (actual - expected).abs().max() < 1e-5


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("language_model", {"wte": [3, 9, 60]}),  # PEFT finds the tie in its config: the head follows
        ("language_model", {"lm_head": [9, 60], "wte": [1]}),
        ("tied", {"embed": [3, 9, 60]}),  # and none here: the head keeps the base's rows
        ("tied", {"lm_head": [9]}),
    ],
)
def test_a_tied_head_follows_trained_rows_where_it_does_in_peft_at_every_token(
    name: str, tokens: dict[str, list[int]], tmp_path: Path
) -> None:
    registry = Registry.init(tmp_path / "home")
    export_module(registry, f"{HERE}:{name}", name, ExportOptions())
    target = "c_attn" if name == "language_model" else "inner"
    directory, expected = adapter(name, tmp_path / "adapter", target_modules=[target], trainable_token_indices=tokens)
    made = publish(registry, directory, PublishOptions(name, "rows"))
    source = source_of(name)
    actual = run(registry, made.build.file.digest, made.build.foundation, source.inputs)
    assert (expected - source.root(*source.inputs)).abs().max() > 1e-2
    assert (actual - expected).abs().max() < 1e-5


def test_a_relinked_adapter_of_a_module_is_its_full_export(registry: Registry, tmp_path: Path) -> None:
    made, _ = published(registry, "branches", tmp_path, seed=7)
    foundation, build = registry.foundation("branches"), made.build
    job = Job(source_of("branches"), recipe_for(registry, foundation), 1, lambda _: None)
    factors = torch.frombuffer(bytearray(registry.blobs.read(build.factors.digest)), dtype=torch.float32)
    table = RelocationTable.from_bytes(registry.blobs.read(made.template.table.digest))
    tensors, at = {}, 0
    for slot in table.slots:
        count = slot.size // 4
        tensors |= dict.fromkeys(slot.names, factors[at : at + count].reshape(slot.shape).clone())
        at += count
    assert export_adapter(job, made.structure, tensors) == registry.blobs.read(build.file.digest)


def test_weights_inside_a_branch_leave_the_program(registry: Registry, tmp_path: Path) -> None:
    foundation = registry.foundation("branches")
    names = {name for tensor in foundation.tensors for name in tensor.names}
    assert {"warm.weight", "cold.weight", "common.weight", "embed.weight"} <= names
    made, _ = published(registry, "branches", tmp_path, seed=3)
    pte = read_pte(registry.blobs.read(made.build.file.digest))
    inside = sum(part.size for part in (*pte.inline, *pte.constants))
    in_both = 2 * 4 * 16 * 4  # the factors of `common`, once in a delegate and once for the branches
    assert inside < made.build.factors.size + in_both + 256


def test_a_name_that_contains_lora_is_the_base_own(registry: Registry) -> None:
    names = {name for tensor in registry.foundation("vit").tensors for name in tensor.names}
    assert {"explorable_proj.weight", "explorable_proj.bias"} <= names


def test_every_tensor_of_a_foundation_has_a_name(registry: Registry) -> None:
    assert [t.key for name in FACTORIES for t in registry.foundation(name).tensors if not t.names] == []


def test_a_dead_target_is_recorded_and_warned_about(registry: Registry, tmp_path: Path) -> None:
    foundation = registry.foundation("bert")
    modules = json.loads(registry.blobs.read(foundation.modules.digest))
    assert modules["dead"] == ["bert.pooler.dense"]
    made, _ = published(registry, "bert", tmp_path, seed=4)
    assert any("bert.pooler.dense" in warning and "no effect" in warning for warning in made.build.warnings)


def test_the_same_module_is_not_exported_again(registry: Registry) -> None:
    again = export_module(registry, f"{HERE}:bert", "also-bert", ExportOptions())
    assert not again.fresh
    assert again.foundation == registry.foundation("bert")


def test_views_of_one_matrix_are_exported_as_what_they_show(tmp_path: Path) -> None:
    registry = Registry.init(tmp_path / "home")
    made = export_module(registry, f"{HERE}:views", "views", ExportOptions())
    source = source_of("views")
    actual = run(registry, made.base_program.hollow.digest, made.foundation.file.digest, source.inputs)
    assert (actual - source.root(*source.inputs)).abs().max() < 1e-5


def test_weights_that_xnnpack_makes_of_others_are_refused_with_the_way_out(tmp_path: Path) -> None:
    registry = Registry.init(tmp_path / "home")
    with pytest.raises(InputError, match=r"unfolded: 1792 bytes of weights would stay inside every program") as caught:
        export_module(registry, f"{HERE}:unfolded", "pixels", ExportOptions())
    assert "fuse_conv_bn_eval" in caught.value.hint
    assert registry.foundations() == ()
    made = export_module(registry, f"{HERE}:folded", "pixels", ExportOptions())
    source = source_of("folded")
    actual = run(registry, made.base_program.hollow.digest, made.foundation.file.digest, source.inputs)
    assert (actual - source.root(*source.inputs)).abs().max() < 1e-5
    assert {name for tensor in made.foundation.tensors for name in tensor.names} >= {"conv.weight", "conv.bias"}


CHANGING = """
import json
from pathlib import Path

import torch
from torch import nn

SETTINGS = json.loads((Path(__file__).parent / "settings.json").read_text())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(SETTINGS["seed"])
        self.proj = nn.Linear(8, 8)

    def forward(self, x):
        return self.proj(x) * SETTINGS["scale"]


def make():
    made = {"module": Net(), "inputs": (torch.ones(1, 8),)}
    return {**made, "checkpoint": SETTINGS["checkpoint"]} if "checkpoint" in SETTINGS else made
"""


@pytest.fixture
def changing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """`changing(seed=…, scale=…)` answers a factory in the current directory that says so from now on."""
    name = f"changing_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(CHANGING)
    monkeypatch.chdir(tmp_path)

    def change(**settings: Any) -> str:
        (tmp_path / "settings.json").write_text(json.dumps({"seed": 0, "scale": 1.0, **settings}))
        sys.modules.pop(name, None)
        return f"{name}:make"

    return change


def net_adapter(spec: str, directory: Path, rank: int) -> Path:
    return saved(trained(load_module(spec).root, target_modules=["proj"], r=rank), directory)


def test_a_factory_that_changed_is_noticed(changing: Callable[..., str], tmp_path: Path) -> None:
    registry = Registry.init(tmp_path / "home")
    spec = changing()
    export_module(registry, spec, "net", ExportOptions())
    directory = net_adapter(spec, tmp_path / "adapter", rank=2)

    changing(seed=1)
    with pytest.raises(IntegrityError, match="holds another model"):
        publish(registry, directory, PublishOptions("net", "a"))
    changing(scale=2.0)
    with pytest.raises(Conflict, match="computes something else than the foundation's base program"):
        publish(registry, directory, PublishOptions("net", "a"))
    assert registry.adapters() == ()

    assert export_module(registry, spec, "net", ExportOptions()).fresh
    made = publish(registry, directory, PublishOptions("net", "a"))
    actual = run(registry, made.build.file.digest, made.build.foundation, (torch.ones(1, 8),))
    expected = PeftModel.from_pretrained(load_module(spec).root, directory)(torch.ones(1, 8))
    assert (actual - expected).abs().max() < 1e-5


def test_a_module_with_a_checkpoint_is_known_by_its_fingerprint(changing: Callable[..., str], tmp_path: Path) -> None:
    module = load_module(changing()).root
    held = tmp_path / "checkpoint"
    held.mkdir()
    (held / "config.json").write_text("{}")
    tensors = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    save_file(tensors, held / "model.safetensors")

    with read_base(held) as checkpoint:
        assert fingerprint(load_module(changing(checkpoint=str(held))).tensors) == fingerprint(checkpoint.tensors)
    with pytest.raises(InputError, match=r"proj.weight of its module differs from its checkpoint's|proj.bias of"):
        load_module(changing(checkpoint=str(held), seed=1))
    save_file({"proj.weight": tensors["proj.weight"]}, held / "model.safetensors")
    with pytest.raises(InputError, match=r"lacks proj\.bias"):
        load_module(changing(checkpoint=str(held)))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("tests/exporter/factories.py", "is no factory"),
        ("no_such_module_here:make", "no_such_module_here cannot be imported: ModuleNotFoundError"),
        (f"{HERE}:missing", "has no function 'missing'"),
        (f"{HERE}:nothing", "answers a NoneType that says nothing"),
        (f"{HERE}:broken", "failed: ZeroDivisionError: no model today"),
        (f"{HERE}:shaken", "failed: TypeError"),
    ],
)
def test_what_is_no_factory_is_one_sentence(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_module(spec)


def test_a_module_that_cannot_be_traced_is_refused_before_anything_is_stored(tmp_path: Path) -> None:
    registry = Registry.init(tmp_path / "home")
    with pytest.raises(InputError, match=r"torch\.export cannot trace the module of"):
        export_module(registry, f"{HERE}:untraceable", "odd", ExportOptions())
    assert registry.foundations() == ()
    assert list(registry.blobs.descriptors()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ExportOptions(context=64), "a module has no context"),
        (ExportOptions(recipe=Recipe("F16")), "a module is exported in fp32"),
        (ExportOptions(recipe=recipe_of("F32", Quantization())), "a module is exported in fp32"),
    ],
)
def test_options_that_mean_nothing_for_a_module_are_refused(
    options: ExportOptions, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        export_module(Registry.init(tmp_path / "home"), f"{HERE}:bert", "bert", options)


def test_tied_weights_stay_tied_when_they_are_views() -> None:
    root = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    root[0].weight = root[1].weight = nn.Parameter(torch.randn(8, 4)[4:])
    expected = root[0].weight.clone()
    with_own_storage(root)
    assert root[0].weight is root[1].weight
    assert root[0].weight.untyped_storage().nbytes() == 64
    assert torch.equal(root[0].weight, expected)
