"""From a file's tensor names to sites: the tensors of each module, for one adapter, every name accounted for. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from exporter.card import Card
from exporter.peft.findings import Findings
from exporter.peft.fused import Site, site_module
from exporter.peft.names import Part, TensorName, foreign, nearest, parse_name
from exporter.peft.tensors import Stored

LISTED = 20
STRAY_HINT = "nothing of an adapter is ignored: remove it if it is stray"


def find_sites(
    tensors: Mapping[str, Stored], card: Card, findings: Findings, adapter_name: str | None = None
) -> list[Site]:
    """The sites that these tensors make; a name that means nothing here, or twice the same, is an error."""
    if not tensors:
        findings.error("no-tensors", "adapter", "the weights file holds no tensors", hint="save the adapter again")
        return []
    understood = _understand(tensors, card.names, findings)
    found: dict[str, dict[Part, TensorName]] = defaultdict(dict)
    for name in _one_adapter(understood, adapter_name, findings):
        first = found[name.module].setdefault(name.part, name)
        if first is not name:
            message = f"{first.raw} and {name.raw} are the same tensor: which is meant?"
            findings.error("ambiguous-tensor", name.raw, message, hint="keep one of them")
    return [_site(name, parts, tensors, card) for name, parts in found.items()]


def _site(name: str, parts: Mapping[Part, TensorName], tensors: Mapping[str, Stored], card: Card) -> Site:
    module, targets = site_module(name, card)
    stored = {part: tensors[tensor.raw] for part, tensor in parts.items()}
    return Site(name, module, stored, targets, head=card.is_head(name))


def is_foreign(tensors: Mapping[str, Stored], findings: Findings) -> bool:
    """Whether the names give away another tool; then that is the one finding."""
    other = foreign(tuple(tensors))
    if other is None:
        return False
    tool, name = other
    findings.error(tool.code, name, f"{name}: {tool.message}", actual=name, hint=tool.hint)
    return True


def _understand(names: Iterable[str], known: frozenset[str], findings: Findings) -> list[TensorName]:
    """The names that mean a part of a known module; all others become errors."""
    understood, strange = [], []
    for raw in sorted(names):
        name = parse_name(raw, known)
        if name is None or name.module not in known:
            strange.append((raw, name.module if name else raw))
        else:
            understood.append(name)
    if strange and not understood:
        raw, module = strange[0]
        message = f"0 of {len(strange)} tensors match the base; the first is {raw}"
        hint = (
            f"the nearest name in the base is {nearest(module, known)}; the adapter was trained on another model class"
        )
        findings.error("no-match", raw, message, expected=nearest(module, known), actual=raw, hint=hint)
        return []
    for raw, _ in strange[:LISTED]:
        message = f"{raw} matches no module of the base"
        findings.error("unmatched-tensor", raw, message, hint=STRAY_HINT)
    if len(strange) > LISTED:
        message = f"{len(strange) - LISTED} more tensors match no module of the base"
        findings.error("unmatched-tensor", strange[LISTED][0], message, hint=STRAY_HINT)
    return understood


def _one_adapter(names: list[TensorName], wanted: str | None, findings: Findings) -> list[TensorName]:
    """The names of one adapter; those without an adapter's name belong to all of them."""
    adapters = sorted({name.adapter for name in names if name.adapter})
    if wanted is not None and wanted not in adapters:
        listed = ", ".join(adapters) or "none by name"
        message = f"the file holds no adapter {wanted!r}; it holds {listed}"
        findings.error("no-such-adapter", wanted, message, expected=adapters, actual=wanted, hint="name one of these")
    if wanted is None and len(adapters) > 1:
        message = f"the file holds {len(adapters)} adapters: {', '.join(adapters)}"
        findings.error("several-adapters", "adapter", message, actual=adapters, hint="select one by name")
        wanted = adapters[0]
    return [name for name in names if wanted is None or name.adapter in (None, wanted)]
