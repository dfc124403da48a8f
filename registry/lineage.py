"""Where an adapter comes from: a small JSON object that stays with a version. Pure.

| key | is |
|---|---|
| `run` | the training run's URL |
| `code` | the commit of the code that trained |
| `data` | the datasets: a list of {"name", "digest", …}, an object of digests by name, or a text |
| `base` | where the base came from: {"repository", "revision"} |
| `licence` | what the adapter may be used for, best as an SPDX identifier |
| `figures` | what was measured: an object of numbers by name |
| `owner` | who answers for it |

Any other key is kept as it is. A dotted key names a member of an object: `base.revision`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from registry import canonical
from registry.errors import FormatError

MAX_BYTES = 1 << 16
"""Of the canonical document."""
MAX_DEPTH = 8
MAX_KEY = 128
KEYS = ("run", "code", "data", "base", "licence", "figures", "owner")

_DIGEST = re.compile(r"[a-z0-9]+:[0-9a-f]{32,128}", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
_HINT = "ptdock's lineage keys: " + ", ".join(KEYS) + "; others are free"


def check(lineage: Mapping[str, Any], *, what: str = "lineage") -> None:
    """Raise FormatError for a well-known key that is not what it must be, and for more than fits; `what` names it."""
    if _is_deep(lineage):
        raise FormatError(f"{what}: objects stand more than {MAX_DEPTH} deep")
    for path, _ in _leaves(lineage):
        for key in path:
            if not 0 < len(key) <= MAX_KEY:
                raise FormatError(f"{what}: a key has 1 to {MAX_KEY} characters, not {len(key)}")
    try:
        size = len(canonical.dumps(lineage))
    except UnicodeEncodeError:
        raise FormatError(f"{what}: a text is not UTF-8") from None
    except ValueError as error:  # NaN, infinity
        raise FormatError(f"{what}: {error}") from None
    if size > MAX_BYTES:
        raise FormatError(
            f"{what}: {size} bytes, at most {MAX_BYTES} are kept",
            hint="keep the rest beside the adapter, as an attachment",
            expected=MAX_BYTES,
            actual=size,
        )
    for key, accepts, words in (
        *((key, _is_text, "a text") for key in ("run", "code", "licence", "owner")),
        ("data", _is_data, "a text, a list of datasets (texts, or objects whose digest is one), or digests by name"),
        ("base", _is_base, "a text, or an object of texts such as repository and revision"),
        ("figures", _is_figures, "an object of finite numbers by name"),
    ):
        if key in lineage and not accepts(lineage[key]):
            raise _wrong(what, key, words, lineage[key])


def merged(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """All parts in one, later over earlier; objects are merged key by key, everything else is replaced."""
    result: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            known = result.get(key)
            if isinstance(known, Mapping) and isinstance(value, Mapping):
                result[key] = merged(known, value)
            else:
                result[key] = value
    return result


def pair(text: str) -> dict[str, Any]:
    """What `key=value` says: a text, or under `figures.` a number. Raises FormatError.

    `base.revision=4a1b` is {"base": {"revision": "4a1b"}}.
    """
    key, _, value = text.partition("=")
    path = key.split(".")
    if not all(path):
        raise FormatError(f"{key!r} is no key", hint="write owner=ann, or base.revision=4a1b")
    inner: Any = value
    if path[0] == "figures" and len(path) > 1:
        if not _NUMBER.fullmatch(value):
            raise FormatError(f"{key}: {value!r} is not a number", hint=f"write {key}=0.25")
        inner = float(value)
    for name in reversed(path):
        inner = {name: inner}
    return dict(inner)


def missing(lineage: Mapping[str, Any], required: Iterable[str]) -> tuple[str, ...]:
    """Those of the `required` keys (`owner`, `base.revision`) that are absent or empty, in the order asked for."""
    return tuple(key for key in required if _found(lineage, key) in (None, "", [], {}))


def flat(lineage: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Every value with its dotted key, for people; lists in one line."""
    return [(".".join(path), _shown(value)) for path, value in _leaves(lineage)]


def _found(lineage: Mapping[str, Any], key: str) -> Any:
    if key in lineage:
        return lineage[key]
    value: Any = lineage
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _leaves(value: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, inner in value.items():
        if isinstance(inner, Mapping) and inner:
            yield from _leaves(inner, (*above, key))
        else:
            yield (*above, key), inner


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    if isinstance(value, Mapping):
        return " ".join(map(_shown, value.values()))
    return canonical.dumps(value).decode()


def _is_deep(value: Any) -> bool:
    """Whether objects and lists stand more than MAX_DEPTH deep in one another."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner = (each for outer in level for each in (outer.values() if isinstance(outer, Mapping) else outer))
        level = [each for each in inner if isinstance(each, (Mapping, list))]
    return bool(level)


def _wrong(what: str, key: str, expected: str, actual: Any) -> FormatError:
    message = f"{what}: {key!r} must be {expected}"
    return FormatError(message, hint=_HINT, expected=expected, actual=actual)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_data(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_text, value.values()))
    if isinstance(value, list):
        return all(_is_text(each) or _is_dataset(each) for each in value)
    return _is_text(value)


def _is_dataset(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    digest = value.get("digest")
    return digest is None or (isinstance(digest, str) and _DIGEST.fullmatch(digest) is not None)


def _is_base(value: Any) -> bool:
    return _is_text(value) or (isinstance(value, Mapping) and all(map(_is_text, value.values())))


def _is_figures(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        type(each) is int or (type(each) is float and math.isfinite(each)) for each in value.values()
    )
