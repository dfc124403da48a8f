"""One real pair of `.pte` and `.ptd`, exported once per test run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.registry.files import Pair


@pytest.fixture(scope="session")
def pair(made_once: Callable[[str, Callable[[Path], None]], Path]) -> Pair:
    """A module with a delegated base layer and an embedding in the `.ptd`, a delegated factor and constants inside."""

    def make(directory: Path) -> None:
        from tests.registry.exporting import export_pair

        export_pair(directory)

    directory = made_once("pair", make)
    return Pair(directory / "program.pte", directory / "foundation.ptd")


@pytest.fixture(scope="session")
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of an empty registry, to be copied: making one takes half a second."""
    from registry.service import Registry

    return Registry.init(tmp_path_factory.mktemp("empty") / "home").home


@pytest.fixture(scope="session")
def stocked_home(tmp_path_factory: pytest.TempPathFactory, pair: Pair) -> Path:
    """The home of a registry with something in it (`tests.registry.stock.stocked`), to be copied."""
    from tests.registry.stock import stocked

    return stocked(tmp_path_factory.mktemp("stocked") / "home", pair).registry.home
