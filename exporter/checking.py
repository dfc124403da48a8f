"""Checking to the end: what the gate accepts is folded as well, so that publish has nothing to add. Torch-free.

whole = check_whole(check(directory, card), card, foundation_rows)
whole.structure      # the one that a template must have, equal factors and all
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from exporter.card import Card
from exporter.fold import WeightRows, fold
from exporter.peft.effects import HINT, NO_EFFECT
from exporter.peft.findings import Finding, Level
from exporter.peft.gate import Checked
from exporter.specs import spec_of
from exporter.structure import Structure
from registry.errors import AdapterRefused, Unavailable


@dataclass(frozen=True, slots=True)
class Whole:
    """All findings, and the structure; `exact` is whether it is known which of its factors are equal."""

    checked: Checked
    structure: Structure | None
    exact: bool

    def to_json(self, card: Card) -> dict[str, Any]:
        """What `adapter check` answers; `template` is None where only publish can tell whether there is one."""
        known = {each.digest for each in card.structures}
        return {
            "accepted": self.checked.adapter is not None,
            "foundation": str(card.foundation) if card.foundation else None,
            "findings": [finding.to_json() for finding in self.checked.findings],
            "structure": self.structure.describe() if self.structure else None,
            "template": self.structure.digest in known if self.structure and self.exact else None,
            "spec": spec_of(self.structure, card) if self.structure else None,
        }


def check_whole(checked: Checked, card: Card, weights: WeightRows | None = None) -> Whole:
    """Fold what was accepted. Without the foundation's `weights` some adapters (DoRA) cannot be, and stay accepted."""
    if checked.adapter is None:
        return Whole(checked, None, exact=False)
    try:
        folded = fold(checked.adapter, card, weights)
        return Whole(_with_nil(checked) if folded.nil else checked, folded.structure, exact=True)
    except Unavailable:
        return Whole(checked, checked.adapter.structure, exact=False)
    except AdapterRefused as refused:
        more = (Finding(**{**each, "level": Level(each["level"])}) for each in refused.values["findings"])
        return Whole(replace(checked, findings=(*checked.findings, *more), adapter=None), None, exact=False)


def _with_nil(checked: Checked) -> Checked:
    """The same with the warning that nothing is changed, which the gate may have seen already."""
    if NO_EFFECT in checked.warnings:
        return checked
    finding = Finding(Level.WARNING, "no-effect", "adapter", NO_EFFECT, hint=HINT)
    return replace(checked, findings=(*checked.findings, finding))
