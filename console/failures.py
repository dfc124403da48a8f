"""Errors become messages, documents and exit codes here, and nowhere else.

| code | what |
|---|---|
| 0 | done |
| 1 | ptdock's own fault |
| 2 | the command line or its input can never work |
| 3 | not an error: something expires soon (`keys status`) |
| 4 | the gate refused an adapter |
| 5 | no such name, digest or version |
| 6 | contradicts what is recorded |
| 7 | damaged: bytes or links are not what was recorded |
| 8 | something outside is missing: torch, disk space, a lock, a network answer |
| 130 | interrupted |
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import click
from click.exceptions import NoArgsIsHelpError

from console import render
from console.app import colour, json_text
from registry.errors import InputError, PtdockError, Unavailable

INTERRUPTED = 130
USAGE = 2

_AROUND = 30  # characters beside one that is not UTF-8
_FULL = {errno.ENOSPC, errno.EDQUOT}
_EXTRAS = {
    "torch": "export",
    "executorch": "export",
    "torchao": "export",
    "transformers": "export",
    "tokenizers": "export",
    "jinja2": "export",
    "peft": "prove",
}


def report(error: PtdockError, *, as_json: bool) -> int:
    """Say what went wrong on standard error, with `as_json` also as a document on standard output; the exit code."""
    findings = error.values.get("findings")
    if findings:
        batch = "line" in findings[0]  # its message counts the adapters
        refused = render.clean(error.message) if batch else "the adapter was refused"
        _say(f"{render.bad('error')}: {refused}: {_counted(findings)}")
        _say(render.findings([_row(finding) for finding in findings]))
    else:
        _say(f"{render.bad('error')}: {render.clean(error.message)}")
        if "matrix" in error.values:
            _say(_matrix(error.values["matrix"]))
        if error.hint:
            _say(f"{render.dim(' hint')}: {render.clean(error.hint)}")
    if as_json:
        _answer(document(error))
    return error.exit_code


def document(error: PtdockError) -> dict[str, Any]:
    """An error as commands answer it with --json."""
    return _document(error.code, error.message, error.hint, error.values)


def report_usage(error: click.ClickException, *, as_json: bool) -> int:
    """The same for a command line that click could not read; a bare noun is answered with its help."""
    if isinstance(error, NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return error.exit_code
    hint = _usage_hint(error)
    _say(f"{render.bad('error')}: {error.format_message()}")
    if hint:
        _say(f"{render.dim(' hint')}: {hint}")
    if as_json:
        _answer(_document("UsageError", error.format_message(), hint, {}))
    return error.exit_code


def report_interrupt(*, as_json: bool) -> int:
    """The same for Ctrl-C; what was half done left nothing visible."""
    _say("interrupted")
    if as_json:
        _answer(_document("Interrupted", "interrupted", "", {}))
    return INTERRUPTED


def translated(error: OSError | ModuleNotFoundError | UnicodeEncodeError) -> PtdockError | None:
    """The system's refusals and missing extras in ptdock's words; None for what is neither."""
    if isinstance(error, ModuleNotFoundError):
        return _missing(error)
    if isinstance(error, UnicodeEncodeError):
        text = error.object[max(0, error.start - _AROUND) : error.end + _AROUND]  # of a document that holds it
        return InputError(f"{text!a} is not UTF-8, so it cannot be recorded", hint="write it, or rename it, in UTF-8")
    where = f"{error.filename}: " if error.filename else ""
    if error.errno in _FULL:
        return Unavailable(f"{where}no space left", hint="free some space, then repeat the command")
    if error.errno is None:
        return None
    return Unavailable(f"{where}{error.strerror}", hint="check the path, its owner and the mount")


def _missing(error: ModuleNotFoundError) -> PtdockError | None:
    package = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(package)
    if extra is None:
        return None
    return Unavailable(f"this needs {package}, which is not installed", hint=f"pip install 'ptdock[{extra}]'")


def _usage_hint(error: click.ClickException) -> str:
    if isinstance(error, click.NoSuchOption) and error.option_name == "--home":
        return "write it before the command: ptdock --home DIR …"
    if isinstance(error, click.UsageError) and error.ctx is not None:
        if isinstance(error, click.NoSuchOption) and not error.option_name.startswith("--"):
            return f"write -- before a value that begins with -; or {error.ctx.command_path} --help"
        return f"{error.ctx.command_path} --help"
    return ""


def _counted(findings: Sequence[Mapping[str, Any]]) -> str:
    counts = {level: sum(finding["level"] == level for finding in findings) for level in ("error", "warning", "note")}
    return ", ".join(render.plural(count, level) for level, count in counts.items() if count)


def _row(finding: Mapping[str, Any]) -> tuple[str, str, str, str]:
    return finding["level"], finding["subject"], finding["message"], finding["hint"]


def _matrix(rows: Mapping[str, Mapping[str, bool]]) -> str:
    """Which version has a build on which foundation."""
    refs = sorted({ref for row in rows.values() for ref in row})
    cells = [(foundation, *("yes" if row.get(ref) else "no" for ref in refs)) for foundation, row in rows.items()]
    return render.table(("foundation", *refs), cells)


def _say(text: str) -> None:
    click.echo(text, file=sys.stderr, color=colour())


def _answer(error: Mapping[str, Any]) -> None:
    """The document on standard output, where that can be written: what went wrong may be just that."""
    with suppress(OSError):
        click.echo(json_text(error))


def _document(code: str, message: str, hint: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "hint": hint, "values": values}}
