"""Figures of adapters: norms are those of the weights that a program computes with, ranks those of their definition."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from exporter.card import Card, Module
from exporter.compare import Move, Part, delta, differences, distance, effective_rank, measure, singular_values
from exporter.fold import fold
from exporter.peft.gate import check
from exporter.structure import ModuleStructure
from registry.errors import NotFound
from tests.exporter.adapters import LAYERS, ModelRows, array, card_of, gpt2, llama, merged, saved, trained

Q0 = f"{LAYERS[0]}.q_proj"


def parts_of(directory: Path, model: nn.Module, card: Card, **options: Any) -> tuple[dict[str, Part], nn.Module]:
    """The parts of a trained adapter by module, and the base with the adapter worked in."""
    base = copy.deepcopy(model)
    folded = fold(check(saved(trained(model, **options), directory), card).accept(), card, ModelRows(base))
    parts = {
        name: Part(
            name,
            card.modules[name],
            shape,
            {s: array(folded.tensors[f"{name}.{s}"]).astype(np.float32) for s, _ in shape.shapes(card.modules[name])},
        )
        for name, shape in folded.structure.modules.items()
    }
    return parts, merged(base, folded, card)


VARIANTS: dict[str, tuple[Callable[[], nn.Module], dict[str, Any]]] = {
    "plain": (llama, {"target_modules": "all-linear"}),
    "dora": (llama, {"target_modules": ["q_proj", "down_proj"], "use_dora": True}),
    "head": (llama, {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}),
    "norms": (llama, {"target_modules": ["q_proj"], "modules_to_save": ["norm"]}),
    "embedding": (llama, {"target_modules": ["q_proj", "embed_tokens"]}),
    "rows": (llama, {"target_modules": ["q_proj"], "trainable_token_indices": [60, 1, 33]}),
    "conv1d": (gpt2, {"target_modules": ["c_attn", "c_proj"], "use_dora": True}),
    "saved conv1d": (gpt2, {"target_modules": ["c_proj"], "modules_to_save": ["c_attn"]}),
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("block", [1, 8 << 20])
def test_the_norm_is_that_of_what_the_weights_become(tmp_path: Path, variant: str, block: int) -> None:
    make, options = VARIANTS[variant]
    model = make()
    base = copy.deepcopy(model)
    parts, after = parts_of(tmp_path, model, card_of(model), **options)
    for name, part in parts.items():
        before = base.get_submodule(name).weight.detach().double().numpy()
        moved = after.get_submodule(name).weight.detach().double().numpy() - before
        figures = measure(part, ModelRows(base), block)
        assert figures.move.norm == pytest.approx(np.linalg.norm(moved), rel=1e-6)
        assert figures.move.relative == pytest.approx(np.linalg.norm(moved) / np.linalg.norm(before), rel=1e-6)
        assert figures.part.size == sum(values.nbytes for values in part.factors.values())


def test_the_distance_of_two_adapters_is_that_of_their_weights(tmp_path: Path) -> None:
    model = llama()
    base = copy.deepcopy(model)
    card = card_of(model)
    first, one = parts_of(tmp_path / "a", copy.deepcopy(model), card, target_modules=["q_proj"], r=6, use_dora=True)
    second, two = parts_of(tmp_path / "b", copy.deepcopy(model), card, target_modules=["q_proj", "v_proj"], seed=5)
    for name in second:
        weights = [each.get_submodule(name).weight.detach().double().numpy() for each in (one, two)]
        before = first.get(name, Part(name, card.modules[name]))
        moved = distance(before, second[name], ModelRows(base))
        assert moved.norm == pytest.approx(np.linalg.norm(weights[1] - weights[0]), rel=1e-6)
        assert distance(second[name], before, ModelRows(base)).norm == pytest.approx(moved.norm)
        assert distance(second[name], second[name], ModelRows(base)) == Move(0.0, 0.0)


def test_singular_values_are_those_of_the_product() -> None:
    random = np.random.default_rng(2)
    for rank, inputs, outputs in ((4, 32, 48), (1, 3, 5), (9, 6, 20), (9, 20, 6)):
        first, second = random.normal(size=(rank, inputs)), random.normal(size=(outputs, rank))
        dense = np.linalg.svd(second @ first, compute_uv=False)
        found = singular_values(first, second)
        assert np.allclose(found, dense[: len(found)])
        assert np.allclose(dense[len(found) :], 0)


@pytest.mark.parametrize(
    ("values", "rank"),
    [
        ([3.0, 3.0, 3.0, 3.0], 4.0),
        ([5.0, 0.0, 0.0], 1.0),
        ([0.0, 0.0], 0.0),
        ([3.0, 1.0], math.exp(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))),
    ],
)
def test_the_effective_rank_counts_the_directions_that_are_used(values: list[float], rank: float) -> None:
    size = len(values)
    turned = np.linalg.qr(np.random.default_rng(1).normal(size=(16, size)))[0]
    factors = {"lora_A": np.eye(size, 12), "lora_B": turned * values}
    assert effective_rank(factors) == pytest.approx(rank)
    assert effective_rank({"weight": np.eye(3)}) is None
    table = {"lora_embedding_A": factors["lora_A"], "lora_embedding_B": factors["lora_B"]}
    assert effective_rank(table) == pytest.approx(rank)


class Lost:
    """A foundation whose file is gone."""

    def rows(self, module: str, start: int, stop: int) -> np.ndarray:
        raise NotFound(f"no rows {start} to {stop} of {module}")


def test_what_the_foundation_cannot_give_is_left_out_and_said() -> None:
    module, random = Module("linear", 32, 32, bias=False), np.random.default_rng(3)
    factors: Mapping[str, np.ndarray] = {"lora_A": random.normal(size=(4, 32)), "lora_B": random.normal(size=(32, 4))}
    plain = measure(Part(Q0, module, ModuleStructure(lora=4), factors), Lost())
    assert plain.move.norm == pytest.approx(np.linalg.norm(factors["lora_B"] @ factors["lora_A"]))
    assert plain.move.relative is None
    assert plain.to_json()["note"] == f"no rows 0 to 32 of {Q0}"
    scaled = {**factors, "dora_scale": np.ones(32)}
    blind = measure(Part(Q0, module, ModuleStructure(lora=4, dora=True), scaled), Lost())
    assert (blind.move.norm, blind.move.relative) == (None, None)
    assert blind.effective_rank == pytest.approx(plain.effective_rank)


def test_a_part_without_factors_moves_nothing() -> None:
    part = Part(Q0, Module("linear", 32, 32, bias=False), ModuleStructure(lora=4))
    assert delta(part, 0, 32, np.ones((32, 32))) == 0
    figures = measure(part, ModelRows(llama()))
    assert (figures.move.norm, figures.effective_rank, part.size) == (0.0, None, 0)


def test_what_differs_is_shown_from_both_sides() -> None:
    before, after = {"r": 4, "bias": "none", "gone": None}, {"r": 8, "bias": "none", "new": 0}
    assert differences(before, after) == {
        "gone": {"before": None},
        "new": {"after": 0},
        "r": {"before": 4, "after": 8},
    }
    assert differences(after, after) == {}
