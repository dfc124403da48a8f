"""What the gate must know of a foundation, as one small document: its card.

    card = Card.from_json(canonical.loads(Path("card.json").read_bytes(), what="card.json"))
    card.modules["model.layers.0.self_attn.q_proj"]     # Module(kind="linear", inputs=576, outputs=576, bias=False)

`foundation show N --card` writes it (under 1 MB for ordinary models), so that a trainer can check an adapter without
a store, without the weights and without torch. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from exporter.reading import Document
from registry.digest import Digest

LINEAR_KINDS = frozenset({"linear", "conv1d"})
HEAD_NAMES = frozenset({"lm_head", "embed_out", "score", "classifier"})
FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
"""Projections that some models have as one module and others as several, by the one's name."""


@dataclass(frozen=True, slots=True)
class Module:
    """A module that holds weights: `kind` is linear, conv1d, embedding, norm, or another that no adapter may touch.

    `inputs` and `outputs` are element counts; an embedding's are its vocabulary and its width, a norm's are equal.
    """

    kind: str
    inputs: int
    outputs: int
    bias: bool

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """The shape of the module's `weight` in a Hugging Face checkpoint."""
        if self.kind == "norm":
            return (self.outputs,)
        if self.kind in ("conv1d", "embedding"):
            return (self.inputs, self.outputs)
        return (self.outputs, self.inputs)


@dataclass(frozen=True, slots=True)
class BaseTensor:
    """A tensor of the base checkpoint: dtype in safetensors' spelling, shape, digest of its bytes where known."""

    dtype: str
    shape: tuple[int, ...]
    digest: Digest | None = None


@dataclass(frozen=True, slots=True)
class TokenizerCard:
    """A tokenizer by its digests (`exporter.tokenizer.describe` makes them).

    `files` are the raw files'; `vocabulary` is what decides token ids, read from the file `source`, whatever its
    layout; `size` counts its tokens; `rules` is how text is cut around them; `chat_template` is the template's text;
    `eos` the ids that end an answer.
    """

    files: Mapping[str, Digest]
    source: str
    vocabulary: Digest
    size: int | None = None
    rules: Digest | None = None
    chat_template: Digest | None = None
    eos: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The card's member `tokenizer`."""
        return {
            "files": {name: str(digest) for name, digest in self.files.items()},
            "source": self.source,
            "vocabulary": str(self.vocabulary),
            "size": self.size,
            "rules": None if self.rules is None else str(self.rules),
            "chat_template": None if self.chat_template is None else str(self.chat_template),
            "eos": list(self.eos),
        }

    @classmethod
    def from_json(cls, entry: Document) -> TokenizerCard:
        """Read the member. Raises FormatError."""
        files = entry.part("files")
        return cls(
            files={name: files.digest(name) for name in files.names()},
            source=entry.text("source"),
            vocabulary=entry.digest("vocabulary"),
            size=entry.optional_count("size"),
            rules=entry.optional_digest("rules"),
            chat_template=entry.optional_digest("chat_template"),
            eos=entry.part("eos").counts(),
        )


@dataclass(frozen=True, slots=True)
class KnownStructure:
    """A structure whose template exists: its digest and one line for people."""

    digest: Digest
    text: str


