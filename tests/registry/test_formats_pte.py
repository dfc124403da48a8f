"""The reader of `.pte` answers what ExecuTorch answers, or FormatError, on any bytes."""

from __future__ import annotations

import hashlib
import random
import re
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from registry.errors import FormatError
from registry.formats.layout import Layout
from registry.formats.pte import ExternalKey, Pte, read_pte
from tests.registry.files import Pair, PteFile, Value, xnnpack_payload


def test_a_real_program_is_read_as_executorch_reads_it(pair: Pair) -> None:
    from executorch.exir._serialize._program import deserialize_pte_binary

    data = pair.program.read_bytes()
    ours, theirs = read_pte(data), deserialize_pte_binary(data)
    plan = theirs.program.execution_plan[0]
    assert [(m.name, m.inputs, m.outputs) for m in ours.methods] == [(plan.name, len(plan.inputs), len(plan.outputs))]
    assert ours.operators == tuple(sorted({f"{o.name}.{o.overload}" if o.overload else o.name for o in plan.operators}))
    assert "aten::cumsum.out" in ours.operators
    assert ours.backends == tuple({delegate.id for delegate in plan.delegates}) == ("XnnpackBackend",)
    named = {key: theirs.named_data.buffers[e.buffer_index] for key, e in theirs.named_data.pte_data.items()}
    assert {part.key: data[part.offset : part.offset + part.size] for part in ours.inline} == named
    constants = [bytes(buffer.storage) for buffer in theirs.program.constant_buffer if buffer.storage]
    assert [data[c.offset : c.offset + c.size] for c in ours.constants] == constants
    assert ours.program_size == len(data)


def test_external_tensors_are_those_that_executorch_marks(pair: Pair) -> None:
    from executorch.exir._serialize._program import deserialize_pte_binary
    from executorch.exir.schema import Tensor, TensorDataLocation

    data = pair.program.read_bytes()
    values = [value.val for value in deserialize_pte_binary(data).program.execution_plan[0].values]
    marked = {
        (value.extra_tensor_info.fully_qualified_name, tuple(value.sizes))
        for value in values
        if isinstance(value, Tensor)
        and value.extra_tensor_info
        and value.extra_tensor_info.location == TensorDataLocation.EXTERNAL
    }
    found = {(key.key, key.layout.sizes) for key in read_pte(data).external if key.layout}
    assert found == marked == {("embed.weight", (16, 8))}


def test_a_delegates_keys_are_those_that_its_flatbuffer_names(pair: Pair) -> None:
    """Against flatc's own reading of XNNPACK's schema."""
    data = pair.program.read_bytes()
    theirs = [(c["named_key"], c["size"]) for graph in _graphs(data) for c in graph["constant_data"] if c["named_key"]]
    ours = [(key.key, key.size) for key in read_pte(data).asked if key.layout is None]
    assert sorted(ours) == sorted(set(theirs))
    assert len(ours) == 3


def _graphs(data: bytes) -> list[dict]:
    import json
    import tempfile
    from importlib import resources
    from pathlib import Path

    from executorch.backends.xnnpack import serialization
    from executorch.backends.xnnpack.serialization.xnnpack_graph_serialize import XNNHeader
    from executorch.exir._serialize._flatbuffer import _flatc_decompile
    from executorch.exir._serialize._program import deserialize_pte_binary

    graphs = []
    for part in deserialize_pte_binary(data).program.backend_delegate_data:
        header = XNNHeader.from_bytes(part.data[: XNNHeader.EXPECTED_LENGTH])
        flat = part.data[header.flatbuffer_offset :][: header.flatbuffer_size]
        with tempfile.TemporaryDirectory() as work:
            schema, binary = Path(work) / "schema.fbs", Path(work) / "graph.bin"
            schema.write_bytes((resources.files(serialization) / "schema.fbs").read_bytes())
            binary.write_bytes(flat)
            _flatc_decompile(work, str(schema), str(binary), ["--raw-binary"])
            graphs.append(json.loads((Path(work) / "graph.json").read_text()))
    return graphs


def test_the_tensors_of_a_pair_are_split_between_the_two_files(pair: Pair) -> None:
    read = read_pte(pair.program.read_bytes())
    assert {key.key for key in read.asked} == {key.key for key in read.external} | {part.key for part in read.inline}
    factor = read.inline[0]
    assert read.layouts[factor.key] == Layout("F32", (4, 8), (0, 1))
    assert (factor.size, len(read.inline), len(read.external)) == (128, 1, 3)
    assert read.constant_bytes == 128 + sum(constant.size for constant in read.constants)
    assert Layout("F32", (8,), (0,)) in [constant.layout for constant in read.constants]


def test_every_cut_of_a_program_is_refused_and_a_long_cut_names_both_lengths(pair: Pair) -> None:
    data = pair.program.read_bytes()
    for length in range(len(data)):
        with pytest.raises(FormatError) as caught:
            read_pte(data[:length])
        if length >= 40:
            assert caught.value.values == {"expected": len(data), "actual": length}


def _sound(read: Pte) -> None:
    spans = [(part.offset, part.size) for part in (*read.inline, *read.constants, *read.segments)]
    assert all(0 <= offset <= offset + size <= read.program_size for offset, size in spans)
    assert {key.key for key in read.external} == {key.key for key in read.asked} - {part.key for part in read.inline}


def test_flipped_bits_give_a_value_or_a_format_error(pair: Pair) -> None:
    data = bytearray(pair.program.read_bytes())
    chance, refused = random.Random(0), 0  # noqa: S311  chosen once, the same in every run
    for at in range(len(data)):
        bit = 1 << chance.randrange(8)
        data[at] ^= bit
        try:
            _sound(read_pte(data))
        except FormatError:
            refused += 1
        data[at] ^= bit
    assert refused > 500


