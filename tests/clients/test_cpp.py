"""The C++ client reads, plans and relinks as Python does, and runs the files in the wheel's own runtime."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.runtime import Runtime

from registry.digest import Digest
from registry.service import Registry
from registry.site import blob_path, manifest_path
from tests.clients import towers, vectors
from tests.clients.native import Unbuildable, build


@pytest.fixture(scope="session")
def programs(made_once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """The directory of the compiled programs."""

    def make(directory: Path) -> None:
        try:
            build(directory)
        except Unbuildable as missing:
            (directory / "missing").write_text(str(missing))

    made = made_once("device-cpp", make)
    if (made / "missing").exists():
        pytest.skip((made / "missing").read_text())
    return made


def device(programs: Path, offered: Path, site: Path, directory: Path, channel: str, *options: str) -> Any:
    """What `device` answers of a channel; a refusal's first line as a text."""
    command = [programs / "device", site, channel, offered / "key.pem", directory, "phone-1", *options]
    done = subprocess.run(command, input=(offered / f"{channel}.f32").read_bytes(), capture_output=True, check=False)
    if done.returncode:
        return next(line for line in done.stderr.decode().splitlines() if line.startswith("error"))
    return json.loads(done.stdout)


def answers(offered: Path, channel: str) -> dict[str, list[float]]:
    """What Python's runtime answers for each adapter of a tower; "" is the base program."""
    registry = Registry.open(offered / "home")
    foundation = registry.foundation(channel)
    base = next(each for each in registry.templates(foundation.file.digest) if not each.structure["modules"])
    builds = {name: registry.build(f"{name}@1.0.0").file.digest for name in (f"{channel}-1", f"{channel}-2")}
    found = {}
    for name, digest in {"": base.hollow.digest, **builds}.items():
        paths = str(registry.blobs.path(digest)), str(registry.blobs.path(foundation.file.digest))
        method = Runtime.get().load_program(paths[0], data_path=paths[1]).load_method("forward")
        inputs = torch.tensor([towers.inputs(towers.SMALL[0])])
        found[name] = method.execute((inputs,))[0].flatten().tolist()
    return found


def test_the_cpp_client_agrees_with_every_shared_vector(programs: Path) -> None:
    done = subprocess.run([programs / "vectors", vectors.FOLDER], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert vectors.passed(done.stdout) >= vectors.cases()


@pytest.mark.parametrize("options", [(), ("--weight-cache",)], ids=["without-cache", "with-cache"])
def test_a_cpp_device_relinks_and_answers_like_pythons_runtime(
    options: tuple[str, ...], programs: Path, offered: Path, tmp_path: Path
) -> None:
    report = device(programs, offered, offered / "home" / "site", tmp_path, "small", *options)
    expected = answers(offered, "small")
    assert report["relinked"].keys() == {"small-1", "small-2"}
    assert {each["adapter"]: each["output"] for each in report["programs"]} == expected
    assert len({tuple(output) for output in expected.values()}) == 3
    for path in (tmp_path / "blobs" / "sha256").iterdir():
        assert Digest.of(path.read_bytes()).hex == path.name


def test_a_cpp_device_fetches_nothing_twice(programs: Path, offered: Path, tmp_path: Path) -> None:
    first, second = (device(programs, offered, offered / "home" / "site", tmp_path, "small") for _ in range(2))
    assert first["fetched"] > 0
    assert (second["fetched"], second["relinked"]) == (0, {})


def test_a_cpp_device_believes_no_manifest_that_was_changed(
    programs: Path, offered: Path, site: Path, tmp_path: Path
) -> None:
    path = site / manifest_path("small")
    path.unlink()  # the tree's files are links, read-only
    path.write_bytes((offered / "home" / "site" / manifest_path("small")).read_bytes().replace(b"10000", b"10000 "))
    assert device(programs, offered, site, tmp_path / "device", "small").startswith("error integrity")


def test_a_cpp_device_keeps_no_foundation_of_other_bytes(
    programs: Path, offered: Path, site: Path, tmp_path: Path
) -> None:
    foundation = Registry.open(offered / "home").foundation("small").file
    path = site / blob_path(foundation.digest)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)
    assert device(programs, offered, site, tmp_path / "device", "small").startswith("error digest")
    assert not (tmp_path / "device" / "blobs" / "sha256" / foundation.digest.hex).exists()


SWITCHED = """
import ctypes, json, re, sys
from pathlib import Path
import torch
from executorch.runtime import Runtime
library, foundation, *programs = sys.argv[1:]
inputs = torch.linspace(-1, 1, 512).reshape(1, 512)
loaded = []
for on in (0, 1):
    assert ctypes.CDLL(library).ptdock_weight_cache(on) == 0
    for path in programs:
        loaded.append(Runtime.get().load_program(path, data_path=foundation).load_method("forward"))
        first = loaded[-1].execute((inputs,))[0].flatten()[:8].tolist()
        memory = re.search(r"RssAnon:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]
        print(json.dumps([int(memory) * 1024, first]))
"""


def test_a_switch_in_cpp_gives_pythons_runtime_the_weight_cache_and_the_same_answers(
    programs: Path, offered: Path
) -> None:
    registry = Registry.open(offered / "home")
    foundation = registry.foundation("middling").file
    builds = [registry.build(f"middling-{seed}@1.0.0").file for seed in (1, 2)]
    paths = [registry.blobs.path(file.digest) for file in (foundation, *builds)]
    command = [sys.executable, "-c", SWITCHED, programs / "libweight_cache_switch.so", *paths]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    lines = [json.loads(line) for line in done.splitlines() if line.startswith(b"[") and line.endswith(b"]")]
    (_, plain), (two, _), (three, cached), (four, _) = lines[-4:]
    assert plain == cached
    assert three - two > 0.9 * foundation.size  # the cache was empty: the foundation is packed once more
    assert four - three < 0.2 * foundation.size


def test_with_the_weight_cache_a_second_adapter_takes_no_second_foundation(programs: Path, offered: Path) -> None:
    registry = Registry.open(offered / "home")
    foundation = registry.foundation("middling").file
    builds = [registry.build(f"middling-{seed}@1.0.0").file for seed in (1, 2)]
    paths = [registry.blobs.path(file.digest) for file in (foundation, *builds)]
    grown = {}
    for mode in ("off", "on"):
        command = [programs / "weight_cache", mode, *paths]
        done = subprocess.run(
            command, input=(offered / "middling.f32").read_bytes(), capture_output=True, check=True
        ).stdout
        one, two = (json.loads(line)["anonymous"] for line in done.splitlines())
        grown[mode] = two - one
    assert grown["off"] > 0.9 * foundation.size
    assert grown["on"] < 0.2 * foundation.size
