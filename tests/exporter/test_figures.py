"""Figures and verdicts from logits made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from exporter.figures import Figures, Row, compare, judge, self_test
from exporter.recipe import Quantization, Recipe, recipe_of
from registry.errors import ProofFailed

PLAIN, FP16, INT4 = Recipe("F32"), Recipe("F16"), recipe_of("F32", Quantization())


def logits(*rows: Sequence[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float32)


def row(*, error: float = 0.0, effect: float = 1.0, positions: int = 12, lead: float = 4.0, seed: int = 0) -> Row:
    """A probe over a vocabulary of 8 on which the reference leads by `lead`, the program is off by `error` everywhere.

    The plain base is `effect` away from the program and prefers another token at every other position.
    """
    generator = torch.Generator().manual_seed(seed)
    expected = torch.zeros(positions, 8)
    likeliest = torch.randint(0, 7, (positions,), generator=generator)
    expected[torch.arange(positions), likeliest] = lead
    actual = expected + error
    plain = actual + effect
    plain[::2, 7] += 2 * lead
    return compare(range(100 * seed, 100 * seed + positions), actual, expected, plain)


def test_figures_are_what_they_say() -> None:
    first = compare([3, 1], logits([1, 0], [0, 2]), logits([1, 0], [0, 1.5]), logits([0, 0], [0, 2]))
    second = compare([2], logits([0, 1]), logits([1, 0]), logits([0, 1]))
    figures = Figures.of([first, second])
    assert (figures.positions, figures.error, figures.scale) == (3, 1.0, 1.5)
    assert figures.from_reference == pytest.approx(((0.25 + 2) / 6) ** 0.5)
    assert figures.from_base == pytest.approx((1 / 6) ** 0.5)
    assert figures.agreement == pytest.approx(2 / 3)
    assert figures.losses is None


def test_the_loss_is_that_of_the_completion_alone() -> None:
    sure, unsure = logits([9, 0], [0, 0], [0, 0], [5, 5]), logits([9, 0], [0, 3], [3, 0], [5, 5])
    figures = Figures.of([compare([0, 0, 1, 0], unsure, unsure, sure, completion=2)])
    assert figures.losses is not None
    assert figures.losses[0] == pytest.approx(float(torch.log1p(torch.exp(torch.tensor(-3.0)))))
    assert figures.losses[1] == pytest.approx(float(torch.log(torch.tensor(2.0))))
    assert figures.warnings == ()
    other = Figures.of([compare([0, 0, 1, 0], sure, sure, unsure, completion=2)])
    assert other.warnings[0].startswith(
        "no better than base: wrong base or template? Mean loss of the completions: 0.693"
    )


@pytest.mark.parametrize(("recipe", "off"), [(PLAIN, 4.1e-4), (FP16, 0.081)])
def test_an_error_above_the_tolerance_of_its_dtype_is_refused(recipe: Recipe, off: float) -> None:
    judge("a", recipe, Figures.of([row(error=off * 0.95)]), None)
    with pytest.raises(
        ProofFailed, match=r"a is off the reference: the largest error is .* at most .* is allowed; dis"
    ):
        judge("a", recipe, Figures.of([row(error=off)]), None)


def test_not_a_number_is_off_the_reference() -> None:
    with pytest.raises(ProofFailed, match="off the reference: the largest error is nan"):
        judge("a", PLAIN, Figures.of([row(error=float("nan"))]), None)


def test_a_build_as_near_to_the_base_as_to_the_reference_is_refused_with_both_figures() -> None:
    plain = compare([1, 2], logits([1, 0], [0, 1]), logits([1, 1e-6], [0, 1]), logits([1, 2e-6], [0, 1]))
    with pytest.raises(
        ProofFailed, match=r"no different from the plain base: distance from the reference 5e-07, from"
    ) as caught:
        judge("a", PLAIN, Figures.of([plain]), None)
    assert caught.value.values["figures"]["distance_from_base"] == pytest.approx(1e-6, rel=1e-3)
    assert caught.value.exit_code == 7


def test_a_deep_quantized_model_is_judged_by_its_first_layers_and_by_distance() -> None:
    far = Figures.of([row(error=0.5, effect=3.0)])
    near = Figures.of([row(error=0.01)])
    judge("a", INT4, far, near)
    with pytest.raises(ProofFailed, match=r"the largest error of the first layers is 0\.5"):
        judge("a", INT4, near, far)
    with pytest.raises(ProofFailed, match="no different from the plain base"):
        judge("a", INT4, Figures.of([row(error=2.0, effect=0.1, lead=0.1)]), near)


def test_a_self_test_asks_only_where_answers_are_clear_and_prefers_what_tells_the_base_apart() -> None:
    rows = [row(seed=1), row(seed=2, lead=0.009), row(seed=3)]
    figures = Figures.of([row(error=0.001)])
    test = self_test(PLAIN, rows, figures)
    assert test is not None
    assert test.agreement == 1.0
    assert 8 <= test.positions <= 16
    assert [probe.token_ids[0] for probe in test.probes] == [100, 300]
    for probe, source in zip(test.probes, (rows[0], rows[2]), strict=True):
        assert probe.argmax == tuple(source.expected[list(probe.positions)].tolist())
    asked = [at for probe in test.probes for at in probe.positions]
    assert sum(at % 2 == 0 for at in asked) == 12


def test_other_than_plain_fp32_a_device_may_differ_at_one_position_in_ten() -> None:
    rows, figures = [row()], Figures.of([row(error=0.001)])
    assert {r.dtype: self_test(r, rows, figures).agreement for r in (PLAIN, FP16)} == {"F32": 1.0, "F16": 0.9}
    assert self_test(INT4, rows, figures).agreement == 0.9


def test_too_few_clear_answers_make_no_self_test() -> None:
    assert self_test(PLAIN, [row(positions=7)], Figures.of([row(error=0.001)])) is None
    assert self_test(PLAIN, [row()], Figures.of([row(error=0.4)])) is None
    assert (
        self_test(PLAIN, [row(positions=3, seed=seed) for seed in range(4)], Figures.of([row(error=0.001)])) is not None
    )
