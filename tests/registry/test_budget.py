"""Bytes and disk before the button is pressed: for a device in each state, and for a fleet."""

import json
from dataclasses import replace

import pytest

from registry.budget import Fleet, budget, imagined
from registry.comparing import compare
from registry.costing import Offered, costs
from registry.device_state import DeviceState
from registry.digest import Descriptor, Digest
from registry.errors import FormatError, NotFound
from registry.manifest import Arm
from registry.release import AdapterEntry, Factors, FoundationEntry, Line, ReleaseDocument, Requires
from registry.rollout import NOTHING, hold_out, start
from registry.segments import Piece, SegmentTable
from tests.registry.test_schemas import validator

REQUIRES = Requires((1, 5), (1, 6), ("XnnpackBackend",))


def pin(text, size):
    return Descriptor(Digest.of(text.encode()), size)


def entry(name, version="1.0.0", size=200, factors=50, build=""):
    parts = Factors(pin(f"{name}{version} factors", factors), pin("template", 30), pin("table", 5))
    return AdapterEntry(name, version, pin(f"{name}{version}{build}", size), factors=parts)


def pieces(*texts):
    """A foundation of pieces of 100 bytes: its file, and its segment table."""
    table = SegmentTable(tuple(Piece(100, Digest.of(text.encode())) for text in texts))
    return pin("+".join(texts), table.size), table.to_bytes()


class Shelf:
    """Releases, and the blobs that are read for their costs."""

    def __init__(self):
        self.blobs = {}

    def read(self, digest):
        if digest not in self.blobs:
            raise NotFound(str(digest))
        return self.blobs[digest]

    def line(self, adapters, foundation=("a", "b"), requires=REQUIRES):
        file, table = pieces(*foundation)
        segments = Descriptor.of(table)
        self.blobs[segments.digest] = table
        return Line(FoundationEntry(file, segments), pin("base", 40), requires, tuple(adapters))

    def release(self, number, *lines, holes=False):
        document = ReleaseDocument(number, lines, holes)
        return Offered(Descriptor.of(document.to_bytes()), document)


@pytest.fixture
def shelf():
    return Shelf()


@pytest.fixture
def first(shelf):
    return shelf.release(1, shelf.line([entry("pirate")]))


@pytest.fixture
def second(shelf):
    return shelf.release(2, shelf.line([entry("pirate"), entry("json", size=5000, factors=4000)]))


PHONE = DeviceState("phone")


def test_a_fresh_device_pays_for_everything_and_one_that_has_it_for_nothing(shelf, first):
    fresh = costs(None, first, PHONE, shelf.read)
    assert fresh.plain.bytes == first.file.size + 200 + 40 + 200
    assert fresh.factors.bytes == first.file.size + 200 + 40 + 30 + 5 + 50
    assert fresh.plain.pieces == fresh.plain.bytes
    again = costs(first, first, PHONE, shelf.read)
    assert (again.plain.bytes, again.factors.bytes) == (0, 0)


def test_a_device_on_the_release_before_pays_for_what_is_new(shelf, first, second):
    step = costs(first, second, PHONE, shelf.read)
    assert step.plain.bytes == second.file.size + 5000
    assert step.factors.bytes == second.file.size + 4000
    assert step.plain.peak_disk == first.file.size + 200 + 40 + 200 + 5000


def test_an_unchanged_piece_of_a_foundation_costs_nothing(shelf, first):
    moved = shelf.release(2, shelf.line([entry("pirate", build=" on c")], foundation=("a", "c")))
    segments = moved.document.lines[0].foundation.segments
    step = costs(first, moved, PHONE, shelf.read).plain
    assert step.bytes == moved.file.size + 200 + 200
    assert step.pieces == step.bytes - 100 + segments.size if segments.size < 100 else step.bytes
    shelf.blobs.clear()
    assert costs(first, moved, PHONE, shelf.read).plain.pieces == step.bytes


def test_large_unchanged_pieces_are_counted_without_their_bytes(shelf):
    tables = {}
    lines = []
    for name in "bc":
        table = SegmentTable((Piece(10_000, Digest.of(b"a")), Piece(5_000, Digest.of(name.encode()))))
        segments = Descriptor.of(table.to_bytes())
        tables[segments.digest] = table.to_bytes()
        lines.append(Line(FoundationEntry(pin(name, 15_000), segments), pin("base", 40), REQUIRES, (entry("pirate"),)))
    one, two = shelf.release(1, lines[0]), shelf.release(2, lines[1])
    step = costs(one, two, PHONE, tables.__getitem__).plain
    assert step.bytes == two.file.size + 15_000
    assert step.pieces == two.file.size + 5_000 + lines[1].foundation.segments.size


def test_a_device_without_room_or_without_a_line_is_refused_with_the_reason(shelf, first):
    assert costs(None, first, replace(PHONE, free_disk=100), shelf.read).plain.refused == ("no-room",)
    assert costs(None, first, replace(PHONE, executorch="1.4.0"), shelf.read).factors.refused == ("no-line",)
    assert costs(None, first, replace(PHONE, free_disk=10_000, executorch="1.5.1"), shelf.read).plain.refused == ()


def test_the_free_disk_is_what_is_left_beside_what_it_holds(shelf, first, second):
    assert costs(first, second, replace(PHONE, free_disk=3000), shelf.read).plain.refused == ("no-room",)
    assert costs(first, second, replace(PHONE, free_disk=5000), shelf.read).plain.refused == ()


