"""The self-test: what a build must answer on every device, small enough to be replayed after each install.

    {"schema": 1, "critical": [], "agreement": 1.0,
     "probes": [{"token_ids": [1, 9, 33], "positions": [0, 2], "argmax": [33, 7]}, …]}

Teacher-forced: a probe's tokens are fed one after the other from an empty context, and after the token at each of
`positions` the likeliest next one must be the `argmax` at the same index. Only positions stand here whose margin is
far above the numerical differences between devices; a share of `agreement` of them must agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from registry import canonical
from registry.documents import SCHEMA, Fields, opened
from registry.errors import FormatError

MAX_BYTES = 1 << 20
KNOWN = "agreement argmax critical positions probes schema token_ids"


@dataclass(frozen=True, slots=True)
class Probe:
    """Some tokens, and which token must be likeliest after which of them: `positions` ascend in `token_ids`."""

    token_ids: tuple[int, ...]
    positions: tuple[int, ...]
    argmax: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.positions or len(self.positions) != len(self.argmax):
            raise FormatError(f"self-test: {len(self.positions)} positions for {len(self.argmax)} answers")
        ascending = all(before < after for before, after in pairwise(self.positions))
        if not ascending or self.positions[-1] >= len(self.token_ids):
            raise FormatError(f"self-test: positions {list(self.positions)} in {len(self.token_ids)} tokens")

    def to_json(self) -> dict[str, Any]:
        """As it stands in the document."""
        return {"token_ids": list(self.token_ids), "positions": list(self.positions), "argmax": list(self.argmax)}

    @classmethod
    def read(cls, fields: Fields) -> Probe:
        """From the document. Raises FormatError."""
        return cls(fields.integers("token_ids"), fields.integers("positions"), fields.integers("argmax"))


@dataclass(frozen=True, slots=True)
class SelfTest:
    """The probes of a build, and the share of all their positions, above 0 and up to 1, that must agree."""

    probes: tuple[Probe, ...]
    agreement: float = 1.0

    def __post_init__(self) -> None:
        if not self.probes:
            raise FormatError("self-test: no probe, but at least one is needed")
        if not 0 < self.agreement <= 1:
            raise FormatError(f"self-test: agreement {self.agreement} is not above 0 and up to 1")

    @property
    def positions(self) -> int:
        """How many answers are compared."""
        return sum(len(probe.positions) for probe in self.probes)

    def to_bytes(self) -> bytes:
        """The document's only bytes (canonical JSON)."""
        probes = [probe.to_json() for probe in self.probes]
        return canonical.dumps({"schema": SCHEMA, "critical": [], "agreement": self.agreement, "probes": probes})

    @classmethod
    def from_bytes(cls, data: bytes) -> SelfTest:
        """Read a document strictly; unknown fields are ignored unless critical. Raises FormatError."""
        fields = opened(data, what="self-test", known=KNOWN, limit=MAX_BYTES)
        return cls(tuple(Probe.read(each) for each in fields.objects("probes")), fields.number("agreement"))
