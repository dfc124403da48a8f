"""A proof runs the published files against PEFT: right adapters pass, wrong and idle ones are refused with figures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from device.doctor import File
from device.run import Model
from device.selftest import agreeing
from exporter.asking import asked_of
from exporter.linker import Gate, card_of
from exporter.proof import ProofOptions, Proven, prove_build
from exporter.publish import PublishOptions, publish
from exporter.recipe import Recipe
from exporter.reference import Reference
from registry.artifacts import Build
from registry.digest import Digest
from registry.errors import FormatError, InputError, ProofFailed
from registry.release import ReleaseDocument
from registry.relink import relink, unpack
from registry.relocation import RelocationTable
from registry.selftest import SelfTest
from registry.service import Registry
from tests.exporter.adapters import q_tensors, write
from tests.exporter.test_peft_runtime import randomize, train


@pytest.fixture(scope="module")
def registry(worker_home: Path) -> Registry:
    return Registry.open(worker_home)


@pytest.fixture(scope="module")
def right(registry: Registry, bases: Path, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """An adapter as PEFT saved it, published."""
    directory = tmp_path_factory.mktemp("right")
    train(bases / "plain", directory)
    return publish(registry, directory, PublishOptions("plain", "right")).build


@pytest.fixture(scope="module")
def proven(registry: Registry, right: Build) -> Proven:
    return prove_build(registry, right, ProofOptions())[0]


def files(registry: Registry, program: Digest, foundation: Digest) -> Model:
    path = registry.blobs.path
    return Model(File(path(program), "the adapter", program), File(path(foundation), "the foundation", foundation))


def with_factors(registry: Registry, build: Build, name: str, edit: Callable[[str, np.ndarray], np.ndarray]) -> Build:
    """The build's own source, recorded under another name with a program of other factors."""
    template = registry.template_of(build)
    table = RelocationTable.from_bytes(registry.blobs.read(template.table.digest))
    data, at, parts = registry.blobs.read(build.factors.digest), 0, []
    for slot in table.slots:
        values = np.frombuffer(data[at : at + slot.size], np.float32)
        parts.append(edit(slot.names[0], values).astype(np.float32).tobytes())
        at += slot.size
    factors = b"".join(parts)
    program = relink(unpack(registry.blobs.read(template.hollow.digest), template.program_size), table, factors)
    put, source = registry.blobs.put_bytes, registry.source(registry.version(f"{build.adapter}@{build.version}"))
    return registry.publish(name, None, source, template=template, file=put(program), factors=put(factors)).build


def test_a_right_adapter_is_proven_and_its_proof_recorded(registry: Registry, right: Build, proven: Proven) -> None:
    figures = proven.figures
    assert figures.error < 1e-5
    assert figures.from_base > 100 * figures.from_reference
    assert figures.agreement == 1.0
    assert figures.losses is None
    kept = registry.proof(right)
    assert kept is not None
    assert (kept.document, kept.self_test) == (proven.document, proven.self_test)
    document = json.loads(registry.blobs.read(kept.document.digest))
    assert document["build"] == str(right.file.digest)
    assert document["figures"]["max_error"] == figures.error
    assert document["libraries"]["executorch"] == "1.5.1"
    assert {probe["origin"] for probe in document["probes"]} >= {"built in: token ids 1", "built in: The answer is"}


def test_proving_again_gives_the_same_document(registry: Registry, right: Build, proven: Proven) -> None:
    again, kept = prove_build(registry, right, ProofOptions())
    assert again == proven
    assert kept == registry.proof(right)


def test_the_self_test_passes_on_the_right_files_and_fails_on_the_base_program(
    registry: Registry, right: Build, proven: Proven
) -> None:
    test = SelfTest.from_bytes(registry.blobs.read(proven.self_test.digest))
    assert 8 <= test.positions <= 16
    assert test.agreement == 1.0
    assert all(agreeing(files(registry, right.file.digest, right.foundation), test))
    base = next(each for each in registry.templates(right.foundation) if not each.structure["modules"])
    agreed = sum(agreeing(files(registry, base.hollow.digest, right.foundation), test))
    assert agreed <= test.positions / 2


