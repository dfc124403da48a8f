"""A program loads only on the foundation that it means; every damage is found, named, and told from the others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.artifacts import ExternalTensor, Foundation
from registry.digest import Descriptor, Digest
from registry.errors import InputError, IntegrityError, NotFound, Unavailable
from registry.formats import mapped
from registry.formats.layout import Layout
from registry.formats.ptd import read_ptd
from registry.formats.pte import read_pte
from registry.links import (
    certify,
    certifying,
    check_inline,
    check_links,
    foundation_tensors,
    tensor_key,
    verify_file,
    verify_foundation,
)
from tests.registry.files import NamedData, Pair, PtdFile, PteFile, TensorLayout, run_script, xnnpack_payload

NAMES = {"embed.weight": ("model.embed.weight",)}


def table(path: Path, names: Any = NAMES) -> tuple[ExternalTensor, ...]:
    data = path.read_bytes()
    return foundation_tensors(read_ptd(data), data, names)


def record(path: Path) -> Foundation:
    file = Descriptor(Digest.of_file(path), path.stat().st_size)
    return Foundation(file, Digest.of(b""), {}, Descriptor.of(b""), table(path))


def test_a_tensor_key_is_the_hash_of_its_layout_and_bytes() -> None:
    """The contract with every device: spelled out once, without our own code."""
    text = b'{"dim_order":[0,1],"dtype":"F32","sizes":[2,1]}\n' + b"12345678"
    assert tensor_key("F32", [2, 1], [0, 1], b"12345678") == "tensor_" + hashlib.sha256(text).hexdigest()


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_a_key_certifies_its_own_bytes_and_no_others(data: bytes, other: bytes) -> None:
    layout = Layout("U8", (len(data),), (0,))
    digest = hashlib.sha256(data).hexdigest()
    for key in (digest, f"scale_{digest}", tensor_key("U8", (len(data),), (0,), data)):
        assert certifying(key)
        assert certify(key, data, layout)
        assert certify(key, other, layout) == (data == other)


def test_a_tensor_key_certifies_its_layout_too() -> None:
    key = tensor_key("F32", (2, 1), (0, 1), b"12345678")
    assert not certify(key, b"12345678", Layout("F32", (1, 2), (0, 1)))
    assert not certify(key, b"12345678", Layout("F32", (2, 1), (1, 0)))
    assert not certify(key, b"12345678", Layout("I32", (2, 1), (0, 1)))
    assert not certify(key, b"12345678", None)


@pytest.mark.parametrize(
    "key", ["embed.weight", "A" * 64, "a" * 63, "a" * 65, "scale_", "other_" + "a" * 64, "a" * 64 + "\n"]
)
def test_other_keys_certify_nothing(key: str) -> None:
    assert not certifying(key)
    assert not certify(key, b"", None)


def test_a_program_fits_its_own_foundation(pair: Pair) -> None:
    program = pair.program.read_bytes()
    check_links(read_pte(program), table(pair.foundation))
    check_inline(read_pte(program), program)


def test_the_table_holds_what_stands_in_the_file(pair: Pair) -> None:
    data = pair.foundation.read_bytes()
    tensors = foundation_tensors(read_ptd(data), data, NAMES, read_pte(pair.program.read_bytes()).layouts)
    assert [(t.names, t.dtype, t.shape) for t in tensors] == [
        (("model.embed.weight",), "F32", (16, 8)),
        ((), "F32", (8, 8)),
        ((), "F32", (8,)),
    ]
    for tensor in tensors:
        assert tensor.digest == Digest.of(data[tensor.offset : tensor.offset + tensor.size])


def test_a_tensor_of_unknown_layout_is_bytes(pair: Pair) -> None:
    assert [(t.dtype, t.shape) for t in table(pair.foundation)][1:] == [("U8", (256,)), ("U8", (32,))]


def test_a_layout_that_does_not_fit_the_bytes_is_refused(pair: Pair) -> None:
    data = pair.foundation.read_bytes()
    read = read_ptd(data)
    with pytest.raises(InputError, match="has 4 bytes, the foundation holds 256"):
        foundation_tensors(read, data, {}, {read.entries[1].key: Layout("F32", (1,), (0,))})


def test_every_missing_key_is_named(pair: Pair) -> None:
    pte, tensors = read_pte(pair.program.read_bytes()), table(pair.foundation)
    with pytest.raises(IntegrityError) as caught:
        check_links(pte, tensors[1:2])
    assert [fault.split()[0] for fault in caught.value.values["faults"]] == ["embed.weight", tensors[2].key]
    assert f"embed.weight (F32 [16, 8]) is missing; {tensors[2].key} (32 bytes) is missing" in caught.value.message


def test_another_size_or_layout_is_named_with_its_human_name(pair: Pair) -> None:
    pte, tensors = read_pte(pair.program.read_bytes()), table(pair.foundation)
    changed = (replace(tensors[0], shape=(8, 16)), replace(tensors[1], size=252, names=("q_proj.weight",)), tensors[2])
    with pytest.raises(IntegrityError) as caught:
        check_links(pte, changed)
    assert caught.value.values["faults"] == [
        "model.embed.weight (embed.weight) is F32 [8, 16], the program asks for F32 [16, 8]",
        f"q_proj.weight ({tensors[1].key}) has 252 bytes, the program asks for 256",
    ]


def test_a_message_shows_a_few_faults_and_the_values_all() -> None:
    pte = read_pte(PteFile(payload=xnnpack_payload([(f"{n:064}", 8) for n in range(9)])).bytes())
    with pytest.raises(IntegrityError, match="and 4 more") as caught:
        check_links(pte, ())
    assert len(caught.value.values["faults"]) == 9


def test_a_flipped_bit_in_inline_data_is_found(pair: Pair) -> None:
    program = bytearray(pair.program.read_bytes())
    part = read_pte(program).inline[0]
    for at in range(part.offset, part.offset + part.size):
        program[at] ^= 4
        with pytest.raises(IntegrityError, match=part.key):
            check_inline(read_pte(program), program)
        program[at] ^= 4


def test_an_inline_tensor_key_needs_its_layout_to_be_known() -> None:
    key = tensor_key("U8", (1,), (0,), b"x")
    program = PteFile(payload=xnnpack_payload([]), named=[(key, b"x"), ("free", b"y")]).bytes()
    with pytest.raises(IntegrityError, match="1 of the program's own tensors"):
        check_inline(read_pte(program), program)


def certified(tmp_path: Path, data: bytes = bytes(24)) -> Path:
    """A foundation of one undelegated tensor and one scale whose keys certify them."""
    key, scale = tensor_key("F32", (2, 3), (0, 1), data), "scale_" + hashlib.sha256(bytes(8)).hexdigest()
    path = tmp_path / "certified.ptd"
    path.write_bytes(PtdFile([NamedData(key, 0, TensorLayout()), NamedData(scale, 1)]).bytes())
    return path


def test_a_foundation_whose_keys_tell_the_truth_is_recorded(tmp_path: Path) -> None:
    tensors = table(certified(tmp_path))
    assert [(tensor.size, tensor.dtype) for tensor in tensors] == [(24, "F32"), (8, "U8")]


def test_a_foundation_whose_key_lies_is_refused(tmp_path: Path) -> None:
    for path, at in ((certified(tmp_path), -136), (certified(tmp_path), -1), (certified(tmp_path, b"1" * 24), -1)):
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        with pytest.raises(IntegrityError, match=r"are not what its key (tensor|scale)_"):
            foundation_tensors(read_ptd(data), data, {})


def test_a_sound_foundation_verifies_and_reports_its_bytes(pair: Pair) -> None:
    seen: list[int] = []
    verify_foundation(pair.foundation, record(pair.foundation), seen.append)
    assert sum(seen) == pair.foundation.stat().st_size


def damage(pair: Pair, path: Path, change: Callable[[bytearray], Any]) -> IntegrityError:
    data = bytearray(pair.foundation.read_bytes())
    change(data)
    path.write_bytes(data)
    with pytest.raises(IntegrityError) as caught:
        verify_foundation(path, record(pair.foundation))
    return caught.value


def flip(*places: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        for at in places:
            data[at] ^= 1

    return change


def test_a_cut_file_is_told_by_its_size(pair: Pair, tmp_path: Path) -> None:
    error = damage(pair, tmp_path / "x", lambda data: data.__delitem__(slice(-64, None)))
    size = pair.foundation.stat().st_size
    assert (error.values["kind"], error.values["expected"], error.values["actual"]) == ("size", size, size - 64)


def test_a_damaged_segment_is_told_by_the_tensors_names(pair: Pair, tmp_path: Path) -> None:
    tensors = table(pair.foundation)
    error = damage(pair, tmp_path / "x", flip(tensors[0].offset, tensors[2].offset + tensors[2].size - 1))
    assert error.values["kind"] == "segment"
    assert [(t["key"], t["names"]) for t in error.values["tensors"]] == [
        ("embed.weight", ["model.embed.weight"]),
        (tensors[2].key, []),
    ]
    assert f"damaged tensors: model.embed.weight (embed.weight); {tensors[2].key}" in error.message
    assert "header" not in error.message


@pytest.mark.parametrize("at", [0, 4, 8, 9, 12, 24, 47])
def test_a_damaged_header_is_told_as_such(pair: Pair, tmp_path: Path, at: int) -> None:
    error = damage(pair, tmp_path / "x", flip(at))
    assert (error.values["kind"], error.values["tensors"]) == ("header", [])
    assert "its header is damaged" in error.message


def test_a_key_that_was_renamed_is_a_damaged_header(pair: Pair, tmp_path: Path) -> None:
    error = damage(pair, tmp_path / "x", lambda data: flip(data.index(b"embed.weight"))(data))
    assert error.values["kind"] == "header"
    assert "dmbed.weight; embed.weight" in error.message


def test_damage_in_both_is_told_of_both(pair: Pair, tmp_path: Path) -> None:
    error = damage(pair, tmp_path / "x", flip(9, 512))
    assert error.values["kind"] == "segment"
    assert "its header is damaged" in error.message
    assert "damaged tensors: model.embed.weight" in error.message


def test_every_flipped_byte_of_a_foundation_is_found(pair: Pair, tmp_path: Path) -> None:
    data, path, known = bytearray(pair.foundation.read_bytes()), tmp_path / "x", record(pair.foundation)
    inside = {at for tensor in known.tensors for at in range(tensor.offset, tensor.offset + tensor.size)}
    for at in range(len(data)):
        data[at] ^= 1
        path.write_bytes(data)
        with pytest.raises(IntegrityError) as caught:
            verify_foundation(path, known)
        assert caught.value.values["kind"] == ("segment" if at in inside else "header")
        data[at] ^= 1


def test_a_foundation_that_is_not_there_is_not_found(tmp_path: Path, pair: Pair) -> None:
    with pytest.raises(NotFound, match="no such file"):
        verify_foundation(tmp_path / "x", record(pair.foundation))


def test_a_foundation_that_cannot_be_read_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be read: Is a directory"):
        verify_file(tmp_path, Descriptor(Digest.of(b""), tmp_path.stat().st_size), ())


def test_tensors_that_share_their_bytes_or_have_none_verify(tmp_path: Path) -> None:
    named = [NamedData("a", 0), NamedData("b", 0), NamedData("none", 1), NamedData("c", 2)]
    path = tmp_path / "x"
    path.write_bytes(PtdFile(named, ((0, 24), (128, 0), (128, 8))).bytes())
    known = record(path)
    verify_foundation(path, known)
    data = bytearray(path.read_bytes())
    flip(-1)(data)
    path.write_bytes(data)
    with pytest.raises(IntegrityError) as caught:
        verify_file(path, known.file, known.tensors)
    assert [tensor["key"] for tensor in caught.value.values["tensors"]] == ["c"]


BIG = """
import json, sys
from registry.artifacts import Foundation
from registry.digest import Descriptor, Digest
from registry.errors import IntegrityError
from registry.formats import mapped
from registry.formats.ptd import read_ptd
from registry.links import foundation_tensors, verify_file
path = Path(sys.argv[1])
data = mapped(path)
tensors = foundation_tensors(read_ptd(data), data, {"b": ("last",)})
with open(path, "r+b") as file:
    file.seek(-1, 2)
    file.write(b"x")
