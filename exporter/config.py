"""Typed access to a transformers `config.json`: a value of the wrong kind is an error that names its field. Pure."""

from __future__ import annotations

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
        if not isinstance(value, (int, float)) or isinstance(value, bool) or value <= 0:
            raise self.refused(field, ["a positive number"])
        return float(value)

    def optional_number(self, field: str, absent: float | None = None) -> float | None:
        """A positive number, None where it is null, `absent` where the field is not there. Raises InputError."""
        if field not in self._raw:
            return absent
        return None if self.get(field) is None else self.number(field, 1.0)

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