def test_releases_carry_the_self_test_of_a_proven_build(registry: Registry, right: Build, proven: Proven) -> None:
    registry.create_channel("proven", require_proof=True)
    number = registry.create_release("proven", [f"{right.adapter}@{right.version}"]).release.number
    document = ReleaseDocument.from_bytes(registry.blobs.read(registry.release(number).document.digest))
    assert document.lines[0].adapters[0].self_test == proven.self_test


def test_a_program_of_other_factors_is_refused_with_both_figures(registry: Registry, right: Build) -> None:
    wrong = with_factors(registry, right, "wrong", lambda name, v: v * 1.02 if name.endswith("lora_B") else v)
    with pytest.raises(
        ProofFailed, match=r"wrong@1\.0\.0 is off the reference: the largest error is 0\.\d+, at"
    ) as caught:
        prove_build(registry, wrong, ProofOptions())
    figures = caught.value.values["figures"]
    assert figures["max_error"] > 1e-3
    assert figures["distance_from_base"] > figures["distance_from_reference"] > 1e-4
    assert f"from the plain base {figures['distance_from_base']:.3g}" in caught.value.message
    assert registry.proof(wrong) is None


def test_an_adapter_without_effect_is_refused(registry: Registry, bases: Path, tmp_path: Path) -> None:
    def silence(model: PeftModel) -> None:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.zero_()

    idle = publish(registry, train(bases / "plain", tmp_path, silence).directory, PublishOptions("plain", "idle")).build
    with pytest.raises(ProofFailed, match=r"idle@1\.0\.0 is no different from the plain base: distance from"):
        prove_build(registry, idle, ProofOptions())


def test_a_small_effect_is_an_effect_and_a_program_that_lacks_it_is_refused(
    registry: Registry, bases: Path, tmp_path: Path
) -> None:
    def soften(model: PeftModel) -> None:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.mul_(5e-5)

    soft = publish(registry, train(bases / "plain", tmp_path, soften).directory, PublishOptions("plain", "soft")).build
    figures = prove_build(registry, soft, ProofOptions())[0].figures
    assert figures.from_base < 1e-4 * figures.scale
    lost = with_factors(registry, soft, "lost", lambda name, v: v * 1e-3 if name.endswith("lora_B") else v)
    with pytest.raises(ProofFailed, match="no different from the plain base"):
        prove_build(registry, lost, ProofOptions())


VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "dora-with-biases": ("biased", {"use_dora": True, "bias": "all", "target_modules": ["q_proj", "o_proj"]}),
    "tied-embedding-and-head": ("tied", {"target_modules": ["q_proj", "embed_tokens"], "modules_to_save": ["lm_head"]}),
    "trained-rows": ("tied", {"trainable_token_indices": {"embed_tokens": [5, 7, 33]}}),
    "lora-on-tied-head": ("tied", {"target_modules": ["q_proj", "lm_head"]}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_kind_of_adapter_is_proven_from_its_stored_source(
    variant: str, registry: Registry, bases: Path, tmp_path: Path
) -> None:
    foundation, config = VARIANTS[variant]
    directory = train(bases / foundation, tmp_path, **config).directory
    build = publish(registry, directory, PublishOptions(foundation, f"proof-{variant}")).build
    assert prove_build(registry, build, ProofOptions())[0].figures.error < 1e-4


def test_an_initialization_that_changed_the_base_is_proven_with_its_initial_adapter(
    registry: Registry, bases: Path, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(bases / "plain").eval()
    config = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj"], init_lora_weights="pissa")
    peft_model = get_peft_model(model, config).eval()
    peft_model.save_pretrained(tmp_path / "initial")
    settings = json.loads((tmp_path / "initial" / "adapter_config.json").read_text())
    (tmp_path / "initial" / "adapter_config.json").write_text(json.dumps({**settings, "init_lora_weights": True}))
    randomize(peft_model)
    peft_model.save_pretrained(tmp_path / "trained")
    options = PublishOptions("plain", "pissa-proof", initial=tmp_path / "initial")
    build = publish(registry, tmp_path / "trained", options).build
    assert prove_build(registry, build, ProofOptions())[0].figures.error < 1e-4


def test_names_that_peft_would_not_look_for_are_proven_all_the_same(
    registry: Registry, bases: Path, tmp_path: Path
) -> None:
    train(bases / "plain", tmp_path, target_modules=["q_proj"], lora_alpha=5)
    file = tmp_path / "adapter_model.safetensors"
    odd = {
        name.removeprefix("base_model.model.").replace(".weight", ".default.weight"): tensor
        for name, tensor in load_file(file).items()
    }
    save_file(odd, file)
    build = publish(registry, tmp_path, PublishOptions("plain", "odd-names")).build
    assert prove_build(registry, build, ProofOptions())[0].figures.error < 1e-5


def test_what_peft_itself_does_not_load_whole_has_no_reference(registry: Registry, bases: Path, tmp_path: Path) -> None:
    card = card_of(registry, registry.foundation("plain"))
    fused = write(tmp_path / "fused", q_tensors(), target_modules=["qkv_proj"])
    with pytest.raises(InputError, match="PEFT itself cannot load this adapter: Target modules"):
        Reference.of_checkpoint(bases / "plain", Recipe()).adapt(fused, Gate(), card)
    half = write(tmp_path / "half", q_tensors(), target_modules=["q_proj", "v_proj"])
    with pytest.raises(InputError, match=r"PEFT itself does not load this adapter whole: .*v_proj\.lora_A\.weight"):
        Reference.of_checkpoint(bases / "plain", Recipe()).adapt(half, Gate(), card)


def probes(path: Path, *lines: Any) -> Path:
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


def test_completions_give_the_loss_with_the_adapter_and_without(
    registry: Registry, right: Build, bases: Path, tmp_path: Path
) -> None:
    wanted = probes(tmp_path / "p.jsonl", {"prompt": "w1 w2 w3", "completion": "w4 w5"}, "", {"prompt": "w9 w30"})
    made = prove_build(registry, right, ProofOptions(probes=asked_of(registry, right, wanted)))[0]
    assert made.figures.losses is not None
    document = json.loads(registry.blobs.read(made.document.digest))
    assert [probe["origin"] for probe in document["probes"][:2]] == ["p.jsonl:1", "p.jsonl:3"]
    first = document["probes"][0]
    assert first["completion"] == 2
    with torch.no_grad():
        model = AutoModelForCausalLM.from_pretrained(bases / "plain").eval()
        rows = model(torch.tensor([first["token_ids"]])).logits[0]
    plain = torch.nn.functional.cross_entropy(rows[-3:-1], torch.tensor(first["token_ids"][-2:]))
    assert made.figures.losses[1] == pytest.approx(float(plain), rel=1e-4)
    worse = made.figures.losses[0] >= made.figures.losses[1]
    assert bool(document["warnings"]) == worse
    if worse:
        assert document["warnings"][0].startswith("no better than base: wrong base or template? Mean loss")


@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        ("{", FormatError, r"p\.jsonl:1: not JSON"),
        ("[]", FormatError, r"p\.jsonl:1: expected an object with 'prompt'"),
        ({"prompt": "w1", "answer": "w2"}, FormatError, r"p\.jsonl:1: expected an object"),
        ({"completion": "w2"}, FormatError, r"p\.jsonl:1: 'prompt' must be a text"),
        ({"prompt": 1}, FormatError, r"p\.jsonl:1: 'prompt' must be a text"),
        ({"prompt": "w1 " * 65}, InputError, r"p\.jsonl:1: \d+ tokens, the program takes 1 to 64"),
        ("", InputError, r"p\.jsonl: 0 probes"),
    ],
)
def test_probes_that_cannot_be_are_named_by_their_line(
    line: Any, error: type[InputError], message: str, registry: Registry, right: Build, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        asked_of(registry, right, probes(tmp_path / "p.jsonl", line))


def test_a_proof_needs_the_checkpoint(registry: Registry, right: Build, bases: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such directory"):
        prove_build(registry, right, ProofOptions(base=tmp_path / "gone"))
    assert prove_build(registry, right, ProofOptions(base=bases / "plain"))[0].figures.error < 1e-5
