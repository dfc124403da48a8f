"""Text for people: sizes, times, tables, bars. Pure; colours are ANSI codes that click removes off a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Sequence

import click

_UNITS = ("kB", "MB", "GB", "TB", "PB")
_FEW = 2  # names in a table's cell


def size(count: int) -> str:
    """Bytes in decimal units, as networks and disks count: 538112345 is `538.1 MB`."""
    if count < 1000:
        return f"{count} B"
    value = count / 1000
    for unit in _UNITS:
        if value < 999.95 or unit == _UNITS[-1]:
            break
        value /= 1000
    return f"{value:.1f} {unit}"


def seconds(value: float) -> str:
    """A duration: `12 ms`, `3.4 s`, `2 min 13 s`."""
    if value < 0.9995:
        return f"{value * 1000:.0f} ms"
    if value < 99.95:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest:02d} s"


def when(at: str) -> str:
    """A recorded time (ISO 8601, UTC) to the second."""
    return at[:19].replace("T", " ")


def plural(count: int, noun: str) -> str:
    """`1 adapter`, `2 adapters`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def several(names: Sequence[str]) -> str:
    """A few names, and how many more there are."""
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return ", ".join(names[:_FEW]) + more


def clean(text: object) -> str:
    """One line without control characters: names out of files must not steer a terminal."""
    return "".join(
        character if unicodedata.category(character)[0] != "C" else f"\\u{{{ord(character):x}}}"
        for character in str(text)
    )


def table(header: Sequence[str], rows: Iterable[Sequence[object]], right: Collection[int] = ()) -> str:
    """Aligned columns under a dim header; the columns in `right` are flush right. Empty without rows."""
    cells = [[clean(cell) for cell in row] for row in rows]
    if not cells:
        return ""
    widths = [max(len(row[index]) for row in [list(header), *cells]) for index in range(len(header))]
    lines = [_line(row, widths, right) for row in [header, *cells]]
    return "\n".join([dim(lines[0]), *lines[1:]])


def _line(cells: Sequence[str], widths: Sequence[int], right: Collection[int]) -> str:
    padded = [
        cell.rjust(width) if index in right else cell.ljust(width)
        for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()


def fields(pairs: Iterable[tuple[str, object]]) -> str:
    """Names and values, one pair a line, the values aligned; None and empty values are left out."""
    kept = [(name, value) for name, value in pairs if value not in (None, "", (), [])]
    width = max((len(name) for name, _ in kept), default=0)
    return "\n".join(f"{dim(name.ljust(width))}  {clean(value)}" for name, value in kept)


def bar(part: float, width: int = 24) -> str:
    """A bar for a share of 0 to 1."""
    full = round(part * width)
    return "█" * full + "░" * (width - full)


def bold(text: str) -> str:
    """What the eye should find first."""
    return click.style(text, bold=True)


def dim(text: str) -> str:
    """Labels."""
    return click.style(text, dim=True) if text else text


def good(text: str) -> str:
    """Done, sound, present."""
    return click.style(text, fg="green")


def bad(text: str) -> str:
    """Refused, damaged, lost."""
    return click.style(text, fg="red", bold=True)


def doubtful(text: str) -> str:
    """Works, but look at it."""
    return click.style(text, fg="yellow")


LEVELS = {"error": bad, "warning": doubtful, "note": dim}


ALIKE = 3


def findings(rows: Sequence[tuple[str, str, str, str]]) -> str:
    """Findings, one a line: level, subject, message, and what to do; levels and subjects are aligned.

    Of many that say the same of other subjects the first few are shown, and how many more there are.
    """
    told = [
        (level, clean(subject), _without(clean(message), clean(subject)), hint)
        for level, subject, message, hint in rows
    ]
    alike: dict[tuple[str, str, str], list[str]] = {}
    for level, subject, message, hint in told:
        alike.setdefault((level, message, hint), []).append(subject)
    shown = {key: subjects if len(subjects) <= ALIKE + 1 else subjects[:ALIKE] for key, subjects in alike.items()}
    width = max((len(subject) for subjects in shown.values() for subject in subjects), default=0)
    lines = []
    for (level, message, hint), subjects in shown.items():
        advice = f"  → {clean(hint)}" if hint else ""
        name = LEVELS.get(level, dim)(level.ljust(7))
        lines += [f"{name}  {subject.ljust(width)}  {message}{dim(advice)}" for subject in subjects]
        if more := len(alike[level, message, hint]) - len(subjects):
            lines.append(dim(f"{'':7}  … and {more} more say the same; --json has them all"))
    return "\n".join(lines)


def _without(message: str, subject: str) -> str:
    """The message, without the subject that stands before it on the line."""
    return message.removesuffix(f" for {subject}").removeprefix(f"{subject}: ") if subject else message
