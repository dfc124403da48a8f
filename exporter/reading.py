"""Reading JSON documents field by field: each answer has its type, each mistake names the field. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from registry.digest import Digest
from registry.errors import FormatError, InputError


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed JSON value and where it stands; every reader raises FormatError naming the place."""

    value: Any
    where: str

    def part(self, key: str) -> Document:
        """The member `key` of an object. Raises FormatError when it is absent."""
        if not self.has(key):
            raise FormatError(f"{self.where}: {key!r} is missing")
        return Document(self.value[key], f"{self.where}.{key}")

    def has(self, key: str) -> bool:
        """Whether this object has the member `key`. Raises FormatError for anything but an object."""
        return key in _expect(self, dict, "an object")

    def names(self) -> tuple[str, ...]:
        """The member names of an object."""
        return tuple(_expect(self, dict, "an object"))

    def entries(self, key: str, *, optional: bool = False) -> Iterator[tuple[str, Document]]:
        """Name and value of each member of the object at `key`."""
        if optional and not self.has(key):
            return
        table = self.part(key)
        for name in table.names():
            yield name, table.part(name)

    def items(self, key: str, *, optional: bool = False) -> Iterator[Document]:
        """The items of the array at `key`."""
        if optional and not self.has(key):
            return
        array = self.part(key)
        for index, item in enumerate(_expect(array, list, "an array")):
            yield Document(item, f"{array.where}[{index}]")

    def text(self, key: str) -> str:
        """The string at `key`."""
        return str(_expect(self.part(key), str, "a string"))

    def choice(self, key: str, allowed: tuple[str, ...]) -> str:
        """The string at `key`, one of `allowed`."""
        text = self.text(key)
        if text not in allowed:
            raise FormatError(f"{self.where}.{key}: {text!r} is not one of {', '.join(allowed)}")
        return text

    def flag(self, key: str) -> bool:
        """The boolean at `key`."""
        return bool(_expect(self.part(key), bool, "true or false"))

    def count(self, key: str) -> int:
        """The integer >= 0 at `key`."""
        return _count(self.part(key))

    def digest(self, key: str) -> Digest:
        """The digest at `key`."""
        try:
            return Digest.parse(self.text(key))
        except FormatError:
            raise
        except InputError as error:
            raise FormatError(f"{self.where}.{key}: {error.message}", hint=error.hint) from None

    def texts(self) -> tuple[str, ...]:
        """The strings of an array."""
        return tuple(
            str(_expect(Document(item, self.where), str, "a string")) for item in _expect(self, list, "an array")
        )

    def counts(self) -> tuple[int, ...]:
        """The integers >= 0 of an array."""
        return tuple(_count(Document(item, self.where)) for item in _expect(self, list, "an array"))

    def optional_object(self, key: str) -> Document | None:
        """The object at `key`; None when it is absent or null."""
        if not self._present(key):
            return None
        part = self.part(key)
        _expect(part, dict, "an object")
        return part

    def optional_text(self, key: str) -> str | None:
        """The string at `key`; None when it is absent or null."""
        return self.text(key) if self._present(key) else None

    def optional_count(self, key: str) -> int | None:
        """The integer >= 0 at `key`; None when it is absent or null."""
        return self.count(key) if self._present(key) else None

    def optional_digest(self, key: str) -> Digest | None:
        """The digest at `key`; None when it is absent or null."""
        return self.digest(key) if self._present(key) else None

    def schema(self, newest: int) -> None:
        """Check the document's `schema`. Raises FormatError when it is higher than `newest`."""
        found = self.count("schema")
        if not 1 <= found <= newest:
            raise FormatError(
                f"{self.where}: schema {found}, this program reads {newest}", hint="upgrade ptdock", actual=found
            )

    def _present(self, key: str) -> bool:
        return self.has(key) and self.value[key] is not None


def _count(document: Document) -> int:
    number = _expect(document, int, "an integer")
    if isinstance(number, bool) or number < 0:
        raise FormatError(f"{document.where}: expected an integer >= 0, got {number!r}")
    return int(number)


def _expect(document: Document, kind: type, words: str) -> Any:
    if not isinstance(document.value, kind):
        raise FormatError(f"{document.where}: expected {words}, got {type(document.value).__name__}")
    return document.value
