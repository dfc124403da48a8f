"""What is to be proven, a program in the store and what it was made from, and what came of it. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter.linker import Gate
from exporter.probes import Probe
from registry.artifacts import Foundation, Template
from registry.digest import Descriptor
from registry.selftest import SelfTest

if TYPE_CHECKING:
    from exporter.figures import Distances, Figures


@dataclass(frozen=True, slots=True)
class ProofOptions:
    """`probes` are a user's, none for the built-in ones; `base` says where the checkpoint is now."""

    probes: tuple[Probe, ...] = ()
    base: Path | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A program that is to be proven, and what it was made from: the adapter's directory, as the gate reads it."""

    name: str
    foundation: Foundation
    template: Template
    program: Descriptor
    factors: Descriptor
    directory: Path
    gate: Gate
    prompt: Descriptor | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a proof that succeeded keeps: the figures, how far off the program may have been, what was asked.

    `more` goes into the document as it is. `self_test` is None for what is no text model.
    """

    figures: Distances
    allowed_error: float
    probes: tuple[dict[str, Any], ...]
    warnings: tuple[str, ...] = ()
    self_test: SelfTest | None = None
    first_layers: Figures | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
