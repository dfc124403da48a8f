"""A base is read whole or refused with the way to one, and is known by its tensors alone."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from exporter.base import BASE_FILES, fingerprint, open_base, read_base
from exporter.shards import open_weights
from registry.artifacts import Tensor
from registry.digest import Digest
from registry.errors import FormatError, InputError
from tests.registry.files import run_script, safetensors_bytes

RANDOM = np.random.default_rng(0)
TENSORS = {
    "model.embed.weight": RANDOM.random((6, 4)).astype("f4"),
    "model.layer.weight": RANDOM.random((4, 4)).astype("f2"),
    "norm": RANDOM.random(4).astype("f4"),
}
INDEX = "model.safetensors.index.json"


def config(directory: Path, **fields: object) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps({"model_type": "llama", **fields}))
    return directory


def single(directory: Path, tensors: Mapping[str, np.ndarray] = TENSORS) -> Path:
    save_file(dict(tensors), config(directory) / "model.safetensors")
    return directory


def sharded(directory: Path, **changes: str | None) -> Path:
    """Three shards of one tensor; `changes` to the weight map by tensor, None leaves one out."""
    config(directory)
    table: dict[str, str] = {}
    for number, (name, array) in enumerate(TENSORS.items(), 1):
        table[name] = f"model-{number:05}-of-00003.safetensors"
        save_file({name: array}, directory / table[name])
    table = {name: file for name, file in {**table, **changes}.items() if file is not None}
    (directory / INDEX).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": table}))
    return directory


def refusal(directory: Path | str) -> InputError:
    with pytest.raises(InputError) as caught:
        read_base(directory)
    return caught.value


def test_a_checkpoint_is_its_config_its_files_and_its_tensors(tmp_path: Path) -> None:
    (single(tmp_path) / "tokenizer.json").write_text("{}")
    (tmp_path / "README.md").write_text("not part of it")
    with read_base(tmp_path) as base:
        assert base.config == {"model_type": "llama"}
        assert base.files == {name: tmp_path / name for name in ("config.json", "tokenizer.json")}
        assert [(t.name, t.dtype, t.shape) for t in base.tensors] == [
            ("model.embed.weight", "F32", (6, 4)),
            ("model.layer.weight", "F16", (4, 4)),
            ("norm", "F32", (4,)),
        ]
        for tensor in base.tensors:
            assert tensor.digest == Digest.of(TENSORS[tensor.name].tobytes())


def test_a_fingerprint_is_the_hash_of_the_sorted_table() -> None:
    """The contract: spelled out once, without our own code."""
    tensors = [Tensor("b", "F32", (2, 3), Digest.of(b"x")), Tensor("a", "BF16", (), Digest.of(b"y"))]
    digest = {text: "sha256:" + hashlib.sha256(text).hexdigest() for text in (b"x", b"y")}
    text = f'[["a","BF16",[],"{digest[b"y"]}"],["b","F32",[2,3],"{digest[b"x"]}"]]'
    assert fingerprint(tensors) == fingerprint(reversed(tensors)) == Digest.of(text.encode())


def test_shards_names_and_places_do_not_change_the_fingerprint_and_one_bit_does(tmp_path: Path) -> None:
    changed = {**TENSORS, "norm": TENSORS["norm"] + np.float32(1e-7)}
    prints = []
    for directory in (single(tmp_path / "a"), sharded(tmp_path / "b"), single(tmp_path / "c", changed)):
        with read_base(directory) as base:
            prints.append(fingerprint(base.tensors))
    assert prints[0] == prints[1] != prints[2]


def test_progress_counts_every_byte_once(tmp_path: Path) -> None:
    seen: list[int] = []
    with read_base(sharded(tmp_path), progress=seen.append) as base:
        assert sum(seen) == base.weights.size == sum(array.nbytes for array in TENSORS.values())


def test_shards_are_read_as_one(tmp_path: Path) -> None:
    with read_base(sharded(tmp_path)) as base:
        assert base.weights.names == tuple(sorted(TENSORS))
        assert [path.name for path in base.weights.paths] == [f"model-{n:05}-of-00003.safetensors" for n in (1, 2, 3)]
        for name, array in TENSORS.items():
            np.testing.assert_array_equal(base.weights.array(name), array)
            np.testing.assert_array_equal(base.weights.rows(name, 1, 3), array[1:3])
        assert "norm" in base.weights
        assert "other" not in base.weights
        with pytest.raises(InputError, match="no tensor 'other'"):
            base.weights.rows("other", 0, 1)


def test_a_checkpoint_that_transformers_saved_is_read(tiny_base: Path) -> None:
    from safetensors.numpy import load_file

    expected = load_file(tiny_base / "model.safetensors")
    with read_base(tiny_base) as base:
        assert {t.name: t.digest for t in base.tensors} == {n: Digest.of(a.tobytes()) for n, a in expected.items()}
        assert set(base.files) >= {"config.json", "generation_config.json", "tokenizer.json"}
        assert set(base.files) <= set(BASE_FILES)


def test_links_into_a_hub_cache_are_followed(tmp_path: Path) -> None:
    single(tmp_path / "blobs")
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for name in ("config.json", "model.safetensors"):
        (snapshot / name).symlink_to(tmp_path / "blobs" / name)
    with read_base(snapshot) as base:
        assert len(base.tensors) == 3


@pytest.mark.parametrize(
    "path",
    [
        "HuggingFaceTB/SmolLM2-135M",
        "https://huggingface.co/HuggingFaceTB/SmolLM2-135M/tree/main",
        Path("HuggingFaceTB/SmolLM2-135M"),
    ],
)
def test_a_hub_id_is_answered_with_the_download_command(path: Path | str) -> None:
    error = refusal(path)
    assert "no such directory" in error.message
    assert "hf download HuggingFaceTB/SmolLM2-135M --local-dir SmolLM2-135M" in error.hint


@pytest.mark.parametrize("path", ["nowhere", "./models/nowhere", "../models/nowhere", "/models/nowhere", "a/b/c"])
def test_another_path_that_is_not_there_is_no_hub_id(path: str) -> None:
    assert "hf download" not in refusal(path).hint


def test_a_gguf_file_is_refused_and_so_is_a_directory_of_them(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    for path in (tmp_path / "model.gguf", tmp_path, config(tmp_path)):
        error = refusal(path)
        assert "GGUF" in error.message
        assert "save_pretrained" in error.hint


def test_a_file_is_answered_with_its_directory(tmp_path: Path) -> None:
    assert refusal(single(tmp_path) / "model.safetensors").hint == f"give its directory: {tmp_path}"


def test_a_path_that_the_system_refuses_is_an_error_in_words() -> None:
    assert refusal("a" * 5000).message.endswith("File name too long")


def test_a_directory_without_a_config_is_refused(tmp_path: Path) -> None:
    assert "has no config.json" in refusal(tmp_path).message


def test_a_directory_of_checkpoints_lists_them(tmp_path: Path) -> None:
    single(tmp_path / "checkpoint-100")
    assert str(tmp_path / "checkpoint-100") in refusal(tmp_path).hint
    single(tmp_path / "cache" / "snapshots" / "abc")
    assert str(tmp_path / "cache" / "snapshots" / "abc") in refusal(tmp_path / "cache").hint


def test_an_adapter_is_no_base(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    assert "is an adapter, not a base" in refusal(tmp_path).message


def test_pickles_are_refused_unread(tmp_path: Path) -> None:
    (config(tmp_path) / "pytorch_model.bin").write_bytes(b"not even a pickle")
    error = refusal(tmp_path)
    assert "only pickles (pytorch_model.bin)" in error.message
    assert "save_pretrained" in error.hint


@pytest.mark.parametrize("name", ["consolidated.00.pth", "consolidated.safetensors"])
def test_metas_layout_is_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    for path in (tmp_path, config(tmp_path)):
        error = refusal(path)
        assert f"Meta's layout ({name})" in error.message
        assert "rows of q and k" in error.hint


def test_a_hugging_face_checkpoint_with_metas_beside_it_is_read(tmp_path: Path) -> None:
    (single(tmp_path) / "consolidated.00.pth").write_bytes(b"")
    with read_base(tmp_path) as base:
        assert len(base.tensors) == 3


def test_weights_that_are_missing_or_misnamed_are_told(tmp_path: Path) -> None:
    assert refusal(config(tmp_path)).message.endswith("holds no model.safetensors")
    save_file({"x": np.zeros(1)}, tmp_path / "other.safetensors")
    assert "holds other.safetensors, expected model.safetensors" in refusal(tmp_path).message


def test_weights_without_their_config_are_told(tmp_path: Path) -> None:
    (single(tmp_path) / "config.json").unlink()
    assert refusal(tmp_path).message.endswith("has weights, but no config.json")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("dtype", "kind"), [("f4", "F32"), ("f2", "F16"), ("u2", "BF16")], ids=["float32", "float16", "bfloat16"]
)
def test_weights_that_hold_nan_or_infinity_are_refused_by_name(
    tmp_path: Path, dtype: str, kind: str, value: float
) -> None:
    whole = np.float32([1, value, np.finfo("f4").max if kind != "F16" else 65504, -1])
    stored = (whole.view("u4") >> 16).astype("u2") if kind == "BF16" else whole.astype(dtype)
    header = {"x": {"dtype": kind, "shape": [4], "data_offsets": [0, stored.nbytes]}}
    file = config(tmp_path) / "model.safetensors"
    file.write_bytes(safetensors_bytes(header, stored.tobytes()))
    assert refusal(tmp_path).message == "x: holds NaN or infinity"
    stored[1] = 0
    file.write_bytes(safetensors_bytes(header, stored.tobytes()))
    with read_base(tmp_path) as base:
        assert base.tensors[0].digest == Digest.of(stored.tobytes())


def test_shards_without_their_index_are_refused(tmp_path: Path) -> None:
    (sharded(tmp_path) / INDEX).unlink()
    assert f"without {INDEX}" in refusal(tmp_path).message


def test_a_missing_shard_is_refused_by_name(tmp_path: Path) -> None:
    (sharded(tmp_path) / "model-00002-of-00003.safetensors").unlink()
    error = refusal(tmp_path)
    assert "names files that are missing: model-00002-of-00003.safetensors" in error.message
    assert error.hint == "complete the download"


def test_a_tensor_that_only_the_index_knows_is_refused(tmp_path: Path) -> None:
    error = refusal(sharded(tmp_path, ghost="model-00001-of-00003.safetensors"))
    assert "names tensors that are not there: ghost in model-00001-of-00003.safetensors" in error.message


def test_a_tensor_that_the_index_puts_elsewhere_is_refused(tmp_path: Path) -> None:
    assert "norm in model-00001" in refusal(sharded(tmp_path, norm="model-00001-of-00003.safetensors")).message


def test_a_tensor_that_only_a_shard_knows_is_refused(tmp_path: Path) -> None:
    sharded(tmp_path)
    save_file({"norm": TENSORS["norm"], "extra": np.zeros(1)}, tmp_path / "model-00003-of-00003.safetensors")
    assert "does not name tensors that are there: extra in model-00003" in refusal(tmp_path).message


@pytest.mark.parametrize(
    "name", ["../model.safetensors", "/etc/x.safetensors", "a\\b.safetensors", "x.bin", "..", 5, None]
)
def test_an_index_may_name_only_files_beside_it(tmp_path: Path, name: object) -> None:
    (config(tmp_path) / INDEX).write_text(json.dumps({"weight_map": {"x": name}}))
    assert "is no file name in this directory" in refusal(tmp_path).message.replace("which ", "")


@pytest.mark.parametrize("document", ["[]", "{}", '{"weight_map": []}', '{"weight_map": {}}'])
def test_an_index_without_a_map_is_refused(tmp_path: Path, document: str) -> None:
    (config(tmp_path) / INDEX).write_text(document)
    assert "has no weight_map" in refusal(tmp_path).message


def test_one_file_and_an_index_together_are_ambiguous(tmp_path: Path) -> None:
    single(sharded(tmp_path))
    assert "has both" in refusal(tmp_path).message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "not JSON"),
        (b"[]", "is not a JSON object"),
        (b'{"a": 1, "a": 2}', "'a' stands twice"),
        (b'{"a": Infinity}', "Infinity is not JSON"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_a_config_is_strict_json(tmp_path: Path, text: bytes, message: str) -> None:
    (single(tmp_path) / "config.json").write_bytes(text)
    with pytest.raises(FormatError, match=message):
        read_base(tmp_path)


def test_a_damaged_shard_leaves_nothing_open(tmp_path: Path) -> None:
    damaged = sharded(tmp_path) / "model-00003-of-00003.safetensors"
    os.truncate(damaged, damaged.stat().st_size - 1)
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert "describes a file of" in refusal(tmp_path).message
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_checkpoint_opens_without_being_hashed(tmp_path: Path) -> None:
    settings, weights = open_base(single(tmp_path))
    with weights:
        assert settings["model_type"] == "llama"
        assert weights.entry("norm").shape == (4,)


HASH = """
import sys
from exporter.base import read_base
print(len(read_base(Path(sys.argv[1])).tensors), peak())
"""


def test_hashing_a_large_checkpoint_takes_little_memory(tmp_path: Path) -> None:
    size = 300 << 20
    header = safetensors_bytes({"x": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}})
    path = config(tmp_path) / "model.safetensors"
    path.write_bytes(header)
    os.truncate(path, len(header) + size)
    count, memory = map(int, run_script(HASH, tmp_path)[0].split())
    assert count == 1
    assert memory < 100_000, "kB"


def test_other_stems_are_read_the_same_way(tmp_path: Path) -> None:
    save_file({"x": np.zeros(1)}, tmp_path / "adapter_model.safetensors")
    weights = open_weights(tmp_path, "adapter_model", follow_symlinks=False)
    assert weights is not None
    with weights:
        assert weights.names == ("x",)
    assert open_weights(tmp_path) is None


def test_a_shard_that_is_a_link_is_refused_where_links_are(tmp_path: Path) -> None:
    save_file({"x": np.zeros(1)}, tmp_path / "real")
    (tmp_path / "model.safetensors").symlink_to(tmp_path / "real")
    with pytest.raises(InputError, match="is a symbolic link"):
        open_weights(tmp_path, follow_symlinks=False)
