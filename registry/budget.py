"""Bytes and disk before the button is pressed: what some arms cost a fleet.

A fleet is a small document that people write, with one cohort for each kind of device:

    {"schema": 1, "cohorts": [
      {"name": "pixels", "count": 120000, "release": 11, "free_disk": 2000000000, "executorch": "1.5.1"},
      {"name": "new phones", "count": 3000, "free_disk": 900000000, "holds": [D, …]}]}

`release` is what they run now, if anything; `holds` what they have besides, such as a foundation that came with the
app; the other fields are those of a device state, and what is left out is unknown. Each cohort is spread over the
arms as its buckets would be, and each part of it is asked what its own plan would download.

    budget(arms, releases, fleet.cohorts, blobs.read).egress("factors")
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

from registry import canonical
from registry.costing import Cost, Costs, Offered, Read, costs
from registry.device_state import DeviceState
from registry.documents import SCHEMA, Fields, opened
from registry.errors import FormatError, NotFound
from registry.manifest import WHOLE
from registry.rollout import Arms, choose

MAX_BYTES = 4 << 20
_OWN = ("name", "count", "release")
_FACTS = ("app", "backends", "executorch", "free_disk", "holds", "operators", "quota", "ram_bytes", "wants")
KNOWN = f"{' '.join((*_OWN, *_FACTS))} build cohorts critical digest platform schema size"

Encoding = Literal["plain", "factors"]


@dataclass(frozen=True, slots=True)
class Cohort:
    """Some devices that are alike: how many, which release they run (None: none), and what else is known."""

    name: str
    count: int
    release: int | None
    facts: DeviceState

    @classmethod
    def read(cls, fields: Fields) -> Cohort:
        """From the document. Raises FormatError, for a field that is none too."""
        unknown = sorted(set(fields.keys()) - {*_OWN, *_FACTS})
        if unknown:
            raise FormatError(
                f"{fields.path}: unknown field {unknown[0]!r}", hint=f"fields: {', '.join(_OWN + _FACTS)}"
            )
        name = fields.label("name")
        facts = {key: fields.get(key) for key in _FACTS if key in fields}
        state = DeviceState.from_bytes(canonical.dumps({"schema": SCHEMA, "id": name, **facts}))
        fresh = "release" not in fields or fields.get("release") is None
        return cls(name, fields.integer("count"), None if fresh else fields.integer("release", low=1), state)


@dataclass(frozen=True, slots=True)
class Fleet:
    """The cohorts of a fleet's document."""

    cohorts: tuple[Cohort, ...]

    @classmethod
    def from_bytes(cls, data: bytes) -> Fleet:
        """Read a document. Raises FormatError."""
        fields = opened(data, what="fleet", known=KNOWN, limit=MAX_BYTES)
        return cls(tuple(Cohort.read(each) for each in fields.objects("cohorts")))


@dataclass(frozen=True, slots=True)
class Row:
    """The part of a cohort that is offered one release (None: keep what you have), and what each device pays."""

    cohort: Cohort
    release: int | None
    share_bp: int
    costs: Costs

    @property
    def devices(self) -> float:
        """How many devices that is, on average."""
        return self.cohort.count * self.share_bp / WHOLE

    def cost(self, encoding: Encoding) -> Cost:
        """One encoding's figures."""
        return self.costs.plain if encoding == "plain" else self.costs.factors

    def to_json(self) -> dict[str, Any]:
        """As it stands in the budget's document."""
        head = {"cohort": self.cohort.name, "count": self.cohort.count, "runs": self.cohort.release}
        return {
            **head,
            "release": self.release,
            "share_bp": self.share_bp,
            "devices": self.devices,
            **self.costs.to_json(),
        }


@dataclass(frozen=True, slots=True)
class Budget:
    """What some arms cost a fleet."""

    rows: tuple[Row, ...]

    def egress(self, encoding: Encoding) -> int:
        """The bytes that all devices download together, on average; unchanged pieces of a foundation are not sent."""
        taking = (row for row in self.rows if not row.cost(encoding).refused)
        return round(sum(row.devices * row.cost(encoding).pieces for row in taking))

    def stranded(self, encoding: Encoding) -> int:
        """How many devices cannot take what they are offered, on average: no room, or no line for them."""
        return round(sum(row.devices for row in self.rows if row.cost(encoding).refused))

    def to_json(self) -> dict[str, Any]:
        """The document of `release budget`; schemas/budget.json describes it."""
        totals = {
            name: {"egress": self.egress(name), "cannot_take": self.stranded(name)} for name in ("plain", "factors")
        }
        devices = sum(row.devices for row in self.rows)
        return {"schema": SCHEMA, "devices": round(devices), **totals, "rows": [row.to_json() for row in self.rows]}


def budget(arms: Arms, releases: Mapping[int, Offered], cohorts: Sequence[Cohort], read: Read) -> Budget:
    """What each cohort pays under these arms; `releases` holds all that arms and cohorts name. Raises NotFound."""
    return Budget(tuple(row for cohort in cohorts for row in _rows(arms, releases, cohort, read)))


def imagined(numbers: Sequence[int]) -> tuple[Cohort, ...]:
    """A fleet where none is given: one device that holds nothing, and one that runs each of these releases."""
    fresh = Cohort("holds nothing", 1, None, DeviceState("fresh"))
    return (fresh, *(Cohort(f"runs release {n}", 1, n, DeviceState(f"r{n}")) for n in numbers))


def _rows(arms: Arms, releases: Mapping[int, Offered], cohort: Cohort, read: Read) -> Iterator[Row]:
    before = _found(releases, cohort.release)
    for release, share in _spread(arms, cohort.release).items():
        after = _found(releases, release)
        yield Row(cohort, release, share, costs(before, after, cohort.facts, read))


def _spread(arms: Arms, running: int | None) -> dict[int | None, int]:
    """How many buckets of a cohort each release gets; all buckets of an arm choose alike."""
    shares: dict[int | None, int] = {}
    ends = list(accumulate(arm.share_bp for arm in arms))
    for arm, end in zip(arms, ends, strict=True):
        choice = choose(arms, end - arm.share_bp, running)
        shares[choice.release] = shares.get(choice.release, 0) + arm.share_bp
    return shares


def _found(releases: Mapping[int, Offered], number: int | None) -> Offered | None:
    if number is None:
        return None
    if number not in releases:
        raise NotFound(f"no release {number}", hint="name the releases that the fleet runs by their numbers")
    return releases[number]
