"""On a real model, SmolLM2-135M-Instruct: relinking is a full export, and what quantizing costs in the runtime."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from torch.nn import functional

from exporter.base import read_base
from exporter.export import Job, export_adapter
from exporter.foundation import ExportOptions, export_foundation
from exporter.linker import Gate, Linker
from exporter.perplexity import text_ids
from exporter.publish import PublishOptions, publish
from exporter.recipe import Quantization, recipe_of
from exporter.session import Session
from registry import canonical
from registry.digest import Digest
from registry.service import Registry

BUILD = Path(__file__).resolve().parents[2] / "build"
CHECKPOINT = BUILD / "smollm2"
CHAT = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
)
END = 2  # <|im_end|>
RECIPES = {"fp32": recipe_of("F32", None), "8da4w": recipe_of("F32", Quantization(32, 4))}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    """A store with both foundations: three minutes of exporting."""
    if not (CHECKPOINT / "model.safetensors").is_file():
        pytest.skip("`make inputs` makes the checkpoint")
    registry = Registry.init(tmp_path_factory.mktemp("smollm2") / "home")
    for name, recipe in RECIPES.items():
        export_foundation(registry, CHECKPOINT, name, ExportOptions(context=512, recipe=recipe))
    return registry


@pytest.fixture(scope="module")
def sessions(registry: Registry) -> dict[str, Session]:
    return {name: session(registry, name) for name in RECIPES}


def session(registry: Registry, name: str) -> Session:
    file = registry.foundation(name).file.digest
    return Session(registry.blobs.path(registry.templates(file)[0].hollow.digest), registry.blobs.path(file))


def measured(registry: Registry) -> dict[str, Any]:
    table = canonical.loads(registry.blobs.read(registry.foundation("8da4w").modules.digest), what="module table")
    found: dict[str, Any] = table["perplexity"]
    return found


def greedy(running: Session, prompt: str, tokenizer: Tokenizer, length: int = 24) -> str:
    """The likeliest token after each, until the model ends its turn."""
    ids = list(tokenizer.encode(CHAT.format(prompt)).ids)
    start = len(ids)
    while len(ids) - start < length:
        token = int(running.prefilled(ids)[0].argmax())
        if token == END:
            break
        ids.append(token)
    return str(tokenizer.decode(ids[start:]))


@pytest.mark.slow
def test_the_runtime_finds_the_perplexity_that_the_export_measured_and_both_agree_on_most_tokens(
    registry: Registry, sessions: dict[str, Session]
) -> None:
    ids = text_ids({"tokenizer.json": CHECKPOINT / "tokenizer.json"}, 512)
    assert ids is not None
    logits = {name: running.forced(ids) for name, running in sessions.items()}
    targets = torch.tensor(ids[1:])
    found = {name: math.exp(float(functional.cross_entropy(each[:-1], targets))) for name, each in logits.items()}
    figures = measured(registry)
    assert found["fp32"] == pytest.approx(figures["before"], rel=1e-4)
    assert found["8da4w"] == pytest.approx(figures["after"], rel=0.02)  # XNNPACK rounds activations in other places
    assert 1 < found["8da4w"] / found["fp32"] < 1.5
    agreed = (logits["fp32"].argmax(-1) == logits["8da4w"].argmax(-1)).float().mean()
    assert agreed > 0.5


@pytest.mark.slow
def test_greedy_texts_begin_alike_and_part_after_a_while(registry: Registry, sessions: dict[str, Session]) -> None:
    tokenizer = Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json"))
    texts = {name: greedy(running, "What is the capital of France?", tokenizer) for name, running in sessions.items()}
    assert texts["fp32"] == "The capital of France is Paris."
    assert texts["8da4w"].startswith("The capital of France is Paris")
    assert registry.foundation("8da4w").file.size < registry.foundation("fp32").file.size / 5


@pytest.mark.slow
def test_a_relinked_adapter_is_its_full_export_byte_for_byte(registry: Registry) -> None:
    """The demo's adapters: pirate makes the template, json is relinked through it."""
    for name in ("pirate", "json"):
        publish(registry, BUILD / "adapters" / name, PublishOptions("fp32", name))
    linker = Linker(registry, registry.foundation("fp32"))
    folded = linker.fold(linker.check(BUILD / "adapters" / "json", Gate()).accept())
    tensors = {
        name: torch.frombuffer(bytearray(factor.data), dtype=torch.float32).view(factor.shape)
        for name, factor in folded.tensors.items()
    }
    job = Job(read_base(CHECKPOINT), RECIPES["fp32"], 512, lambda _: None)
    relinked = registry.build("json@1.0.0").file.digest
    assert registry.build("pirate@1.0.0").template == registry.build("json@1.0.0").template
    assert Digest.of(export_adapter(job, folded.structure, tensors)) == relinked
