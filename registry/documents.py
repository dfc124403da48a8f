"""Reads the JSON documents that devices and registries exchange, field by field and strictly.

Every refusal is a FormatError that names the document and the path of the field. The compatibility rule of
all documents lives here once (`opened`): a higher `schema`, or a name in `critical` that the reader does not
know, means "upgrade ptdock"; every other unknown field is ignored. Names in `critical` are field names at any
depth, so a writer never gives a new meaning to a name that the document already uses. An optional field is
absent, never null.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeVar

from registry import canonical, names
from registry.digest import Descriptor, Digest
from registry.errors import FormatError, InputError

T = TypeVar("T")

SCHEMA = 1
MAX_INTEGER = (1 << 63) - 1  # what Kotlin's Long, Swift's Int64 and SQL's BIGINT hold
_UPGRADE = "this document is for a newer ptdock: upgrade ptdock"
_PLAIN = re.compile(r"[^\x00-\x1f\x7f-\x9f]{1,256}")


def opened(data: bytes, *, what: str, known: str, limit: int) -> Fields:
    """The document's top object, after the checks that every reader makes.

    `known` lists the field names that the reader understands, at any depth, with spaces between; `limit` is the
    largest size in bytes. Raises FormatError.
    """
    if len(data) > limit:
        raise FormatError(
            f"{what}: {len(data)} bytes, but at most {limit} are allowed", expected=limit, actual=len(data)
        )
    fields = Fields(canonical.loads(data, what=what), what)
    schema = fields.integer("schema", low=1)
    if schema > SCHEMA:
        raise FormatError(f"{what}: schema {schema}, but this ptdock reads {SCHEMA}", hint=_UPGRADE, actual=schema)
    unknown = sorted(set(fields.texts("critical", default=())) - set(known.split()))
    if unknown:
        raise FormatError(f"{what}: 'critical' names {unknown[0]!r}, which this ptdock does not know", hint=_UPGRADE)
    return fields


class Fields:
    """One JSON object and its path in the document. Each method answers one field or raises FormatError."""

    __slots__ = ("_values", "path")

    def __init__(self, value: Any, path: str) -> None:
        if not isinstance(value, dict):
            raise FormatError(f"{path}: expected an object, got {_kind(value)}")
        self._values: dict[str, Any] = value
        self.path = path

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def keys(self) -> list[str]:
        """The object's keys, in the document's order."""
        return list(self._values)

    def refuse(self, name: str, expected: str) -> FormatError:
        """The error for a field that is not what was expected."""
        if name not in self._values:
            return FormatError(f"{self.path}: {name!r} is missing", expected=expected)
        actual = _shown(self._values[name])
        return FormatError(f"{self.path}.{name}: expected {expected}, got {actual}", expected=expected, actual=actual)

    def get(self, name: str) -> Any:
        """The raw value. Raises FormatError if it is absent."""
        if name not in self._values:
            raise self.refuse(name, "a value")
        return self._values[name]

    def integer(self, name: str, *, low: int = 0, high: int = MAX_INTEGER) -> int:
        """An integer within bounds; true and 1.0 are not integers."""
        value = self._values.get(name)
        if type(value) is not int or not low <= value <= high:
            raise self.refuse(name, f"an integer from {low}" + ("" if high == MAX_INTEGER else f" to {high}"))
        return value

    def number(self, name: str) -> float:
        """A number that a double holds; true is not one."""
        value = self._values.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > sys.float_info.max:
            raise self.refuse(name, "a number")
        return float(value)

    def flag(self, name: str, *, default: bool) -> bool:
        """A boolean; `default` when absent."""
        value = self._values.get(name, default)
        if not isinstance(value, bool):
            raise self.refuse(name, "true or false")
        return value

    def text(self, name: str) -> str:
        """Any text."""
        value = self._values.get(name)
        if not isinstance(value, str):
            raise self.refuse(name, "a text")
        return value

    def label(self, name: str) -> str:
        """A text of 1 to 256 characters without control characters: fit for a terminal and a log."""
        value = self._values.get(name)
        if not isinstance(value, str) or not _PLAIN.fullmatch(value):
            raise self.refuse(name, "a text of 1 to 256 printable characters")
        return value

    def choice(self, name: str, allowed: Collection[str]) -> str:
        """One of a few words."""
        value = self._values.get(name)
        if not isinstance(value, str) or value not in allowed:
            raise self.refuse(name, " or ".join(repr(word) for word in allowed))
        return value

    def matching(self, name: str, pattern: re.Pattern[str], expected: str) -> str:
        """A text of a given shape; `expected` says which, for the message."""
        value = self._values.get(name)
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise self.refuse(name, expected)
        return value

    def name(self, name: str, *, what: str) -> str:
        """The name of an adapter, channel or foundation (registry.names)."""
        return self._checked(name, lambda text: names.check_name(text, what=what))

    def version(self, name: str) -> str:
        """A SemVer 2 version."""
        return self._checked(name, lambda text: str(names.check_version(text)))

    def digest(self, name: str) -> Digest:
        """A digest, `sha256:<64 hex>`."""
        return self._checked(name, Digest.parse)

    def descriptor(self, name: str) -> Descriptor:
        """{"digest", "size"}: where immutable bytes are, and how many."""
        return descriptor(self.object(name))

    def object(self, name: str) -> Fields:
        """A nested object."""
        return Fields(self.get(name), f"{self.path}.{name}")

    def objects(self, name: str) -> Iterator[Fields]:
        """The objects of a list, in order."""
        for index, value in enumerate(self.items(name)):
            yield Fields(value, f"{self.path}.{name}[{index}]")

    def items(self, name: str) -> list[Any]:
        """The raw values of a list."""
        value = self._values.get(name)
        if not isinstance(value, list):
            raise self.refuse(name, "a list")
        return value

    def texts(self, name: str, *, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """A list of labels; `default` when absent."""
        if default is not None and name not in self._values:
            return default
        return tuple(Fields({str(i): value}, f"{self.path}.{name}").label(str(i)) for i, value in self._numbered(name))

    def digests(self, name: str) -> tuple[Digest, ...]:
        """A list of digests."""
        return tuple(Fields({str(i): value}, f"{self.path}.{name}").digest(str(i)) for i, value in self._numbered(name))

    def integers(self, name: str) -> tuple[int, ...]:
        """A list of integers from 0."""
        return tuple(
            Fields({str(i): value}, f"{self.path}.{name}").integer(str(i)) for i, value in self._numbered(name)
        )

    def pair(self, name: str) -> tuple[int, int]:
        """Two integers from 0, such as the version [1, 5]."""
        values = self.integers(name)
        if len(values) != 2:
            raise self.refuse(name, "two integers")
        return values[0], values[1]

    def optional(self, name: str, read: Callable[[str], T]) -> T | None:
        """What `read` (a bound method of this object) answers for the field, or None when it is absent."""
        return read(name) if name in self._values else None

    def _numbered(self, name: str) -> Iterator[tuple[int, Any]]:
        return enumerate(self.items(name))

    def _checked(self, name: str, check: Callable[[str], T]) -> T:
        text = self.text(name)
        try:
            return check(text)
        except InputError as error:
            raise FormatError(f"{self.path}.{name}: {error.message}", hint=error.hint, actual=text[:100]) from None


def descriptor(fields: Fields) -> Descriptor:
    """The digest and size of an object that has these two fields, among others or alone."""
    return Descriptor(fields.digest("digest"), fields.integer("size"))


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


def _shown(value: Any) -> str:
    return _kind(value) if isinstance(value, dict | list) else json.dumps(value)[:100]
