"""The reader of `.ptd` answers what ExecuTorch answers, or FormatError, on any bytes and at any size."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.errors import FormatError
from registry.formats import mapped
from registry.formats.layout import Layout
from registry.formats.ptd import read_ptd
from tests.registry.files import NamedData, Pair, PtdFile, TensorLayout, run_script

GIB = 1 << 30


def test_a_real_foundation_is_read_as_executorch_reads_it(pair: Pair) -> None:
    from executorch.exir._serialize._cord import Cord
    from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer

    data = pair.foundation.read_bytes()
    theirs = FlatTensorSerializer().deserialize(Cord(data))
    ours = read_ptd(data)
    assert [entry.key for entry in ours.entries] == list(theirs.named_data)
    assert len(ours.entries) == 3
    for entry in ours.entries:
        expected = theirs.named_data[entry.key]
        assert data[entry.offset : entry.offset + entry.size] == theirs.buffers[expected.buffer_index]
        assert entry.segment == expected.buffer_index
        layout = expected.tensor_layout
        assert entry.layout == (
            Layout("F32", tuple(layout.sizes), tuple(layout.dim_order)) if layout is not None else None
        )


def test_a_memory_map_answers_as_bytes_do_and_is_not_kept(pair: Pair) -> None:
    view = mapped(pair.foundation)
    assert read_ptd(view) == read_ptd(bytes(view))
    view.release()


def test_every_cut_of_a_foundation_is_refused_and_a_long_cut_names_both_lengths(pair: Pair) -> None:
    data = pair.foundation.read_bytes()
    for length in range(len(data)):
        with pytest.raises(FormatError) as caught:
            read_ptd(data[:length])
        if length >= 48:
            assert caught.value.values == {"expected": len(data), "actual": length}
            assert str(len(data)) in caught.value.message
            assert str(length) in caught.value.message


def test_a_byte_too_many_is_refused(pair: Pair) -> None:
    with pytest.raises(FormatError, match="describes a file of"):
        read_ptd(pair.foundation.read_bytes() + b"\0")


def test_every_flipped_bit_of_the_header_gives_a_value_or_a_format_error(pair: Pair) -> None:
    data = bytearray(pair.foundation.read_bytes())
    refused = 0
    for at in range(read_ptd(data).segment_base):
        for bit in range(8):
            data[at] ^= 1 << bit
            try:
                read_ptd(data)
            except FormatError:
                refused += 1
            data[at] ^= 1 << bit
    assert refused > 1000


@given(st.binary(max_size=300))
def test_any_bytes_give_a_value_or_a_format_error(data: bytes) -> None:
    with pytest.raises(FormatError):
        read_ptd(data)


@given(st.data())
def test_any_bytes_behind_a_sound_header_give_a_value_or_a_format_error(data: st.DataObject) -> None:
    sound = PtdFile().bytes()
    at = data.draw(st.integers(48, len(sound) - 140))
    patch = data.draw(st.binary(min_size=1, max_size=24))
    try:
        read = read_ptd(sound[:at] + patch + sound[at + len(patch) :])
    except FormatError:
        return
    assert all(entry.offset + entry.size <= read.file_size for entry in read.entries)


def test_what_the_header_says_is_what_is_answered() -> None:
    layout = TensorLayout(15, (3, 2, 2), (2, 0, 1))
    read = read_ptd(PtdFile([NamedData("x", 0, layout), NamedData("y", 0), NamedData("z", 1)]).bytes())
    assert [(entry.key, entry.segment, entry.offset - read.segment_base, entry.size) for entry in read.entries] == [
        ("x", 0, 0, 24),
        ("y", 0, 0, 24),
        ("z", 1, 128, 8),
    ]
    assert read.entries[0].layout == Layout("BF16", (3, 2, 2), (2, 0, 1))


def test_a_scalar_and_an_empty_tensor_have_layouts() -> None:
    named = [NamedData("s", 0, TensorLayout(4, (), ())), NamedData("e", 1, TensorLayout(6, (0, 5), (0, 1)))]
    read = read_ptd(PtdFile(named, ((0, 8), (8, 0)), 8).bytes())
    assert [entry.layout.size for entry in read.entries if entry.layout] == [8, 0]


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (PtdFile([NamedData("a"), NamedData("a", 1)]), "the key a stands twice"),
        (PtdFile([NamedData(None)]), "has no key"),
        (PtdFile([NamedData("a", 2)]), "a points at segment 2 of 2"),
        (PtdFile([NamedData("a\0b")]), "NUL"),
        (PtdFile(segments=((0, 24), (16, 8))), "segment 1 starts at byte"),
        (PtdFile(segments=((64, 24), (0, 8))), "segment 1 starts at byte"),
        (PtdFile(segments=((0, 24), (128, 9))), "segment 1 ends at byte"),
        (PtdFile(segments=((0, 24), ((1 << 64) - 1, 1))), "segment 1 ends at byte"),
        (PtdFile([NamedData("a", 0, TensorLayout(sizes=(2, 4)))]), "has 32 bytes, its segment 24"),
        (PtdFile([NamedData("a", 0, TensorLayout(sizes=(-2, -3)))]), "negative size"),
        (PtdFile([NamedData("a", 0, TensorLayout(scalar_type=12))]), "scalar type 12"),
        (PtdFile([NamedData("a", 0, TensorLayout(dim_order=(0, 0)))]), "dim order"),
        (PtdFile([NamedData("a", 0, TensorLayout(dim_order=(1,)))]), "dim order"),
        (PtdFile([NamedData("a", 0, TensorLayout(sizes=(2147483647,) * 60, dim_order=range(60)))]), "2\\^63"),
        (PtdFile([NamedData("a", 0, TensorLayout(sizes=(1,) * 65, dim_order=range(65)))]), "65 dimensions"),
        (PtdFile(version=1), "schema version 1"),
        (PtdFile(identifier=b"FT02"), "expected the identifier 'FT01', found 'FT02'"),
    ],
)
def test_each_contradiction_is_refused_by_name(file: PtdFile, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        read_ptd(file.bytes())


READ_BIG = """
import sys
from registry.formats import mapped
from registry.formats.ptd import read_ptd
before = peak()
entry = read_ptd(mapped(Path(sys.argv[1]))).entries[-1]
print(entry.offset, entry.size, peak() - before)
"""


def test_a_five_gib_foundation_is_read_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "big.ptd"
    base = PtdFile(segments=((0, 4 * GIB), (4 * GIB, GIB)), data_size=5 * GIB).write_sparse(path)
    offset, size, memory = map(int, run_script(READ_BIG, path)[0].split())
    assert (offset, size) == (base + 4 * GIB, GIB)
    assert memory < 4096, "kB that reading took"
