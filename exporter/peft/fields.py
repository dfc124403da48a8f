"""The fields of adapter_config.json, each read as what it must be."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from exporter.peft.findings import Findings
from exporter.peft.patterns import check_patterns, key_expression, layer_expression

FILE = "adapter_config.json"
MAX_NAMES = 1 << 16
MAX_SAVED = 1024
MAX_SHOWN = 500
PLAIN_INITS = frozenset({"gaussian", "eva", "orthogonal", "mica"})
CHANGED_BASE = re.compile(r"pissa(_niter_\d+)?|olora|corda|lora_ga", re.ASCII)
LOFTQ = "LoftQ quantizes the base that it trains on"
WRITTEN_HINT = "save the adapter again with PEFT's save_pretrained, or mend the file by hand"
PATTERN_HINT = "a plain list of names says the same"
PLAIN_HINT = "train a plain LoRA adapter, or merge this one and extract a LoRA from the difference"


def is_rank(value: Any) -> bool:
    """Whether it is an integer >= 1; true and 4.0 are none."""
    return type(value) is int and value >= 1


def is_number(value: Any) -> bool:
    """A finite number; an integer beyond a double's range is none."""
    if type(value) is int:
        return abs(value) < 1 << 1023
    return type(value) is float and math.isfinite(value)


