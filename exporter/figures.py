"""What a proof of a text model measures, and how every proof is judged: figures in, a verdict out. Imports torch.

Distances are root mean squares over all compared logits, errors the largest difference; `scale` is the largest logit.
Rounding activations to int8 makes the largest error of a deep quantized model meaningless, so there the distances
decide, and the error is judged on the first layers alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.nn import functional

from exporter.recipe import Recipe
from registry.errors import ProofFailed
from registry.selftest import Probe, SelfTest

TOLERANCE = {"F32": 1e-4, "F16": 2e-2}
"""Of the scale: SmolLM2-135M in fp32 comes to 8e-6, and a factor that is wrong by 1 % to far more than this."""

QUANTIZED_TOLERANCE = 2e-2
"""Of the scale, on the first layers of a quantized model: a rounded activation may fall the other way."""

EFFECT = 3.0
"""A build must be so many times farther from the plain base than from the reference."""

MARGIN = 10.0
"""A self-test asks only where the likeliest token leads by so many times the measured error."""

POSITIONS = (8, 16)
"""A self-test asks at so many positions, at least and at most."""

SPREAD = 4
"""It takes its positions from so many probes, if they have enough: a device feeds each up to its last position."""


@dataclass(frozen=True, slots=True)
class Row:
    """One probe, compared after each of its `tokens`.

    `likeliest`, `expected` and `plain` are the likeliest tokens of the program, of the reference and of the plain base,
    `lead` by how much the reference prefers its own. `off` and `away` are the summed squares of the differences from
    the reference and from the base over `count` logits, `losses` the summed losses of program and base over the last
    `completion` tokens.
    """

    tokens: tuple[int, ...]
    likeliest: torch.Tensor
    lead: torch.Tensor
    expected: torch.Tensor
    plain: torch.Tensor
    error: float
    scale: float
    off: float
    away: float
    count: int
    losses: tuple[float, float] = (0.0, 0.0)
    completion: int = 0


def compare(
    tokens: Sequence[int], actual: torch.Tensor, expected: torch.Tensor, plain: torch.Tensor, completion: int = 0
) -> Row:
    """Compare (tokens, vocabulary) logits of the program, the reference and the plain base after each token.

    The last `completion` tokens are what was wanted of the probe.
    """
    best = expected.topk(2).values
    return Row(
        tokens=tuple(tokens),
        likeliest=actual.argmax(-1),
        lead=best[:, 0] - best[:, 1],
        expected=expected.argmax(-1),
        plain=plain.argmax(-1),
        error=float((actual - expected).abs().max()),
        scale=float(expected.abs().max()),
        off=float((actual - expected).square().sum(dtype=torch.float64)),
        away=float((actual - plain).square().sum(dtype=torch.float64)),
        count=actual.numel(),
        losses=(_loss(actual, tokens, completion), _loss(plain, tokens, completion)),
        completion=completion,
    )


def _loss(logits: torch.Tensor, tokens: Sequence[int], completion: int) -> float:
    if not completion:
        return 0.0
    wanted = torch.tensor(tokens[-completion:])
    return float(functional.cross_entropy(logits[-completion - 1 : -1], wanted, reduction="sum"))


@dataclass(frozen=True, slots=True)
class Distances:
    """How far a program is from the reference and from the plain base; `scale` is the reference's largest value."""

    values: ClassVar[str] = "values"  # what is compared

    error: float
    scale: float
    from_reference: float
    from_base: float

    def to_json(self) -> dict[str, Any]:
        """As they stand in the proof's document."""
        return {
            "max_error": self.error,
            "scale": self.scale,
            "distance_from_reference": self.from_reference,
            "distance_from_base": self.from_base,
        }


