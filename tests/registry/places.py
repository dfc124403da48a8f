"""Registries on either database: `Place` says where one is, a `Kind` makes and copies them.

A test that takes one of the fixtures `bare_place`, `place` and `stocked_place` runs twice, on SQLite and PostgreSQL.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from registry.database import Database
from registry.engines import ENVIRONMENT, database_url
from registry.service import Registry
from tests.registry.files import Pair
from tests.registry.postgresql import Server
from tests.registry.stock import NOW, Stock


@dataclass(frozen=True)
class Place:
    """Where a registry is: its home, and what the environment says about the rest."""

    home: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def database(self) -> Database:
        """Its database, whether there is a schema in it or not."""
        return Database(database_url(self.home, self.environment))

    def open(self) -> Registry:
        """The registry, at the tests' time."""
        return Registry.open(self.home, environment=self.environment, actor="tester", clock=lambda: NOW)

    def init(self) -> Registry:
        """Make the registry, or bring it to the newest schema."""
        return Registry.init(self.home, environment=self.environment, actor="tester", clock=lambda: NOW)

    def stock(self, pair: Pair) -> Stock:
        """The registry, to put things into."""
        return Stock(self.open(), pair)


class Kind(Protocol):
    """One kind of database."""

    name: str

    def at(self, home: Path) -> Place:
        """A place whose database is empty and has no schema; nothing is in its home."""
        ...

    def copy(self, place: Place, home: Path) -> Place:
        """A copy of a place that nobody uses at the moment."""
        ...

    def drop(self, home: Path) -> None:
        """Remove what places at or below `home` have elsewhere."""
        ...


class Sqlite:
    """A file in the home."""

    name = "sqlite"

    def at(self, home: Path) -> Place:
        """Nothing but a directory."""
        home.mkdir(parents=True, exist_ok=True)
        return Place(home)

    def copy(self, place: Place, home: Path) -> Place:
        """The directory again."""
        return Place(Path(shutil.copytree(place.home, home)))

    def drop(self, home: Path) -> None:
        """There is nothing elsewhere."""


@dataclass
class Postgresql:
    """A database of a running server for each place; `made` are those that are there."""

    server: Server
    made: dict[Path, str] = field(default_factory=dict)
    name = "postgresql"

    def at(self, home: Path) -> Place:
        """A directory and a new database."""
        home.mkdir(parents=True, exist_ok=True)
        return self._place(home, self.server.create())

    def copy(self, place: Place, home: Path) -> Place:
        """The directory again, and a copy of the database."""
        shutil.copytree(place.home, home)
        return self._place(home, self.server.create(template=self.made[place.home]))

    def _place(self, home: Path, name: str) -> Place:
        self.made[home] = name
        return Place(home, {ENVIRONMENT: self.server.url(name).render_as_string()})

    def drop(self, home: Path) -> None:
        """Remove the databases of the places at or below `home`."""
        for path in [path for path in self.made if path.is_relative_to(home)]:
            self.server.drop(self.made.pop(path))
