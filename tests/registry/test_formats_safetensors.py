"""The reader of safetensors takes what the safetensors library takes, or answers FormatError before it allocates."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save, save_file

from registry.errors import FormatError, InputError
from registry.formats.layout import DTYPE_BITS
from registry.formats.safetensors import MAX_HEADER, Reader, bf16_to_f32, parse_header, read_header
from tests.registry.files import run_script, safetensors_bytes

RANDOM = np.random.default_rng(0)
F32 = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}


def read(data: bytes, path: Path) -> Any:
    path.write_bytes(data)
    return read_header(path)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("bool", "BOOL"),
        ("u1", "U8"),
        ("i1", "I8"),
        ("u2", "U16"),
        ("i2", "I16"),
        ("f2", "F16"),
        ("u4", "U32"),
        ("i4", "I32"),
        ("f4", "F32"),
        ("u8", "U64"),
        ("i8", "I64"),
        ("f8", "F64"),
    ],
)
def test_an_array_comes_back_as_it_was_saved(tmp_path: Path, dtype: str, name: str) -> None:
    array = (RANDOM.random((3, 2, 4)) * 2).astype(dtype)
    save_file({"other": np.zeros(5, "i8"), "x": array}, tmp_path / "x.safetensors", metadata={"format": "np"})
    with Reader(tmp_path / "x.safetensors") as reader:
        assert reader.header.metadata == {"format": "np"}
        assert reader.entry("x").dtype == name
        assert reader.array("x").dtype == array.dtype
        np.testing.assert_array_equal(reader.array("x"), array)
        np.testing.assert_array_equal(reader.rows("x", 1, 3), array[1:3])
        assert bytes(reader.raw("x")) == b"".join(reader.chunks("x")) == array.tobytes()


def test_bf16_comes_as_bits_and_widens_exactly(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file as save_torch

    tensor = torch.randn(4, 3).to(torch.bfloat16)
    save_torch({"x": tensor, "nan": torch.tensor([float("nan"), float("inf")]).bfloat16()}, tmp_path / "x.safetensors")
    with Reader(tmp_path / "x.safetensors") as reader:
        assert reader.array("x").dtype == np.uint16
        np.testing.assert_array_equal(bf16_to_f32(reader.array("x")), tensor.float().numpy())
        np.testing.assert_array_equal(bf16_to_f32(reader.rows("nan", 0, 2)), np.float32([np.nan, np.inf]))


def test_eight_bit_floats_come_as_bits_and_smaller_ones_only_raw(tmp_path: Path) -> None:
    header = {
        "a": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]},
        "b": {"dtype": "F4", "shape": [4], "data_offsets": [4, 6]},
    }
    (tmp_path / "x").write_bytes(safetensors_bytes(header, b"\1\2\3\4\5\6"))
    with Reader(tmp_path / "x") as reader:
        np.testing.assert_array_equal(reader.array("a"), np.uint8([1, 2, 3, 4]))
        assert bytes(reader.raw("b")) == b"\5\6"
        with pytest.raises(FormatError, match="smaller than a byte"):
            reader.array("b")


@pytest.mark.parametrize("dtype", sorted(DTYPE_BITS))
def test_every_dtype_that_we_know_the_safetensors_library_knows(dtype: str) -> None:
    size = DTYPE_BITS[dtype]
    data = safetensors_bytes({"a": {"dtype": dtype, "shape": [8], "data_offsets": [0, size]}}, bytes(size))
    assert safetensors.deserialize(data)[0][1]["dtype"] == dtype


def test_views_outlive_the_reader(tmp_path: Path) -> None:
    save_file({"x": np.arange(4.0)}, tmp_path / "x")
    with Reader(tmp_path / "x") as reader:
        array = reader.array("x")
    np.testing.assert_array_equal(array, np.arange(4.0))
    assert not array.flags.writeable


def test_scalars_and_empty_tensors_are_tensors(tmp_path: Path) -> None:
    save_file({"scalar": np.array(3.5), "empty": np.zeros((0, 7), "f4")}, tmp_path / "x")
    with Reader(tmp_path / "x") as reader:
        assert reader.array("scalar") == 3.5
        assert reader.array("empty").shape == reader.rows("empty", 0, 0).shape == (0, 7)
        with pytest.raises(InputError, match="has no rows 0 to 1"):
            reader.rows("scalar", 0, 1)


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (2, 1), (0, 4)])
def test_rows_outside_of_a_tensor_are_refused(tmp_path: Path, start: int, stop: int) -> None:
    save_file({"x": np.zeros((3, 2))}, tmp_path / "x")
    with Reader(tmp_path / "x") as reader, pytest.raises(InputError, match=f"no rows {start} to {stop}"):
        reader.rows("x", start, stop)


def test_a_tensor_that_is_not_there_is_named(tmp_path: Path) -> None:
    save_file({"x": np.zeros(1)}, tmp_path / "x")
    with Reader(tmp_path / "x") as reader, pytest.raises(InputError, match="has no tensor 'y'"):
        reader.raw("y")


def test_every_cut_of_a_file_is_refused(tmp_path: Path) -> None:
    data = save({"a": np.zeros(3, "f4"), "b": np.zeros(2, "f8")})
    for length in range(len(data)):
        with pytest.raises(FormatError):
            read(data[:length], tmp_path / "x")
    with pytest.raises(FormatError, match="describes a file of"):
        read(data + b"\0", tmp_path / "x")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"a": {**F32, "data_offsets": [0, 16]}}, "has 24 bytes, its offsets hold 16"),
        ({"a": {**F32, "data_offsets": [24, 0]}}, "impossible data_offsets"),
        ({"a": {**F32, "data_offsets": [0, -24]}}, "impossible data_offsets"),
        ({"a": {**F32, "data_offsets": [0, 24, 24]}}, "impossible data_offsets"),
        ({"a": {**F32, "data_offsets": [0.0, 24]}}, "impossible data_offsets"),
        ({"a": {**F32, "data_offsets": [False, 24]}}, "impossible data_offsets"),
        ({"a": {**F32, "data_offsets": "0,24"}}, "impossible data_offsets"),
        ({"a": {**F32, "data_offsets": [1 << 64, (1 << 64) + 24]}}, "impossible data_offsets"),
        ({"a": {**F32, "shape": [-2, -3]}}, "impossible shape"),
        ({"a": {**F32, "shape": [2, True, 3]}}, "impossible shape"),
        ({"a": {**F32, "shape": [1 << 63]}}, "impossible shape"),
        ({"a": {**F32, "shape": [1] * 65}}, "impossible shape"),
        ({"a": {**F32, "shape": 6}}, "impossible shape"),
        ({"a": {**F32, "shape": [1 << 62, 1 << 62, 2]}}, "2\\^63"),
        ({"a": {**F32, "shape": [0, 1 << 62], "data_offsets": [0, 0]}}, "2\\^63"),
        ({"a": {**F32, "dtype": "F31"}}, "unknown dtype 'F31'"),
        ({"a": {**F32, "dtype": ["F32"]}}, "unknown dtype"),
        ({"a": {"dtype": "F4", "shape": [3], "data_offsets": [0, 1]}}, "no whole number of bytes"),
        ({"a": {**F32, "extra": 1}}, "exactly dtype, shape and data_offsets"),
        ({"a": {"dtype": "F32", "shape": [2, 3]}}, "exactly dtype, shape and data_offsets"),
        ({"a": 5}, "exactly dtype, shape and data_offsets"),
        ({"a": F32, "b": {**F32, "data_offsets": [12, 36]}}, "'b' starts at byte"),
        ({"a": F32, "b": {**F32, "data_offsets": [28, 52]}}, "'b' starts at byte"),
        ({"a": F32, "b": F32}, "starts at byte"),
        ({"a": {**F32, "data_offsets": [4, 28]}}, "'a' starts at byte"),
        ({"__metadata__": {"a": 1}}, "__metadata__ must map text to text"),
        ({"__metadata__": ["a"]}, "__metadata__ must map text to text"),
        (b'{"a":1,"a":1}', "'a' stands twice"),
        (b'{"a":{"dtype":"F32","dtype":"F32"}}', "'dtype' stands twice"),
        (b'{"a\\ud800":1}', "half of a surrogate pair"),
        (b'{"a":NaN}', "NaN is not JSON"),
        (b'{"a":' + b"[" * 100_000, "not JSON"),
        (b'{"a":1' + b"0" * 5000 + b"}", "4300 digits"),
        (b'\xef\xbb\xbf{"a":1}', "does not start with"),
        (b" {}", "does not start with"),
        (b"[]", "does not start with"),
        (b"{\xff}", "not UTF-8"),
        (b"{", "not JSON"),
        (b"{}{}", "not JSON"),
        (b"", "does not start with"),
    ],
)
def test_each_contradiction_is_refused_by_name(tmp_path: Path, header: Any, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        read(safetensors_bytes(header, bytes(24)), tmp_path / "x")


CLAIM = """
import sys
from registry.errors import FormatError
from registry.formats.safetensors import read_header
before = peak()
try:
    read_header(Path(sys.argv[1]))
