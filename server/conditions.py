"""Which bytes of a file a request gets: HTTP's conditions and ranges, pure.

    judged = judge({"range": "bytes=100-"}, tag='"ab…"', size=4096)     # Judged(206, 100, 4096)

The order is RFC 9110's (13.2.2): If-Match, If-None-Match, then Range with If-Range. Tags are strong, and there is no
Last-Modified, so conditions on dates never hold. One range is served; a request for several gets the whole file, as
the RFC allows (14.2) and object stores do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_TAGS = re.compile(r'(W/)?"([\x21\x23-\x7e\x80-\xff]*)"')
_RANGE = re.compile(r"bytes=[ \t]*([0-9]{0,20})-([0-9]{0,20})[ \t]*", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Judged:
    """A status (200, 206, 304, 412 or 416), and the bytes from `start` to `stop` that go with it."""

    status: int
    start: int = 0
    stop: int = 0


def judge(headers: Mapping[str, str], tag: str, size: int) -> Judged:
    """What a GET or HEAD with these headers (names in lower case) gets of a file of `size` bytes; `tag` in quotes."""
    if "if-match" in headers and not _matches(headers["if-match"], tag, strong=True):
        return Judged(412)
    if "if-none-match" in headers and _matches(headers["if-none-match"], tag, strong=False):
        return Judged(304)
    if "range" in headers and headers.get("if-range", tag) == tag:
        return _ranged(headers["range"], size)
    return Judged(200, 0, size)


def _matches(field: str, tag: str, *, strong: bool) -> bool:
    if field.strip() == "*":
        return True
    return any(f'"{value}"' == tag and not (strong and weak) for weak, value in _TAGS.findall(field))


def _ranged(field: str, size: int) -> Judged:
    """The one range that is asked for; the whole file where it is none, or not one."""
    match = _RANGE.fullmatch(field.strip())
    if match is None or not (match[1] or match[2]):
        return Judged(200, 0, size)
    if match[1]:
        start, last = int(match[1]), int(match[2] or size)
        if match[2] and last < start:  # not a range at all (14.1.1)
            return Judged(200, 0, size)
    else:
        start, last = max(0, size - int(match[2])), size
    stop = min(last + 1, size)
    return Judged(206, start, stop) if start < stop else Judged(416)
