"""The names of foundations, adapters and channels, and the versions of adapters; checked before any path is built."""

from __future__ import annotations

import re

from semver import Version

from registry.errors import InputError

NAME_PATTERN = r"[a-z0-9][a-z0-9._-]{0,63}"
_NAME = re.compile(NAME_PATTERN, re.ASCII)
_VERSION_CHARACTERS = 255  # as the database has it


def check_name(name: str, *, what: str) -> str:
    """Return `name` if it is one; `what` says of what (`adapter`, `channel`, …). Raises InputError."""
    if not _NAME.fullmatch(name) or name.endswith("."):
        raise InputError(
            f"{name!r} is not a usable {what} name",
            hint="1 to 64 of a-z 0-9 . _ -, starting with a letter or digit, not ending in a dot",
        )
    return name


def check_version(text: str) -> Version:
    """Parse a SemVer 2 version such as 1.0.0 or 2.1.0-rc.1, of at most 255 characters. Raises InputError."""
    if len(text) > _VERSION_CHARACTERS:
        raise InputError(
            f"a version has at most {_VERSION_CHARACTERS} characters, not {len(text)}", hint="keep notes in --meta"
        )
    try:
        return Version.parse(text)
    except (ValueError, TypeError):
        raise InputError(f"{text!r} is not a version", hint="versions are SemVer 2, such as 1.0.0") from None


def parse_reference(text: str) -> tuple[str, str]:
    """Split `NAME@VERSION` and check both. Raises InputError."""
    name, at, version = text.partition("@")
    if not at:
        raise InputError(f"{text!r} names no version", hint=f"write {text}@1.0.0")
    return check_name(name, what="adapter"), str(check_version(version))
