"""What a channel is set to: how long its manifests live, and what it demands of the releases that it offers.

poll_seconds, lifetime_seconds   how often a device should ask, how long a manifest is good
require_proof                    every build is proven (registry.proving)
require_lineage                  every version's lineage has these keys
min_coverage_bp                  a release whose poorest line holds a smaller share of its adapters is not widened
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from registry.errors import InputError
from registry.manifest import WHOLE

DEFAULTS: Mapping[str, Any] = {"poll_seconds": 4 * 3600, "lifetime_seconds": 30 * 86400}
IN_MANIFEST = frozenset(DEFAULTS)
_MAX_SECONDS = 10 * 365 * 86400


def checked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A channel's settings with the defaults filled in. Raises InputError for unknown or impossible ones."""
    unknown = sorted(set(settings) - set(_CHECKS))
    if unknown:
        raise InputError(f"unknown channel setting {unknown[0]!r}", hint=f"settings: {', '.join(_CHECKS)}")
    for name, value in settings.items():
        fits, expected = _CHECKS[name]
        if not fits(value):
            raise InputError(f"{name} is {expected}, not {value!r}")
    return {**DEFAULTS, **settings}


def changed(before: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with changes; None puts a setting back to its default. Raises InputError as `checked`."""
    kept = {name: value for name, value in {**before, **changes}.items() if value is not None}
    return checked(kept)


def _seconds(value: Any) -> bool:
    return type(value) is int and 1 <= value <= _MAX_SECONDS


def _flag(value: Any) -> bool:
    return type(value) is bool


def _keys(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(key, str) and key for key in value)


def _share(value: Any) -> bool:
    return type(value) is int and 0 <= value <= WHOLE


_CHECKS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "poll_seconds": (_seconds, "a whole number of seconds from 1 to ten years"),
    "lifetime_seconds": (_seconds, "a whole number of seconds from 1 to ten years"),
    "require_proof": (_flag, "true or false"),
    "require_lineage": (_keys, "a list of keys"),
    "min_coverage_bp": (_share, "0 to 10000 basis points"),
}
