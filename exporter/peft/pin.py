"""ptdock.json beside an adapter: which base training saw, and what is worth knowing of the run.

    {"schema": 1, "base": "sha256:…", "lineage": {"run": "https://…", "data": […]}}      (registry.lineage)

Names of bases are worthless (paths differ, forks share names), so the fingerprint of the weights is what counts.
`ptdock base fingerprint DIR` prints it at training time. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from exporter.card import Card
from exporter.peft.config import Config
from exporter.peft.findings import Findings
from exporter.reading import Document
from registry import canonical
from registry.digest import Digest
from registry.errors import FormatError
from registry.lineage import check

FILE = "ptdock.json"
MAX_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Pin:
    """What ptdock.json says; `base` is None when it pins none."""

    base: Digest | None = None
    lineage: Mapping[str, Any] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The file's bytes; `read_pin` is the inverse."""
        base = None if self.base is None else str(self.base)
        return canonical.dumps({"schema": 1, "base": base, "lineage": dict(self.lineage)})


def read_pin(data: bytes, findings: Findings) -> Pin:
    """Read ptdock.json; a mistake becomes a finding and pins nothing."""
    try:
        if len(data) > MAX_BYTES:
            raise FormatError(f"{FILE}: {len(data)} bytes, at most {MAX_BYTES} are read")  # noqa: TRY301
        top = Document(canonical.loads(data, what=FILE), FILE)
        top.schema(1)
        lineage = top.optional_object("lineage")
        found = {} if lineage is None else lineage.value
        check(found, what=f"{FILE}.lineage")
        return Pin(top.optional_digest("base"), found)
    except FormatError as error:
        findings.error("pin-format", FILE, error.message, hint=error.hint or "ptdock base fingerprint writes it")
        return Pin()


def check_base(config: Config, card: Card, pins: Mapping[str, Digest | None], findings: Findings) -> Digest | None:
    """Compare the pinned bases, by where they are pinned, with the card's; answers what is pinned."""
    name = config.base_name
    if name:
        findings.note(
            "base-name", "base_model_name_or_path", f"trained on a base called {name!r} (names prove nothing)"
        )
    if name and name.lower().endswith("-bnb-4bit"):
        message = f"QLoRA: trained on the de-quantized 4-bit weights of {name}, which differ a little from the base's"
        findings.note("qlora", "base_model_name_or_path", message)
    pinned = {where: digest for where, digest in pins.items() if digest is not None}
    for where, digest in pinned.items():
        if digest != card.base:
            findings.error(
                "other-base",
                where,
                f"{where}: trained on base {digest.short}, the foundation holds {card.base.short}",
                expected=str(card.base),
                actual=str(digest),
                hint="use the foundation of that base, or train on this one",
            )
    if not pinned:
        message = "base not pinned: nothing proves on which weights this adapter was trained"
        hint = "write ptdock.json at training time (ptdock base fingerprint DIR), or give --base-fingerprint"
        findings.warning("base-not-pinned", "adapter", message, expected=str(card.base), hint=hint)
    return next(iter(pinned.values()), None)
