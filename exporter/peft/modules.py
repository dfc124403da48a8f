"""The LoRA tensors of one module become one `ModuleAdapter`: parts paired, shapes and ranks checked. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exporter.card import LINEAR_KINDS, Card
from exporter.peft.adapter import ModuleAdapter, Values
from exporter.peft.config import Config
from exporter.peft.findings import Findings
from exporter.peft.fused import Site
from exporter.peft.names import Part
from exporter.peft.patterns import resolve
from exporter.peft.targets import ties_targets
from exporter.peft.tensors import FLOATING, Stored

GATHER_HINT = (
    "gather before saving: deepspeed.zero.GatheredParameters for DeepSpeed ZeRO-3, summon_full_params for FSDP"
)
OTHER_BASE_HINT = "the adapter was trained on another base"
OTHER_CONFIG_HINT = "adapter_config.json and the weights must come from one save: copy both again"
MIXED_HINT = "the two must come from one save: copy the weights again"
VOCABULARY_HINT = "a resized vocabulary is another base: export a foundation of the resized checkpoint"


@dataclass(frozen=True, slots=True)
class Builder:
    """Builds module adapters under one config; mistakes become findings."""

    config: Config
    card: Card
    findings: Findings

    def build(self, site: Site) -> ModuleAdapter | None:
        """What the site's LoRA tensors make; None when they are not usable."""
        if not site.adapted:
            return None
        self._velora(site)
        if {Part.EMBEDDING_A, Part.EMBEDDING_B} & site.tensors.keys():
            return self._embedding(site)
        return self._linear(site)

    def _velora(self, site: Site) -> None:
        stored = site.tensors.get(Part.VELORA)
        if stored is not None and not self.config.raw.get("velora_config"):
            self._agree(site, Part.VELORA, stored, asked=False, option="velora_config")

    def values(self, stored: Stored) -> Values | None:
        """The tensor's values, when its dtype is one that LoRA is trained in."""
        if stored.dtype in FLOATING:
            return stored.values()
        self.findings.error(
            "dtype",
            stored.name,
            f"{stored.name}: factors of dtype {stored.dtype} are not supported",
            expected=list(FLOATING),
            actual=stored.dtype,
            hint="save the adapter in float32, float16 or bfloat16",
        )
        return None

    def _linear(self, site: Site) -> ModuleAdapter | None:
        if site.module.kind not in LINEAR_KINDS:
            self._refuse_kind(site)
            return None
        first, second = self._pair(site, Part.A, Part.B)
        if first is None or second is None:
            return None
        shapes_fit = all(
            [
                self._inner_ranks(site, first.shape[0], second.shape[1]),
                self._size(site, first, 1, "in_features", site.module.inputs),
                self._size(site, second, 0, "out_features", site.module.outputs),
                self._rank(site, first.shape[0]),
            ]
        )
        extra = self._vectors(site)
        if not shapes_fit or extra is None or self.config.alpha is None:
            return None
        scaling = self._scaling(site.name, first.shape[0])
        return ModuleAdapter(site.name, scaling, lora_a=first, lora_b=second, **extra)

    def _vectors(self, site: Site) -> dict[str, Any] | None:
        """lora_bias and magnitude, each (out,); None when one is wrong."""
        wanted = (
            (Part.B_BIAS, "lora_bias", self.config.lora_bias, "lora_bias"),
            (Part.MAGNITUDE, "magnitude", self.config.dora, "use_dora"),
        )
        found: dict[str, Any] = {}
        for part, field, asked, option in wanted:
            stored = site.tensors.get(part)
            if not self._agree(site, part, stored, asked=asked, option=option):
                return None
            if stored is not None:
                values = self.vector(stored, site.module.outputs)
                if values is None:
                    return None
                found[field] = values
        return found

    def _agree(self, site: Site, part: Part, stored: Stored | None, *, asked: bool, option: str) -> bool:
        if asked == (stored is not None):
            return True
        if stored is None:
            message = f"{site.name}: {part} is missing, although the config says {option!r}"
        else:
            message = f"{stored.name} is there, although the config does not say {option!r}"
        subject = stored.name if stored else site.name
        self.findings.error("config-against-tensors", subject, message, actual=option, hint=OTHER_CONFIG_HINT)
        return False

    def vector(self, stored: Stored, size: int) -> Values | None:
        """A tensor of shape (size,)."""
        if stored.shape == (size,):
            return self.values(stored)
        message = f"{stored.name}: shape {list(stored.shape)}, expected [{size}]"
        expected, actual = [size], list(stored.shape)
        self.findings.error("shape", stored.name, message, expected=expected, actual=actual, hint=OTHER_BASE_HINT)
        return None

    def _embedding(self, site: Site) -> ModuleAdapter | None:
        if site.module.kind != "embedding":
            self._refuse_kind(site)
            return None
        if self.config.dora or Part.MAGNITUDE in site.tensors:
            message = f"{site.name}: DoRA on an embedding is not supported"
            self.findings.error("dora-embedding", site.name, message, hint="train without use_dora, or without it here")
            return None
        first, second = self._pair(site, Part.EMBEDDING_A, Part.EMBEDDING_B)
        if first is None or second is None:
            return None
        fits = all(
            [
                self._inner_ranks(site, first.shape[0], second.shape[1]),
                self._vocabulary(first, first.shape[1], site.module.inputs),
                self._size(site, second, 0, "embedding_dim", site.module.outputs),
                self._rank(site, first.shape[0]),
            ]
        )
        if not fits or self.config.alpha is None:
            return None
        return ModuleAdapter(site.name, self._scaling(site.name, first.shape[0]), embedding_a=first, embedding_b=second)

    def _refuse_kind(self, site: Site) -> None:
        stored = next(iter(site.tensors.values()))
        message = f"{stored.name}: this LoRA does not fit {site.name}, which is a {site.module.kind}"
        self.findings.error("kind", stored.name, message, expected=site.module.kind, hint="linear and embedding only")

    def _pair(self, site: Site, first: Part, second: Part) -> tuple[Values | None, Values | None]:
        return self._matrix(site, first, second), self._matrix(site, second, first)

    def _matrix(self, site: Site, part: Part, other: Part) -> Values | None:
        stored = site.tensors.get(part)
        if stored is None:
            name = _sibling(site, part, other)
            self.findings.error("missing-tensor", name, f"{name} is missing", hint="the file is not a whole adapter")
            return None
        shape = list(stored.shape)
        if len(shape) < 2 or 0 in shape:
            message = f"{stored.name}: shape {shape} is a shard that was not gathered (DeepSpeed ZeRO-3 or FSDP)"
            self.findings.error("not-gathered", stored.name, message, actual=shape, hint=GATHER_HINT)
            return None
        if len(shape) > 2:
            message = f"{stored.name}: shape {shape} is LoRA on a convolution, which is not supported"
            hint = "train without the convolutions"
            self.findings.error("convolution", stored.name, message, actual=shape, hint=hint)
            return None
        return self.values(stored)

    def _inner_ranks(self, site: Site, first: int, second: int) -> bool:
        if first == second:
            return True
        message = f"{site.name}: inner ranks differ: lora_A has {first}, lora_B has {second}"
        self.findings.error("inner-rank", site.name, message, expected=first, actual=second, hint=MIXED_HINT)
        return False

    def _size(self, site: Site, values: Values, axis: int, word: str, expected: int) -> bool:
        actual = values.shape[axis]
        if actual == expected:
            return True
        if site.head and axis == 0:
            return self._vocabulary(values, actual, expected)
        self.findings.error(
            "shape",
            values.name,
            f"{values.name}: expects {word} {expected}, got {actual}",
            expected=expected,
            actual=actual,
            hint=OTHER_BASE_HINT,
        )
        return False

    def _vocabulary(self, values: Values, actual: int, expected: int) -> bool:
        if actual == expected:
            return True
        self.findings.error(
            "vocabulary",
            values.name,
            f"{values.name}: vocabulary {actual} vs base {expected}",
            expected=expected,
            actual=actual,
            hint=VOCABULARY_HINT,
        )
        return False

    def _rank(self, site: Site, actual: int) -> bool:
        source = self._factors_of(site.name)
        expected, where = self._given_rank(source)
        if expected is None or actual == expected:
            return True
        tied = "" if source == site.name else f", which 'ensure_weight_tying' gives the factors of {source}"
        message = f"rank {actual} in tensors, {expected} in {where} for {site.name}{tied}"
        hint = self._order_hint(source, actual) or OTHER_CONFIG_HINT
        self.findings.error("rank", site.name, message, expected=expected, actual=actual, hint=hint)
        return False

    def _order_hint(self, name: str, rank: int) -> str | None:
        """What to do when a later key of rank_pattern has the tensors' rank: PEFT sorts the keys when it saves."""
        table = self.config.rank_pattern
        meant = next((key for key in table if table[key] == rank and resolve((key,), name)), None)
        return meant and (
            f"PEFT sorts keys when it saves, and cannot load this adapter itself: put {meant!r} in front in "
            "'rank_pattern', and in 'alpha_pattern' what stood in front in training"
        )

    def _factors_of(self, name: str) -> str:
        """The module whose factors this one has: a tied embedding's, turned round, under ensure_weight_tying."""
        embedding = self.card.input_embedding if ties_targets(self.config) else None
        return embedding if embedding is not None and name in self.card.tied_with(embedding) else name

    def _given_rank(self, name: str) -> tuple[int | None, str]:
        """The rank that the config gives a module, and where it says so."""
        key = resolve(self.config.rank_pattern, name)
        return (self.config.rank, "config") if key is None else (self.config.rank_pattern[key], f"rank_pattern {key!r}")

    def _scaling(self, name: str, rank: int) -> float:
        key = resolve(self.config.alpha_pattern, name)
        alpha = self.config.alpha if key is None else float(self.config.alpha_pattern[key])
        assert alpha is not None  # noqa: S101 - both callers refuse a config without alpha
        if self._factors_of(name) != name:  # PEFT scales by the rank that it meant for this one (`Linear.update_layer`)
            rank = self._given_rank(name)[0] or rank
        return alpha / math.sqrt(rank) if self.config.rslora else alpha / rank


