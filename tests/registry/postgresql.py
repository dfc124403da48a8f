"""A PostgreSQL of the test run's own: Debian's package, a temporary directory, a Unix socket and no port."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from sqlalchemy import URL

_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
_TEXTS = "ENCODING 'UTF8' LOCALE 'C'"


class Server:
    """A running server, and the databases in it."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def url(self, database: str) -> URL:
        """The URL of one of its databases."""
        query = {"host": str(self._socket)}
        return URL.create("postgresql+psycopg", username="postgres", database=database, query=query)

    def execute(self, statement: str) -> None:
        """Run a statement that concerns the server as a whole."""
        with psycopg.connect(host=str(self._socket), user="postgres", dbname="postgres", autocommit=True) as connection:
            connection.execute(statement)

    def create(self, template: str = "template0", texts: str = _TEXTS) -> str:
        """A new database, a copy of another one that nobody is connected to; answers its name."""
        name = f"test_{secrets.token_hex(6)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template} {texts if template == 'template0' else ''}")
        return name

    def dump(self, name: str) -> str:
        """A database as SQL statements that make it again, whoever owns it and whichever version of PostgreSQL runs."""
        options = ["--inserts", "--no-owner", "--no-privileges", "--username=postgres", f"--host={self._socket}"]
        done = subprocess.run([program("pg_dump"), *options, name], check=True, capture_output=True, text=True)
        session = ("--", "SET ", "SELECT pg_catalog.set_config", "\\")
        return "".join(
            line for line in done.stdout.splitlines(keepends=True) if line.strip() and not line.startswith(session)
        )

    def drop(self, name: str) -> None:
        """Remove a database, whoever is connected."""
        self.execute(f"DROP DATABASE {name} WITH (FORCE)")


# Reads until whoever started it ends, however it ends, and then clears up: a killed test run leaves no server behind.
_WATCH = 'read -r _; "$0" --pgdata "$1/data" --mode immediate --wait stop; rm -rf "$1"'


@contextmanager
def running(settings: dict[str, str] | None = None) -> Iterator[Server]:
    """Start a server and stop it; `settings` beside those that make it fast and not durable."""
    owner = "postgres" if os.geteuid() == 0 else None  # it refuses to run as root
    directory = Path(tempfile.mkdtemp(prefix="ptdock-pg-"))  # short: a socket's path has at most 107 bytes
    if owner:
        shutil.chown(directory, owner)
    data = directory / "data"
    watch = ["sh", "-c", _WATCH, program("pg_ctl"), directory]
    with subprocess.Popen(watch, user=owner, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd="/"):
        _run(owner, "initdb", "--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", data)
        options = {**_FAST, "listen_addresses": "", "unix_socket_directories": directory, **(settings or {})}
        arguments = " ".join(f"-c {name}='{value}'" for name, value in options.items())
        _run(owner, "pg_ctl", "--wait", "--pgdata", data, "--log", directory / "log", "--options", arguments, "start")
        yield Server(directory)


def program(name: str) -> str:
    """Where one of PostgreSQL's programs is; Debian keeps them out of the path."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    path = str(found[-1]) if found else shutil.which(name)
    if path is None:
        raise FileNotFoundError(
            f"PostgreSQL's {name} is not here: apt-get install postgresql, or `make test`, which does"
        )
    return path


def _run(owner: str | None, name: str, *arguments: object) -> None:
    # The server inherits the output, and would keep a pipe open for as long as it runs.
    command = [program(name), *map(str, arguments)]
    subprocess.run(command, user=owner, check=True, stdout=subprocess.DEVNULL, cwd="/")
