"""A store with two towers on a channel each, and what a device is given: the site, the light key, an input."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from exporter.foundation import ExportOptions
from exporter.module_foundation import export_module
from exporter.publish import PublishOptions, publish
from registry.service import Registry
from tests.clients import towers

MadeOnce = Callable[[str, Callable[[Path], None]], Path]
SIZES = {"small": towers.SMALL, "middling": towers.MIDDLING}


@pytest.fixture(scope="session")
def offered(made_once: MadeOnce) -> Path:
    """A directory with `home`, `key.pem` and, for each of SIZES, a channel of that name and its `<name>.f32`."""

    def make(directory: Path) -> None:
        registry = Registry.init(directory / "home")
        (directory / "key.pem").write_bytes(registry.signed_site().store.light_key)
        for name, size in SIZES.items():
            export_module(registry, f"tests.clients.towers:{name}", name, ExportOptions())
            for seed in (1, 2):
                where = towers.write_adapter(directory / f"{name}-{seed}", seed, size)
                publish(registry, where, PublishOptions(name, f"{name}-{seed}"))
            registry.create_channel(name)
            registry.create_release(name, [f"{name}-1@1.0.0", f"{name}-2@1.0.0"])
            (directory / f"{name}.f32").write_bytes(np.array(towers.inputs(size[0]), "<f4").tobytes())

    return made_once("towers", make)


@pytest.fixture
def site(offered: Path, tmp_path: Path) -> Path:
    """A copy of the static tree to write to."""
    return shutil.copytree(offered / "home" / "site", tmp_path / "site")
