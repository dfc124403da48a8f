from __future__ import annotations

import json
import os
import pickle
import resource
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from exporter.card import Card
from exporter.fold import fold
from exporter.peft.gate import check
from registry.digest import Digest
from registry.errors import InputError
from tests.exporter.adapters import LAYERS, PREFIX, Q, card_of, llama, messages, q_tensors, write

WEIGHTS = "adapter_model.safetensors"
INDEX = "adapter_model.safetensors.index.json"
Q0 = f"{PREFIX}{LAYERS[0]}.q_proj"


@pytest.fixture(scope="module")
def card() -> Card:
    return card_of(llama())


def sharded(directory: Path, count: int = 2, **index: Any) -> Path:
    """Q in shards, tensors dealt out in turn."""
    write(directory, q_tensors())
    (directory / WEIGHTS).unlink()
    names = [f"adapter_model-{number + 1:05}-of-{count:05}.safetensors" for number in range(count)]
    weight_map = {name: names[place % count] for place, name in enumerate(q_tensors())}
    for file in names:
        save_file({n: t for n, t in q_tensors().items() if weight_map[n] == file}, directory / file)
    (directory / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map, **index}))
    return directory


def test_the_source_is_the_config_and_the_weights_by_digest(tmp_path: Path, card: Card) -> None:
    directory = write(tmp_path, q_tensors())
    adapter = check(directory, card).accept()
    assert list(adapter.source) == ["adapter_config.json", WEIGHTS]
    for name, descriptor in adapter.source.items():
        assert descriptor.digest == Digest.of((directory / name).read_bytes())
        assert descriptor.size == (directory / name).stat().st_size


def test_other_files_are_attached_and_optimizer_states_are_left_out(tmp_path: Path, card: Card) -> None:
    directory = write(tmp_path, q_tensors())
    for name in ("README.md", "trainer_state.json", "optimizer.pt", "rng_state_0.pth", "training_args.bin",
                 "model.safetensors", "scheduler.pt"):  # fmt: skip
        (directory / name).write_bytes(b"x")
    (directory / "runs").mkdir()
    (directory / "link.txt").symlink_to("README.md")
    checked = check(directory, card)
    adapter = checked.accept()
    assert messages(checked, "note") == [f"left out: {', '.join(adapter.left_out)}"]
    assert list(adapter.attachments) == ["README.md", "trainer_state.json"]
    assert adapter.left_out == (
        "link.txt", "model.safetensors", "optimizer.pt", "rng_state_0.pth", "runs/",
        "scheduler.pt", "training_args.bin",
    )  # fmt: skip


def test_shards_with_an_index_are_one_adapter(tmp_path: Path, card: Card) -> None:
    adapter = check(sharded(tmp_path / "shards"), card).accept()
    whole = check(write(tmp_path / "whole", q_tensors()), card).accept()
    assert list(adapter.source) == [
        "adapter_config.json",
        INDEX,
        "adapter_model-00001-of-00002.safetensors",
        "adapter_model-00002-of-00002.safetensors",
    ]
    digests = [{n: f.digest for n, f in fold(one, card).tensors.items()} for one in (adapter, whole)]
    assert digests[0] == digests[1]


def test_half_of_the_shards_is_no_adapter(tmp_path: Path, card: Card) -> None:
    directory = sharded(tmp_path / "a")
    (directory / "adapter_model-00002-of-00002.safetensors").unlink()
    assert messages(check(directory, card)) == ["adapter_model-00002-of-00002.safetensors is missing"]
    directory = sharded(tmp_path / "b")
    (directory / INDEX).unlink()
    assert messages(check(directory, card)) == [f"2 shards, but {INDEX} is missing"]
    directory = sharded(tmp_path / "c")
    missing, _, third, _ = q_tensors()
    file = directory / "adapter_model-00001-of-00002.safetensors"
    save_file({third: q_tensors()[third]}, file)
    assert f"{missing} is missing from {file.name}" in messages(check(directory, card))