def _sibling(site: Site, missing: Part, present: Part) -> str:
    """The name that a missing tensor would have, spelled like its pair."""
    stored = site.tensors.get(present)
    if stored is None:
        return f"{site.name}.{missing}"
    marks = {
        Part.A: "lora_A",
        Part.B: "lora_B",
        Part.EMBEDDING_A: "lora_embedding_A",
        Part.EMBEDDING_B: "lora_embedding_B",
    }
    head, mark, tail = stored.name.rpartition(marks[present])
    return f"{head}{marks[missing]}{tail}" if mark else f"{site.name}.{missing}"


def check_kinds(config: Config, card: Card, modules: Mapping[str, ModuleAdapter], findings: Findings) -> None:
    """What cannot be together: DoRA and a LoRA bias; and Conv1D's flag without one."""
    if config.dora and config.lora_bias:
        message = "adapter_config.json: 'use_dora' and 'lora_bias' exclude each other, in PEFT as well"
        findings.error("dora-lora-bias", "lora_bias", message, hint="set the one that was trained")
    kinds = {card.modules[name].kind for name, module in modules.items() if module.lora_a}
    if config.fan_in_fan_out and kinds and "conv1d" not in kinds:
        message = (
            "adapter_config.json: 'fan_in_fan_out' is true, but no adapted module is a Conv1D: nothing is transposed"
        )
        findings.warning("fan-in-fan-out", "fan_in_fan_out", message, expected=False, actual=True)
