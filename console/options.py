"""Parameter types and options that several commands share."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import click

from registry import canonical, lineage
from registry.digest import Digest
from registry.documents import MAX_INTEGER
from registry.errors import FormatError, InputError

FC = TypeVar("FC", bound="Callable[..., Any] | click.Command")
PATH = click.Path(path_type=Path)

_SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,2})?) ?%", re.ASCII)
_DURATION = re.compile(r"([1-9][0-9]{0,7})([smhd]?)", re.ASCII)
_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,3})?) ?([kKMGT]?i?B?)", re.ASCII)
_SIZES = {"": 1, "b": 1} | {
    f"{letter}{binary}{unit}": (1024 if binary else 1000) ** power
    for power, letter in enumerate("kmgt", start=1)
    for binary in ("", "i")
    for unit in ("", "b")
}
DEVICE_HINT = "give a device's state, such as `ptdock device describe` prints; - reads standard input"
_PAIR = re.compile(r"[^=/\\]+=")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class WholeNumber(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4 only
    """A whole number from `least` up to what documents can hold, a bound that help need not tell."""

    name = "integer"

    def __init__(self, least: int) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; a usage error for anything else."""
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is not a whole number", param, ctx)
        if number < self._least:
            self.fail(f"{number} is less than {self._least}", param, ctx)
        if number > MAX_INTEGER:
            self.fail(f"{number} is more than {MAX_INTEGER}", param, ctx)
        return number


COUNT = WholeNumber(1)


def share_bp(_context: click.Context, _option: click.Parameter, value: str) -> int:
    """A share of devices such as `10%` or `0.25%` in basis points, 1 to 10000; a usage error for anything else."""
    points = _points(value)
    if not 1 <= points <= 10_000:
        raise click.BadParameter(f"{value!r} is not a share: write 10% or 0.25%, up to 100%")
    return points


def any_share_bp(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """As `share_bp`, where 0% is a share too, and nothing may be said."""
    if value is None:
        return None
    points = _points(value)
    if not 0 <= points <= 10_000:
        raise click.BadParameter(f"{value!r} is not a share: write 0%, 10% or 0.25%, up to 100%")
    return points


def _points(value: str) -> int:
    """Basis points; -1 for what is no percentage."""
    match = _SHARE.fullmatch(value)
    return int(Decimal(match[1]) * 100) if match else -1


def digest(_context: click.Context, _option: click.Parameter, value: str | None) -> Digest | None:
    """A digest such as `sha256:…`; a usage error for anything else."""
    if value is None:
        return None
    try:
        return Digest.parse(value)
    except InputError as error:
        raise click.BadParameter(f"{error.message}; {error.hint}") from None


def byte_count(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """A size such as `1500000000`, `1.5GB` or `512MiB` in bytes; a usage error for anything else."""
    if value is None:
        return None
    match = _SIZE.fullmatch(value)
    if match is None or not 1 <= int(Decimal(match[1]) * _SIZES[match[2].lower()]) <= MAX_INTEGER:
        raise click.BadParameter(f"{value!r} is not a size: write 1500000000, 1.5GB or 512MiB")
    return int(Decimal(match[1]) * _SIZES[match[2].lower()])


def moment(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """A time such as `2026-05-28` or `2026-05-28T14:30` (UTC) in seconds since 1970; a usage error for others."""
    if value is None:
        return None
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a time: write 2026-05-28, or 2026-05-28T14:30 (UTC)") from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())


def duration(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """A duration such as `90s`, `15m`, `4h` or `30d` in seconds; a usage error for anything else."""
    if value is None:
        return None
    match = _DURATION.fullmatch(value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not a duration: write 90s, 15m, 4h or 30d")
    return int(match[1]) * _UNITS[match[2]]


def span(seconds: int) -> str:
    """A duration as `duration` reads it, in the largest unit that fits: 14400 is `4h`."""
    unit, size = next((unit, size) for unit, size in reversed(_UNITS.items()) if seconds % size == 0)
    return f"{seconds // size}{unit}"


def foundation_option(*, required: bool = True) -> Callable[[FC], FC]:
    """--foundation: a name or a digest."""
    return click.option("--foundation", metavar="NAME", required=required, help="The foundation: a name or its digest.")


def directory_option(help_text: str) -> Callable[[FC], FC]:
    """--dir: a directory that the command reads or writes."""
    directory = click.Path(path_type=Path, file_okay=False)
    return click.option("--dir", "directory", metavar="DIR", type=directory, required=True, help=help_text)


def out_options(command: FC) -> FC:
    """--out and --force: plain files beside the store."""
    directory = click.Path(path_type=Path, file_okay=False)
    out = click.option("--out", metavar="DIR", type=directory, help="Also write plain files: .ptd, .pte, tokenizer.")
    force = click.option("--force", is_flag=True, help="With --out: overwrite files that have other content.")
    return out(force(command))


def read_file(path: Path, *, hint: str) -> bytes:
    """A file that the command line names, `-` for standard input. Raises InputError when there is none."""
    if str(path) == "-":
        return sys.stdin.buffer.read()
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise InputError(f"{path}: no such file", hint=hint) from None


def read_lineage(entries: tuple[str, ...]) -> dict[str, Any]:
    """What --meta says: JSON files with an object, then `key=value` pairs, later ones over earlier ones.

    Raises FormatError for what no lineage can hold (registry.lineage).
    """
    pairs = [entry for entry in entries if _PAIR.match(entry)]
    files = [_read_object(Path(entry)) for entry in entries if entry not in pairs]
    found = lineage.merged(*files, *map(lineage.pair, pairs))
    lineage.check(found, what="--meta")
    return found


def _read_object(path: Path) -> dict[str, Any]:
    document = canonical.loads(read_file(path, hint="write key=value, or a JSON file's path"), what=str(path))
    if not isinstance(document, dict):
        raise FormatError(f"{path}: expected a JSON object, got {type(document).__name__}")
    return document