try:
    verify_file(path, Descriptor(Digest.of(b""), path.stat().st_size), tensors)
except IntegrityError as error:
    print(json.dumps([error.values["tensors"][0]["names"], peak()]))
"""


def _verify_big(path: Path, size: int) -> None:
    PtdFile(segments=((0, size - 4096), (size - 4096, 4096)), data_size=size).write_sparse(path)
    names, memory = json.loads(run_script(BIG, path)[0])
    assert names == ["last"]
    assert memory < 100_000, "kB"


def test_recording_and_verifying_take_little_memory(tmp_path: Path) -> None:
    _verify_big(tmp_path / "big.ptd", 300 << 20)


@pytest.mark.slow
def test_a_five_gib_foundation_is_recorded_and_verified_in_little_memory(tmp_path: Path) -> None:
    _verify_big(tmp_path / "big.ptd", 5 << 30)


def test_a_table_is_in_the_order_of_places_and_keys_however_the_file_lists_tied_weights(tmp_path: Path) -> None:
    file = PtdFile([NamedData("z", 0), NamedData("b", 1), NamedData("a", 0)])
    (tmp_path / "tied.ptd").write_bytes(file.bytes())
    assert [(tensor.key, tensor.size) for tensor in table(tmp_path / "tied.ptd")] == [("a", 24), ("z", 24), ("b", 8)]


def test_a_mapped_foundation_gives_the_same_table(pair: Pair) -> None:
    view = mapped(pair.foundation)
    assert foundation_tensors(read_ptd(view), view, NAMES) == table(pair.foundation)
