"""What replaces the base instead of being added to it: weights, biases and token rows; and copies of the base. Pure.

`modules_to_save` and `bias` say which tensors replace; the same names without them are copies of the base, which PEFT
saves along when embeddings are targeted. A copy must be the base's own (`copies`), then it is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from exporter.card import LINEAR_KINDS, Card
from exporter.peft.adapter import ModuleAdapter, Values
from exporter.peft.config import Config
from exporter.peft.copies import Verdict, compare_copy
from exporter.peft.findings import Findings
from exporter.peft.fused import Site
from exporter.peft.modules import OTHER_BASE_HINT, OTHER_CONFIG_HINT, VOCABULARY_HINT, Builder
from exporter.peft.names import Part
from exporter.peft.targets import is_saved, ties_saved
from exporter.peft.tensors import Stored, picked_rows, rows_of

BIAS_LEFT_OUT = "which PEFT leaves out beside trained rows, until it merges them"
FOLLOWS_HINT = "a tied head follows the rows of its embedding: save with save_pretrained, which leaves its own out"
REPLACEABLE = LINEAR_KINDS | {"embedding", "norm"}


def replaces(config: Config, card: Card, name: str) -> bool:
    """Whether modules_to_save means the module, itself or, under ensure_weight_tying, through a tied one."""
    tied = card.tied_with(name) if ties_saved(config) else ()
    return any(is_saved(config.modules_to_save, other) for other in (name, *tied))


def token_indices_of(config: Config, card: Card, name: str) -> tuple[int, ...]:
    """The token indices that the config gives a module, in its order, by PEFT's matching of the name's ending."""
    for key, indices in config.token_indices.items():
        if name == card.input_embedding if key is None else name.endswith(key):
            return indices
    return ()


@dataclass(slots=True)
class Replacements:
    """Collects what an adapter replaces, module by module, and the copies that only folding can compare."""

    config: Config
    card: Card
    findings: Findings
    builder: Builder
    undecided: dict[str, Values] = field(default_factory=dict)

    def add(self, site: Site, adapter: ModuleAdapter | None) -> ModuleAdapter | None:
        """The site's adapter with what it replaces; None when there is neither."""
        weight, bias, rows = self._weight(site), self._bias(site), self._rows(site)
        if weight is None and bias is None and rows is None:
            return adapter
        adapter = adapter or ModuleAdapter(site.name)
        if site.adapted and (weight is not None or rows is not None):
            message = f"{site.name}: LoRA and a replaced weight on one module contradict each other"
            self.findings.error("lora-and-weight", site.name, message, hint="PEFT trains either of them")
        indices = token_indices_of(self.config, self.card, site.name) if rows is not None else ()
        return replace(adapter, weight=weight, bias=bias, rows=rows, indices=tuple(sorted(indices)))

    def _weight(self, site: Site) -> Values | None:
        for part in (Part.BASE_WEIGHT, Part.ORIGINAL_WEIGHT):
            if part in site.tensors:
                self._copy(site, site.tensors[part], "weight")
        stored = site.tensors.get(Part.WEIGHT)
        if stored is None:
            return None
        if not replaces(self.config, self.card, site.name):
            self._copy(site, stored, "weight")
            return None
        if site.module.kind not in REPLACEABLE:
            message = f"{stored.name}: replacing a {site.module.kind} is not supported"
            hint = "take its module out of modules_to_save"
            self.findings.error("kind", stored.name, message, actual=site.module.kind, hint=hint)
            return None
        return self.builder.values(stored) if self._fits(site, stored, site.module.weight_shape) else None

    def _bias(self, site: Site) -> Values | None:
        stored = self._bias_tensor(site)
        if stored is None:
            return None
        if not site.module.bias:
            message = f"{stored.name}: {site.name} has no bias in this foundation: another base?"
            self.findings.error("bias-without-base", stored.name, message, hint=OTHER_BASE_HINT)
            return None
        trained = self.config.bias == "all" or (self.config.bias == "lora_only" and site.adapted)
        if not trained and not replaces(self.config, self.card, site.name):
            self._copy(site, stored, "bias")
            return None
        return self.builder.vector(stored, site.module.outputs)

    def _bias_tensor(self, site: Site) -> Stored | None:
        """The tensor that could replace the bias; further copies of it must be equal."""
        plain, based = site.tensors.get(Part.BIAS), site.tensors.get(Part.BASE_BIAS)
        if plain is not None and based is not None:
            message = f"{site.name}: both {plain.name} and {based.name} are there: which is the bias?"
            self.findings.error("ambiguous-tensor", plain.name, message, hint="keep one of them")
        again = site.tensors.get(Part.SAVED_BIAS)
        stored = plain or based or again
        if again is not None and stored is not None and (again.shape, again.raw) != (stored.shape, stored.raw):
            message = f"{again.name} is not the same as {site.name}.bias: which is the bias?"
            self.findings.error("ambiguous-tensor", again.name, message, hint="keep one of them")
        if Part.ORIGINAL_BIAS in site.tensors:
            self._copy(site, site.tensors[Part.ORIGINAL_BIAS], "bias")
        return stored

    def _copy(self, site: Site, stored: Stored, parameter: str) -> None:
        """Check a copy of a base tensor, part by part where the base has it split."""
        shape = site.module.weight_shape if parameter == "weight" else (site.module.outputs,)
        values = self.builder.values(stored) if self._fits(site, stored, shape) else None
        if values is None:
            return
        start = 0
        for name in site.targets:
            stop = start + self._rows_in(name, parameter)
            part = values if site.targets == (site.name,) else rows_of(values, start, stop)
            self._compare(name, parameter, part)
            start = stop

    def _rows_in(self, name: str, parameter: str) -> int:
        module = self.card.modules[name]
        return module.weight_shape[0] if parameter == "weight" else module.outputs

    def _compare(self, name: str, parameter: str, values: Values) -> None:
        if self.config.changes_base and parameter == "weight":
            message = f"{values.name} is what {self.config.init} left of the base, and is left out"
            self.findings.note("base-copy", values.name, message)
            return
        verdict = compare_copy(values, self.card.base_tensor(name, parameter))
        if verdict is Verdict.EQUAL:
            message = f"{values.name} is the base's own and is left out"
            self.findings.note("base-copy", values.name, message)
        elif verdict is Verdict.DIFFERENT:
            self.findings.error(
                "other-base",
                values.name,
                f"{values.name} differs from the base: trained on a different base, or not listed in the config",
                hint="name the module in modules_to_save (or set bias) if it was trained; else use the right base",
            )
        elif parameter == "weight" and self.card.quantization is None:
            self.undecided[name] = values
            self._note_rounded(name, values)
        else:
            message = f"{values.name} cannot be compared with this foundation's base and is left out"
            self.findings.warning("base-copy-not-compared", values.name, message)

    def _note_rounded(self, name: str, values: Values) -> None:
        """Training saw the copy, and so does PEFT when it loads it over the base; programs have the base's own."""
        message = f"{values.name} is a {values.dtype} copy of the base's, and is left out: trained on rounded weights"
        self.findings.warning(
            "base-copy-rounded", values.name, message, hint=f"compare with PEFT without {name}'s copy"
        )

    def _fits(self, site: Site, stored: Stored, shape: tuple[int, ...]) -> bool:
        if stored.shape == shape:
            return True
        actual = list(stored.shape)
        if len(actual) == 2 and (site.module.kind == "embedding" or site.head) and actual[1:] == list(shape[1:]):
            message = f"{stored.name}: vocabulary {actual[0]} vs base {shape[0]}"
            self.findings.error(
                "vocabulary", stored.name, message, expected=shape[0], actual=actual[0], hint=VOCABULARY_HINT
            )
        else:
            message = f"{stored.name}: shape {actual}, the base has {list(shape)}"
            self.findings.error(
                "shape", stored.name, message, expected=list(shape), actual=actual, hint=OTHER_BASE_HINT
            )
        return False

    def _rows(self, site: Site) -> Values | None:
        stored = site.tensors.get(Part.ROWS)
        if stored is None:
            return None
        indices = token_indices_of(self.config, self.card, site.name)
        width = site.module.weight_shape[-1]
        if stored.shape != (len(indices), width) or not indices:
            message = f"{stored.name}: shape {list(stored.shape)}, but the config lists {len(indices)} token indices"
            follows = not indices and self.card.tied_with(site.name) and site.module.kind != "embedding"
            hint = FOLLOWS_HINT if follows else OTHER_CONFIG_HINT
            expected, actual = [len(indices), width], list(stored.shape)
            self.findings.error("rows", stored.name, message, expected=expected, actual=actual, hint=hint)
            return None
        values = self.builder.values(stored)
        if values is None or not self._can_replace_rows(site, stored, indices):
            return None
        return picked_rows(values, tuple(sorted(range(len(indices)), key=indices.__getitem__)))

    def _can_replace_rows(self, site: Site, stored: Stored, indices: tuple[int, ...]) -> bool:
        size = site.module.weight_shape[0]
        if len(set(indices)) < len(indices):
            message = f"trainable_token_indices: a token of {site.name} is listed twice"
            self.findings.error(
                "rows", "trainable_token_indices", message, hint="list each token once, and train again"
            )
        elif max(indices) >= size:
            tokens = site.module.kind == "embedding" or site.head
            holds = f"the base's vocabulary is {size}" if tokens else f"{site.name} has {size} outputs"
            message = f"trainable_token_indices: token {max(indices)}, but {holds}"
            hint = VOCABULARY_HINT if tokens else OTHER_BASE_HINT
            self.findings.error("vocabulary", stored.name, message, expected=size, actual=max(indices), hint=hint)
        elif site.module.kind not in ("embedding", "linear") or site.targets != (site.name,):
            message = f"{stored.name}: replaced rows of {site.name} are not supported, only of embeddings and linears"
            self.findings.error("rows", stored.name, message, hint="train the rows of the input embedding")
        elif site.module.bias:
            message = f"{stored.name}: {site.name} has a bias, {BIAS_LEFT_OUT}"
            self.findings.error("rows", stored.name, message, hint="train the rows of the input embedding")
        else:
            return True
        return False