@dataclass(frozen=True)
class Card:
    """What an adapter may touch on one foundation, and what it is compared with.

    `factor_dtype` is F32 or F16; `tied` lists groups of modules that share one weight, the embedding first;
    `tensors` are the base checkpoint's; `dead` names modules that the exported graph does not use; `quantization`
    is the recipe's, None where weights are plain.
    """

    architecture: str
    factor_dtype: str
    modules: Mapping[str, Module] = field(repr=False)
    base: Digest
    foundation: Digest | None = None
    name: str | None = None
    max_positions: int | None = None
    tied: tuple[tuple[str, ...], ...] = ()
    tensors: Mapping[str, BaseTensor] = field(default_factory=dict, repr=False)
    tokenizer: TokenizerCard | None = None
    structures: tuple[KnownStructure, ...] = ()
    dead: tuple[str, ...] = ()
    quantization: Mapping[str, Any] | None = None

    @cached_property
    def fused(self) -> Mapping[str, tuple[str, ...]]:
        """Names that a fused model has for modules that this base has split: qkv_proj → q_proj, k_proj, v_proj."""
        found = {}
        for name in self.modules:
            parent, dot, last = name.rpartition(".")
            for fused, parts in FUSED.items():
                names = tuple(f"{parent}{dot}{part}" for part in parts)
                whole = f"{parent}{dot}{fused}"
                if last == parts[0] and whole not in self.modules and self._can_fuse(names):
                    found[whole] = names
        return found

    def _can_fuse(self, names: tuple[str, ...]) -> bool:
        modules = [self.modules.get(name) for name in names]
        linear = all(module is not None and module.kind == "linear" for module in modules)
        return linear and len({module.inputs for module in modules if module}) == 1

    @cached_property
    def names(self) -> frozenset[str]:
        """Every name by which an adapter may call a module."""
        return frozenset({*self.modules, *self.fused})

    @cached_property
    def input_embedding(self) -> str | None:
        """The token embedding's name: the one that is tied, else the one with the most rows; None without any."""
        names = [name for name, module in self.modules.items() if module.kind == "embedding"]
        return max(names, key=lambda name: (bool(self.tied_with(name)), self.modules[name].inputs), default=None)

    def is_head(self, name: str) -> bool:
        """Whether `name` is an output head, which PEFT's "all-linear" leaves out."""
        module = self.modules.get(name)
        if module is None or module.kind != "linear":
            return False
        return bool(self.tied_with(name)) or name.rpartition(".")[2] in HEAD_NAMES

    def tied_with(self, name: str) -> tuple[str, ...]:
        """The other modules that share this one's weight."""
        return tuple(other for group in self.tied if name in group for other in group if other != name)

    def base_tensor(self, module: str, parameter: str) -> BaseTensor | None:
        """The base's tensor behind a module's weight or bias, under its own name or a tied module's."""
        for name in (module, *(self.tied_with(module) if parameter == "weight" else ())):
            if f"{name}.{parameter}" in self.tensors:
                return self.tensors[f"{name}.{parameter}"]
        return None

    def to_json(self) -> dict[str, Any]:
        """The document; `from_json` is its inverse."""
        return {
            "schema": 1,
            "architecture": self.architecture,
            "factor_dtype": self.factor_dtype,
            "base": str(self.base),
            "foundation": None if self.foundation is None else str(self.foundation),
            "name": self.name,
            "max_positions": self.max_positions,
            "modules": {
                name: {"kind": module.kind, "in": module.inputs, "out": module.outputs, "bias": module.bias}
                for name, module in self.modules.items()
            },
            "tied": [list(group) for group in self.tied],
            "tensors": {name: _tensor_json(tensor) for name, tensor in self.tensors.items()},
            "tokenizer": None if self.tokenizer is None else self.tokenizer.to_json(),
            "structures": [{"digest": str(known.digest), "text": known.text} for known in self.structures],
            "dead": list(self.dead),
            "quantization": None if self.quantization is None else dict(self.quantization),
        }

    @classmethod
    def from_json(cls, document: Any) -> Card:
        """Read a card. Raises FormatError naming the first field that is not as it must be."""
        top = Document(document, "card")
        top.schema(1)
        tokenizer = top.optional_object("tokenizer")
        quantization = top.optional_object("quantization")
        tied = tuple(group.texts() for group in top.items("tied"))
        return cls(
            architecture=top.text("architecture"),
            factor_dtype=top.choice("factor_dtype", ("F32", "F16")),
            modules={name: _module(entry) for name, entry in top.entries("modules")},
            base=top.digest("base"),
            foundation=top.optional_digest("foundation"),
            name=top.optional_text("name"),
            max_positions=top.optional_count("max_positions"),
            tied=tied,
            tensors={name: _tensor(entry) for name, entry in top.entries("tensors", optional=True)},
            tokenizer=None if tokenizer is None else TokenizerCard.from_json(tokenizer),
            structures=tuple(
                KnownStructure(entry.digest("digest"), entry.text("text"))
                for entry in top.items("structures", optional=True)
            ),
            dead=_dead(top.part("dead").texts() if top.has("dead") else (), tied),
            quantization=None if quantization is None else quantization.value,
        )


def _dead(listed: tuple[str, ...], tied: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    """What is dead of what a module table lists: an export meets a tied weight under one of its names alone."""
    alive = {name for group in tied if not set(group) <= set(listed) for name in group}
    return tuple(name for name in listed if name not in alive)


def _tensor_json(tensor: BaseTensor) -> dict[str, Any]:
    document: dict[str, Any] = {"dtype": tensor.dtype, "shape": list(tensor.shape)}
    return document if tensor.digest is None else {**document, "digest": str(tensor.digest)}


def _module(entry: Document) -> Module:
    return Module(entry.text("kind"), entry.count("in"), entry.count("out"), entry.flag("bias"))


def _tensor(entry: Document) -> BaseTensor:
    return BaseTensor(entry.text("dtype"), entry.part("shape").counts(), entry.optional_digest("digest"))
