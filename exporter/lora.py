"""Puts a structure's factors onto a module. Imports torch.

Each adapted module takes the place of the plain one and keeps its `weight` and `bias`, so no base name moves.
`B` arrives with the scaling folded in: no multiply by alpha stands in the graph, and one program serves every alpha.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional

from exporter.decoder import Decoder
from exporter.structure import ModuleStructure, Structure
from registry.errors import InputError

Factors = Mapping[str, torch.Tensor]


def attach(root: nn.Module, structure: Structure, factors: Factors) -> frozenset[str]:
    """Replace the structure's modules inside `root`, in place.

    `factors` maps factor names to tensors (shapes in exporter.structure). Answers the fully qualified names of
    what now belongs to the adapter, and so stays in its program. Raises InputError for a module that cannot be adapted.
    """
    owned: list[torch.Tensor] = []
    for name, shape in structure.modules.items():
        plain = root.get_submodule(name)
        own = {key.removeprefix(f"{name}."): nn.Parameter(value) for key, value in factors.items() if _of(key, name)}
        adapted = _adapt(name, plain, shape, own)
        parent, _, child = name.rpartition(".")
        setattr(root.get_submodule(parent), child, adapted)
        owned += [*own.values(), *([adapted.row_ids] if shape.rows else [])]
    _follow_rows(root, structure)
    return _names_of(root, owned)


def _names_of(root: nn.Module, owned: list[torch.Tensor]) -> frozenset[str]:
    """By identity, never by name: a base module may well be called `explorable_proj`."""
    wanted = {id(tensor) for tensor in owned}
    named = (*root.named_parameters(remove_duplicate=False), *root.named_buffers(remove_duplicate=False))
    return frozenset(name for name, tensor in named if id(tensor) in wanted)


def _of(factor: str, module: str) -> bool:
    role = factor.removeprefix(f"{module}.")
    return role != factor and ("." not in role or role == "lora_B.bias")


def _adapt(name: str, plain: nn.Module, shape: ModuleStructure, own: dict[str, nn.Parameter]) -> nn.Module:
    if shape.weight:
        return _replace(plain, own)
    if isinstance(plain, nn.Linear):
        return RowLinear(plain, own["rows"], torch.tensor(shape.rows)) if shape.rows else AdaptedLinear(plain, own)
    if isinstance(plain, nn.Embedding):
        return AdaptedEmbedding(plain, own, shape.rows)
    if type(plain).__name__ == "Conv1D":
        return AdaptedConv1D(plain, own)
    if not shape.lora:
        return _replace(plain, own)  # a norm's bias
    raise InputError(f"{name} is a {type(plain).__name__}; no adapter can stand on it", module=name)


def _replace(plain: nn.Module, own: dict[str, nn.Parameter]) -> nn.Module:
    """The same module with its own weight or bias, sharing nothing with a tied twin."""
    if isinstance(plain, nn.Embedding):
        return _replaced_embedding(own["weight"])
    copy = plain.__class__.__new__(plain.__class__)
    copy.__dict__.update(plain.__dict__)
    copy._parameters = dict(plain._parameters) | own  # noqa: SLF001  nn.Module offers no public shallow copy
    return copy


def _replaced_embedding(weight: nn.Parameter) -> nn.Embedding:
    """A plain embedding, also where the base's own is quantized."""
    embedding = nn.Embedding.from_pretrained(weight)
    embedding.weight = weight  # from_pretrained wraps it anew, and factors are known by identity
    return embedding


