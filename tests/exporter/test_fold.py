from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter import fold as folding
from exporter.card import Card
from exporter.fold import Folded, dora_scale, fold
from exporter.peft.adapter import ModuleAdapter, NormalizedAdapter, Values
from exporter.peft.gate import check
from registry.digest import Digest
from registry.errors import AdapterRefused, Unavailable
from tests.exporter.adapters import LAYERS, PREFIX, ModelRows, array, card_of, llama, q_tensors, write

Q0, Q1 = (f"{layer}.q_proj" for layer in LAYERS)


@pytest.fixture(scope="module")
def card() -> Card:
    return card_of(llama())


def values(name: str, data: np.ndarray) -> Values:
    return Values(name, data.shape, "F32", lambda: data.astype(np.float32))


def adapter_of(*modules: ModuleAdapter, **changes: object) -> NormalizedAdapter:
    return NormalizedAdapter(Path(), {}, {module.name: module for module in modules}, {}, **changes)


def plain(name: str = Q0, scaling: float = 2.0, rank: int = 4, seed: int = 0) -> ModuleAdapter:
    random = np.random.default_rng(seed)
    return ModuleAdapter(
        name,
        scaling,
        lora_a=values(f"{name}.lora_A", random.normal(0, 0.2, (rank, 32))),
        lora_b=values(f"{name}.lora_B", random.normal(0, 0.2, (32, rank))),
    )


def bits(folded: Folded, name: str) -> np.ndarray:
    return np.frombuffer(folded.tensors[name].data, np.uint32)


@pytest.mark.parametrize("scaling", [1 / 3, 2.0, 0.1, 16 / 7**0.5, -1.5])
def test_the_scaling_is_rounded_once_and_multiplied_in_single_precision(card: Card, scaling: float) -> None:
    module = plain(scaling=scaling)
    folded = fold(adapter_of(module), card)
    source = module.lora_b.load()
    expected = np.array([np.float32(scaling) * np.float32(value) for value in source.ravel()], np.float32)
    assert np.array_equal(bits(folded, f"{Q0}.lora_B"), expected.view(np.uint32))
    assert np.array_equal(bits(folded, f"{Q0}.lora_A"), module.lora_a.load().ravel().view(np.uint32))


def test_half_precision_factors_are_cast_once_from_single(card: Card) -> None:
    module = plain(scaling=1 / 3)
    folded = fold(adapter_of(module), replace(card, factor_dtype="F16"))
    factor = folded.tensors[f"{Q0}.lora_B"]
    expected = (np.float32(1 / 3) * module.lora_b.load()).astype(np.float16)
    assert factor.dtype == "F16"
    assert bytes(factor.data) == expected.tobytes()
    assert factor.digest == Digest.of(expected.tobytes())


def test_folding_twice_gives_the_same_bytes_in_canonical_order(card: Card) -> None:
    adapter = adapter_of(plain(Q1), plain(Q0))
    first, second = fold(adapter, card), fold(adapter, card)
    assert list(first.tensors) == [f"{Q0}.lora_A", f"{Q0}.lora_B", f"{Q1}.lora_A", f"{Q1}.lora_B"]
    assert [factor.digest for factor in first.tensors.values()] == [f.digest for f in second.tensors.values()]
    specs = first.structure.factors(card)
    assert [spec.name for spec in specs] == list(first.tensors)
    assert [spec.shape for spec in specs] == [factor.shape for factor in first.tensors.values()]
    assert {len(factor.data) for factor in first.tensors.values()} == {512}


def test_factors_with_equal_bytes_are_groups_of_the_structure(card: Card) -> None:
    shared = plain(Q0)
    other = replace(shared, name=Q1, lora_b=values("b", np.zeros((32, 4))))
    third = replace(shared, name=f"{LAYERS[0]}.o_proj", lora_b=values("b", np.zeros((32, 4))))
    structure = fold(adapter_of(shared, other, third), card).structure
    assert structure.equal == (
        (f"{LAYERS[0]}.o_proj.lora_A", f"{Q0}.lora_A", f"{Q1}.lora_A"),
        (f"{LAYERS[0]}.o_proj.lora_B", f"{Q1}.lora_B"),
    )
    assert fold(adapter_of(plain(Q0), plain(Q1, seed=1)), card).structure.equal == ()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_refused_by_its_tensor(card: Card, bad: float) -> None:
    data = np.ones((32, 4))
    data[5, 1] = bad
    module = replace(plain(), lora_b=values("layers.0.lora_B", data))
    with pytest.raises(AdapterRefused, match=r"layers\.0\.lora_B: holds NaN or infinity"):
        fold(adapter_of(module), card)


def test_a_value_that_overflows_is_refused_by_its_tensor(card: Card) -> None:
    module = replace(plain(), lora_b=values("layers.0.lora_B", np.full((32, 4), 40_000.0)))
    fold(adapter_of(module), card)
    with pytest.raises(AdapterRefused, match=r"layers\.0\.lora_B: a value overflows F16") as caught:
        fold(adapter_of(module), replace(card, factor_dtype="F16"))
    assert caught.value.values["findings"][0]["code"] == "overflow"


