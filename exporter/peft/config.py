"""adapter_config.json, field by field: implemented, known to change nothing, or refused by name. Pure.

Fields and defaults are those of `peft.LoraConfig` 0.21.2. A field that nobody knows is accepted while it is null,
false or empty, for then it asks for nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from exporter.peft.findings import Findings
from exporter.peft.patterns import compile_pattern
from registry import canonical
from registry.errors import FormatError

FILE = "adapter_config.json"

INERT = frozenset(
    {
        "peft_version",
        "task_type",
        "auto_mapping",
        "revision",
        "inference_mode",
        "base_model_name_or_path",
        "lora_dropout",
        "megatron_core",
        "qalora_group_size",  # read only with use_qalora
        "runtime_config",  # where training ran; PEFT never saves it
        # How A and B were first filled. The base is unchanged (EVA), or init_lora_weights decides (the others).
        "eva_config",
        "corda_config",
        "lora_ga_config",
        "velora_config",  # changes only the backward pass
    }
)

IMPLEMENTED = frozenset(
    {
        "peft_type",
        "r",
        "lora_alpha",
        "target_modules",
        "exclude_modules",
        "layers_to_transform",
        "layers_pattern",
        "rank_pattern",
        "alpha_pattern",
        "use_rslora",
        "use_dora",
        "lora_bias",
        "fan_in_fan_out",
        "bias",
        "modules_to_save",
        "init_lora_weights",
        "trainable_token_indices",
        "ensure_weight_tying",
    }
)

REFUSED = {
    "loftq_config": "LoftQ quantizes the base that it trains on",
    "target_parameters": "LoRA on bare parameters (fused experts) has no module to stand on",
    "alora_invocation_tokens": "Activated LoRA switches on in the middle of a prompt",
    "layer_replication": "replicated layers make another base",
    "use_qalora": "QALoRA pools the inputs by group",
    "kasa_config": "KaSA truncates the base weights and adds singular values of its own",
    "use_bdlora": "BD-LoRA's factors are block-diagonal",
    "monteclora_config": "MonteCLoRA samples its factors",
    "arrow_config": "Arrow routes between adapters token by token",
    "megatron_config": "Megatron's parallel layers are not the base's modules",
}

PLAIN_INITS = frozenset({"gaussian", "eva", "orthogonal", "mica"})
_CHANGED_BASE = re.compile(r"pissa(_niter_\d+)?|olora|corda|lora_ga", re.ASCII)
PLAIN_HINT = "train a plain LoRA adapter, or merge this one and extract a LoRA from the difference"
CONVERT_HINT = "convert it with PEFT: peft.tuners.lora.conversion.save_as_lora(path, model, rank=…)"


@dataclass(frozen=True, slots=True)
class Config:
    """What adapter_config.json says, with PEFT's defaults. `rank` and `alpha` are None where they are unusable."""

    rank: int | None = None
    alpha: float | None = None
    targets: str | tuple[str, ...] | None = None
    excluded: str | tuple[str, ...] = ()
    layers: tuple[int, ...] | None = None
    layers_pattern: tuple[str, ...] = ()
    rank_pattern: Mapping[str, int] = field(default_factory=dict)
    alpha_pattern: Mapping[str, float] = field(default_factory=dict)
    rslora: bool = False
    dora: bool = False
    lora_bias: bool = False
    fan_in_fan_out: bool = False
    bias: str = "none"
    modules_to_save: tuple[str, ...] = ()
    init: str = "plain"
    token_indices: Mapping[str | None, tuple[int, ...]] = field(default_factory=dict)
    tie: bool = False
    base_name: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def changes_base(self) -> bool:
        """Whether the initialization took a part out of the base (PiSSA, OLoRA, CorDA, LoRA-GA)."""
        return _CHANGED_BASE.fullmatch(self.init) is not None


def read_config(data: bytes, findings: Findings) -> Config | None:
    """Read the file's bytes; every mistake becomes a finding. None when it is not a LoRA config at all."""
    try:
        raw = canonical.loads(data, what=FILE)
    except FormatError as error:
        findings.error("config-format", FILE, error.message, hint=error.hint)
        return None
    if not isinstance(raw, dict):
        findings.error("config-format", FILE, f"{FILE}: expected an object, got {type(raw).__name__}")
        return None
    return _lora_config(raw, findings) if _is_lora(raw, findings) else None


def _is_lora(raw: Mapping[str, Any], findings: Findings) -> bool:
    kind = raw.get("peft_type")
    if kind is None:
        findings.error("missing-field", "peft_type", f"{FILE}: 'peft_type' is missing", hint="PEFT writes it: LORA")
    elif kind != "LORA":
        findings.error(
            "peft-type",
            "peft_type",
            f"{FILE}: adapters of type {kind!r} are not supported, only LORA",
            expected="LORA",
            actual=kind,
            hint=CONVERT_HINT,
        )
    return kind == "LORA"