@dataclass(frozen=True, slots=True)
class Figures(Distances):
    """All rows together. `agreement` is the share of positions with the same likeliest token as the reference.

    `losses` are the mean loss per completion token of the program and of the plain base, None without completions.
    """

    values: ClassVar[str] = "logits"

    positions: int
    agreement: float
    losses: tuple[float, float] | None

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Figures:
        """From at least one row."""
        positions = sum(len(row.tokens) for row in rows)
        logits = sum(row.count for row in rows)
        completion = sum(row.completion for row in rows)
        return cls(
            positions=positions,
            error=largest(row.error for row in rows),
            scale=max(row.scale for row in rows),
            from_reference=math.sqrt(sum(row.off for row in rows) / logits),
            from_base=math.sqrt(sum(row.away for row in rows) / logits),
            agreement=sum(int((row.likeliest == row.expected).sum()) for row in rows) / positions,
            losses=_mean_losses(rows, completion) if completion else None,
        )

    def to_json(self) -> dict[str, Any]:
        """As it stands in the proof's document."""
        document = Distances.to_json(self)
        document |= {"positions": self.positions, "greedy_agreement": self.agreement}
        if self.losses:
            document |= {"loss_with_adapter": self.losses[0], "loss_of_base": self.losses[1]}
        return document

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the figures make one wonder."""
        if self.losses is None or self.losses[0] < self.losses[1]:
            return ()
        losses = f"{self.losses[0]:.3f} with the adapter, {self.losses[1]:.3f} without"
        return (f"no better than base: wrong base or template? Mean loss of the completions: {losses}",)


def largest(values: Iterable[float]) -> float:
    """The largest value; NaN if any is, for a program that answers NaN anywhere is off."""
    listed = list(values)
    return math.nan if any(map(math.isnan, listed)) else max(listed)


def _mean_losses(rows: Sequence[Row], completion: int) -> tuple[float, float]:
    return sum(row.losses[0] for row in rows) / completion, sum(row.losses[1] for row in rows) / completion


def allowed(recipe: Recipe, scale: float) -> float:
    """The largest error that a build of this recipe may have, for values of this scale."""
    return scale * (QUANTIZED_TOLERANCE if recipe.quantized else TOLERANCE[recipe.dtype])


def judge(name: str, recipe: Recipe, whole: Distances, first: Distances | None = None) -> None:
    """Raise ProofFailed, with all figures, for a build that is off the reference or no different from the base.

    `first` are the figures of the first layers, where the largest error is judged; None where `whole` is.
    """
    judged = first or whole
    limit, values = allowed(recipe, judged.scale), _values(whole, first)
    distances = (
        f"distance from the reference {whole.from_reference:.3g}, from the plain base {whole.from_base:.3g} "
        f"({whole.values} up to {whole.scale:.3g})"
    )
    if not judged.error <= limit:  # NaN is off too
        where = "" if first is None else " of the first layers"
        raise ProofFailed(
            f"{name} is off the reference: the largest error{where} is {judged.error:.3g}, at most {limit:.3g} is "
            f"allowed; {distances}",
            hint="the published program does not compute what PEFT does: do not release it, and please report this",
            **values,
        )
    if not (whole.from_base > 0 and whole.from_base >= EFFECT * whole.from_reference):
        raise ProofFailed(
            f"{name} is no different from the plain base: {distances}",
            hint="was it trained, and on this base? A lora_B that is all zero has no effect",
            **values,
        )


def _values(whole: Distances, first: Distances | None) -> dict[str, Any]:
    return {"figures": whole.to_json(), **({"first_layers": first.to_json()} if first else {})}


def self_test(recipe: Recipe, rows: Sequence[Row], figures: Figures) -> SelfTest | None:
    """What devices replay: clear positions, at first those where the plain base answers otherwise, late ones first.

    None when fewer than POSITIONS[0] positions are clear.
    """
    exact = recipe.dtype == "F32" and not recipe.quantized
    margin = MARGIN * (figures.from_reference if recipe.quantized else figures.error)
    clear = {index: sorted(_clear(row, margin)) for index, row in enumerate(rows)}
    tellers = sorted(clear, key=lambda index: -sum(not alike for alike, _ in clear[index]))
    for spread in (SPREAD, len(tellers)):
        chosen = _spread({index: clear[index] for index in tellers[:spread]})
        if sum(map(len, chosen.values())) >= POSITIONS[0]:
            return SelfTest(tuple(_asked(rows[index], at) for index, at in chosen.items()), 1.0 if exact else 0.9)
    return None


def _clear(row: Row, margin: float) -> Iterator[tuple[bool, int]]:
    """Where answers lead by more than `margin`: whether the base answers alike, and the position, negated."""
    right = (row.lead > margin) & (row.likeliest == row.expected)
    for at in torch.nonzero(right).flatten().tolist():
        yield bool(row.plain[at] == row.expected[at]), -at


def _spread(clear: Mapping[int, Sequence[tuple[bool, int]]]) -> dict[int, list[int]]:
    """At most POSITIONS[1] places, the first of every row before the second of any, by row and in order."""
    ranked = [
        (alike, nth, index, -place) for index, places in clear.items() for nth, (alike, place) in enumerate(places)
    ]
    found: dict[int, list[int]] = {}
    for _, _, index, at in sorted(sorted(ranked)[: POSITIONS[1]], key=lambda each: each[2:]):
        found.setdefault(index, []).append(at)
    return found


def _asked(row: Row, at: Sequence[int]) -> Probe:
    return Probe(row.tokens[: at[-1] + 1], tuple(at), tuple(int(row.expected[each]) for each in at))
