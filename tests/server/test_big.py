"""A foundation of more than 5 GiB: a real one, moved behind a hole that nothing asks for."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.publish import PublishOptions, publish
from registry.digest import Digest
from registry.formats import mapped
from registry.formats.ptd import Ptd, read_ptd
from registry.links import foundation_tensors
from registry.service import Registry
from tests.command_line import answer, refusal
from tests.exporter.test_families import TOKENS
from tests.registry.files import NamedData, PtdFile, TensorLayout, run_script
from tests.runtime import prefill_and_decode
from tests.server.conftest import serving

GIB = 1 << 30
F32 = 6  # ExecuTorch's number of the type
VERIFY = """
import sys
import cli
try:
    cli.cli.main(["--home", sys.argv[1], "--json", "foundation", "verify", "big"])
finally:
    print(peak())
"""


def move_behind(hole: int, foundation: Path, path: Path) -> Ptd:
    """Write the foundation with `hole` bytes in front of its tensors, under a key of their own."""
    data = foundation.read_bytes()
    known = read_ptd(data)
    named, spans, at = [NamedData("hole", 0)], [(0, hole)], hole
    for number, entry in enumerate(known.entries, 1):
        layout = entry.layout and TensorLayout(F32, entry.layout.sizes, entry.layout.dim_order)
        named.append(NamedData(entry.key, number, layout))
        spans.append((at, entry.size))
        at += -(-entry.size // 128) * 128
    base = PtdFile(sorted(named, key=lambda each: each.key), spans, at).write_sparse(path)
    with open(path, "r+b") as out:
        for entry, (offset, size) in zip(known.entries, spans[1:], strict=True):
            out.seek(base + offset)
            out.write(data[entry.offset : entry.offset + size])
    assert path.stat().st_blocks * 512 < 1 << 20
    return read_ptd(mapped(path))


def record_big(registry: Registry, hole: int, adapter: Path) -> None:
    """The foundation `big`: what `plain` is, behind a hole; the adapter published on it and offered by `wide`."""
    plain = registry.foundation("plain")
    path = registry.home / "big.ptd"
    entries = move_behind(hole, registry.blobs.path(plain.file.digest), path).entries
    assert min(entry.offset for entry in entries if entry.key != "hole") > hole
    file = registry.blobs.put_file(path, move=True)
    data = mapped(registry.blobs.path(file.digest))
    names = {tensor.key: tensor.names for tensor in plain.tensors}
    big = replace(plain, file=file, tensors=foundation_tensors(read_ptd(data), data, names))
    registry.add_foundation(big, "big")
    for each in registry.templates(plain.file.digest):
        registry.add_template(replace(each, foundation=file.digest))
    assert publish(registry, adapter, PublishOptions("big", "pirate")).relinked
    registry.create_channel("wide")
    registry.create_release("wide", ["pirate@1.0.0"], lines=["big"])


def answers_alike(registry: Registry) -> None:
    """ExecuTorch's own runtime gives the same logits on both foundations."""
    program = registry.build("pirate@1.0.0", "big").file
    assert program == registry.build("pirate@1.0.0", "plain").file
    plain, big = (registry.blobs.path(registry.foundation(name).file.digest) for name in ("plain", "big"))
    run = registry.blobs.path(program.digest)
    assert prefill_and_decode(run, big, TOKENS).equal(prefill_and_decode(run, plain, TOKENS))


def check_served(registry: Registry, phone: Path) -> None:
    """Each tensor by its Range, the ends of the file, and a device that fetches all of it."""
    found = registry.foundation("big")
    size, address = found.file.size, f"/blobs/sha256/{found.file.digest.hex}"
    with serving(registry.home) as server:
        for tensor in found.tensors:
            if tensor.key != "hole":
                last = tensor.offset + tensor.size - 1
                reply = server.get(address, Range=f"bytes={tensor.offset}-{last}")
                assert (reply.status, reply.headers["content-range"]) == (206, f"bytes {tensor.offset}-{last}/{size}")
                assert Digest.of(reply.body) == tensor.digest
        assert server.ask("HEAD", address).headers["content-length"] == str(size)
        assert len(server.get(address, Range="bytes=-32").body) == 32
        assert server.get(address, Range=f"bytes={size}-").status == 416
        synced = answer(None, "device", "sync", server.address, "wide", "--dir", phone)
    assert [each["outcome"] for each in synced["channels"]] == ["activated"]
    assert (phone / "blobs" / "sha256" / found.file.digest.hex).stat().st_size == size


def check_verified(registry: Registry) -> int:
    """Sound, and not when the last byte differs; answers the peak memory of a whole `foundation verify` in kB."""
    *document, memory = run_script(VERIFY, registry.home)
    assert json.loads("\n".join(document))["sound"] is True
    found = registry.foundation("big")
    last = max(found.tensors, key=lambda tensor: tensor.offset)
    path = registry.blobs.path(found.file.digest)
    path.chmod(0o644)
    flip(path, last.offset + last.size - 1)
    error = refusal(registry.home, "foundation", "verify", "big", code=7)
    assert [each["key"] for each in error["values"]["tensors"]] == [last.key]
    flip(path, last.offset + last.size - 1)
    return int(memory)


def flip(path: Path, at: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("hole", [1 << 20, pytest.param(5 * GIB, marks=pytest.mark.slow)])
def test_a_foundation_is_run_verified_in_little_memory_and_served_whatever_its_size(
    hole: int, made: Path, tmp_path: Path
) -> None:
    registry = Registry.open(Path(shutil.copytree(made / "home", tmp_path / "home")))
    record_big(registry, hole, made / "pirate")
    answers_alike(registry)
    assert check_verified(registry) < 200_000
    check_served(registry, tmp_path / "phone")
    shutil.rmtree(tmp_path / "phone")