class AdaptedLinear(nn.Linear):
    """`g*(Wx) + B(Ax) + b_B + b`, with `g` only for DoRA and each bias only where there is one; x is (tokens, in)."""

    def __init__(self, plain: nn.Linear, own: dict[str, nn.Parameter]) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = plain.in_features, plain.out_features
        self.weight, self.bias = plain.weight, own.get("bias", plain.bias)
        self.lora_A, self.lora_B = own.get("lora_A"), own.get("lora_B")
        self.lora_B_bias, self.dora_scale = own.get("lora_B.bias"), own.get("dora_scale")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.dora_scale is None:
            y = functional.linear(x, self.weight, self.bias)
            return y if self.lora_A is None else y + self._delta(x)
        # The bias rides on the second linear: so XNNPACK takes it in under the key that the foundation has it by.
        # DoRA has no b_B of its own (PEFT refuses the pair), so the place is free.
        return functional.linear(x, self.weight) * self.dora_scale + self._delta(x, self.bias)

    def _delta(self, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        return functional.linear(
            functional.linear(x, self.lora_A), self.lora_B, bias if self.lora_B_bias is None else self.lora_B_bias
        )


class AdaptedConv1D(nn.Module):
    """GPT-2's Conv1D, whose weight is (in, out); `A` (r, in) and `B` (out, r) keep their shapes."""

    def __init__(self, plain: nn.Module, own: dict[str, nn.Parameter]) -> None:
        super().__init__()
        self.plain = _replace(plain, {"bias": own["bias"]}) if "bias" in own else plain
        self.lora_A, self.lora_B = own.get("lora_A"), own.get("lora_B")
        self.lora_B_bias, self.dora_scale = own.get("lora_B.bias"), own.get("dora_scale")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # Its own product: XNNPACK takes a transposed linear's weight in under another key than the foundation has.
        if self.dora_scale is None:
            y = self.plain(x)
            return y if self.lora_A is None else y + self._delta(x, self.lora_B_bias)
        y = torch.mm(x.reshape(-1, x.shape[-1]), self.plain.weight).view(*x.shape[:-1], self.plain.nf)
        return y * self.dora_scale + self._delta(x, self.plain.bias)

    def _delta(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return functional.linear(functional.linear(x, self.lora_A), self.lora_B, bias)


class AdaptedEmbedding(nn.Embedding):
    """`E[id] + A[:, id]^T B^T`, and trained rows that replace `E[id]` where `id` is one of `rows`."""

    def __init__(self, plain: nn.Embedding, own: dict[str, nn.Parameter], rows: tuple[int, ...]) -> None:
        nn.Module.__init__(self)
        self.num_embeddings, self.embedding_dim = plain.num_embeddings, plain.embedding_dim
        self.padding_idx, self.plain = plain.padding_idx, plain
        self.lora_embedding_A, self.lora_embedding_B = own.get("lora_embedding_A"), own.get("lora_embedding_B")
        self.rows = own.get("rows")
        if self.rows is not None:
            self.register_buffer("row_ids", torch.tensor(rows), persistent=False)

    @property
    def weight(self) -> torch.Tensor:
        """The base's."""
        return self.plain.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.plain(ids)  # its own lookup: the base may be quantized
        if self.lora_embedding_A is not None:
            low = functional.embedding(ids, self.lora_embedding_A.t())
            x = x + functional.linear(low, self.lora_embedding_B)
        if self.rows is None:
            return x
        match = (ids.unsqueeze(-1) == self.row_ids).to(torch.int64)
        place = (match * torch.arange(len(self.row_ids))).sum(-1)
        return torch.where(match.sum(-1, keepdim=True) > 0, functional.embedding(place, self.rows), x)


class RowLinear(nn.Module):
    """A linear without bias some of whose outputs come from trained rows: those of its own, or a tied embedding's."""

    def __init__(self, plain: nn.Module, rows: nn.Parameter, row_ids: torch.Tensor) -> None:
        super().__init__()
        self.plain, self.rows = plain, rows
        self.register_buffer("row_ids", row_ids, persistent=False)

    @property
    def weight(self) -> torch.Tensor:
        """The base's."""
        return self.plain.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, trained = self.plain(x), functional.linear(x, self.rows)
        if x.ndim == 2 and isinstance(x.shape[0], int) and x.shape[0] == 1:  # a decoder's head: one token's logits
            return torch.scatter(y, 1, self.row_ids.view(1, -1), trained)
        return torch.index_copy(y, -1, self.row_ids, trained)


def _follow_rows(root: nn.Module, structure: Structure) -> None:
    """Let heads that share an embedding's weight see its rows too, unless they have rows of their own."""
    for name in structure.modules:
        embedding = root.get_submodule(name)
        if isinstance(embedding, AdaptedEmbedding) and embedding.rows is not None and _keeps_tied(root):
            for head in _heads(root, structure, embedding):
                parent, _, child = head.rpartition(".")
                row_linear = RowLinear(root.get_submodule(head), embedding.rows, embedding.row_ids)
                setattr(root.get_submodule(parent), child, row_linear)


def _keeps_tied(root: nn.Module) -> bool:
    """Whether PEFT takes a shared weight for a tie: it asks the model's config (`set_additional_trainable_modules`)."""
    return isinstance(root, Decoder) or bool(getattr(getattr(root, "config", None), "tie_word_embeddings", False))


def _heads(root: nn.Module, structure: Structure, embedding: nn.Module) -> list[str]:
    """The linears that have the embedding's weight, or had it until each was quantized in its own way."""
    with_own = tuple(f"{name}." for name, module in root.named_modules() if isinstance(module, RowLinear))
    replaced = "lm_head" in structure.modules and structure.modules["lm_head"].weight
    return [
        name
        for name, module in root.named_modules()
        if isinstance(module, nn.Linear) and not name.startswith(with_own)
        if module.weight is embedding.weight
        or (name == "lm_head" and getattr(root, "tied_head", False) and not replaced)
    ]
