"""PEFT's name matching, and regular expressions from outside with their cost bounded.

An expression is tried on all names of the base in a process of its own (`exporter.confined`) before it is used here;
one that has nothing to try, for it can only match or fail at once, is not.

Sources: `get_pattern_key` and `match_target_against_key` in peft/utils/other.py, `check_target_module_exists` in
peft/tuners/tuners_utils.py (PEFT 0.21.2).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache

from exporter.confined import confined
from registry.errors import FormatError

MAX_LENGTH = 20_000
MAX_PATTERNS = 4096
SECONDS = 1
"""Processor time for all expressions of a field on all names of a base."""

_ITEM = r"(?:\\[.\-\\dwsb]|[^\\*+?{}()|\[\]^$])"
_SIMPLE = re.compile(rf"\^?{_ITEM}*(?:{_ITEM}[*+]{_ITEM}*){{0,2}}\$?", re.DOTALL)
_SHORT = 200


def check_patterns(patterns: Collection[str], names: Collection[str], wrap: Callable[[str], str] = str) -> str | None:
    """What is wrong with expressions that shall be matched, each put into `wrap`, against `names`; None for nothing.

    Refused are those that do not compile, and those that take longer than SECONDS together.
    """
    longest = max(map(len, patterns), default=0)
    if longest > MAX_LENGTH:
        return f"an expression of {longest} characters, at most {MAX_LENGTH} are read"
    if len(patterns) > MAX_PATTERNS:
        return f"{len(patterns)} expressions, at most {MAX_PATTERNS} are read"
    doubtful = tuple(wrap(pattern) for pattern in patterns if not _SIMPLE.fullmatch(pattern))
    for pattern in doubtful:
        if len(pattern) <= _SHORT and "(?" not in pattern and (wrong := _compile_error(pattern)):
            return wrong
    return _tried(doubtful, tuple(names)) if doubtful else None


def _compile_error(pattern: str) -> str | None:
    try:
        compile_pattern(pattern)
    except FormatError as error:
        return error.message
    return None


@lru_cache(maxsize=256)
def _tried(patterns: tuple[str, ...], names: tuple[str, ...]) -> str | None:
    answers = confined("match", {"patterns": patterns, "names": names}, seconds=SECONDS)
    wrong = next((answer for answer in answers if answer), None)
    if wrong is None and len(answers) < len(patterns):
        return f"{patterns[len(answers)][:_SHORT]!r} takes too long to match the names of this base"
    return wrong


@lru_cache(maxsize=4 * MAX_PATTERNS)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile an expression that `check_patterns` let pass. Raises FormatError."""
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise FormatError(f"not a regular expression: {error}") from None


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
