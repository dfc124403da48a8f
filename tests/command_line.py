"""Runs one command line in this process, on a store or on none, and reads what it answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from cli import cli


def ptdock(home: Path | None, *words: object, **options: Any) -> Result:
    """Run `ptdock --home HOME WORDS…`; `options` are CliRunner.invoke's (`input`, `env`)."""
    before = [] if home is None else ["--home", str(home)]
    return CliRunner().invoke(cli, [*before, *map(str, words)], **options)


def answer(home: Path | None, *words: object) -> Any:
    """What a command answers with --json: exactly one document."""
    done = ptdock(home, *words, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def refusal(home: Path | None, *words: object, code: int) -> dict[str, Any]:
    """The error document of a command that must fail with this exit code; standard error has the same message."""
    done = ptdock(home, *words, "--json")
    assert done.exit_code == code, (done.exit_code, done.stderr, done.exception)
    error: dict[str, Any] = json.loads(done.stdout)["error"]
    if "findings" not in error["values"]:
        assert f"error: {error['message']}\n" in done.stderr
        assert f" hint: {error['hint']}\n" in done.stderr or not error["hint"]
    assert "Traceback" not in done.stderr
    return error
