"""One real pair of `.pte` and `.ptd`, exported once per test run."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from registry.buckets import Bucket, open_bucket
from tests.registry import s3
from tests.registry.files import Pair
from tests.registry.places import Kind, Place, Postgresql, Sqlite
from tests.registry.postgresql import Server, running
from tests.registry.s3 import S3


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


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A running PostgreSQL."""
    with running() as server:
        yield server


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def kind(request: pytest.FixtureRequest) -> Kind:
    """Either database: what uses this runs on both."""
    return Sqlite() if request.param == "sqlite" else Postgresql(request.getfixturevalue("server"))


@pytest.fixture(scope="session")
def empty_place(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """An empty registry, to be copied."""
    place = kind.at(tmp_path_factory.mktemp("empty") / "home")
    place.init().database.close()
    return place


@pytest.fixture(scope="session")
def stocked_place(kind: Kind, tmp_path_factory: pytest.TempPathFactory, pair: Pair) -> Place:
    """A registry with something in it (`tests.registry.stock.fill`), to be copied."""
    from tests.registry.stock import fill

    place = kind.at(tmp_path_factory.mktemp("stocked") / "home")
    fill(place.init(), pair).registry.database.close()
    return place


@pytest.fixture
def bare_place(kind: Kind, tmp_path: Path) -> Iterator[Place]:
    """A place of a test's own, without a schema."""
    yield kind.at(tmp_path / "bare")
    kind.drop(tmp_path)


@pytest.fixture
def place(kind: Kind, empty_place: Place, tmp_path: Path) -> Iterator[Place]:
    """A test's own empty registry."""
    yield kind.copy(empty_place, tmp_path / "home")
    kind.drop(tmp_path)


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """A running SeaweedFS."""
    with s3.seaweed(tmp_path_factory.mktemp("seaweed")) as server:
        yield server


@pytest.fixture(scope="session")
def moto() -> Iterator[S3]:
    """A running moto."""
    with s3.moto() as server:
        yield server


@pytest.fixture(scope="session", params=["moto", "seaweed"])
def s3_server(request: pytest.FixtureRequest) -> S3:
    """Either server with an S3 interface."""
    server: S3 = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def bucket(s3_server: S3) -> Bucket:
    """A prefix of a test's own."""
    return open_bucket(f"s3://blobs/{secrets.token_hex(8)}", s3_server.environment)
