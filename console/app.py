"""What every command gets: where the store is, how to answer, and how to say what goes on."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from console.progress import Progress, own_stderr

if TYPE_CHECKING:
    from registry.service import Registry


@dataclass(slots=True)
class App:
    """One run of the command line. Answers go to standard output, everything else to standard error."""

    home: Path = Path()
    json: bool = False
    quiet: bool = False
    stderr: TextIO = field(default_factory=own_stderr, repr=False)

    def registry(self) -> Registry:
        """The store at `home`. Raises NotFound when there is none."""
        from registry.service import Registry  # noqa: PLC0415 - sqlalchemy takes a quarter of a second

        return Registry.open(self.home)

    @contextmanager
    def throwaway(self, beside: Path | None) -> Iterator[Registry]:
        """A store of its own for one command, on the disk of what it writes if it can be; gone when the block ends."""
        from registry.service import Registry  # noqa: PLC0415 - as above

        parent = beside.absolute().parent if beside else None
        with tempfile.TemporaryDirectory(prefix=".ptdock-", dir=parent if parent and parent.is_dir() else None) as home:
            yield Registry.init(Path(home))

    def answer(self, document: Any, text: str) -> None:
        """The command's one answer: `document` with --json, else `text`; an empty list is remarked upon."""
        if self.json:
            click.echo(json_text(document))
        elif text:
            click.echo(text, color=colour())
        elif document == []:
            self.note("none yet")

    def note(self, text: str) -> None:
        """A remark beside the answer, silent with --quiet."""
        if not self.quiet:
            click.echo(text, file=self.stderr, color=colour())

    def close(self) -> None:
        """Give standard error's second descriptor back."""
        if self.stderr is not sys.stderr:
            self.stderr.close()

    def progress(self) -> Progress:
        """A context manager that tells the phases of long work."""
        return Progress(self.stderr, quiet=self.quiet)


def json_text(document: Any) -> bytes:
    """A document as UTF-8, laid out for people too; half surrogates, from file names that are no text, stay escaped."""
    return json.dumps(document, indent=2, ensure_ascii=False, default=str).encode(errors="backslashreplace")


def colour() -> bool | None:
    """False where NO_COLOR asks for none (https://no-color.org), else None: only on terminals."""
    return False if os.environ.get("NO_COLOR") else None


pass_app = click.make_pass_decorator(App)
