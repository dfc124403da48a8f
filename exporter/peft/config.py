"""adapter_config.json: every field implemented, known to change nothing, or refused by name.

Fields and defaults are those of `peft.LoraConfig` 0.21.2. A field that nobody knows is accepted while it is null,
false or empty, for then it asks for nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from exporter.peft.fields import (
    CHANGED_BASE,
    FILE,
    LOFTQ,
    MAX_SAVED,
    PLAIN_HINT,
    WRITTEN_HINT,
    Fields,
    is_number,
    is_rank,
)
from exporter.peft.findings import Findings
from registry import canonical
from registry.errors import FormatError

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
    "loftq_config": LOFTQ,
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

CONVERT_HINT = "convert it to LoRA with PEFT: peft.save_as_lora(DIR, model, rank=…)"


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
        return CHANGED_BASE.fullmatch(self.init) is not None


def read_config(data: bytes, findings: Findings, modules: Collection[str] = ()) -> Config | None:
    """Read the file's bytes; every mistake becomes a finding. None when it is not a LoRA config at all.

    `modules` are the names that its expressions are going to be matched against: they must not take too long.
    """
    try:
        raw = canonical.loads(data, what=FILE)
    except FormatError as error:
        findings.error("config-format", FILE, error.message, hint=error.hint or WRITTEN_HINT)
        return None
    if not isinstance(raw, dict):
        message = f"{FILE}: expected an object, got {type(raw).__name__}"
        findings.error("config-format", FILE, message, hint=WRITTEN_HINT)
        return None
    return _lora_config(raw, findings, modules) if _is_lora(raw, findings) else None


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


def _lora_config(raw: Mapping[str, Any], findings: Findings, modules: Collection[str]) -> Config:
    _refuse_fields(raw, findings)
    reader = Fields(raw, findings, modules)
    return Config(
        rank=reader.rank(),
        alpha=reader.alpha(),
        targets=reader.targets("target_modules"),
        excluded=reader.targets("exclude_modules") or (),
        layers=reader.layers(),
        layers_pattern=reader.layers_pattern(),
        rank_pattern=reader.pattern("rank_pattern", is_rank, "an integer >= 1"),
        alpha_pattern=reader.pattern("alpha_pattern", is_number, "a finite number"),
        rslora=reader.flag("use_rslora"),
        dora=reader.flag("use_dora"),
        lora_bias=reader.flag("lora_bias"),
        fan_in_fan_out=reader.flag("fan_in_fan_out"),
        bias=reader.bias(),
        modules_to_save=reader.names("modules_to_save", MAX_SAVED),
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
