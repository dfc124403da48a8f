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