def test_the_difference_names_what_came_went_changed_and_was_rebuilt(shelf):
    before = shelf.release(1, shelf.line([entry("pirate"), entry("json"), entry("robot"), entry("poet")]))
    lines = [entry("pirate", "1.1.0"), entry("json"), entry("robot", build=" again"), entry("bard")]
    after = shelf.release(2, shelf.line(lines))
    found = compare(before, after, shelf.read)
    assert [(each.name, each.before, each.after, each.rebuilt) for each in found.adapters] == [
        ("bard", (), ("1.0.0",), False),
        ("pirate", ("1.0.0",), ("1.1.0",), False),
        ("poet", ("1.0.0",), (), False),
        ("robot", ("1.0.0",), ("1.0.0",), True),
    ]
    assert found.kept == ("json",)
    assert (found.foundations_added, found.foundations_removed) == ((), ())


def test_the_difference_costs_a_device_on_each_line_its_own_bytes(shelf):
    old, new = shelf.line([entry("pirate")]), shelf.line([entry("pirate", build=" on c")], foundation=("c", "d"))
    before, after = shelf.release(1, old), shelf.release(2, new, old)
    found = compare(before, after, shelf.read)
    assert found.foundations_added == (new.foundation.file.digest,)
    assert [(state.release, state.foundation) for state in found.states] == [
        (None, None),
        (1, old.foundation.file.digest),
    ]
    assert found.states[1].costs.plain.bytes == after.file.size + 200 + 200
    assert compare(None, after, shelf.read).before is None


def test_a_budget_spreads_each_cohort_over_the_arms(shelf, first, second):
    fleet = Fleet.from_bytes(
        json.dumps(
            {
                "schema": 1,
                "cohorts": [
                    {"name": "old", "count": 1000, "release": 1},
                    {"name": "new", "count": 100},
                    {"name": "full", "count": 10, "release": 1, "free_disk": 5},
                ],
            }
        ).encode()
    )
    arms = start(start(NOTHING, 1, 10_000), 2, 2500)
    found = budget(arms, {1: first, 2: second}, fleet.cohorts, shelf.read)
    rows = {(row.cohort.name, row.release): row for row in found.rows}
    assert {place: (row.share_bp, row.devices) for place, row in rows.items()} == {
        ("old", 2): (2500, 250),
        ("old", 1): (7500, 750),
        ("new", 2): (2500, 25),
        ("new", 1): (7500, 75),
        ("full", 2): (2500, 2.5),
        ("full", 1): (7500, 7.5),
    }
    step = second.file.size + 5000
    whole = {1: first.file.size + 440, 2: second.file.size + 5440}
    assert found.egress("plain") == 250 * step + 25 * whole[2] + 75 * whole[1]
    assert found.stranded("plain") == 2
    assert found.stranded("factors") == 2
    assert found.to_json()["devices"] == 1110


def test_a_halted_arm_costs_only_those_that_run_it(shelf, first, second):
    arms = (Arm(2, 5000, "halted"), Arm(1, 5000))
    found = budget(arms, {1: first, 2: second}, imagined([1, 2]), shelf.read)
    assert [(row.cohort.name, row.release, row.share_bp) for row in found.rows] == [
        ("holds nothing", 1, 10_000),
        ("runs release 1", 1, 10_000),
        ("runs release 2", 2, 5000),
        ("runs release 2", 1, 5000),
    ]


def test_a_holdout_costs_nothing(shelf, first):
    arms = hold_out(start(NOTHING, 1, 10_000), 1000)
    rows = budget(arms, {1: first}, imagined([]), shelf.read).rows
    assert [(row.release, row.costs.plain.bytes) for row in rows] == [(1, first.file.size + 440), (None, 0)]


def test_what_came_with_the_app_is_not_fetched_again(shelf, first):
    file = first.document.lines[0].foundation.file
    cohort = {"name": "bundled", "count": 1, "holds": [file.to_json()]}
    fleet = Fleet.from_bytes(json.dumps({"schema": 1, "cohorts": [cohort]}).encode())
    (row,) = budget(start(NOTHING, 1, 10_000), {1: first}, fleet.cohorts, shelf.read).rows
    assert row.costs.plain.bytes == first.file.size + 240


def test_a_fleet_that_runs_an_unknown_release_is_refused(shelf, first):
    with pytest.raises(NotFound, match="no release 7"):
        budget(NOTHING, {1: first}, imagined([7]), shelf.read)


@pytest.mark.parametrize(
    ("cohort", "message"),
    [
        ({"count": 1}, "'name' is missing"),
        ({"name": "x"}, "'count' is missing"),
        ({"name": "x", "count": -1}, "count: expected"),
        ({"name": "x", "count": 1, "free_dsk": 5}, "unknown field 'free_dsk'"),
        ({"name": "x", "count": 1, "free_disk": "much"}, "free_disk: expected"),
        ({"name": "x", "count": 1, "release": 0}, "release: expected"),
    ],
)
def test_a_fleet_that_is_none_is_refused_by_the_field(cohort, message):
    with pytest.raises(FormatError, match=message):
        Fleet.from_bytes(json.dumps({"schema": 1, "cohorts": [cohort]}).encode())


def test_the_documents_are_as_their_schemas_say(shelf, first):
    document = {
        "schema": 1,
        "cohorts": [
            {
                "name": "all",
                "count": 7,
                "release": None,
                "free_disk": 1,
                "quota": 2,
                "ram_bytes": 3,
                "executorch": "1.5.1",
                "app": {"platform": "android", "build": 7},
                "backends": ["XnnpackBackend"],
                "operators": [],
                "wants": ["pirate"],
                "holds": [],
            }
        ],
    }
    validator("fleet").validate(document)
    fleet = Fleet.from_bytes(json.dumps(document).encode())
    found = budget(start(NOTHING, 1, 5000), {1: first}, fleet.cohorts, shelf.read).to_json()
    validator("budget").validate(found)
    assert found["plain"] == {"egress": 0, "cannot_take": 4}