@dataclass(frozen=True, slots=True)
class Fields:
    """Typed access to a config's fields; a mistake becomes a finding, and the field's default is answered.

    `modules` are the names that its expressions will be matched against.
    """

    raw: Mapping[str, Any]
    findings: Findings
    modules: Collection[str] = ()

    def wrong(self, name: str, expected: str) -> None:
        """Say what the field must be."""
        actual = self.raw[name]
        shown = repr(actual)
        shown = shown if len(shown) <= MAX_SHOWN else f"{shown[:MAX_SHOWN]}…"
        message = f"{FILE}: {name!r} must be {expected}, not {shown}"
        self.findings.error("field-type", name, message, expected=expected, actual=actual, hint=WRITTEN_HINT)

    def missing(self, name: str) -> bool:
        """Whether a field that must be there is absent or null."""
        if self.raw.get(name) is not None:
            return False
        self.findings.error("missing-field", name, f"{FILE}: {name!r} is missing", hint="PEFT always writes it")
        return True

    def rank(self) -> int | None:
        """`r`; None where it is unusable."""
        if self.missing("r"):
            return None
        if not is_rank(self.raw["r"]):
            self.wrong("r", "an integer >= 1")
            return None
        return int(self.raw["r"])

    def alpha(self) -> float | None:
        """`lora_alpha`; None where it is unusable."""
        if self.missing("lora_alpha"):
            return None
        if not is_number(self.raw["lora_alpha"]):
            self.wrong("lora_alpha", "a finite number")
            return None
        return float(self.raw["lora_alpha"])

    def flag(self, name: str) -> bool:
        """A boolean; absent and null are false."""
        value = self.raw.get(name)
        if value is not None and not isinstance(value, bool):
            self.wrong(name, "true or false")
        return value is True

    def names(self, name: str, limit: int = MAX_NAMES) -> tuple[str, ...]:
        """A list of at most `limit` names."""
        value = self.raw.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            self.wrong(name, "a list of names")
            return ()
        if len(value) > limit:
            message = f"{FILE}: {name!r} lists {len(value)} names, at most {limit} are read"
            self.findings.error("too-many", name, message, expected=limit, actual=len(value), hint="name their endings")
            return ()
        return tuple(value)

    def targets(self, name: str) -> str | tuple[str, ...] | None:
        """A list of names, or one regular expression; None when absent."""
        value = self.raw.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            return self.names(name)
        return value if self._matches(name, (value,)) else None

    def layers(self) -> tuple[int, ...] | None:
        """`layers_to_transform`; None for all layers."""
        value = self.raw.get("layers_to_transform")
        if value is None or value == []:
            return None
        layers = value if isinstance(value, list) else [value]
        if not all(type(layer) is int and layer >= 0 for layer in layers):
            self.wrong("layers_to_transform", "a layer index or a list of them")
            return None
        if isinstance(self.raw.get("target_modules"), str):
            message = f"{FILE}: 'layers_to_transform' has no meaning beside an expression in 'target_modules'"
            hint = "PEFT refuses the two together: name the layers in the expression"
            self.findings.error("layers-and-regex", "layers_to_transform", message, hint=hint)
        return tuple(layers)

    def layers_pattern(self) -> tuple[str, ...]:
        """`layers_pattern`, one expression or a list."""
        value = self.raw.get("layers_pattern")
        patterns = (value,) if isinstance(value, str) and value else () if value == "" else self.names("layers_pattern")
        if patterns and self.raw.get("layers_to_transform") in (None, []):
            message = f"{FILE}: 'layers_pattern' has no meaning without 'layers_to_transform', which names the layers"
            hint = "PEFT refuses it alone: take it out, or name the layers that were trained"
            self.findings.error("layers-pattern-alone", "layers_pattern", message, hint=hint)
        return patterns if self._matches("layers_pattern", patterns, layer_expression) else ()

    def pattern(self, name: str, accepted: Callable[[Any], bool], expected: str) -> dict[str, Any]:
        """`rank_pattern` or `alpha_pattern`: numbers by name pattern, in the file's order."""
        value = self.raw.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(accepted(item) for item in value.values()):
            self.wrong(name, f"an object of name patterns, each with {expected}")
            return {}
        return value if self._matches(name, value, key_expression) else {}

    def bias(self) -> str:
        """`none`, `all` or `lora_only`."""
        value = self.raw.get("bias", "none")
        if value not in ("none", "all", "lora_only", None):
            self.wrong("bias", "'none', 'all' or 'lora_only'")
        return str(value) if value in ("all", "lora_only") else "none"

    def init(self) -> str:
        """`plain` for every initialization that leaves the base as it is, else its name."""
        value = self.raw.get("init_lora_weights", True)
        if value is None or isinstance(value, bool):
            return "plain"
        if not isinstance(value, str):
            self.wrong("init_lora_weights", "true, false or a method's name")
            return "plain"
        value = value.lower()
        if value in PLAIN_INITS:
            return "plain"
        if value == "loftq":
            message = f"{FILE}: 'init_lora_weights' is 'loftq': {LOFTQ}"
            self.findings.error("unsupported-init", "init_lora_weights", message, actual=value, hint=PLAIN_HINT)
        elif not CHANGED_BASE.fullmatch(value):
            message = f"{FILE}: the initialization {value!r} is not known"
            self.findings.error("unsupported-init", "init_lora_weights", message, actual=value, hint=PLAIN_HINT)
        return value

    def token_indices(self) -> dict[str | None, tuple[int, ...]]:
        """Indices by the embedding's name; None stands for the model's input embedding."""
        value = self.raw.get("trainable_token_indices")
        if value is None:
            return {}
        table = value if isinstance(value, dict) else {None: value}
        for indices in table.values():
            if not isinstance(indices, list) or not all(type(index) is int and index >= 0 for index in indices):
                self.wrong("trainable_token_indices", "token indices >= 0, as a list or by the embedding's name")
                return {}
        return {name: tuple(indices) for name, indices in table.items() if indices}

    def _matches(self, name: str, patterns: Collection[str], wrap: Callable[[str], str] = str) -> bool:
        """Whether a field's expressions can be matched against the modules."""
        wrong = check_patterns(patterns, self.modules, wrap)
        if wrong is not None:
            message = f"{FILE}: {name!r}: {wrong}"
            self.findings.error("bad-pattern", name, message, actual=list(patterns)[:20], hint=PATTERN_HINT)
        return wrong is None
