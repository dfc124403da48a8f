"""One value, one text: the JSON whose bytes ptdock hashes, and a strict reader for JSON from outside."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import Any

from registry.errors import FormatError

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def dumps(value: Any) -> bytes:
    """Canonical JSON: UTF-8, keys sorted, no white space, no NaN or Infinity."""
    return _ENCODER.encode(value).encode()


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} overflows a double")
    return number


def loads(data: bytes, *, what: str) -> Any:
    """Parse JSON strictly: UTF-8 without BOM, no duplicate keys, no NaN or Infinity, no lone surrogates.

    `what` names the document in the message. Raises FormatError.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) != len(pairs):
            twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
            raise FormatError(f"{what}: the key {twice!r} stands twice")
        return table

    def constant(text: str) -> Any:
        raise FormatError(f"{what}: {text} is not JSON")

    try:
        text = bytes(data).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"{what}: not UTF-8 at byte {error.start}") from None
    if text.startswith("\ufeff"):
        raise FormatError(f"{what}: starts with a byte order mark", hint="save it as UTF-8 without BOM")
    try:
        value = json.loads(text, object_pairs_hook=unique, parse_constant=constant, parse_float=_finite)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
        return value  # noqa: TRY300  the check above belongs to the parse
    except UnicodeEncodeError:  # such a text could be read, but never written
        raise FormatError(f"{what}: a text holds half of a surrogate pair") from None
    except (json.JSONDecodeError, RecursionError) as error:
        raise FormatError(f"{what}: not JSON: {error}") from None
    except ValueError as error:  # an integer of more than 4300 digits
        raise FormatError(f"{what}: {error}") from None
