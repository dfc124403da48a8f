"""Structures as people write them: `r16:all-linear`, `r8:q_proj,v_proj`, `r8+dora:q_proj`. Pure.

parse_spec("r8:q_proj,v_proj", card)      # the structure of every adapter of rank 8 on all q_proj and v_proj
spec_of(structure, card)                  # and back, where a spec can say it
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from exporter.card import LINEAR_KINDS, Card
from exporter.structure import ModuleStructure, Structure
from registry.errors import InputError

_SPEC = re.compile(r"r(?P<rank>[1-9][0-9]{0,5})(?:\+(?P<option>dora|lora_bias))?:(?P<targets>[^,\s][^,]*(?:,[^,]+)*)")


def check_spec(text: str) -> tuple[ModuleStructure, tuple[str, ...]]:
    """What a spec says of each module, and its targets. Raises InputError for what is none, on any foundation."""
    match = _SPEC.fullmatch(text)
    if match is None:
        raise InputError(
            f"{text!r} is not a structure", hint="write r16:all-linear, r8:q_proj,v_proj, r8+dora:q_proj or +lora_bias"
        )
    option = match["option"]
    module = ModuleStructure(lora=int(match["rank"]), dora=option == "dora", lora_bias=option == "lora_bias")
    return module, tuple(target.strip() for target in match["targets"].split(","))


def check_targets(text: str, tensors: Iterable[str]) -> None:
    """Raise InputError for a target that no weight of a checkpoint answers to: that needs no export to be known."""
    weights = {name.removesuffix(".weight") for name in tensors if name.endswith(".weight")} | {"lm_head"}
    for target in check_spec(text)[1]:
        if target.lower() != "all-linear" and not _answering(target, weights):
            words = {name.rpartition(".")[2] for name in weights}
            known = sorted(word for word in words if not word.endswith(("norm", "embed_tokens")))
            raise InputError(f"no module of the checkpoint is named {target!r}", hint=", ".join(known))


def parse_spec(text: str, card: Card) -> Structure:
    """The structure that a spec means on this foundation; no factors of it are equal.

    Targets are PEFT's: a module's name, or how it ends after a dot. Raises InputError for what is no spec, and for
    a target that no linear module of the foundation answers to.
    """
    module, targets = check_spec(text)
    return Structure(dict.fromkeys(set().union(*(_linear_targets(target, card) for target in targets)), module))


def spec_of(structure: Structure, card: Card) -> str | None:
    """The spec that means this structure on this foundation; None where no spec can say it."""
    shapes = set(structure.modules.values())
    if len(shapes) != 1 or structure.equal:
        return None
    (shape,) = shapes
    option = "+dora" if shape.dora else "+lora_bias" if shape.lora_bias else ""
    text = f"r{shape.lora}{option}:{','.join(_targets(structure.modules, card))}"
    try:
        return text if parse_spec(text, card) == structure else None
    except InputError:  # nothing linear, no rank, more than a spec has words for
        return None


def _targets(modules: Collection[str], card: Card) -> list[str]:
    """The shortest targets that mean these modules: all of them, the last words of names, or whole names."""
    linear = _linear(card)
    if set(modules) == {name for name in linear if not card.is_head(name)}:
        return ["all-linear"]
    words = dict.fromkeys(name.rpartition(".")[2] for name in modules)
    found = [word for word in words if _answering(word, linear) <= set(modules)]
    return [*found, *(name for name in modules if name.rpartition(".")[2] not in found)]


def _linear_targets(target: str, card: Card) -> set[str]:
    linear = _linear(card)
    if target.lower() == "all-linear":
        return {name for name in linear if not card.is_head(name)}
    found = _answering(target, linear)
    if not found:
        known = sorted({name.rpartition(".")[2] for name in linear})
        raise InputError(f"no linear module of {card.architecture} is named {target!r}", hint=", ".join(known))
    return found


def _linear(card: Card) -> list[str]:
    return [name for name, module in card.modules.items() if module.kind in LINEAR_KINDS]


def _answering(target: str, names: Collection[str]) -> set[str]:
    return {name for name in names if name == target or name.endswith(f".{target}")}
