"""What a device makes of the wire is what folding made, bit for bit."""

import base64
import json
import zlib
from pathlib import Path

import numpy as np
import pytest

from exporter.fold import _factor
from exporter.peft.adapter import Values
from registry.digest import Digest
from registry.errors import FormatError
from registry.relink import relink, unpack
from registry.relocation import RelocationTable, Slot
from registry.wire import MAX_TABLE, Trained, encode, expand

RANDOM = np.random.default_rng(5)


def rounded(values, dtype):
    """fp32 values that `dtype` can hold."""
    if dtype == "BF16":
        return (np.ascontiguousarray(values, np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    return values.astype(np.float16 if dtype == "F16" else np.float32).astype(np.float32)


def table_of(*slots):
    start, made = 64, []
    for name, dtype, shape in slots:
        size = int(np.prod(shape)) * (2 if dtype == "F16" else 4)
        made.append(Slot((name,), dtype, shape, size, (start,), (start + size,)))
        start += size + 64
    return RelocationTable(start, tuple(made), ())


@pytest.mark.parametrize("stored", ["F32", "F16"])
@pytest.mark.parametrize("source", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("scale", [1.0, 2.0, 16 / 3, 0.1])
def test_the_wire_folds_as_folding_does(source, stored, scale):
    values = rounded(RANDOM.normal(0, 0.3, (8, 32)), source)
    values.reshape(-1)[:3] = 0.0, -0.0, 2.0**-24
    expected = _factor(Values("b", values.shape, source, lambda: values), np.float32(scale), stored).data.tobytes()
    table = table_of(("b", stored, (8, 32)))
    wire_table, wire = encode(table, {"b": Trained(source, values, np.float32(scale))})
    assert len(wire) == values.size * (4 if source == "F32" else 2)
    assert expand(wire_table, wire) == (table, expected)


def test_a_plain_relocation_table_is_a_wire_table_of_folded_factors():
    table = table_of(("a", "F32", (4,)), ("b", "F16", (2, 2)))
    data = RANDOM.bytes(16 + 8)
    assert expand(zlib.compress(table.to_bytes()), data) == (table, data)


def test_adapters_of_one_kind_share_their_table():
    table = table_of(("a", "F32", (4,)))
    one, two = (encode(table, {"a": Trained("BF16", rounded(RANDOM.normal(0, 1, 4), "BF16"))})[0] for _ in range(2))
    assert one == two


def test_a_factor_that_is_missing_or_of_another_size_is_refused():
    table = table_of(("a", "F32", (4,)))
    with pytest.raises(FormatError, match="a: expected 4 trained values"):
        encode(table, {})
    with pytest.raises(FormatError, match="a: expected 4 trained values"):
        encode(table, {"a": Trained("F32", np.zeros(5, np.float32))})


@pytest.mark.parametrize("length", [0, 7, 9])
def test_a_wire_of_another_length_is_refused(length):
    wire_table, _ = encode(table_of(("a", "F32", (4,))), {"a": Trained("BF16", np.zeros(4, np.float32))})
    with pytest.raises(FormatError):
        expand(wire_table, bytes(length))


@pytest.mark.parametrize(
    "change", [{"source": "I8"}, {"source": None}, {"scale": "2"}, {"scale": True}, {"dtype": "I64"}, {"size": 12}]
)
def test_a_table_that_makes_no_sense_is_refused(change):
    wire_table, wire = encode(table_of(("a", "F32", (4,))), {"a": Trained("BF16", np.zeros(4, np.float32))})
    document = json.loads(zlib.decompress(wire_table))
    document["tensors"][0] |= change
    with pytest.raises(FormatError):
        expand(zlib.compress(json.dumps(document).encode()), wire)


@pytest.mark.parametrize("damage", [lambda z: z[:-1], lambda z: z + b"x", lambda z: b"{" + z])
def test_a_table_that_is_no_whole_zlib_stream_is_refused(damage):
    wire_table, wire = encode(table_of(("a", "F32", (4,))), {"a": Trained("F32", np.zeros(4, np.float32))})
    with pytest.raises(FormatError):
        expand(damage(wire_table), wire)


@pytest.mark.parametrize("names", [[], "", None, 0])
def test_a_tensor_without_a_name_is_refused(names):
    wire_table, wire = encode(table_of(("a", "F32", (4,))), {"a": Trained("F32", np.zeros(4, np.float32))})
    document = json.loads(zlib.decompress(wire_table))
    document["tensors"][0]["names"] = names
    with pytest.raises(FormatError, match="without a name"):
        expand(zlib.compress(json.dumps(document).encode()), wire)


def test_a_table_that_inflates_without_end_is_refused():
    with pytest.raises(FormatError, match="larger than"):
        expand(zlib.compress(b"[" + b" " * MAX_TABLE + b"]"), b"")


VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "relink.json").read_text(encoding="utf-8"))


def written(template, table, factors):
    relocations, folded = expand(table, factors)
    return relink(unpack(template, relocations.program_size), relocations, folded)


@pytest.mark.parametrize("vector", VECTORS["vectors"], ids=lambda vector: vector["note"])
def test_a_program_is_written_as_the_shared_vectors_say(vector):
    template, factors = base64.b64decode(vector["template"]), base64.b64decode(vector["factors"])
    program = written(template, zlib.compress(vector["table"].encode()), factors)
    assert program == base64.b64decode(vector["program"])
    assert (len(program), str(Digest.of(program))) == (vector["program_size"], vector["program_digest"])


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=lambda vector: vector["note"])
def test_a_table_that_the_shared_vectors_refuse_is_refused(vector):
    good = VECTORS["vectors"][0]
    assert vector["table"] != good["table"]
    with pytest.raises(FormatError):
        written(
            base64.b64decode(good["template"]),
            zlib.compress(vector["table"].encode()),
            base64.b64decode(good["factors"]),
        )
