"""Proof of a build on a factory's module: its program's outputs against PEFT on the module. Imports torch.

    evidence = ModuleBench(registry, candidate, recipe, progress).prove(source)

A module with several outputs is judged output by output: the error is that of the output which is farthest off for its
size, the distances those of the output on which the adapter shows most.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from exporter.candidate import Candidate, Evidence
from exporter.figures import Distances, allowed, judge, largest
from exporter.linker import card_of
from exporter.module_export import ModuleSource, user_code
from exporter.module_probes import ModuleProbe, built_in, unvaried
from exporter.recipe import Recipe
from exporter.reference import Reference
from exporter.session import Loaded
from exporter.sources import Progress
from registry.errors import InputError, ProofFailed
from registry.service import Registry

Answer = list[torch.Tensor]


@dataclass(frozen=True, slots=True)
class Difference:
    """One output of one probe: the largest error and value, summed squares of the differences, how many values."""

    error: float
    scale: float
    off: float
    away: float
    count: int


def differ(actual: torch.Tensor, expected: torch.Tensor, plain: torch.Tensor) -> Difference:
    """How far a program's output is from the reference's and from the plain base's; equal infinities do not differ."""
    finite = expected[expected.isfinite()].double().abs()
    return Difference(
        error=float(_between(actual, expected).max()) if actual.numel() else 0.0,
        scale=float(finite.max()) if finite.numel() else 0.0,
        off=float(_between(actual, expected).square().sum()),
        away=float(_between(actual, plain).square().sum()),
        count=actual.numel(),
    )


def _between(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return torch.where(one == other, 0.0, (one.double() - other.double()).abs())


@dataclass(frozen=True, slots=True)
class ModuleFigures(Distances):
    """All probes together, and each output by itself; `count` values were compared."""

    count: int
    outputs: tuple[Distances, ...]

    @classmethod
    def of(cls, probes: Sequence[Sequence[Difference]]) -> ModuleFigures:
        """From at least one probe, each with the same outputs."""
        outputs = tuple(_distances(output) for output in zip(*probes, strict=True))
        worst = max(outputs, key=lambda each: _ratio(each.error, each.scale))
        clearest = max(outputs, key=lambda each: _ratio(each.from_base, each.from_reference))
        count = sum(each.count for probe in probes for each in probe)
        return cls(worst.error, worst.scale, clearest.from_reference, clearest.from_base, count, outputs)

    def to_json(self) -> dict[str, Any]:
        """As they stand in the proof's document; outputs by themselves only where there are several."""
        document = {**Distances.to_json(self), "values": self.count}
        several = [each.to_json() for each in self.outputs] if len(self.outputs) > 1 else []
        return {**document, "outputs": several} if several else document


def _distances(output: Sequence[Difference]) -> Distances:
    count = max(1, sum(each.count for each in output))
    return Distances(
        error=largest(each.error for each in output),
        scale=max(each.scale for each in output),
        from_reference=math.sqrt(sum(each.off for each in output) / count),
        from_base=math.sqrt(sum(each.away for each in output) / count),
    )


def _ratio(part: float, whole: float) -> float:
    """How large a part is: nothing of nothing is nothing, and NaN passes every bound."""
    if math.isnan(part):
        return math.inf
    return part / whole if whole else math.copysign(math.inf, part) if part else 0.0


class ModuleBench:
    """One proof: what is compared with what."""

    def __init__(self, registry: Registry, candidate: Candidate, recipe: Recipe, progress: Progress) -> None:
        self._registry, self._candidate, self._recipe, self._progress = registry, candidate, recipe, progress

    def prove(self, source: ModuleSource) -> Evidence:
        """Measure and judge. Raises ProofFailed with the figures, InputError for a module that has no answers."""
        warnings = [_only_one(name) for name in unvaried(source)]
        measured = list(self._measured(source, warnings))
        figures = ModuleFigures.of([differences for _, differences in measured])
        judge(self._candidate.name, self._recipe, figures)
        return Evidence(
            figures=figures,
            allowed_error=allowed(self._recipe, figures.scale),
            probes=tuple(_probe_json(probe, differences) for probe, differences in measured),
            warnings=tuple(warnings),
            more={"module": source.spec},
        )

    def _measured(
        self, source: ModuleSource, warnings: list[str]
    ) -> Iterator[tuple[ModuleProbe, Sequence[Difference]]]:
        """Each probe with its outputs' differences. A variant that the module itself refuses is a warning."""
        first, *variants = built_in(source)
        self._progress("loading PEFT")
        reference, path = Reference(source.root), self._registry.blobs.path
        card = card_of(self._registry, self._candidate.foundation)
        reference.adapt(self._candidate.directory, self._candidate.gate, card)
        program = Loaded(path(self._candidate.program.digest), path(self._candidate.foundation.file.digest))
        self._progress(f"comparing {1 + len(variants)} probes")
        yield first, self._compared(program, first, _both(reference, first))
        for probe in variants:
            try:
                answers = _both(reference, probe)
            except InputError as error:
                warnings.append(f"{probe.origin} was left out: {error.message}")
            else:
                yield probe, self._compared(program, probe, answers)

    def _compared(self, program: Loaded, probe: ModuleProbe, answers: tuple[Answer, Answer]) -> list[Difference]:
        """The program's answer beside the reference's and the plain base's. Raises ProofFailed when it has none."""
        name, (expected, plain) = self._candidate.name, answers
        try:
            actual = program.run(copy.deepcopy(probe.leaves))
        except RuntimeError as error:
            raise ProofFailed(
                f"{name}: its program cannot run {probe.origin}, of shapes {probe.shapes}: {error}",
                hint="let the factory's dynamic_shapes say which sizes there are, and export it again",
                shapes=probe.shapes,
            ) from error
        shapes = [[list(each.shape) for each in answer] for answer in (actual, expected)]
        if shapes[0] != shapes[1]:
            raise ProofFailed(
                f"{name}: its program answers {probe.origin} in shapes {shapes[0]}, the module in {shapes[1]}",
                hint="the published program does not compute what PEFT does: do not release it, and please report this",
                expected=shapes[1],
                actual=shapes[0],
            )
        return [differ(*each) for each in zip(actual, expected, plain, strict=True)]


def _both(reference: Reference, probe: ModuleProbe) -> tuple[Answer, Answer]:
    """What the module answers with the adapter and without. Raises InputError."""
    return _answers(reference.adapted, probe), _answers(reference.plain, probe)


def _answers(module: nn.Module, probe: ModuleProbe) -> Answer:
    """The tensors that a module answers. Raises InputError for a probe that it refuses, or answers NaN to."""
    with user_code(f"the module refuses {probe.origin}"), torch.no_grad():
        answer = module(*copy.deepcopy(probe.inputs))
    found = [leaf for leaf in pytree.tree_leaves(answer) if isinstance(leaf, torch.Tensor)]
    if not found or any(each.isnan().any() for each in found):
        answers = "NaN" if found else "no tensor"
        raise InputError(
            f"the module answers {probe.origin} with {answers}",
            hint="let the factory's inputs be such as the model is really given",
        )
    return found


def _only_one(name: str) -> str:
    return f"input {name!r} holds one value alone in the factory's inputs, so no probe asks another: show it real ones"


def _probe_json(probe: ModuleProbe, differences: Sequence[Difference]) -> dict[str, Any]:
    return {
        "origin": probe.origin,
        "shapes": probe.shapes,
        "max_error": largest(each.error for each in differences),
    }
