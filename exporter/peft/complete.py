"""What the config says is replaced must be there: saved modules whole, every trained bias, every token row. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from exporter.card import Card
from exporter.peft.adapter import ModuleAdapter
from exporter.peft.config import Config
from exporter.peft.findings import Findings
from exporter.peft.modules import OTHER_BASE_HINT
from exporter.peft.names import Part
from exporter.peft.replaced import BIAS_LEFT_OUT, REPLACEABLE, replaces, token_indices_of
from exporter.peft.targets import is_saved
from registry.formats.layout import byte_size

WHOLE_HINT = "the file is not a whole adapter"


def check_complete(config: Config, card: Card, modules: Mapping[str, ModuleAdapter], findings: Findings) -> None:
    """Compare what the config promises with what the tensors made."""
    for name, found in modules.items():
        if found.bias is not None and not card.modules[name].bias:
            message = f"{found.bias.name}: {name} has no bias in this foundation: another base?"
            findings.error("bias-without-base", found.bias.name, message, hint=OTHER_BASE_HINT)
    for name, found in modules.items():
        if found.rows is not None:
            _check_tied_rows(found.rows.name, name, config, card, modules, findings)
    for name in _missing_saved(config, card, modules):
        message = f"{name} is missing, although modules_to_save lists its module"
        findings.error("missing-tensor", name, message, hint=WHOLE_HINT)
    missing = sorted(_missing_biases(config, card, modules))
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        message = f"{missing[0]}{more} missing, although the config says bias {config.bias!r}"
        findings.error("missing-tensor", missing[0], message, expected=missing[:20], hint=WHOLE_HINT)
    refused = any(finding.subject.endswith(str(Part.ROWS)) for finding in findings)
    for key in () if refused else _missing_rows(config, card, modules):
        message = f"trainable_token_indices: no rows for {key} in the file"
        findings.error("missing-tensor", "trainable_token_indices", message, hint=WHOLE_HINT)
    for entry in config.modules_to_save:
        if not any(is_saved((entry,), name) for name in card.modules):
            message = f"modules_to_save lists {entry!r}, which {card.architecture} does not have"
            findings.warning("idle-module", "modules_to_save", message, actual=entry)


def _check_tied_rows(
    tensor: str, name: str, config: Config, card: Card, modules: Mapping[str, ModuleAdapter], findings: Findings
) -> None:
    """Whether PEFT has a tied matrix's rows as the file has them: a head follows the embedding unless it has its own.

    Source: `set_additional_trainable_modules` in peft/utils/other.py, PEFT 0.21.2.
    """
    if card.modules[name].kind != "embedding":
        return
    mine = token_indices_of(config, card, name)
    for other in card.tied_with(name):
        if other in modules and modules[other].rows is None:
            message = f"{tensor}: token rows on a matrix that {other} shares and changes itself"
            findings.error("rows-and-tied", tensor, message, hint="PEFT drops one of the two: train either")
        elif other in modules and (config.tie or token_indices_of(config, card, other) == mine):
            given = "'ensure_weight_tying' is set" if config.tie else "'trainable_token_indices' lists the same tokens"
            message = f"{other} has token rows of its own, but {given}: PEFT lets it follow {name}"
            findings.error("rows-and-tied", tensor, message, hint=f"take the rows of {other} out of the file")
        elif other not in modules and card.modules[other].kind == "embedding":
            message = f"{tensor}: {other} shares the matrix, and rows that two embeddings share are not supported"
            findings.error("rows", tensor, message, hint="train LoRA on the embeddings instead")
        elif other not in modules and card.modules[other].bias:
            message = f"{tensor}: {other} shares them and has a bias, {BIAS_LEFT_OUT}"
            findings.error("rows", tensor, message, hint="train LoRA on the embedding instead")


def _missing_saved(config: Config, card: Card, modules: Mapping[str, ModuleAdapter]) -> Iterator[str]:
    for name, module in card.modules.items():
        if module.kind in REPLACEABLE and replaces(config, card, name):
            found = modules.get(name)
            if found is None or found.weight is None:
                yield f"{name}.weight"
            if module.bias and (found is None or found.bias is None):
                yield f"{name}.bias"


def _missing_biases(config: Config, card: Card, modules: Mapping[str, ModuleAdapter]) -> Iterator[str]:
    if config.bias == "none":
        return
    for name, module in card.modules.items():
        found = modules.get(name)
        adapted = found is not None and (found.lora_a is not None or found.embedding_a is not None)
        if not module.bias or replaces(config, card, name) or (config.bias == "lora_only" and not adapted):
            continue
        if found is None or found.bias is None:
            yield f"{name}.bias"


def _missing_rows(config: Config, card: Card, modules: Mapping[str, ModuleAdapter]) -> Iterator[str]:
    for key, indices in config.token_indices.items():
        wanted = card.input_embedding if key is None else key
        holders = [
            name for name, found in modules.items() if found.rows is not None and wanted and name.endswith(wanted)
        ]
        if not holders and not _follows_embedding(key, indices, config, card):
            yield str(wanted)


def _follows_embedding(key: str | None, indices: tuple[int, ...], config: Config, card: Card) -> bool:
    """Whether PEFT leaves a tied module's rows out because the embedding has the same ones."""
    embedding = card.input_embedding
    if key is None or embedding is None or not any(name.endswith(key) for name in card.tied_with(embedding)):
        return False
    return any(
        other == indices and (name is None or embedding.endswith(name)) for name, other in config.token_indices.items()
    )


def note_replaced(modules: Mapping[str, ModuleAdapter], dtype: str, findings: Findings) -> None:
    """Warn of the bytes that replaced weights add to every build."""
    sizes = {name: byte_size(dtype, found.weight.shape) for name, found in modules.items() if found.weight}
    if sizes:
        message = f"replaced weights of {', '.join(sizes)}: {sum(sizes.values()):,} bytes in the adapter's file"
        findings.warning("replaced-weights", "modules_to_save", message, actual=sizes)