def _lora_config(raw: Mapping[str, Any], findings: Findings) -> Config:
    _refuse_fields(raw, findings)
    reader = _Reader(raw, findings)
    return Config(
        rank=reader.rank(),
        alpha=reader.alpha(),
        targets=reader.targets("target_modules"),
        excluded=reader.targets("exclude_modules") or (),
        layers=reader.layers(),
        layers_pattern=reader.layers_pattern(),
        rank_pattern=reader.pattern("rank_pattern", _is_rank, "an integer >= 1"),
        alpha_pattern=reader.pattern("alpha_pattern", _is_number, "a finite number"),
        rslora=reader.flag("use_rslora"),
        dora=reader.flag("use_dora"),
        lora_bias=reader.flag("lora_bias"),
        fan_in_fan_out=reader.flag("fan_in_fan_out"),
        bias=reader.bias(),
        modules_to_save=reader.names("modules_to_save"),
        init=reader.init(),
        token_indices=reader.token_indices(),
        tie=reader.flag("ensure_weight_tying"),
        base_name=raw["base_model_name_or_path"] if isinstance(raw.get("base_model_name_or_path"), str) else None,
        raw=raw,
    )


def _refuse_fields(raw: Mapping[str, Any], findings: Findings) -> None:
    for name, value in raw.items():
        if name in INERT | IMPLEMENTED or _asks_nothing(value):
            continue
        if name in REFUSED:
            message = f"{FILE}: {name!r} is not supported: {REFUSED[name]}"
            findings.error("unsupported-field", name, message, actual=value, hint=PLAIN_HINT)
        else:
            findings.error(
                "unknown-field",
                name,
                f"{FILE}: the field {name!r} is not known, and it is set",
                expected=None,
                actual=value,
                hint="remove it if it does not change what the adapter computes; else upgrade ptdock",
            )


def _asks_nothing(value: Any) -> bool:
    return value is None or value is False or (isinstance(value, (str, list, dict)) and not value)


def _is_rank(value: Any) -> bool:
    return type(value) is int and value >= 1


def _is_number(value: Any) -> bool:
    """A finite number; an integer beyond a double's range is none."""
    if type(value) is int:
        return abs(value) < 1 << 1023
    return type(value) is float and math.isfinite(value)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Typed access to the config's fields; a mistake becomes a finding and the field's default is answered."""

    raw: Mapping[str, Any]
    findings: Findings

    def wrong(self, name: str, expected: str) -> None:
        actual = self.raw[name]
        message = f"{FILE}: {name!r} must be {expected}, not {actual!r}"
        self.findings.error("field-type", name, message, expected=expected, actual=actual)

    def missing(self, name: str) -> bool:
        if self.raw.get(name) is not None:
            return False
        self.findings.error("missing-field", name, f"{FILE}: {name!r} is missing", hint="PEFT always writes it")
        return True

    def rank(self) -> int | None:
        if self.missing("r"):
            return None
        if not _is_rank(self.raw["r"]):
            self.wrong("r", "an integer >= 1")
            return None
        return int(self.raw["r"])

    def alpha(self) -> float | None:
        if self.missing("lora_alpha"):
            return None
        if not _is_number(self.raw["lora_alpha"]):
            self.wrong("lora_alpha", "a finite number")
            return None
        return float(self.raw["lora_alpha"])

    def flag(self, name: str) -> bool:
        value = self.raw.get(name)
        if value is not None and not isinstance(value, bool):
            self.wrong(name, "true or false")
        return value is True

    def names(self, name: str) -> tuple[str, ...]:
        value = self.raw.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            self.wrong(name, "a list of names")
            return ()
        return tuple(value)

    def targets(self, name: str) -> str | tuple[str, ...] | None:
        """A list of names, or one regular expression; None when absent."""
        value = self.raw.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            return self.names(name)
        return value if self._compiles(name, value) else None

    def layers(self) -> tuple[int, ...] | None:
        value = self.raw.get("layers_to_transform")
        if value is None or value == []:
            return None
        layers = value if isinstance(value, list) else [value]
        if not all(type(layer) is int and layer >= 0 for layer in layers):
            self.wrong("layers_to_transform", "a layer index or a list of them")
            return None
        if isinstance(self.raw.get("target_modules"), str):
            message = f"{FILE}: 'layers_to_transform' has no meaning beside an expression in 'target_modules'"
            self.findings.error("layers-and-regex", "layers_to_transform", message)
        return tuple(layers)

    def layers_pattern(self) -> tuple[str, ...]:
        value = self.raw.get("layers_pattern")
        patterns = self.names("layers_pattern") if not isinstance(value, str) else (value,)
        compiled = [self._compiles("layers_pattern", pattern) for pattern in patterns]
        return patterns if all(compiled) else ()

    def pattern(self, name: str, accepted: Any, expected: str) -> dict[str, Any]:
        value = self.raw.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(accepted(item) for item in value.values()):
            self.wrong(name, f"an object of name patterns, each with {expected}")
            return {}
        compiled = [self._compiles(name, rf"(.*\.)?({key})$") for key in value]  # all of them, so that all are named
        return value if all(compiled) else {}

    def bias(self) -> str:
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
            message = f"{FILE}: 'init_lora_weights' is 'loftq': {REFUSED['loftq_config']}"
            self.findings.error("unsupported-init", "init_lora_weights", message, actual=value, hint=PLAIN_HINT)
        elif not _CHANGED_BASE.fullmatch(value):
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

    def _compiles(self, name: str, pattern: str) -> bool:
        try:
            compile_pattern(pattern)
        except FormatError as error:
            message = f"{FILE}: {name!r}: {error.message}"
            self.findings.error("bad-pattern", name, message, actual=pattern[:200])
            return False
        return True
