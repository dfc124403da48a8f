"""The FlatBuffers reader answers what Google's builder wrote, or FormatError, and never runs away."""

from __future__ import annotations

import struct
import time
from contextlib import suppress

import flatbuffers
import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.errors import FormatError
from registry.formats.flatbuffer import Budget, Region, Table
from registry.formats.layout import Span
from tests.registry.files import builder_string, table, vector_of_numbers, vector_of_tables


def root(data: bytes, budget: int | None = None) -> Table:
    view = memoryview(data)
    return Region(view, 0, len(data), "test", Budget(budget or len(data))).root(b"TEST")


def finish(builder: flatbuffers.Builder, offset: int) -> bytes:
    builder.Finish(offset, file_identifier=b"TEST")
    return bytes(builder.Output())


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)


@given(
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 2**64 - 1),
    TEXT,
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=6),
    st.lists(TEXT, max_size=4),
)
def test_what_was_written_is_read(small: int, large: int, text: str, numbers: list[int], texts: list[str]) -> None:
    builder = flatbuffers.Builder()
    inner = [table(builder, {1: ("o", builder_string(builder, each))}) for each in texts]
    fields = {
        0: ("i", small),
        2: ("Q", large),
        3: ("o", builder_string(builder, text)),
        4: ("o", vector_of_numbers(builder, "i", numbers)),
        5: ("o", vector_of_tables(builder, inner)),
        6: ("o", vector_of_numbers(builder, "B", [7, 8, 9])),
        7: ("B", 3),
        8: ("o", table(builder, {0: ("b", -5)})),
    }
    data = finish(builder, table(builder, fields))
    read = root(data)
    assert (read.scalar(0, "i"), read.scalar(2, "Q"), read.string(3)) == (small, large, text)
    assert read.numbers(4, "i") == tuple(numbers)
    assert [each.string(1) for each in read.tables(5)] == texts
    span = read.span(6)
    assert span is not None
    assert data[span.offset : span.end] == b"\7\x08\t"
    kind, value = read.union(7)
    assert kind == 3
    assert value is not None
    assert value.scalar(0, "b") == -5


def test_absent_fields_have_defaults() -> None:
    builder = flatbuffers.Builder()
    read = root(finish(builder, table(builder, {1: ("i", 5)})))
    assert (read.scalar(0, "i", default=9), read.scalar(70, "Q"), read.string(2)) == (9, 0, None)
    assert (read.table(3), read.span(4), read.union(5), read.numbers(7, "i")) == (None, None, (0, None), ())
    assert list(read.tables(8)) == []


def walk(read: Table) -> None:
    """Read each slot as everything that it could be."""
    for slot in range(4):
        for reader in (
            read.string,
            read.span,
            read.table,
            lambda s: read.numbers(s, "i"),
            lambda s: read.scalar(s, "Q"),
        ):
            with suppress(FormatError):
                reader(slot)
        with suppress(FormatError):
            for inner in read.tables(slot):
                inner.string(0)


@given(st.binary(max_size=120))
def test_any_bytes_give_values_or_a_format_error(data: bytes) -> None:
    with suppress(FormatError):
        walk(root(b"\x08\0\0\0TEST" + data))


@given(st.lists(st.integers(0, 40), min_size=4, max_size=24))
def test_small_numbers_that_point_everywhere_give_values_or_a_format_error(words: list[int]) -> None:
    with suppress(FormatError):
        walk(root(b"\x08\0\0\0TEST" + struct.pack(f"<{len(words)}H", *words)))


def text_file(raw: bytes) -> bytes:
    """A root table at 16 with one string field at its end: `raw` is length, bytes and terminator."""
    return struct.pack("<I4sHHHHiI", 16, b"TEST", 6, 8, 4, 0, 8, 4) + raw


def test_a_string_is_read_to_its_length() -> None:
    assert root(text_file(b"\2\0\0\0hi\0")).string(0) == "hi"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"\2\0\0\0hi", "points outside"),
        (b"\2\0\0\0hi!", "not ended by its one NUL"),
        (b"\2\0\0\0h\0\0", "not ended by its one NUL"),
        (b"\2\0\0\0\xff\xfe\0", "not UTF-8"),
        (b"\xff\xff\xff\xffhi\0", "points outside"),
        (b"\2\0\0", "points outside"),
    ],
)
def test_a_string_that_c_would_read_otherwise_is_refused(raw: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        root(text_file(raw)).string(0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "points outside"),
        (b"\x08\0\0\0TES", "points outside"),
        (b"\x08\0\0\0Test" + bytes(20), "expected the identifier 'TEST', found 'Test'"),
        (b"\0\0\0\0TEST" + bytes(20), "points at itself"),
        (b"\xff\xff\xff\xffTEST" + bytes(20), "points outside"),
        (struct.pack("<I4sHHHHi", 16, b"TEST", 3, 8, 4, 0, 8), "impossible vtable"),
        (struct.pack("<I4sHHHHi", 16, b"TEST", 5, 8, 4, 0, 8), "impossible vtable"),
        (struct.pack("<I4sHHHHi", 16, b"TEST", 6, 3, 4, 0, 8), "impossible vtable"),
        (struct.pack("<I4sHHHHi", 16, b"TEST", 6, 8, 4, 0, 8), "points outside"),
        (struct.pack("<I4sHHHHi", 16, b"TEST", 6, 4, 4, 0, -8), "points outside"),
    ],
)
def test_offsets_that_lead_nowhere_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        root(data)


def test_a_field_outside_of_its_table_is_refused() -> None:
    data = struct.pack("<I4sHHHHiI", 16, b"TEST", 6, 8, 6, 0, 8, 0)
    with pytest.raises(FormatError, match="field 0 of the table at 16 lies outside it"):
        root(data).scalar(0, "I")


def test_a_vector_of_one_table_many_times_is_stopped_soon() -> None:
    """A file of 400 kB in which 100,000 offsets lead to one table that leads to all of them again."""
    builder = flatbuffers.Builder()
    leaf = table(builder, {0: ("o", builder_string(builder, "x" * 50))})
    many = vector_of_tables(builder, [leaf] * 100_000)
    branch = table(builder, {0: ("o", many)})
    data = finish(builder, table(builder, {0: ("o", vector_of_tables(builder, [branch] * 100))}))
    started = time.monotonic()
    texts = (each.string(0) for inner in root(data).tables(0) for each in inner.tables(0))
    with pytest.raises(FormatError, match="more values than its length allows"):
        list(texts)
    assert time.monotonic() - started < 2


def test_a_budget_serves_what_is_not_shared() -> None:
    builder = flatbuffers.Builder()
    leaves = [table(builder, {0: ("o", builder_string(builder, "")), 1: ("b", 1)}) for _ in range(1000)]
    data = finish(builder, table(builder, {0: ("o", vector_of_tables(builder, leaves))}))
    assert [leaf.string(0) for leaf in root(data, len(data) // 2).tables(0)] == [""] * 1000


def test_a_region_keeps_to_its_own_bytes() -> None:
    builder = flatbuffers.Builder()
    data = finish(builder, table(builder, {0: ("o", vector_of_numbers(builder, "B", [1, 2]))}))
    view = memoryview(b"before" + data + b"behind")
    span = Region(view, 6, 6 + len(data), "test", Budget(100)).root(b"TEST").span(0)
    assert span is not None
    assert bytes(view[span.offset : span.end]) == b"\1\2"
    with pytest.raises(FormatError):
        Region(view, 6, 6 + len(data) - 4, "test", Budget(100)).root(b"TEST").span(0)
    assert Span(3, 4).end == 7
