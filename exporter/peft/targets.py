"""Which modules the config means, as PEFT decides it. Pure.

Source: `check_target_module_exists` (peft/tuners/tuners_utils.py) and `_set_trainable` (peft/utils/other.py), PEFT
0.21.2. The tensors decide what is adapted; the config must agree with them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from exporter.card import LINEAR_KINDS, Card, Module
from exporter.peft.config import Config
from exporter.peft.findings import Findings
from exporter.peft.patterns import compile_pattern, layer_expression, resolve

ADAPTABLE = LINEAR_KINDS | {"embedding"}
EMBEDDING_NAMES = ("embed_tokens", "lm_head")
"""The only names by which PEFT knows what shares the embedding (`EMBEDDING_LAYER_NAMES` in peft/utils/constants.py)."""

LISTED = 20

_FIRST_INDEX = re.compile(r".*?\.[^.]*\.(?P<index>\d+)\.")


def is_saved(entries: tuple[str, ...], name: str) -> bool:
    """Whether `modules_to_save` names the module or one that it stands in, by the ending of the name, as PEFT does."""
    parts = name.split(".") if entries else ()
    return any(".".join(parts[:end]).endswith(entries) for end in range(1, len(parts) + 1))


def ties_saved(config: Config) -> bool:
    """Whether ensure_weight_tying makes `modules_to_save` mean all that share the embedding."""
    return config.tie and _names_embedding(config.modules_to_save)


def ties_targets(config: Config) -> bool:
    """Whether ensure_weight_tying makes `target_modules` mean all that share the embedding (`_check_tied_modules`)."""
    if not config.tie or ties_saved(config) or config.targets is None:
        return False
    if isinstance(config.targets, str):
        return any(compile_pattern(config.targets).fullmatch(name) for name in EMBEDDING_NAMES)
    return _names_embedding(config.targets)


def _names_embedding(names: Iterable[str]) -> bool:
    return any(name.rpartition(".")[2] in EMBEDDING_NAMES for name in names)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which modules a config puts LoRA on; its lists as sets, for there may be one name for each module of a base."""

    config: Config
    targets: frozenset[str]
    excluded: frozenset[str]

    @classmethod
    def of(cls, config: Config) -> Selection:
        """What a config selects."""
        return cls(config, _listed(config.targets), _listed(config.excluded))

    def means(self, name: str, module: Module, *, head: bool) -> bool:
        """Whether it puts LoRA on this module; `head` is whether it is an output head."""
        if self._excludes(name) or is_saved(self.config.modules_to_save, name) or module.kind not in ADAPTABLE:
            return False
        if isinstance(self.config.targets, str):
            if _is_all_linear(self.config):
                return module.kind in LINEAR_KINDS and not head
            return compile_pattern(self.config.targets).fullmatch(name) is not None
        return name in self.targets or (_ends_with(name, self.targets) and _is_layer(self.config, name))

    def _excludes(self, name: str) -> bool:
        if isinstance(self.config.excluded, str):
            return compile_pattern(self.config.excluded).fullmatch(name) is not None
        return _ends_with(name, self.excluded)


def _listed(names: str | tuple[str, ...] | None) -> frozenset[str]:
    return frozenset() if names is None or isinstance(names, str) else frozenset(names)


def _is_all_linear(config: Config) -> bool:
    return isinstance(config.targets, str) and config.targets.lower() == "all-linear"


def _ends_with(name: str, targets: frozenset[str]) -> bool:
    return not targets.isdisjoint(_endings(name))


@lru_cache(1 << 14)
def _endings(name: str) -> frozenset[str]:
    """The name, and what stands behind each of its dots; the same for every adapter of a base."""
    parts = name.split(".")
    return frozenset(".".join(parts[start:]) for start in range(len(parts)))


def _is_layer(config: Config, name: str) -> bool:
    """Whether layers_to_transform lets this layer pass: the first index in the name, or that behind layers_pattern."""
    if config.layers is None:
        return True
    if not config.layers_pattern:
        match = _FIRST_INDEX.match(name)
        return match is not None and int(match["index"]) in config.layers
    for pattern in config.layers_pattern:
        match = compile_pattern(layer_expression(pattern)).match(name)
        if match:
            return int(match["index"]) in config.layers
    return False


