"""A store of modules, exported once per test run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

HERE = "tests.exporter.factories"
FACTORIES = ("bert", "vit", "gpt2", "branches")


@pytest.fixture(scope="session")
def modules_home(made_once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """A store in which each of FACTORIES is a foundation; never written to by a test."""
    from exporter.foundation import ExportOptions
    from exporter.module_foundation import export_module
    from registry.service import Registry

    def make(directory: Path) -> None:
        registry = Registry.init(directory)
        for name in FACTORIES:
            export_module(registry, f"{HERE}:{name}", name, ExportOptions())

    return made_once("modules-home", make)
