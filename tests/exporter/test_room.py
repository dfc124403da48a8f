"""What an export would fail on at its end is said before it begins."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from exporter.foundation import ExportOptions, check_room, export_foundation
from exporter.recipe import Recipe
from registry.artifacts import Tensor
from registry.digest import Digest
from registry.errors import InputError, Unavailable
from registry.service import Registry

QUANTIZED = {"mode": "8da4w", "group_size": 32, "embedding_bits": None}


def tensor(name: str, elements: int) -> Tensor:
    return Tensor(name, "BF16", (elements // 8, 8), Digest.of(str(elements).encode()))


def test_a_foundation_that_the_disk_cannot_hold_is_refused_with_both_figures(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"it needs 4,000,000,000\.0 MB") as caught:
        check_room(tmp_path, [tensor("embed", 10**15)], Recipe())
    assert caught.value.values["need"] == 4 * 10**15
    assert caught.value.values["free"] == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.5)


def test_the_room_is_that_of_the_weights_as_they_are_stored(tmp_path: Path) -> None:
    third = shutil.disk_usage(tmp_path).free // 3
    one, twin = tensor("embed", third // 4), tensor("lm_head", third // 4)
    check_room(tmp_path, [one, twin], Recipe())  # equal tensors are stored once
    check_room(tmp_path, [tensor("embed", third)], Recipe(dtype="F16"))
    with pytest.raises(Unavailable):
        check_room(tmp_path, [tensor("embed", third)], Recipe())


def test_what_quantizing_saves_is_not_foretold(tmp_path: Path) -> None:
    check_room(tmp_path, [tensor("embed", 10**15)], Recipe(quantization=QUANTIZED))


def test_a_checkpoint_whose_path_cannot_be_recorded_is_refused(bases: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(bases / "plain", tmp_path / os.fsdecode(b"b\xff")))
    with pytest.raises(InputError, match="the path is not UTF-8"):
        export_foundation(Registry.init(tmp_path / "home"), directory, "plain", ExportOptions(context=64))


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "generation_config.json"])
def test_files_that_cannot_be_recorded_are_refused_before_anything_is_traced(
    name: str, bases: Path, tmp_path: Path
) -> None:
    directory, phases = Path(shutil.copytree(bases / "plain", tmp_path / "base")), []
    (directory / name).write_text("[]")
    with pytest.raises(InputError, match=name):
        export_foundation(
            Registry.init(tmp_path / "home"), directory, "plain", ExportOptions(context=64), phases.append
        )
    assert phases == ["hashing the checkpoint"]
