"""A store with a tiny foundation, two published adapters of one structure, and a channel that offers them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from registry.service import Registry
from tests.care.adapters import write_adapter


@pytest.fixture(scope="session")
def offering_home(made_once: Callable[[str, Callable[[Path], None]], Path], exported_home: Path) -> Path:
    """`home` offers pirate@1.0.0 and json@1.0.0 on the foundation `plain`; `pirate` and `json` are beside it."""

    def make(directory: Path) -> None:
        from exporter.publish import PublishOptions, publish

        registry = Registry.open(Path(shutil.copytree(exported_home, directory / "home")), actor="tester")
        for seed, name in enumerate(("pirate", "json")):
            source = write_adapter(directory / name, seed)
            (source / "README.md").write_text(f"about {name}")
            publish(registry, source, PublishOptions(foundation="plain", name=name, lineage={"owner": "ann"}))
        registry.create_channel("stable")
        registry.create_release("stable", ["pirate@1.0.0", "json@1.0.0"])

    return made_once("care-home", make)


@pytest.fixture
def home(offering_home: Path, tmp_path: Path) -> Path:
    """A copy, to be changed and damaged. Hard links into the site become files of their own, as on another disk."""
    return Path(shutil.copytree(offering_home / "home", tmp_path / "home"))


@pytest.fixture
def registry(home: Path) -> Registry:
    return Registry.open(home, actor="tester")