def dora(rank: int = 4) -> ModuleAdapter:
    return replace(plain(rank=rank), magnitude=values("m", np.random.default_rng(5).uniform(0.5, 2, 32)))


def test_doras_scale_is_the_magnitude_over_the_norm() -> None:
    model, module = llama(), dora()
    weight = ModelRows(model).rows(Q0, 0, 32).astype(np.float64)
    a, b, m = (part.load().astype(np.float64) for part in (module.lora_a, module.lora_b, module.magnitude))
    expected = m / np.linalg.norm(weight + 2.0 * b @ a, axis=1)
    assert np.abs(dora_scale(module, ModelRows(model)) / expected - 1).max() < 1e-14


def test_dora_folds_its_scale_into_b_and_keeps_one_vector(card: Card) -> None:
    model, module = llama(), dora()
    folded = fold(adapter_of(module), card, ModelRows(model))
    scale = dora_scale(module, ModelRows(model))
    rows = (scale * 2.0).astype(np.float32)[:, None]
    assert np.array_equal(bits(folded, f"{Q0}.dora_scale"), scale.astype(np.float32).view(np.uint32))
    assert np.array_equal(bits(folded, f"{Q0}.lora_B"), (rows * module.lora_b.load()).ravel().view(np.uint32))


def test_doras_scale_is_the_same_however_many_rows_are_read_at_once() -> None:
    model, module = llama(), dora(rank=5)
    expected = dora_scale(module, ModelRows(model)).tobytes()
    seen = []

    class Rows(ModelRows):
        def rows(self, module: str, start: int, stop: int) -> np.ndarray:
            seen.append((start, stop))
            return super().rows(module, start, stop)

    for size in (1, 5, 7, 32, 1000):
        assert dora_scale(module, Rows(model), block=size).tobytes() == expected
    assert seen[:2] == [(0, 1), (1, 2)]
    assert seen[-1] == (0, 32)


@given(st.integers(1, 70))
def test_a_sum_by_halving_is_the_sum(width: int) -> None:
    block = np.random.default_rng(width).integers(0, 1000, (3, width)).astype(np.float64)
    assert folding._row_sums(block.copy()).tolist() == block.sum(axis=1).tolist()


def test_a_zero_row_has_no_direction(card: Card) -> None:
    class Zero:
        def rows(self, _module: str, start: int, stop: int) -> np.ndarray:
            return np.zeros((stop - start, 32), np.float32)

    module = replace(dora(), lora_b=values("b", np.zeros((32, 4))))
    with pytest.raises(AdapterRefused, match="DoRA's norm is zero for row 0"):
        fold(adapter_of(module), card, Zero())


def test_dora_needs_the_foundations_weights(card: Card) -> None:
    with pytest.raises(Unavailable, match="needs the foundation's weights"):
        fold(adapter_of(dora()), card)


def test_a_copy_of_a_base_weight_must_be_the_foundations(tmp_path: Path) -> None:
    model = llama()
    card, narrow = card_of(model), model.lm_head.weight.detach().bfloat16()
    name = f"{PREFIX}lm_head.base_layer.weight"
    adapter = check(write(tmp_path / "a", {**q_tensors(), name: narrow}), card).accept()
    assert list(fold(adapter, card, ModelRows(model)).structure.modules) == [Q0, Q1]
    with pytest.raises(Unavailable):
        fold(adapter, card)
    with pytest.raises(AdapterRefused, match=r"lm_head\.base_layer\.weight differs from the foundation's weight"):
        fold(adapter, card, ModelRows(llama(seed=7)))


def test_a_copy_in_half_precision_is_compared_as_the_foundation_holds_it(tmp_path: Path) -> None:
    model = llama()
    card = replace(card_of(model), factor_dtype="F16", tensors={})
    name = f"{PREFIX}lm_head.base_layer.weight"
    adapter = check(write(tmp_path, {**q_tensors(), name: model.lm_head.weight.detach().numpy()}), card).accept()
    assert fold(adapter, card, ModelRows(model.half())).structure.modules.keys() == {Q0, Q1}


@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=20))
def test_rounding_to_bfloat_is_torchs(numbers: list[float]) -> None:
    import torch

    source = np.array(numbers, np.float32)
    expected = torch.from_numpy(source).bfloat16().float().numpy()
    assert np.array_equal(folding._rounded(source, "BF16"), expected)


def test_replaced_and_biased_parts_are_not_scaled_but_the_lora_bias_is(card: Card) -> None:
    module = replace(plain(), lora_bias=values("bb", np.full(32, 0.25)), bias=values("b", np.full(32, 0.5)))
    norm = ModuleAdapter("model.norm", weight=values("w", np.full(32, 3.0)))
    folded = fold(adapter_of(module, norm), card)
    assert array(folded.tensors[f"{Q0}.lora_B.bias"]).tolist() == [0.5] * 32
    assert array(folded.tensors[f"{Q0}.bias"]).tolist() == [0.5] * 32
    assert array(folded.tensors["model.norm.weight"]).tolist() == [3.0] * 32
    assert folded.structure.equal == ((f"{Q0}.bias", f"{Q0}.lora_B.bias"),)