def check_targets(
    config: Config, adapted: Collection[str], modules: Mapping[str, Module], card: Card, findings: Findings
) -> None:
    """Compare the config with the modules that have LoRA tensors; `modules` are all that could be named."""
    _check_patterns(config, adapted, findings)
    if config.targets is None:
        if adapted:
            message = "adapter_config.json names no 'target_modules': the tensors decide"
            findings.warning("no-targets", "target_modules", message)
        return
    selection = Selection.of(config)
    meant = {
        name
        for name, module in modules.items()
        if selection.means(name, module, head=name in card.modules and card.is_head(name))
    }
    if ties_targets(config):  # PEFT gives all that share the embedding the same factors, and saves them too
        meant |= {name for group in card.tied for name in group}
    _check_missing(config, meant - set(adapted), adapted, modules, findings)
    for name in sorted(set(adapted) - meant):
        if _is_all_linear(config) and name in card.modules and card.is_head(name):
            continue  # PEFT leaves out only the heads that it recognizes
        findings.error(
            "not-targeted",
            name,
            f"{name} has LoRA tensors, but the config does not target it: PEFT would ignore them",
            expected=config.targets,
            hint="add it to target_modules, or check exclude_modules and layers_to_transform",
        )


def _check_missing(
    config: Config, missing: set[str], adapted: Collection[str], modules: Collection[str], findings: Findings
) -> None:
    """A listed target without any tensors is named once; single modules are named where others of theirs exist.

    A target is explained when the config takes back every module that it names, and so none of them is missing.
    """
    listed = () if isinstance(config.targets, str) or config.targets is None else dict.fromkeys(config.targets)
    hint = "layers_to_transform or exclude_modules must say so if that is meant"
    has_tensors, lacks, exists = (set().union(*map(_endings, names)) for names in (adapted, missing, modules))
    silent = [target for target in listed if target not in has_tensors and (target in lacks or target not in exists)]
    for target in _few(silent):
        findings.error("target-without-tensors", "target_modules", f"{target} has no tensors", actual=target, hint=hint)
    named = frozenset(silent)
    for name in _few([name for name in sorted(missing) if not _ends_with(name, named)]):
        findings.error("module-without-tensors", name, f"{name} is targeted but has no tensors", hint=hint)


def _few(names: Sequence[str]) -> Sequence[str]:
    """The first names, and how many more there are."""
    return names if len(names) <= LISTED else [*names[:LISTED], f"each of {len(names) - LISTED} more"]


def _check_patterns(config: Config, adapted: Collection[str], findings: Findings) -> None:
    for field, table in (("rank_pattern", config.rank_pattern), ("alpha_pattern", config.alpha_pattern)):
        for key in table:
            if not any(resolve((key,), name) for name in adapted):
                message = f"adapter_config.json: the key {key!r} of {field!r} matches no adapted module"
                findings.warning("idle-pattern", field, message, actual=key)
    _check_order(config.alpha_pattern, adapted, findings)


def _check_order(alphas: Mapping[str, float], adapted: Collection[str], findings: Findings) -> None:
    """Say where the order of keys decides a scaling. PEFT sorts them when it saves, so training may have had another.

    Keys that stand in no sorted order were not written by PEFT, and their order is meant. Ranks need no such warning:
    the tensors tell them.
    """
    if len(set(alphas.values())) < 2 or list(alphas) != sorted(alphas):
        return
    for name in sorted(adapted):
        first = resolve(alphas, name)
        if first is None:
            continue
        other = next((key for key in alphas if alphas[key] != alphas[first] and resolve((key,), name)), None)
        if other is not None:
            message = (
                f"adapter_config.json: both {first!r} and {other!r} of 'alpha_pattern' match {name}: the first counts, "
                "but PEFT sorts keys when it saves, and training may have used the other"
            )
            hint = f"if training had {other!r} in front, put it in front in the file too, as PEFT does not"
            findings.warning("pattern-order", "alpha_pattern", message, actual=[first, other], hint=hint)
            return
