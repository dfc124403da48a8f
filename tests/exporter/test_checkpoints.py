"""What stands against a foundation of a checkpoint is said in words, and before the export."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from exporter.foundation import ExportOptions, export_foundation
from registry.errors import Conflict, InputError
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


def test_a_twin_that_the_store_has_lost_is_no_obstacle(tiny_store: Path, tmp_path: Path) -> None:
    registry = Registry.open(tiny_store)
    other = finetune(tmp_path / "other")
    registry.blobs.path(registry.foundation("plain").file.digest).unlink()
    said: list[str] = []
    made = export_foundation(registry, other, "other", OPTIONS, said.append)
    assert made.twin is None
    assert any(phrase.startswith("a full export: the store holds no blob") for phrase in said)
