"""PEFT's name matching, and regular expressions from outside with their cost bounded. Pure.

Sources: `get_pattern_key` and `match_target_against_key` in peft/utils/other.py, `check_target_module_exists` in
peft/tuners/tuners_utils.py (PEFT 0.21.2).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from registry.errors import FormatError

MAX_LENGTH = 20_000
MAX_OPEN_ENDED = 8
_CLASS = r"\[\^?\]?(?:\\.|[^\]\\])*\]"
_TOKEN = re.compile(rf"\\.|{_CLASS}|\((?:\?[^)]?)?|\{{\d+,?\d*\}}|\{{,\d*\}}|.", re.DOTALL)


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile an expression from an adapter's config. Raises FormatError.

    Refused are those that could run for hours on a short name: a repeated group that itself can vary, and more than
    MAX_OPEN_ENDED open-ended repetitions in one alternative.
    """
    if len(pattern) > MAX_LENGTH:
        raise FormatError(f"an expression of {len(pattern)} characters, at most {MAX_LENGTH} are read")
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise FormatError(f"not a regular expression: {error}") from None
    if compiled.flags & re.VERBOSE:
        raise FormatError("the flag (?x) is not read")
    if _open_ended(pattern) > MAX_OPEN_ENDED:
        raise FormatError(f"more than {MAX_OPEN_ENDED} open-ended repetitions in one alternative")
    return compiled


@dataclass(slots=True)
class _Group:
    """A group while it is read: open-ended repetitions in this alternative and in the worst one before."""

    now: int = 0
    worst: int = 0
    varies: bool = False

    @property
    def most(self) -> int:
        return max(self.now, self.worst)


def _open_ended(pattern: str) -> int:
    """The most open-ended repetitions that one alternative of a valid expression can meet."""
    stack, closed = [_Group()], None
    for item in _TOKEN.findall(pattern):
        if item == ")":
            closed = stack.pop()
            stack[-1].now += closed.most
            stack[-1].varies |= closed.varies
            continue
        if item.startswith("("):
            stack.append(_Group())
        else:
            _read(item, stack[-1], closed)
        closed = None
    return stack[0].most


def _read(item: str, group: _Group, closed: _Group | None) -> None:
    if item == "|":
        group.now, group.worst, group.varies = 0, group.most, True
    elif item == "?":
        group.varies = True
    elif item in ("*", "+") or (item.startswith("{") and len(item) > 1):
        if closed is not None and closed.varies:
            raise FormatError("a repeated group that itself can vary takes too long to match")
        group.now += item in ("*", "+") or item.endswith(",}")
        group.varies = True


def key_expression(key: str) -> str:
    """The expression that a key of `rank_pattern` or `alpha_pattern` stands for."""
    return rf"(.*\.)?({key})$"


def layer_expression(pattern: str) -> str:
    """The expression that finds a layer's `index` behind a name of `layers_pattern`."""
    return rf"(?:^|.*?\.){pattern}\.(?P<index>\d+)\."


def resolve(table: Iterable[str], name: str) -> str | None:
    """The first pattern key, in the table's order, that means the module `name`; None when none does."""
    for key in table:
        if compile_pattern(key_expression(key)).match(name):
            return key
    return None
