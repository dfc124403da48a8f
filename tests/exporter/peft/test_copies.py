from __future__ import annotations

import pytest
import torch

from exporter.card import BaseTensor
from exporter.peft.copies import Verdict, compare_copy
from exporter.peft.tensors import Stored
from tests.exporter.adapters import SPELLED, digest_of

KINDS = {name: kind for kind, name in SPELLED.items()}
VALUES = torch.linspace(-3, 3, 24).reshape(4, 6)


def stored(tensor: torch.Tensor) -> Stored:
    raw = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
    return Stored("copy", SPELLED[tensor.dtype], tuple(tensor.shape), memoryview(raw))


def base_of(tensor: torch.Tensor) -> BaseTensor:
    return BaseTensor(SPELLED[tensor.dtype], tuple(tensor.shape), digest_of(tensor))


@pytest.mark.parametrize("base", KINDS)
@pytest.mark.parametrize("copy", KINDS)
def test_a_copy_is_equal_different_or_cannot_be_told(copy: str, base: str) -> None:
    original = VALUES.to(KINDS[base])
    same = compare_copy(stored(original.to(KINDS[copy])).values(), base_of(original))
    other = compare_copy(stored((original + 1).to(KINDS[copy])).values(), base_of(original))
    lossless = torch.equal(original.to(KINDS[copy]).to(KINDS[base]), original)
    assert same is (Verdict.EQUAL if lossless else Verdict.UNDECIDED)
    assert other is (Verdict.DIFFERENT if copy in ("F32", base) else Verdict.UNDECIDED)


def test_without_a_digest_nothing_can_be_told() -> None:
    copy = stored(VALUES).values()
    assert compare_copy(copy, None) is Verdict.UNDECIDED
    assert compare_copy(copy, BaseTensor("F32", (4, 6))) is Verdict.UNDECIDED
    assert compare_copy(copy, BaseTensor("I8", (4, 6), digest_of(VALUES))) is Verdict.UNDECIDED


def test_a_value_beyond_half_precision_cannot_be_the_bases() -> None:
    copy = stored(torch.full((4, 6), 1e6)).values()
    assert compare_copy(copy, base_of(VALUES.half())) is Verdict.DIFFERENT