def test_an_index_must_describe_its_shards(tmp_path: Path, card: Card) -> None:
    for name in ("../../etc/x.safetensors", "/etc/x.safetensors", "." * 300 + ".safetensors"):
        assert messages(check(sharded(tmp_path / "a", weight_map={"x": name}), card)) == [
            f"{name[:255]!r} is no name of a file in this directory"
        ]
    for value in (3, "adapter_model.bin", "optimizer.pt"):
        assert messages(check(sharded(tmp_path / "b", weight_map={"x": value}), card)) == [
            f"{INDEX}: 'weight_map' must name a safetensors file for each tensor"
        ]
    assert messages(check(sharded(tmp_path / "n", weight_map={"x": "\0.safetensors"}), card)) == [
        "\0.safetensors is missing"
    ]
    directory = sharded(tmp_path / "c")
    table = json.loads((directory / INDEX).read_text())["weight_map"]
    table.pop(next(iter(table)))
    (directory / INDEX).write_text(json.dumps({"weight_map": table}))
    (message,) = messages(check(directory, card))
    assert message.endswith(f"stands in a shard, but not in {INDEX}")
    (directory / INDEX).write_text("{")
    assert "not JSON" in messages(check(directory, card))[0]


def test_weights_in_two_forms_are_ambiguous(tmp_path: Path, card: Card) -> None:
    directory = sharded(tmp_path)
    save_file(q_tensors(), directory / WEIGHTS)
    assert messages(check(directory, card)) == [f"both {WEIGHTS} and {INDEX} are there: which are the weights?"]


def test_a_directory_of_checkpoints_names_them(tmp_path: Path, card: Card) -> None:
    for name in ("checkpoint-10", "checkpoint-20"):
        write(tmp_path / name, q_tensors())
    checked = check(tmp_path, card)
    assert messages(checked)[0] == (
        "adapter_config.json is missing; its sub-directories have one: checkpoint-10, checkpoint-20"
    )
    assert checked.findings[0].hint == f"check one of them, such as {tmp_path / 'checkpoint-10'}"


def test_an_empty_directory_lacks_both_files(tmp_path: Path, card: Card) -> None:
    assert messages(check(tmp_path, card)) == ["adapter_config.json is missing", f"{WEIGHTS} is missing"]


def test_weights_under_another_name_are_named(tmp_path: Path, card: Card) -> None:
    directory = write(tmp_path, q_tensors())
    (directory / WEIGHTS).rename(directory / "adapter_0.pt")
    assert messages(check(directory, card)) == [f"{WEIGHTS} is missing; adapter_0.pt is not what PEFT saves"]


def test_what_is_no_directory_is_the_callers_mistake(tmp_path: Path, card: Card) -> None:
    with pytest.raises(InputError, match="not a directory") as caught:
        check(tmp_path / "acme" / "pirate", card)
    assert "hf download" in caught.value.hint
    file = write(tmp_path, q_tensors()) / WEIGHTS
    with pytest.raises(InputError, match="not a directory") as caught:
        check(file, card)
    assert caught.value.hint == f"give its directory: {file.parent}"


@pytest.mark.parametrize("name", ["adapter_config.json", WEIGHTS])
def test_a_symbolic_link_is_refused(tmp_path: Path, card: Card, name: str) -> None:
    directory = write(tmp_path / "a", q_tensors())
    (directory / name).rename(tmp_path / "elsewhere")
    (directory / name).symlink_to(tmp_path / "elsewhere")
    assert messages(check(directory, card)) == [f"{name} is a symbolic link"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path, card: Card) -> None:
    directory = write(tmp_path, q_tensors())
    (directory / WEIGHTS).unlink()
    os.mkfifo(directory / WEIGHTS)
    assert messages(check(directory, card)) == [f"{WEIGHTS} is not a regular file"]


def test_a_config_of_megabytes_is_not_read(tmp_path: Path, card: Card) -> None:
    directory = write(tmp_path, q_tensors())
    (directory / "adapter_config.json").write_bytes(b" " * (5 << 20))
    assert messages(check(directory, card))[0].startswith("adapter_config.json: 5242880 bytes")


def test_an_index_of_megabytes_is_not_read(tmp_path: Path, card: Card) -> None:
    directory = sharded(tmp_path)
    (directory / INDEX).write_bytes(b" " * (17 << 20))
    assert messages(check(directory, card)) == [f"{INDEX}: 17825792 bytes, at most 16777216 are read"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "0 bytes are too short"),
        ((1 << 60).to_bytes(8, "little") + b"{}", "claims a header of 1152921504606846976 bytes"),
        ((17 << 20).to_bytes(8, "little") + bytes(18 << 20), "claims a header of 17825792 bytes, at most 16777216"),
        ((2).to_bytes(8, "little") + b"{}", "the weights file holds no tensors"),
        ((2).to_bytes(8, "little") + b"{}more", "describes a file of 10 bytes, it has 14"),
    ],
)
def test_a_damaged_weights_file_is_named(tmp_path: Path, card: Card, data: bytes, message: str) -> None:
    directory = write(tmp_path, q_tensors())
    (directory / WEIGHTS).write_bytes(data)
    (found,) = messages(check(directory, card))
    assert message in found
    assert str(directory) not in found


