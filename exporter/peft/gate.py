"""The gate: an adapter's directory in, a normalized adapter or all that is wrong with it out.

checked = check(Path("runs/pirate"), card)
for finding in checked.findings:
    print(finding)
adapter = checked.accept()      # raises AdapterRefused with every finding
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from exporter.card import Card
from exporter.peft.adapter import NormalizedAdapter
from exporter.peft.findings import Finding, Level
from registry.digest import Digest
from registry.errors import AdapterRefused


@dataclass(frozen=True, slots=True)
class Checked:
    """All findings, and the adapter when none of them is an error."""

    findings: tuple[Finding, ...]
    adapter: NormalizedAdapter | None

    def of(self, level: Level) -> tuple[Finding, ...]:
        """The findings of one level."""
        return tuple(finding for finding in self.findings if finding.level is level)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings' messages, as a build keeps them."""
        return tuple(finding.message for finding in self.of(Level.WARNING))

    def accept(self) -> NormalizedAdapter:
        """The adapter. Raises AdapterRefused with every finding when an error is among them."""
        errors = self.of(Level.ERROR)
        if self.adapter is None or errors:
            more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
            raise AdapterRefused(
                errors[0].message + more, hint=errors[0].hint, findings=[entry.to_json() for entry in self.findings]
            )
        return self.adapter


def check(  # noqa: PLR0913 - the options of one command
    directory: Path,
    card: Card,
    *,
    allow_pickle: bool = False,
    adapter_name: str | None = None,
    initial: Path | None = None,
    base_fingerprint: Digest | None = None,
) -> Checked:
    """Check the adapter in `directory` against a foundation's card; nothing is written, torch is not imported.

    `adapter_name` selects one of several adapters in a file; `initial` is the directory of the untrained adapter,
    with which PiSSA, OLoRA, CorDA and LoRA-GA become plain LoRA; `base_fingerprint` is the base that training saw,
    when the directory's own ptdock.json does not pin it. Only with `allow_pickle` is a `.bin` read, weights only.
    """
    raise NotImplementedError
