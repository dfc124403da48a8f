"""PiSSA, OLoRA, CorDA and LoRA-GA with the adapter as it was before training. Pure.

They take a part out of the base at first: W_res = W - s*B0*A0. What was trained is W_res + s*B*A, so on the plain base
the adapter is s*(B*A - B0*A0) = s*[B, -B0]*[A; A0], of twice the rank (`subtract_mutated_init` in PEFT's
tuners/lora/model.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from exporter.card import Card
from exporter.peft.adapter import ModuleAdapter
from exporter.peft.config import Config
from exporter.peft.findings import Findings
from exporter.peft.tensors import joined, peak

ONE_RUN_HINT = "both must come from one training run"
ZERO_HINT = (
    "save the adapter right after get_peft_model, before training; LoRA-GA without preprocess_loraga is plain LoRA: "
    "set init_lora_weights to true and check it alone"
)
CONVERT_HINT = (
    "convert it with PEFT, save_pretrained(DIR, path_initial_model_for_weight_conversion=INITIAL), "
    "or give the adapter as it was saved before training with --initial"
)


def check_initialization(config: Config, findings: Findings, *, initial: bool) -> None:
    """An initialization that changes the base needs the initial adapter, and only such a one does."""
    name = config.init
    if config.changes_base and not initial:
        message = f"adapter_config.json: 'init_lora_weights' is {name!r}: it took a part out of the base"
        findings.error("changed-base", "init_lora_weights", message, actual=name, hint=CONVERT_HINT)
    if initial and not config.changes_base:
        message = "an initial adapter is given, but adapter_config.json names no initialization that changes the base"
        hint = "a converted adapter is plain LoRA: check it without the initial one"
        findings.error("needless-initial", "init_lora_weights", message, hint=hint)


def subtract(
    modules: Mapping[str, ModuleAdapter], initial: Mapping[str, ModuleAdapter], card: Card, findings: Findings
) -> dict[str, ModuleAdapter]:
    """The trained modules minus the initial ones: A' = [A; A0], B' = [B, -B0], the scaling as it was.

    A module that shares its weight is refused: what was taken out of it was missing from the other one as well.
    """
    trained = {name for name, module in modules.items() if module.lora_a}
    before = {name for name, module in initial.items() if module.lora_a}
    for name in sorted(trained):
        if card.tied_with(name):
            message = f"{name}: its initialization changed {card.tied_with(name)[0]} too, which shares the weight"
            findings.error("initial-tied", name, message, hint="train without this module")
    for name in sorted(trained ^ before):
        where = "trained" if name in before else "initial"
        message = f"{name}: the {where} adapter has no LoRA here, the other has"
        findings.error("initial-mismatch", name, message, hint=ONE_RUN_HINT)
    return {
        name: _subtract(module, initial[name], findings) if name in trained & before else module
        for name, module in modules.items()
    }


def _subtract(module: ModuleAdapter, before: ModuleAdapter, findings: Findings) -> ModuleAdapter:
    if before.scaling != module.scaling:
        message = f"{module.name}: scaling {module.scaling:g}, {before.scaling:g} in the initial adapter"
        expected, actual = before.scaling, module.scaling
        findings.error("initial-mismatch", module.name, message, expected=expected, actual=actual, hint=ONE_RUN_HINT)
    if module.lora_a is None or module.lora_b is None or before.lora_a is None or before.lora_b is None:
        return module
    if peak(before.lora_b) == 0:
        message = f"{before.lora_b.name} is all zero: it is not the state after such an initialization"
        findings.error("initial-mismatch", before.lora_b.name, message, hint=ZERO_HINT)
    return replace(
        module,
        lora_a=joined(module.lora_a, before.lora_a, axis=0, sign=1),
        lora_b=joined(module.lora_b, before.lora_b, axis=1, sign=-1),
    )