except FormatError as error:
    print(error.message)
print(peak() - before)
"""


@pytest.mark.parametrize("claimed", [1 << 60, (1 << 64) - 1, MAX_HEADER, MAX_HEADER + 1])
def test_a_header_longer_than_the_file_or_the_limit_is_refused_before_it_is_read(tmp_path: Path, claimed: int) -> None:
    path = tmp_path / "x"
    with open(path, "wb") as file:
        file.write(claimed.to_bytes(8, "little"))
        file.truncate(50_000_000 if claimed == MAX_HEADER else 3 * MAX_HEADER)
    message, memory = run_script(CLAIM, path)
    assert f"claims a header of {claimed} bytes" in message
    assert int(memory) < 2048, "kB"


def test_symbolic_links_are_followed_only_where_they_may_be(tmp_path: Path) -> None:
    save_file({"x": np.zeros(1)}, tmp_path / "x")
    (tmp_path / "link").symlink_to(tmp_path / "x")
    assert list(read_header(tmp_path / "link").tensors) == ["x"]
    with pytest.raises(InputError, match="is a symbolic link"):
        read_header(tmp_path / "link", follow_symlinks=False)
    assert list(read_header(tmp_path / "x", follow_symlinks=False).tensors) == ["x"]


def test_what_is_no_regular_file_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(InputError, match="not a regular file"):
        read_header(tmp_path / "fifo")
    with pytest.raises(InputError):
        read_header(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        read_header(tmp_path / "nothing")


def test_a_file_cut_while_it_is_open_is_an_error_and_not_a_wrong_answer(tmp_path: Path) -> None:
    save_file({"x": np.ones(100_000)}, tmp_path / "x")
    with Reader(tmp_path / "x") as reader:
        os.truncate(tmp_path / "x", 1000)
        with pytest.raises(FormatError, match="was cut while"):
            reader.rows("x", 0, 100_000)


@given(st.binary(max_size=200))
def test_any_header_bytes_give_a_value_or_a_format_error(header: bytes) -> None:
    with pytest.raises(FormatError):
        parse_header(b"{" + header, 209 + len(header))


NUMBERS = st.one_of(st.integers(-2, 30), st.sampled_from([1 << 31, 1 << 62, 1 << 63, 1 << 64, 2.5, True, None]))
ENTRIES = st.one_of(
    st.builds(
        lambda dtype, shape, start, size: {"dtype": dtype, "shape": shape, "data_offsets": [start, size]},
        st.sampled_from(["F32", "U8", "BF16", "F4", "I64", "X", 3]),
        st.lists(NUMBERS, max_size=3),
        st.sampled_from([0, 4, 8, 24, -1, 1 << 64]),
        st.sampled_from([0, 4, 8, 24, 1 << 63]),
    ),
    NUMBERS,
    st.dictionaries(st.sampled_from(["dtype", "shape"]), NUMBERS),
)
TABLES = st.dictionaries(st.sampled_from(["a", "b", "é", ""]), ENTRIES, max_size=3)


@given(TABLES, st.sampled_from([0, 4, 8, 24]))
def test_what_we_accept_the_safetensors_library_accepts_and_reads_alike(table: Any, size: int) -> None:
    data = safetensors_bytes(table, bytes(size))
    try:
        ours = parse_header(json.dumps(table).encode(), len(data))
    except FormatError:
        return
    theirs = dict(safetensors.deserialize(data))
    assert {name: (entry.dtype, list(entry.shape), entry.size) for name, entry in ours.tensors.items()} == {
        name: (entry["dtype"], entry["shape"], len(entry["data"])) for name, entry in theirs.items()
    }


@given(st.dictionaries(st.text(max_size=8), st.lists(st.integers(0, 4), max_size=4), max_size=5), st.integers(0, 3))
def test_what_the_safetensors_library_writes_we_read_alike(shapes: dict[str, list[int]], metadata: int) -> None:
    shapes.pop("__metadata__", None)
    arrays = {name: np.zeros(shape, "f2") for name, shape in shapes.items()}
    data = save(arrays, {str(key): "x" for key in range(metadata)} or None)
    length = int.from_bytes(data[:8], "little")
    ours = parse_header(data[8 : 8 + length], len(data))
    assert {name: entry.shape for name, entry in ours.tensors.items()} == {n: a.shape for n, a in arrays.items()}
    assert len(ours.metadata) == metadata