@pytest.mark.parametrize("name", ["x" * 600, "module." * 90 + "x", "layers.0.attn." * 50 + "lora_a.weight"])
def test_a_name_longer_than_any_modules_is_refused_before_it_is_matched(tmp_path: Path, card: Card, name: str) -> None:
    directory = write(tmp_path, {**q_tensors(), name: np.zeros(1, np.float32)})
    assert messages(check(directory, card)) == [
        f"5 tensors, the longest name has {len(name)} characters: at most 131072 and 512 are read"
    ]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_any_flipped_byte_gives_findings_or_an_adapter(tmp_path: Path, card: Card, data: st.DataObject) -> None:
    directory = write(tmp_path / "flipped", q_tensors())
    file = directory / data.draw(st.sampled_from(["adapter_config.json", WEIGHTS]))
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, min(len(content), 700) - 1))] = data.draw(st.integers(0, 255))
    file.write_bytes(content)
    checked = check(directory, card)
    assert (checked.adapter is None) == bool(messages(checked))


def test_a_pickle_is_read_only_when_it_is_allowed_and_weights_only(tmp_path: Path, card: Card) -> None:
    directory = write(tmp_path, q_tensors())
    (directory / WEIGHTS).unlink()
    torch.save(
        {name: torch.from_numpy(tensor) for name, tensor in q_tensors().items()}, directory / "adapter_model.bin"
    )
    checked = check(directory, card)
    assert messages(checked) == ["adapter_model.bin is a pickle, which can run code when it is read"]
    assert "--allow-pickle" in checked.findings[0].hint
    adapter = check(directory, card, allow_pickle=True).accept()
    assert list(adapter.source) == ["adapter_config.json", "adapter_model.bin"]
    values = next(iter(adapter.modules.values())).lora_a.load()
    assert np.array_equal(values, next(iter(q_tensors().values())))


class Shell:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (self.command,)


def test_a_pickle_that_runs_a_command_runs_nothing(tmp_path: Path, card: Card) -> None:
    directory = write(tmp_path / "a", q_tensors())
    (directory / WEIGHTS).unlink()
    for protocol in (0, 2, 4):
        (directory / "adapter_model.bin").write_bytes(pickle.dumps(Shell(f"touch {tmp_path}/ran"), protocol=protocol))
        (message,) = messages(check(directory, card, allow_pickle=True))
        assert message.startswith("adapter_model.bin: not a file of plain weights")
        assert "weights_only" not in message  # torch advises to read such a file without protection
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "content",
    [
        {"a": 3},
        {"a": torch.zeros(2).to_sparse()},
        [torch.zeros(2)],
        {"a": torch.zeros(2, dtype=torch.int8)},
        {"a": torch.zeros(4, 32, device="meta")},
        {"a": torch.zeros(1).expand(1 << 20, 1 << 20)},
        dict.fromkeys("abcdefgh", torch.zeros(64, 64).T),
        b"",
        b"PK",
    ],
)
def test_a_pickle_of_other_things_is_refused(tmp_path: Path, card: Card, content: Any) -> None:
    directory = write(tmp_path, q_tensors())
    (directory / WEIGHTS).unlink()
    if isinstance(content, bytes):
        (directory / "adapter_model.bin").write_bytes(content)
    else:
        torch.save(content, directory / "adapter_model.bin")
    (message,) = messages(check(directory, card, allow_pickle=True))
    assert message.startswith("adapter_model.bin: ")


def test_a_compressed_pickle_is_refused_before_it_is_unpacked(tmp_path: Path, card: Card) -> None:
    directory = write(tmp_path, q_tensors())
    (directory / WEIGHTS).unlink()
    torch.save({"a": torch.zeros(1 << 20)}, directory / "plain")
    with (
        zipfile.ZipFile(directory / "plain") as source,
        zipfile.ZipFile(directory / "adapter_model.bin", "w", zipfile.ZIP_DEFLATED) as bomb,
    ):
        for name in source.namelist():
            bomb.writestr(name, source.read(name))
    (message,) = messages(check(directory, card, allow_pickle=True))
    expected = "adapter_model.bin: not a file of plain weights: it is compressed, which torch.save never does"
    assert message == expected


