"""Findings: what the gate has to say about an adapter, all of it at once. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """An error keeps the adapter out; a warning and a note travel with the build."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about one field or tensor (`subject`); `code` is stable for scripts, `hint` says what to do."""

    level: Level
    code: str
    subject: str
    message: str
    expected: Any = None
    actual: Any = None
    hint: str = ""

    def to_json(self) -> dict[str, Any]:
        """The finding as a JSON object."""
        return {**asdict(self), "level": str(self.level)}

    def __str__(self) -> str:
        return f"{self.level}: {self.message}" + (f" ({self.hint})" if self.hint else "")


class Findings:
    """Collects findings in the order in which they are made."""

    def __init__(self) -> None:
        self._all: list[Finding] = []

    def error(self, code: str, subject: str, message: str, *, hint: str, **details: Any) -> None:
        """Add what keeps the adapter out, and what to do; `details` are expected and actual."""
        self._all.append(Finding(Level.ERROR, code, subject, message, **details, hint=hint))

    def warning(self, code: str, subject: str, message: str, **details: Any) -> None:
        """Add what works but is probably not what was meant."""
        self._all.append(Finding(Level.WARNING, code, subject, message, **details))

    def note(self, code: str, subject: str, message: str, **details: Any) -> None:
        """Add what is worth knowing."""
        self._all.append(Finding(Level.NOTE, code, subject, message, **details))

    def extend(self, findings: Iterable[Finding]) -> None:
        """Add all of `findings`."""
        self._all.extend(findings)

    @property
    def refused(self) -> bool:
        """Whether an error is among them."""
        return any(finding.level is Level.ERROR for finding in self._all)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._all)
