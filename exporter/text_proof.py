"""Proof of a text model's build: its logits against transformers + PEFT. Imports torch and peft.

    evidence = TextBench(registry, candidate, recipe, progress).prove(checkpoint, ProofOptions())

Probes are prompts, of the user or built in. The program decodes them token by token, and the reference goes on for
some tokens of its own; a deep quantized model is judged on its first layers, exported for this alone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from exporter.architecture import layer_of
from exporter.asking import vocabulary_of
from exporter.base import Checkpoint
from exporter.candidate import Candidate, Evidence, ProofOptions
from exporter.decoder_export import DecoderModel
from exporter.export import DTYPES, Job, export_adapter
from exporter.figures import Figures, Row, allowed, compare, judge, self_test
from exporter.linker import card_of
from exporter.probes import Probe, Vocabulary, built_in
from exporter.recipe import Recipe
from exporter.reference import Reference, continued, logits
from exporter.session import Session
from exporter.sources import Progress, no_progress
from exporter.structure import Structure
from registry.errors import ProofFailed
from registry.relocation import RelocationTable
from registry.selftest import SelfTest
from registry.service import Registry

CONTINUE = 12
"""So many tokens of its own the reference writes after each probe that has no completion."""

ROUNDS = 4
"""So often further probes are made while too few positions are clear enough for a self-test."""

FIRST_LAYERS = 2


class TextBench:
    """One proof: what is compared with what."""

    def __init__(self, registry: Registry, candidate: Candidate, recipe: Recipe, progress: Progress) -> None:
        self._registry, self._candidate, self._recipe, self._progress = registry, candidate, recipe, progress
        self._card = card_of(registry, candidate.foundation)
        self._structure = Structure.from_json(candidate.template.structure)

    def prove(self, checkpoint: Checkpoint, options: ProofOptions) -> Evidence:
        """Measure and judge. Raises ProofFailed with the figures, InputError for a base without tokens."""
        vocabulary, context = self._vocabulary(), self._candidate.template.context
        probes = list(options.probes or built_in(vocabulary, self._structure, context))
        self._progress("loading transformers and PEFT")
        reference, path = self._reference(checkpoint), self._registry.blobs.path
        session = Session(path(self._candidate.program.digest), path(self._candidate.foundation.file.digest))
        self._progress(f"comparing {len(probes)} probes")
        rows = [_measure(probe, session, reference, context) for probe in probes]
        first = self._first_layers(checkpoint, rows)
        judge(self._candidate.name, self._recipe, Figures.of(rows), first)
        for round_ in range(1, ROUNDS):
            if self_test(self._recipe, rows, Figures.of(rows)) is None:
                more = built_in(vocabulary, self._structure, context, round_)
                self._progress(f"comparing {len(more)} more probes")
                rows += [_measure(probe, session, reference, context) for probe in more]
                probes += more
        return self._evidence(list(zip(probes, rows, strict=True)), first)

    def _vocabulary(self) -> Vocabulary:
        own = self._candidate.prompt
        prompt = self._registry.blobs.read(own.digest) if own else None
        return vocabulary_of(self._registry, self._candidate.foundation, self._card, prompt)

    def _reference(self, checkpoint: Checkpoint, layers: int | None = None) -> Reference:
        reference = Reference.of_checkpoint(checkpoint.directory, self._recipe, layers)
        reference.adapt(self._candidate.directory, self._candidate.gate, self._card)
        return reference

    def _first_layers(self, checkpoint: Checkpoint, rows: Sequence[Row]) -> Figures | None:
        """The first layers of a deep quantized model, exported for this alone, on the first probes."""
        layers = 1 + max(map(layer_of, self._card.modules))
        if not self._recipe.quantized or layers <= FIRST_LAYERS:
            return None
        self._progress(f"exporting the first {FIRST_LAYERS} layers")
        reference = self._reference(checkpoint, FIRST_LAYERS)
        with tempfile.TemporaryDirectory(dir=self._registry.home, prefix="work-") as work:
            session = self._first_session(checkpoint, Path(work))
            asked = [Probe("", row.tokens) for row in rows[:CONTINUE]]
            return Figures.of([_measure(probe, session, reference, len(probe.prompt)) for probe in asked])

    def _first_session(self, checkpoint: Checkpoint, work: Path) -> Session:
        context = self._candidate.template.context
        model = DecoderModel(checkpoint, context, layers=FIRST_LAYERS)
        kept = {name: each for name, each in self._structure.modules.items() if layer_of(name) < FIRST_LAYERS}
        job = Job(model, self._recipe, context, no_progress)
        program = work / "first-layers.pte"
        program.write_bytes(export_adapter(job, Structure(kept), self._factors(), work))
        return Session(program, work / "foundation.ptd")

    def _factors(self) -> dict[str, torch.Tensor]:
        read = self._registry.blobs.read
        table = RelocationTable.from_bytes(read(self._candidate.template.table.digest))
        data, at = bytearray(read(self._candidate.factors.digest)), 0
        shapes = self._structure.shapes(self._card)
        found: dict[str, torch.Tensor] = {}
        for slot in table.slots:
            part = torch.frombuffer(data[at : at + slot.size], dtype=DTYPES[slot.dtype])
            found |= {name: part.reshape(shapes[name]).clone() for name in slot.names}
            at += slot.size
        return found

    def _evidence(self, measured: Sequence[tuple[Probe, Row]], first: Figures | None) -> Evidence:
        rows = [row for _, row in measured]
        figures = Figures.of(rows)
        return Evidence(
            figures=figures,
            allowed_error=allowed(self._recipe, (first or figures).scale),
            probes=tuple(_probe_json(probe, row) for probe, row in measured),
            warnings=figures.warnings,
            self_test=_needed(self._candidate.name, self_test(self._recipe, rows, figures), figures),
            first_layers=first,
            more={"first_layers": {"layers": FIRST_LAYERS, **first.to_json()}} if first else {},
        )


def _measure(probe: Probe, session: Session, reference: Reference, context: int) -> Row:
    """A probe with its completion, or with what the reference answers, token by token; and its prompt at once."""
    tokens = probe.tokens
    if not probe.completion:
        tokens += continued(reference.adapted, tokens, min(CONTINUE, context - len(tokens)))
    expected, actual = logits(reference.adapted, tokens), session.forced(tokens)
    row = compare(tokens, actual, expected, logits(reference.plain, tokens), len(probe.completion))
    at_once = (session.prefilled(probe.prompt)[0] - expected[len(probe.prompt) - 1]).abs().max()
    return replace(row, error=max(row.error, float(at_once)))


def _needed(name: str, test: SelfTest | None, figures: Figures) -> SelfTest:
    if test is None:
        raise ProofFailed(
            f"{name}: too few answers are clear enough for a self-test on devices",
            hint="give prompts that it was trained on: --probes prompts.jsonl",
            figures=figures.to_json(),
        )
    return test


def _probe_json(probe: Probe, row: Row) -> dict[str, Any]:
    return {
        "origin": probe.origin,
        "token_ids": list(row.tokens),
        "prompt": len(probe.prompt),
        "completion": row.completion,
        "max_error": row.error,
    }
