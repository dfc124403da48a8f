"""Factories of small random modules, as a user would write them for `foundation export --module`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, GPT2Model, ViTConfig, ViTModel

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
TOKENS = torch.tensor([[1, 9, 33, 7, 60, 12, 5]])


def shaken(module: nn.Module) -> nn.Module:
    """Norms and biases away from ones and zeros, weights large enough to matter."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
            else:
                parameter.mul_(4)
    return module.eval()


class Encoder(nn.Module):
    """BERT's last hidden states: its pooler is computed and thrown away."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.bert = BertModel(BertConfig(vocab_size=64, max_position_embeddings=32, **SIZES))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.bert(input_ids=ids).last_hidden_state


def bert() -> Any:
    return shaken(Encoder()), (TOKENS,), {"ids": {1: torch.export.Dim("tokens", min=2, max=32)}}


class Classifier(nn.Module):
    """A ViT whose head's name contains "lora"."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        config = ViTConfig(image_size=16, patch_size=8, hidden_act="gelu_pytorch_tanh", **SIZES)
        self.vit = ViTModel(config, add_pooling_layer=False)
        self.explorable_proj = nn.Linear(32, 8)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.explorable_proj(self.vit(pixel_values=pixels).last_hidden_state[:, 0])


def vit() -> Any:
    module = shaken(Classifier())
    return {"module": module, "inputs": (torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(1)),)}


class States(nn.Module):
    """GPT-2's last hidden states; its projections are Conv1D."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        special = {"bos_token_id": 1, "eos_token_id": 2}
        self.transformer = GPT2Model(
            GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=4, **special)
        )

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.transformer(input_ids=ids, use_cache=False).last_hidden_state


def gpt2() -> Any:
    return shaken(States()), (TOKENS,)


class LanguageModel(GPT2LMHeadModel):
    """GPT-2 with its tied head: the logits of every token."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return super().forward(input_ids=ids, use_cache=False).logits


def language_model() -> Any:
    torch.manual_seed(0)
    special = {"bos_token_id": 1, "eos_token_id": 2}
    config = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=1, n_head=4, **special)
    return shaken(LanguageModel(config)), (TOKENS,)


class Tied(nn.Module):
    """A head that has the embedding's weight, in a module without a config."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.inner, self.lm_head = nn.Embedding(64, 16), nn.Linear(16, 16), nn.Linear(16, 64, bias=False)
        self.lm_head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.lm_head(torch.tanh(self.inner(self.embed(ids))))


def tied() -> Any:
    return Tied().eval(), (TOKENS,)


class Branches(nn.Module):
    """Linears inside `torch.cond`, one of them in both branches and outside."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(64, 16)
        self.common, self.warm, self.cold, self.head = (nn.Linear(16, 16) for _ in range(4))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.common(self.embed(ids))
        x = torch.cond(x.sum() > 0, self._warm, self._cold, (x,))
        return torch.tanh(self.head(x))

    def _warm(self, x: torch.Tensor) -> torch.Tensor:
        return self.warm(x) + self.common(x)

    def _cold(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.cold(x)) * 2.0 - self.common(x)


def branches() -> Any:
    return Branches().eval(), (TOKENS,)


class Views(nn.Module):
    """Three projections whose weights are views of one matrix, and one that is laid out by columns."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        fused = torch.randn(48, 16)
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))
        for index, part in enumerate((self.q, self.k, self.v)):
            part.weight = nn.Parameter(fused[index * 16 : index * 16 + 16])
        self.o.weight = nn.Parameter(torch.randn(16, 16).t())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.o(torch.tanh(self.q(x)) * torch.tanh(self.k(x)) + self.v(x))


def views() -> Any:
    return Views(), (torch.randn(2, 16, generator=torch.Generator().manual_seed(1)),)


class Pixels(nn.Module):
    """A convolution with a batch norm, which XNNPACK would fold into it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm, self.head = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.Linear(16, 8)
        self.norm.running_mean.normal_()

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.norm(self.conv(pixels))).mean((2, 3)))


def unfolded() -> Any:
    return Pixels().eval(), (torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(1)),)


def folded() -> Any:
    module, inputs = unfolded()
    module.conv, module.norm = fuse_conv_bn_eval(module.conv, module.norm), nn.Identity()
    return module, inputs


class Scores(nn.Module):
    """Two outputs, one of which no adapter reaches, of nested inputs whose sizes depend on one another."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.proj = nn.Linear(8, 4)

    def forward(self, batch: dict[str, torch.Tensor], pairs: torch.Tensor) -> dict[str, torch.Tensor]:
        gaps = torch.sqrt(batch["high"] - batch["low"])  # NaN where they are the other way round
        scores = self.proj(gaps) * batch["mask"].to(torch.float32).unsqueeze(-1)
        return {"scores": scores, "pairs": pairs.view(-1, 2).sum(1) * 1000}


def scores() -> Any:
    """Dimensions `rows` and twice `rows`; a mask that holds both values, and integers that are all alike."""
    random, rows = torch.Generator().manual_seed(1), torch.export.Dim("rows", min=2, max=9)
    low = torch.rand(6, 8, generator=random)
    batch = {"low": low, "high": low + 1.5, "mask": torch.tensor([True, True, False, True, True, True])}
    inputs = (batch, torch.full((12,), 7))
    return Scores().eval(), inputs, ({name: {0: rows} for name in batch}, {0: 2 * rows})


class Gaps(nn.Module):
    """What answers NaN to inputs that are in no order, as variants are."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.proj = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.proj(torch.sqrt(x[:, :8] - x[:, 8:]))


def gaps() -> Any:
    return Gaps().eval(), (torch.arange(16.0, 0.0, -1.0).view(1, 16),)


def nothing() -> Any:
    return None


def broken() -> Any:
    raise ZeroDivisionError("no model today")


class Untraceable(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * int(x.sum())


def untraceable() -> Any:
    return Untraceable(), (torch.ones(3),)
