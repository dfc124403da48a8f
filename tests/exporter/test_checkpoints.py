"""What stands against a foundation of a checkpoint is said in words, and before the export."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from exporter.base import read_base
from exporter.finetune import find_twin, retarget_foundation
from exporter.foundation import ExportOptions, export_foundation
from exporter.recipe import Recipe
from registry.errors import Conflict, InputError, NotFound
from registry.service import Registry
from tests.exporter.test_finetune import OPTIONS, finetune

Tensors = dict[str, torch.Tensor]
Q0 = "model.layers.0.self_attn.q_proj.weight"


def changed(directory: Path, change: Callable[[Tensors], Tensors], to: Path) -> Path:
    """A copy of a checkpoint with other tensors."""
    to.mkdir()
    for path in directory.iterdir():
        if path.suffix == ".json":
            (to / path.name).write_bytes(path.read_bytes())
    save_file(change(load_file(directory / "model.safetensors")), to / "model.safetensors", metadata={"format": "pt"})
    return to


@pytest.mark.parametrize("dtype", [torch.int8, torch.float64, torch.float8_e4m3fn])
def test_weights_that_are_no_plain_floating_numbers_are_refused_by_name(
    tiny_store: Path, bases: Path, tmp_path: Path, dtype: torch.dtype
) -> None:
    other = changed(bases / "plain", lambda held: held | {Q0: held[Q0].to(dtype)}, tmp_path / "other")
    with pytest.raises(InputError, match=r"layers\.0\.self_attn\.q_proj\.weight: weights of dtype [IF]\w+ are not"):
        export_foundation(Registry.open(tiny_store), other, "other", OPTIONS)


def test_the_same_weights_in_another_dtype_are_answered_with_their_foundation(tiny_store: Path, tmp_path: Path) -> None:
    registry = Registry.open(tiny_store)
    source = finetune(tmp_path / "source")
    half = changed(source, lambda held: {name: each.bfloat16() for name, each in held.items()}, tmp_path / "half")
    whole = changed(half, lambda held: {name: each.float() for name, each in held.items()}, tmp_path / "whole")
    export_foundation(registry, half, "brief", OPTIONS)

    with pytest.raises(Conflict, match="the weights of the foundation brief: its checkpoint only stores them other"):
        export_foundation(registry, whole, "long", OPTIONS)
    assert "long" not in registry.foundation_names()


def test_a_base_with_another_tokenizer_than_recorded_is_refused_before_an_export(
    tiny_store: Path, bases: Path, tmp_path: Path
) -> None:
    registry = Registry.open(tiny_store)
    other = changed(bases / "plain", lambda held: held, tmp_path / "other")
    (other / "tokenizer_config.json").write_text("{}")
    said: list[str] = []
    with pytest.raises(Conflict, match=r"recorded with other files: tokenizer_config\.json"):
        export_foundation(registry, other, "plain", ExportOptions(context=48), said.append)
    assert said == ["hashing the checkpoint"]


def test_a_config_that_says_the_same_in_other_fields_is_the_recorded_one(
    tiny_store: Path, bases: Path, tmp_path: Path
) -> None:
    registry = Registry.open(tiny_store)
    other = changed(bases / "plain", lambda held: held, tmp_path / "other")
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "transformers_version": "9.9.9", "use_cache": False}))
    before = registry.base(registry.foundation("plain").base)

    made = export_foundation(registry, other, "plain", OPTIONS)
    assert not made.fresh
    assert registry.base(before.fingerprint).files == before.files

    (other / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-3}))
    with pytest.raises(Conflict, match=r"recorded with other files: config\.json"):
        export_foundation(registry, other, "plain", OPTIONS)


def test_a_twin_that_the_store_has_lost_or_does_not_understand_is_no_obstacle(tiny_store: Path, tmp_path: Path) -> None:
    registry = Registry.open(tiny_store)
    other = finetune(tmp_path / "other")
    foundation = registry.foundation("plain")
    registry.blobs.path(foundation.file.digest).unlink()
    with read_base(other) as checkpoint:
        twin = find_twin(registry, checkpoint, Recipe(), 64)
        assert twin == foundation
        with pytest.raises(NotFound):
            retarget_foundation(registry, foundation, checkpoint, lambda _: None)
        base = registry.base(foundation.base)
        strange = registry.blobs.put_bytes(b'{"architectures": ["LaterForCausalLM"]}')
        registry.add_base(replace(base, files={"config.json": strange}), replace=True)
        assert find_twin(registry, checkpoint, Recipe(), 64) is None
        registry.blobs.path(strange.digest).unlink()
        assert find_twin(registry, checkpoint, Recipe(), 64) is None
    said: list[str] = []
    assert export_foundation(registry, other, "other", OPTIONS, said.append).twin is None