@settings(max_examples=200)
@given(data=st.data())
def test_patched_programs_give_a_value_or_a_format_error(pair: Pair, data: st.DataObject) -> None:
    sound = bytearray(pair.program.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(sound) - 4))
        sound[at : at + 4] = data.draw(st.one_of(st.integers(0, 300), st.integers(0, 2**32 - 1))).to_bytes(4, "little")
    with suppress(FormatError):
        _sound(read_pte(sound))


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_give_a_value_or_a_format_error(data: bytes, named: bool) -> None:
    with pytest.raises(FormatError):
        read_pte(b"\x08\0\0\0ET12" + data if named else data)


KEY = "a" * 64
OTHER = "b" * 64


def test_a_delegate_that_stands_in_the_flatbuffer_is_read_too() -> None:
    read = read_pte(PteFile(payload=xnnpack_payload([(KEY, 24)]), inline_payload=True).bytes())
    assert read.asked == read.external == (ExternalKey(KEY, None, 24),)


def test_a_delegate_without_a_header_is_read_as_the_plain_flatbuffer() -> None:
    read = read_pte(PteFile(payload=xnnpack_payload([(KEY, 24)], header=False)).bytes())
    assert read.external == (ExternalKey(KEY, None, 24),)


def test_inline_data_is_not_external() -> None:
    read = read_pte(PteFile(payload=xnnpack_payload([(KEY, 8), (OTHER, 24)]), named=[(KEY, bytes(8))]).bytes())
    assert [part.key for part in read.inline] == [KEY]
    assert read.external == (ExternalKey(OTHER, None, 24),)


def test_constants_inside_of_a_delegates_payload_are_counted() -> None:
    read = read_pte(PteFile(payload=xnnpack_payload([(KEY, 24)], behind=bytes(96))).bytes())
    assert read.embedded == read.constant_bytes == 96


def test_other_backends_are_named_and_not_read() -> None:
    read = read_pte(PteFile(payload=b"anything", backend="CoreMLBackend").bytes())
    assert (read.backends, read.asked) == (("CoreMLBackend",), ())


def test_a_program_without_segments_has_no_header_and_is_read() -> None:
    read = read_pte(PteFile(values=[Value("w", external=True)]).bytes())
    assert read.external == (ExternalKey("w", Layout("F32", (2, 3), (0, 1)), 24),)
    assert (read.methods[0].name, read.operators) == ("forward", ("aten::add.out", "aten::relu"))


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (PteFile(values=[Value(None, external=True)]), "an external tensor has no name"),
        (PteFile(values=[Value("w", external=True, sizes=(2, -3))]), "negative size"),
        (PteFile(values=[Value("w", external=True), Value("w", external=True, sizes=(3, 2))]), r"as F32 \[2, 3\] and"),
        (PteFile(payload=xnnpack_payload([(KEY, 24), (KEY, 25)])), f"{KEY} is asked for as 24 and as 25"),
        (PteFile(payload=xnnpack_payload([(KEY, 24)]), named=[(KEY, bytes(8))]), "has 8 bytes, 24 are asked for"),
        (PteFile(payload=xnnpack_payload([]), named=[(KEY, b"1"), (KEY, b"2")]), "stands twice"),
        (PteFile(payload=xnnpack_payload([]), named=[("", b"1")]), "named data has no key"),
        (PteFile(payload=xnnpack_payload([(KEY, 24)], identifier=b"XN02")), "'XN00' or 'XN01', found 'XN02'"),
        (PteFile(payload=xnnpack_payload([(KEY, 24)])[:40]), "XNNPACK delegate"),
        (PteFile(payload=b"short"), "5 bytes are too short"),
        (PteFile(payload=b""), "0 bytes are too short"),
        (PteFile(payload=xnnpack_payload([]), payload_index=7), "payload points at segment 7 of 1"),
        (PteFile(payload=xnnpack_payload([]), backend=""), "no backend"),
        (PteFile(version=1), "schema version 1"),
        (PteFile(identifier=b"ET13"), "found 'ET13'"),
        (PteFile(method=""), "a method has no name"),
        (PteFile(constants=((0, 16, 8), 24)), "do not ascend"),
        (PteFile(constants=((0, 32), 24)), "do not ascend"),
    ],
)
def test_each_contradiction_is_refused_by_name(file: PteFile, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        read_pte(file.bytes())


def test_constants_run_from_offset_to_offset() -> None:
    file = PteFile(constants=((0, 0, 16), 24), values=[Value("c", sizes=(4,), dim_order=(0,), buffer=1)])
    read = read_pte(file.bytes())
    assert [(c.size, c.layout, c.name) for c in read.constants] == [
        (16, Layout("F32", (4,), (0,)), "c"),
        (8, None, None),
    ]


def test_a_small_file_that_describes_a_huge_value_is_stopped() -> None:
    """Every method points at the same list of values: 2000 times 2000 of them."""
    data = PteFile(values=[Value("w", external=True)] * 2000, shared_methods=2000).bytes()
    assert len(data) < 400_000
    with pytest.raises(FormatError, match="more values than its length allows"):
        read_pte(data)


def test_the_hash_that_xnnpack_uses_is_the_one_we_check(pair: Pair) -> None:
    data = pair.program.read_bytes()
    part = read_pte(data).inline[0]
    assert hashlib.sha256(data[part.offset : part.offset + part.size]).hexdigest() == part.key
    assert re.fullmatch("[0-9a-f]{64}", part.key)