def test_a_file_whose_name_cannot_be_written_down_is_left_out(tmp_path: Path, card: Card) -> None:
    directory = write(tmp_path, q_tensors())
    for name in (b"\xff.txt", b"a\x1b[31m.txt"):
        (directory / os.fsdecode(name)).write_bytes(b"x")
    adapter = check(directory, card).accept()
    assert adapter.attachments == {}
    assert adapter.left_out == (r"'a\x1b[31m.txt'", r"'\udcff.txt'")


def sparse(directory: Path, shapes: dict[str, list[int]], **changes: Any) -> Path:
    """Q with more tensors of zeros that take no room on the disk."""
    write(directory, {}, **changes)
    shapes = {name: list(tensor.shape) for name, tensor in q_tensors().items()} | shapes
    header, end = {}, 0
    for name, shape in shapes.items():
        start, end = end, end + 4 * int(np.prod(shape, dtype=np.int64))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with open(directory / WEIGHTS, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    return directory


HUGE = 1 << 31  # values: 8 GiB
LARGE: dict[str, tuple[dict[str, list[int]], dict[str, Any], str]] = {
    "no module": (
        {f"{PREFIX}foo.lora_A.weight": [4, HUGE // 4]},
        {},
        "foo.lora_A.weight matches no module",
    ),
    "inputs": ({f"{Q0}.lora_A.weight": [4, HUGE // 4]}, {}, "expects in_features 32, got 536870912"),
    "a rank": ({f"{Q0}.lora_A.weight": [HUGE // 32, 32]}, {}, "inner ranks differ: lora_A has 67108864, lora_B has 4"),
    "a saved head": (
        {f"{PREFIX}lm_head.weight": [HUGE // 32, 32]},
        {"modules_to_save": ["lm_head"]},
        "lm_head.weight: vocabulary 67108864 vs base 64",
    ),
    "a copy of the base": ({f"{PREFIX}lm_head.weight": [HUGE // 32, 32]}, {}, "vocabulary 67108864 vs base 64"),
    "a bias, twice": (
        {f"{Q0}.bias": [HUGE // 2], f"{Q0}.modules_to_save.bias": [HUGE // 2 - 1]},
        {"bias": "all"},
        "q_proj.modules_to_save.bias is not the same as model.layers.0.self_attn.q_proj.bias",
    ),
    "token rows": (
        {f"{PREFIX}lm_head.token_adapter.trainable_tokens_delta": [HUGE // 32, 32]},
        {"trainable_token_indices": {"lm_head": [1]}},
        "shape [67108864, 32], but the config lists 1 token indices",
    ),
}


@pytest.mark.parametrize("kind", LARGE)
def test_what_the_header_tells_is_refused_before_gigabytes_are_hashed(tmp_path: Path, card: Card, kind: str) -> None:
    shapes, changes, message = LARGE[kind]
    directory = sparse(tmp_path, shapes, **changes)
    assert (directory / WEIGHTS).stat().st_size > 4 * HUGE
    before, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = messages(check(directory, card))
    assert [text for text in found if message in text], found
    assert time.process_time() - before < 2  # to hash them takes longer on any processor
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 64 << 10  # in kB


def test_safetensors_beside_a_pickle_are_read_and_the_pickle_is_left_out(tmp_path: Path, card: Card) -> None:
    directory = write(tmp_path, q_tensors())
    (directory / "adapter_model.bin").write_bytes(b"x")
    assert check(directory, card, allow_pickle=True).accept().left_out == ("adapter_model.bin",)


def test_checking_and_folding_import_no_torch(tmp_path: Path, card: Card) -> None:
    directory = write(tmp_path / "adapter", q_tensors())
    (tmp_path / "card.json").write_text(json.dumps(card.to_json()))
    script = (
        "import json, sys; from pathlib import Path\n"
        "from exporter.card import Card; from exporter.fold import fold; from exporter.peft.gate import check\n"
        f"card = Card.from_json(json.loads(Path({str(tmp_path / 'card.json')!r}).read_text()))\n"
        f"fold(check(Path({str(directory)!r}), card).accept(), card)\n"
        "print([name for name in ('torch', 'peft', 'transformers', 'safetensors') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_q_is_written_as_it_is_meant(tmp_path: Path) -> None:
    assert json.loads((write(tmp_path, q_tensors()) / "adapter_config.json").read_text()) == Q
