"""A normalized adapter: what remains when names, prefixes, dtypes and variants are understood. Pure values.

Per module of the foundation there are factors (readers that load on demand) and one exact scaling; what else the
adapter's directory holds is listed by name, size and digest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exporter.structure import ModuleStructure, Structure
from registry.digest import Descriptor, Digest

Floats = NDArray[np.float32]
INITIAL = "initial/"
"""Stands before the names of the initial adapter's files in the source list."""


@dataclass(frozen=True, slots=True)
class Values:
    """A tensor on demand. `name` is the one in the adapter's file, `dtype` the stored one; `load` widens to fp32."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    load: Callable[[], Floats] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ModuleAdapter:
    """What the adapter brings to one module of the foundation; absent parts are None.

    `scaling` is s in fp64, alpha/r or alpha/sqrt(r). `lora_a` (r, in), `lora_b` (out, r), `lora_bias` (out,) after
    `lora_b`, `magnitude` (out,) is DoRA's m; `bias` and `weight` replace the base's; `embedding_a` (r, V),
    `embedding_b` (H, r); `rows` (n, H) replace the rows `indices`, which ascend.
    """

    name: str
    scaling: float = 1.0
    lora_a: Values | None = None
    lora_b: Values | None = None
    lora_bias: Values | None = None
    magnitude: Values | None = None
    bias: Values | None = None
    weight: Values | None = None
    embedding_a: Values | None = None
    embedding_b: Values | None = None
    rows: Values | None = None
    indices: tuple[int, ...] = ()

    @property
    def structure(self) -> ModuleStructure:
        """The module's entry in the structure."""
        return ModuleStructure(
            lora=self.lora_a.shape[0] if self.lora_a else 0,
            lora_bias=self.lora_bias is not None,
            dora=self.magnitude is not None,
            bias=self.bias is not None,
            weight=self.weight is not None,
            embedding=self.embedding_a.shape[0] if self.embedding_a else 0,
            rows=self.indices,
        )


@dataclass(frozen=True, slots=True)
class Chat:
    """What an adapter brings of its own to a chat.

    `template` is the text of its chat template, None where it is the foundation's; `special_tokens` are the tokens
    that templates ask for by name (`bos_token`, `eos_token`); `stop_token_ids` end an answer, empty where they are the
    foundation's.
    """

    template: str | None = None
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    stop_token_ids: tuple[int, ...] = ()

    @property
    def own(self) -> bool:
        """Whether it is another chat than the foundation's."""
        return self.template is not None or bool(self.stop_token_ids)


@dataclass(frozen=True, slots=True)
class NormalizedAdapter:
    """An adapter that passed the gate.

    `source` is the canonical list of what was trained (adapter_config.json and the weights), `attachments` the other
    files worth keeping, `left_out` the names of those that are not (optimizer states). `base_copies` are base
    tensors that PEFT saved along and whose equality digests could not decide: folding compares them with the
    foundation's weights. `pinned` is the base fingerprint that training recorded. `initial` is the directory of the
    initial adapter, when there was one; its files stand in `source` behind `initial/`.
    """

    directory: Path
    config: Mapping[str, Any]
    modules: Mapping[str, ModuleAdapter]
    source: Mapping[str, Descriptor]
    attachments: Mapping[str, Descriptor] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    base_copies: Mapping[str, Values] = field(default_factory=dict)
    pinned: Digest | None = None
    lineage: Mapping[str, Any] = field(default_factory=dict)
    initial: Path | None = None
    chat: Chat = field(default_factory=Chat)

    def path(self, name: str) -> Path:
        """Where the file `name` of `source` or `attachments` stands."""
        if self.initial is not None and name.startswith(INITIAL):
            return self.initial / name.removeprefix(INITIAL)
        return self.directory / name

    @property
    def structure(self) -> Structure:
        """The structure before folding tells which factors are equal."""
        return Structure({name: module.structure for name, module in self.modules.items()})
