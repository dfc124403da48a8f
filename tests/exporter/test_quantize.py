from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torchao.quantization import IntxUnpackedToInt8Tensor
from torchao.quantization.quantize_.workflows import IntxChooseQParamsAlgorithm

from exporter.quantize import PackedEmbedding, check_widths, group_scales, grouped, quantize, stored, unwrap
from exporter.recipe import Quantization
from exporter.unpack_weights import embedding_values, from_bf16, linear_values, scaled
from registry.errors import InputError


def weight(rows: int = 24, width: int = 128, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, width, generator=generator) * torch.rand(rows, 1, generator=generator)


def error(quantized: IntxUnpackedToInt8Tensor, original: torch.Tensor) -> float:
    return float((quantized.dequantize() - original).pow(2).mean().sqrt())


@pytest.mark.parametrize("group_size", [32, 64, 128])
def test_scales_are_torchaos_least_squares_ones(group_size: int) -> None:
    original = weight()
    theirs = IntxUnpackedToInt8Tensor.from_hp(
        original, (1, group_size), torch.int4, intx_choose_qparams_algorithm=IntxChooseQParamsAlgorithm.HQQ_SCALE_ONLY
    )
    ours = group_scales(original, 4, group_size)
    close = torch.isclose(ours, theirs.scale, rtol=1e-5)  # in wide groups, five steps of twenty leave some under way
    assert close.float().mean() > 0.8
    assert error(grouped(original, 4, group_size, scales=torch.float32), original) < 1.01 * error(theirs, original)
    affine = IntxUnpackedToInt8Tensor.from_hp(original, (1, group_size), torch.int4)
    assert error(grouped(original, 4, group_size, scales=torch.bfloat16), original) < error(affine, original)


def test_scales_do_not_depend_on_the_order_of_sums_or_the_blocks_of_rows() -> None:
    original = weight(rows=64).bfloat16().float()
    order = torch.randperm(32, generator=torch.Generator().manual_seed(1))
    shuffled = original.view(64, 4, 32)[:, :, order].reshape(64, 128)
    assert torch.equal(group_scales(original, 4, 32), group_scales(shuffled, 4, 32))
    assert torch.equal(group_scales(original, 4, 32)[5:9], group_scales(original[5:9], 4, 32))


def test_a_group_of_zeros_stays_zero_and_an_outlier_does_not_overflow() -> None:
    original = torch.zeros(2, 64)
    original[1, 3] = 1e4
    values = grouped(original, 4, 32, scales=torch.bfloat16).dequantize()
    assert torch.equal(values[0], original[0])
    assert torch.isfinite(values).all()
    assert abs(values[1, 3] - 1e4) < 50  # a bf16 scale is exact to 2^-9


@pytest.mark.parametrize("group_size", [32, 64, 128])
def test_a_linear_unpacks_to_torchaos_dequantize_bit_by_bit(group_size: int) -> None:
    root = nn.Module()
    root.layer = nn.Linear(128, 24, bias=False)
    root.layer.weight = nn.Parameter(weight(), requires_grad=False)
    quantize(root, Quantization(group_size))
    expected = root.layer.weight.dequantize()
    unwrap(root)
    held = dict(stored(root))
    packed, scales = held["layer.weight"].numpy(), held["layer.weight_scale"].view(torch.uint16).numpy()
    assert packed.shape == (24, 64)
    assert scales.shape == (24, 128 // group_size)
    unpacked = scaled(linear_values(packed), from_bf16(scales))
    assert unpacked.tobytes() == expected.numpy().tobytes()


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group_size", [32, 128])
def test_an_embedding_answers_and_unpacks_as_torchaos_dequantize_bit_by_bit(bits: int, group_size: int) -> None:
    original = weight()
    embedding = PackedEmbedding(original, bits, group_size)
    expected = grouped(original, bits, group_size, scales=torch.float32).dequantize()
    assert torch.equal(embedding(torch.arange(24)), expected)
    unpacked = scaled(embedding_values(embedding.weight.numpy()), embedding.weight_scale.numpy())
    assert unpacked.tobytes() == expected.numpy().tobytes()
    assert error(grouped(original, bits, group_size, scales=torch.float32), original) < 0.2 / 2 ** (bits - 3)


def test_bf16_is_read_exactly() -> None:
    values = torch.tensor([0.0, 1.0, -3.140625, 1e-38, 3e38]).bfloat16()
    assert from_bf16(values.view(torch.uint16).numpy()).tolist() == values.float().tolist()


def model(hidden: int, inner: int) -> nn.Module:
    root = nn.Module()
    root.embed_tokens = nn.Embedding(10, hidden)
    root.up_proj = nn.Linear(hidden, inner)
    root.down_proj = nn.Linear(inner, hidden)
    return root


def test_a_width_that_groups_do_not_divide_is_refused_with_the_sizes_that_do() -> None:
    with pytest.raises(InputError, match="groups of 128 do not divide the width of up_proj, 576") as caught:
        check_widths(model(576, 1536), Quantization(128))
    assert caught.value.hint == "--group-size 32 or 64"
    with pytest.raises(InputError, match="down_proj, 48") as caught:
        check_widths(model(64, 48), Quantization(32))
    assert caught.value.hint == "export this model without --qmode"
    lonely = nn.ModuleDict({"embed_tokens": nn.Embedding(10, 48)})
    check_widths(lonely, Quantization(32))
    with pytest.raises(InputError, match="embed_tokens, 48"):
        check_widths(lonely, Quantization(32, embedding_bits=4))
    check_widths(model(576, 1536), Quantization(64, embedding_bits=8))


def test_quantizing_twice_gives_the_same_bits_and_other_groups_others() -> None:
    def stored_by(group_size: int) -> dict[str, bytes]:
        torch.manual_seed(0)
        root = model(128, 64)
        quantize(root, Quantization(group_size, embedding_bits=4))
        unwrap(root)
        return {name: value.view(torch.uint8).numpy().tobytes() for name, value in stored(root)}

    assert stored_by(32) == stored_by(32)
    assert stored_by(32)["up_proj.weight"] != stored_by(64)["up_proj.weight"]
    assert np.frombuffer(stored_by(64)["down_proj.weight_scale"], np.uint16).shape == (128,)
