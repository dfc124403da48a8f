"""Typed access to a transformers `config.json`: a value of the wrong kind is an error that names its field. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from registry.errors import InputError


class Config:
    """A parsed config. Absent and null are the same, except where a method says otherwise."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._raw = raw

    def get(self, field: str) -> Any:
        """The value, None where it is absent or null."""
        return self._raw.get(field)

    def count(self, field: str, default: int | None = None) -> int:
        """A positive integer. Raises InputError."""
        value = self.get(field)
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.refused(field, ["a positive integer"])
        return value

    def optional_count(self, field: str) -> int | None:
        """A positive integer or None. Raises InputError."""
        return None if self.get(field) is None else self.count(field)

    def number(self, field: str, default: float) -> float:
        """A positive number. Raises InputError."""
        value = self.get(field)
        if value is None:
            return default
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < math.inf:
            raise self.refused(field, ["a positive number"])
        return float(value)

    def optional_number(self, field: str) -> float | None:
        """A positive number or None. Raises InputError."""
        return None if self.get(field) is None else self.number(field, 1.0)

    def needed_number(self, field: str, kind: str) -> float:
        """A positive number that a rope of this kind cannot do without. Raises InputError."""
        self._needed(field, kind)
        return self.number(field, 1.0)

    def numbers(self, field: str, length: int, kind: str) -> list[float]:
        """So many positive numbers, which a rope of this kind cannot do without. Raises InputError."""
        values = self._needed(field, kind)
        if not isinstance(values, list) or len(values) != length:
            raise self.refused(field, [f"a list of {length} numbers"])
        return [Config({field: value}).number(field, 1.0) for value in values]

    def _needed(self, field: str, kind: str) -> Any:
        value = self.get(field)
        if value is None:
            raise InputError(f"config.json: rope type {kind!r} needs {field!r}", field="rope_parameters")
        return value

    def table(self, field: str) -> Mapping[str, Any]:
        """An object, an empty one where it is absent or null. Raises InputError."""
        value = self.get(field) or {}
        if not isinstance(value, dict):
            raise self.refused(field, ["an object"])
        return value

    def flag(self, field: str, *, default: bool = False) -> bool:
        """True or false. Raises InputError."""
        value = self.get(field)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refused(field, ["true", "false"])
        return value

    def require(self, field: str, *accepted: Any) -> None:
        """Raise InputError unless the field has one of the accepted values."""
        value = self.get(field)
        if not any(value is entry or (value == entry and type(value) is type(entry)) for entry in accepted):
            raise self.refused(field, accepted)

    def refused(self, field: str, accepted: Iterable[Any], actual: Any = None) -> InputError:
        """The error for a field whose value (or a part of it, `actual`) is not one of those accepted."""
        value = self.get(field) if actual is None else actual
        return InputError(
            f"config.json: {field!r} = {value!r} is not supported",
            hint="accepted: " + ", ".join(str(entry) for entry in accepted),
            field=field,
            actual=value,
        )
